"""What is missing is one quiet line, what is broken is named; the rest works either way.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from opencl_double import Double, Report

LIST = (
    "from anyhal_command import main; import sys\n"
    "sys.argv = ['anyhal', 'devices', *sys.argv[1:]]; main()"
)
NOTES = "import anyhal as hal; print(hal.device('opencl:0').notes())"


def python(code: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"COLUMNS": "200"} | more,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def row(**more: str) -> dict[str, object]:
    document = json.loads(python(LIST, "--json", **more).stdout)
    assert {d["name"] for d in document["devices"]} >= {"cpu:0", "cpu_ref:0"}
    (found,) = [r for r in document["refused"] if r["name"] == "opencl"]
    return dict(found)


@pytest.fixture
def vendors(opencl: list[str], tmp_path: Path) -> Path:
    """A folder of driver files of its own."""
    folder = tmp_path / "vendors"
    folder.mkdir()
    return folder


def test_plg_06_without_a_platform_it_is_absent(vendors: Path) -> None:
    found = row(OCL_ICD_VENDORS=str(vendors))
    assert found["absent"] is True and "knows no platform" in str(found["sentence"])
    shown = python(LIST, OCL_ICD_VENDORS=str(vendors)).stdout
    (line,) = [part for part in shown.splitlines() if part.startswith("not here: ")]
    assert "opencl (the OpenCL loader knows no platform)" in line
    assert "refused: " not in shown


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("/nowhere/libvendor.so\n", "cannot open shared object file"),
        ("{folder}/text.so\n", "text.so"),
        ("libm.so.6", "it is no OpenCL driver"),
        ("\n", "names no library"),
    ],
)
def test_plg_10_a_driver_file_that_leads_nowhere_is_named(
    opencl: list[str], vendors: Path, content: str, why: str
) -> None:
    (vendors / "text.so").write_text("this is no library\n")
    (vendors / "broken.icd").write_text(content.format(folder=vendors))
    found = row(OCL_ICD_VENDORS=str(vendors))
    assert found["absent"] is False
    assert "broken.icd" in str(found["sentence"]) and why in str(found["sentence"])
    assert "refused: " in python(LIST, OCL_ICD_VENDORS=str(vendors)).stdout


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
CPU = "import anyhal as hal; print(hal.ones((2,), device='cpu:0').numpy()[1])"


def good_library() -> Path:
    import anyhal

    return Path(anyhal.__file__).parent / "libanyhal.so"


@BROKEN
def test_plg_10_a_driver_that_is_no_whole_library_is_refused_before_it_is_opened(
    opencl: list[str], vendors: Path, kind: str
) -> None:
    """dlopen waits for ever at a pipe, and a truncated library kills the process."""
    broken_file(kind, vendors / "libvendor.so", good_library())
    (vendors / "broken.icd").write_text(f"{vendors / 'libvendor.so'}\n")
    found = row(OCL_ICD_VENDORS=str(vendors))
    assert found["absent"] is False
    assert "broken.icd" in str(found["sentence"]) and "libvendor.so" in str(found["sentence"])
    assert python(CPU, OCL_ICD_VENDORS=str(vendors)).stdout == "1.0\n"


@BROKEN
def test_plg_10_a_loader_that_is_no_whole_library_is_refused_before_it_is_opened(
    opencl: list[str], tmp_path: Path, kind: str
) -> None:
    library = tmp_path / "libOpenCL.so.1"
    broken_file(kind, library, good_library())
    code = (
        "import sys, anyhal as hal\n"
        "try: hal.load_backend('opencl', instance='o', settings={'opencl_library': sys.argv[1]})\n"
        "except hal.HalError as why: print(type(why).__name__, why)\n"
    )
    said = python(code + CPU, str(library)).stdout
    assert said.startswith("BackendLoadError") and str(library) in said
    assert said.endswith("1.0\n")


def test_plg_10_a_driver_file_that_is_a_pipe_is_named(opencl: list[str], vendors: Path) -> None:
    os.mkfifo(vendors / "pipe.icd")
    assert "pipe.icd" in str(row(OCL_ICD_VENDORS=str(vendors))["sentence"])


def test_plg_10_a_broken_driver_beside_a_good_one_costs_nothing(
    opencl: list[str], vendors: Path
) -> None:
    here = Path(os.environ.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors"))
    for file in here.glob("*.icd"):
        (vendors / file.name).write_bytes(file.read_bytes())
    (vendors / "aaa.icd").write_text("/nowhere/libvendor.so\n")
    given = {"OCL_ICD_VENDORS": str(vendors)}
    document = json.loads(python(LIST, "--json", **given).stdout)
    assert [d["name"] for d in document["devices"] if d["backend"] == "opencl"] == sorted(opencl)
    assert [r["name"] for r in document["refused"] if r["name"] == "opencl"] == []
    assert "aaa.icd names /nowhere/libvendor.so" in python(NOTES, **given).stdout
    told = python(LIST, ANYHAL_LOG="info", **given).stderr
    assert "anyhal: opencl: info: not used: " in told and "aaa.icd" in told
    assert python(LIST, ANYHAL_LOG="warning", **given).stderr == ""


REFUSED = """
import sys, anyhal as hal
try:
    hal.load_backend("opencl", instance="named", settings={"opencl_library": sys.argv[1]})
    raise SystemExit("it was loaded")
except hal.BackendLoadError as why:
    print(why)
from anyhal.runtime.device import facts
print(hal.add(hal.ones((2,), device="cpu:0"), 1).numpy())
"""


@pytest.mark.parametrize(
    ("library", "why"),
    [("/nowhere/libOpenCL.so.1", "is not there"), ("libm.so.6", "has no clGetPlatformIDs")],
)
def test_a_loader_that_was_named_and_is_none_is_refused(library: str, why: str) -> None:
    printed = python(REFUSED, library).stdout
    assert why in printed and "[2. 2.]" in printed


def test_a_platform_that_fails_is_named_and_others_are_used(
    opencl: list[str], double: Double
) -> None:
    """The first call for the devices of a platform is refused; the other platforms have theirs."""
    code = (
        "import sys, anyhal as hal\n"
        "try:\n"
        "    given = {'opencl_library': sys.argv[1]}\n"
        "    made = hal.load_backend('opencl', instance='some', settings=given)\n"
        "    print(len(made), made[0].notes())\n"
        "except hal.BackendLoadError as why:\n"
        "    print(0, why)\n"
    )
    printed = python(code, double.path, OPENCL_DOUBLE="fail=clGetDeviceIDs@1:-6").stdout
    assert printed.startswith(f"{len(opencl) - 1} ") and "OUT_OF_HOST_MEMORY" in printed


def test_mem_11_listing_devices_makes_no_context(
    opencl: list[str], double: Double, tmp_path: Path
) -> None:
    """Nor a queue, nor a buffer: a fork after it finds nothing that it could not use."""
    code = (
        "import sys, anyhal as hal\n"
        "hal.load_backend('opencl', instance='listed', settings={'opencl_library': sys.argv[1]})\n"
        "print([d.name for d in hal.devices()])\n"
    )
    report = tmp_path / "report.txt"
    listed = python(code, double.path, OPENCL_DOUBLE=f"report={report}").stdout
    assert "listed:0" in listed
    found = Report.read(report.read_text())
    assert found.calls["clGetDeviceIDs"] >= 2 and not any("Create" in name for name in found.calls)
    assert found.left == {} and found.violations == []
