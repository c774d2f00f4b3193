"""The simulated driver: built once, with kernels beside it, and run in processes of its own.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from simulated import ROOT, Double, Report, build_double, need  # noqa: E402


@pytest.fixture(scope="session")
def double_folder() -> Path:
    need(shutil.which("cmake"), "cmake is not on the path, so the simulated driver is not built")
    need(shutil.which("g++"), "g++ is not on the path, so the simulated driver is not built")
    folder = ROOT / "build" / "cuda-double"
    build_double(folder)
    return folder


@pytest.fixture
def double(double_folder: Path, tmp_path: Path) -> Double:
    return Double(double_folder, tmp_path / "report.txt")


@pytest.fixture(scope="session")
def library() -> Path:
    """The backend as it is installed."""
    import anyhal

    return Path(anyhal.__file__).parent / "backends" / "cuda" / "libanyhal_cuda.so"


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that calls the backend's table."""
    need(shutil.which("g++"), "g++ is not on the path, so the table's caller cannot be built")
    program = tmp_path_factory.mktemp("table") / "table_driver"
    command = ["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}"]
    source = Path(__file__).with_name("table_driver.cc")
    done = subprocess.run(
        [*command, str(source), "-o", str(program), "-ldl", "-lpthread"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return program


Run = Callable[..., Report]


@pytest.fixture
def scenario(double: Double, table: Path, library: Path) -> Run:
    """Runs one scenario of table_driver; its report. Nothing may be left or broken at its end."""

    def run(
        name: str, *arguments: str, script: str = "", clean: bool = True, **more: str
    ) -> Report:
        command = (str(table), str(library), name, *arguments)
        done = double.run(*command, script=script, timeout=60, **more)
        assert done.returncode == 0, f"{name} {script}: {done.stdout}{done.stderr}"
        report = double.report()
        assert report.violations == [], (name, script)
        if clean:
            assert not any(report.left.values()), (name, script, report.left)
        return report

    return run


_out_of_sight: dict[str, Any] = {}  # one instance serves all modules: plans are kept by its name


@pytest.fixture(scope="module")
def simulated(double_folder: Path) -> Iterator[Any]:
    """A device of the double in this process, under hostile timing; out of sight afterwards."""
    import anyhal as hal
    from anyhal.runtime import device

    os.environ.setdefault("CUDA_DOUBLE", "seed=11; devices=sm_90,sm_80")
    name = "cudasim"
    if not _out_of_sight:
        hal.load_backend("cuda", instance=name, settings={"driver": str(double_folder)})
    assert device._state is not None
    device._state.devices.update(_out_of_sight)
    yield hal.device(f"{name}:0")
    driver = ctypes.CDLL(str(double_folder / "libcuda.so.1"))
    driver.cuda_double_report.restype = ctypes.c_char_p
    broken = Report.read(driver.cuda_double_report().decode()).violations
    assert broken == [], broken
    for one in [d for d in device._state.devices if d.startswith(f"{name}:")]:
        _out_of_sight[one] = device._state.devices.pop(one)
