"""What is missing is named, and nothing else suffers.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import cuda_bundle
import pytest
from simulated import Double, need

LIST = (
    "from anyhal_command import main; import sys\n"
    "sys.argv = ['anyhal', 'devices', '--json']; main()"
)
TABLE = LIST.replace(", '--json'", "")
CPU = "import anyhal as hal; print(hal.ones((2,), device='cpu:0').numpy()[1])"


def devices(double: Double, script: str = "", **more: str) -> dict[str, list[dict[str, str]]]:
    done = double.run(sys.executable, "-c", LIST, script=script, **more)
    assert done.returncode == 0, done.stderr
    document: dict[str, list[dict[str, str]]] = json.loads(done.stdout)
    return document


def table(double: Double, script: str = "", **more: str) -> str:
    """What `anyhal devices` prints, on a wide terminal."""
    done = double.run(sys.executable, "-c", TABLE, script=script, COLUMNS="400", **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def why_cuda_is_absent(document: dict[str, list[dict[str, str]]]) -> str:
    here = {d["backend"] for d in document["devices"]}
    assert {"cpu", "cpu_ref", "dayone"} <= here and "cuda" not in here
    (row,) = [r for r in document["refused"] if r["name"] == "cuda"]
    return row["sentence"]


def test_it_is_there_and_says_what_it_is(double: Double) -> None:
    document = devices(double, "devices=sm_90,sm_80; memory=8G")
    rows = [d for d in document["devices"] if d["backend"] == "cuda"]
    assert [(d["name"], d["arch"]) for d in rows] == [("cuda:0", "sm_90"), ("cuda:1", "sm_80")]
    assert len({d["identity"] for d in rows}) == 2 and all(d["identity"] for d in rows)
    assert all(d["simulated"] for d in rows)
    assert not any(d["simulated"] for d in document["devices"] if d["backend"] != "cuda")
    shown = table(double)
    (row,) = [line for line in shown.splitlines() if line.split()[:1] == ["cuda:0"]]
    assert "self-tested, simulated" in row
    assert "not chosen: it is simulated; name it" in row


def test_it_is_there_only_when_asked_for(double: Double) -> None:
    document = devices(double, ANYHAL_CUDA_DRIVER="")
    assert not any(d["simulated"] for d in document["devices"])


def test_the_backend_asks_for_every_setting_that_it_is_given(double: Double) -> None:
    done = double.run(sys.executable, "-c", LIST)
    assert "did not ask for it" not in done.stderr


def test_the_double_keeps_a_log_of_its_calls(double: Double, tmp_path: Path) -> None:
    log = tmp_path / "calls.log"
    code = "import anyhal as hal; (hal.ones((4,), device='cuda:0') + 1).numpy()"
    double.python(code, f"devices=sm_80; log={log}")
    names = [line.split()[0] for line in log.read_text().splitlines()]
    assert names.index("cuInit") < names.index("cuMemcpyAsync") < names.index("cuLaunchKernel")


def test_no_driver(double: Double, tmp_path: Path) -> None:
    document = devices(double, ANYHAL_CUDA_DRIVER=str(tmp_path))
    assert "NVIDIA's driver is not there" in why_cuda_is_absent(document)
    assert "NVIDIA's driver is not there" in table(double, ANYHAL_CUDA_DRIVER=str(tmp_path))


def test_a_library_that_is_no_driver(double: Double) -> None:
    libc = next(Path("/").glob("lib*/**/libc.so.6"))
    document = devices(double, ANYHAL_CUDA_DRIVER=str(libc))
    assert "lacks cuInit" in why_cuda_is_absent(document)


def broken_file(kind: str, place: Path, good: Path) -> None:
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "text":
        place.write_text("this is no library\n")
    else:
        data = good.read_bytes()
        place.write_bytes(data[: int(len(data) * float(kind))])


BROKEN = pytest.mark.parametrize("kind", ["pipe", "folder", "text", "0", "0.02", "0.5", "0.67"])


@BROKEN
def test_a_file_that_is_no_whole_library(double: Double, tmp_path: Path, kind: str) -> None:
    """It is refused by its name before it is opened, and programs for other devices run."""
    file = tmp_path / "libcuda.so.1"
    broken_file(kind, file, double.folder / file.name)
    named = {"ANYHAL_CUDA_DRIVER": str(tmp_path if kind == "folder" else file)}
    assert str(file) in why_cuda_is_absent(devices(double, **named))
    assert double.python(CPU, **named) == "1.0\n"


@BROKEN
def test_a_cublaslt_that_is_no_whole_library(double: Double, partial: Double, kind: str) -> None:
    shutil.copytree(double.folder / "kernels", partial.folder / "kernels")
    file = partial.folder / "libcublasLt.so.12"
    broken_file(kind, file, double.folder / file.name)
    code = "import anyhal as hal; x = hal.ones((3, 3), device='cuda:0'); print((x @ x).numpy()[0])"
    code += "; print(hal.device('cuda:0').notes())"
    assert str(file) in partial.python(code)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("devices=none", "found no device"),
        ("version=11080", "the driver speaks CUDA 11.8, 12.1 is needed"),
        ("fail=cuInit@1+:803", "cuInit answered 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)"),
        ("fail=cuDeviceGetCount@1+:999", "cuDeviceGetCount answered 999"),
    ],
)
def test_why_there_is_none(double: Double, script: str, sentence: str) -> None:
    assert sentence in why_cuda_is_absent(devices(double, script))
    shown = table(double, script)
    assert sentence in shown and "cpu:0" in shown
    assert double.python(CPU, script) == "1.0\n"


def test_a_chip_that_is_too_old_is_listed_and_refuses(double: Double) -> None:
    code = "import anyhal as hal; hal.ones((2,), device='cuda:0') + 1"
    done = double.run(sys.executable, "-c", code, script="devices=sm_75")
    assert done.returncode != 0 and "compute capability 8.0 and it has 7.5" in done.stderr


@pytest.fixture
def partial(double: Double, tmp_path: Path) -> Double:
    """The driver alone, without cuBLASLt and without kernels."""
    folder = tmp_path / "driver"
    folder.mkdir()
    shutil.copy(double.folder / "libcuda.so.1", folder)
    return Double(folder, tmp_path / "report.txt")


def test_without_cublaslt_products_run_on_the_kernel(partial: Double, double: Double) -> None:
    shutil.copytree(double.folder / "kernels", partial.folder / "kernels")
    code = (
        "import anyhal as hal; d = hal.device('cuda:0'); x = hal.ones((3, 3), device='cuda:0')\n"
        "print((x @ x).numpy()[0, 0], d.notes())"
    )
    printed = partial.python(code)
    assert printed.startswith("3.0 cuBLASLt is not used"), printed
    runs = partial.report().runs
    assert runs["anyhal_matmul"] >= 1 and runs["cublasLtMatmul"] == 0
    (row,) = [d for d in devices(partial)["devices"] if d["backend"] == "cuda"]
    assert "cuBLASLt, so unless the system has it products run on a plain kernel" in row["note"]
    assert row["note"] in table(partial)


def test_without_kernels_nothing_runs_and_the_reason_is_told(partial: Double) -> None:
    code = "import anyhal as hal; hal.ones((2,), device='cuda:0') + 1"
    (partial.folder / "kernels").mkdir()  # looked at before what is installed
    done = partial.run(sys.executable, "-c", code, PYTHONPATH=without_nvrtc())
    assert done.returncode != 0 and "its kernels are missing" in done.stderr, done.stderr


@pytest.mark.parametrize("kind", ["pipe", "0.5"])
def test_an_nvrtc_that_is_no_whole_library(
    double: Double, partial: Double, tmp_path: Path, kind: str
) -> None:
    (partial.folder / "kernels").mkdir()
    file = tmp_path / "libnvrtc.so.12"
    broken_file(kind, file, double.folder / "libcuda.so.1")
    given = {"driver": str(partial.folder), "nvrtc": str(file)}
    code = (
        f"import anyhal as hal; hal.load_backend('cuda', instance='o', settings={given!r})\n"
        "print(hal.device('o:0').notes())\n"
    )
    assert str(file) in partial.python(code + CPU)


def test_without_a_bundle_nvrtc_compiles_the_source_in_the_library(partial: Double) -> None:
    need(cuda_bundle.find_nvrtc(), 'NVRTC is not installed; pip install ".[cuda-test]"')
    code = "import anyhal as hal; print((hal.ones((2,), device='cuda:0') + 1).numpy()[1])"
    (partial.folder / "kernels").mkdir()
    assert partial.python(code) == "2.0\n"


def without_nvrtc() -> str:
    """A search path on which no installed package has NVRTC."""
    parts = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(p for p in parts if not (Path(p) / "nvidia").is_dir())


def test_a_forked_child_is_refused(double: Double) -> None:
    """MEM-11: a driver that was started does not survive a fork; the child learns it in words."""
    code = (
        "import os, anyhal as hal\n"
        "x = hal.ones((2,), device='cuda:0').numpy()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        hal.ones((2,), device='cuda:0').numpy(); os._exit(3)\n"
        "    except hal.HalError as why:\n"
        "        print(type(why).__name__, flush=True); os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
    )
    double.python(code)
    assert double.report().violations == []


def test_a_relative_path_is_refused_by_name(double: Double) -> None:
    done = double.run(sys.executable, "-c", LIST, ANYHAL_CUDA_DRIVER="relative/path")
    assert done.returncode != 0 and "ANYHAL_CUDA_DRIVER" in done.stderr
