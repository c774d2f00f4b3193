"""Public failure reports about loading plugins, vendors' libraries and their copies, by id.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from loading import backend, helper_of, kit, play, row

from anyhal.runtime.discovery import BackendRecord, Root, discover, package_folder
from anyhal.runtime.elf import read_elf

LOAD = "import anyhal as hal\nprint(hal.device('chip'))\n"
MAPPED = "from anyhal import _core\nprint([p for p in _core.mapped_libraries() if 'lib{}' in p])\n"
CATCH = """
import anyhal as hal
try:
    hal.device("chip")
except hal.BackendLoadError as why:
    print(why.stage, why.reason, why)
"""


def one(folder: Path) -> BackendRecord:
    (record,) = discover(roots=[Root(folder, "a test")], hashes={}).backends
    return record


def test_plg_01_a_second_level_library_comes_from_the_vendors_folder(tmp_path: Path) -> None:
    library = kit(tmp_path / "new", 2)
    helper_of(tmp_path / "old", 1)
    backend(tmp_path / "b", "chip", row(tmp_path / "new"))
    done = play(LOAD + MAPPED.format("help"), path=tmp_path / "b",
                LD_LIBRARY_PATH=str(tmp_path / "old"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"kit 2 of {library}" in done.stderr
    assert done.stdout.splitlines()[-1] == f"['{tmp_path / 'new' / 'libhelp.so.1'}']"


def test_plg_01_an_older_copy_in_the_process_is_refused_with_both_paths(tmp_path: Path) -> None:
    kit(tmp_path / "new", 2)
    old = helper_of(tmp_path / "old", 1)
    backend(tmp_path / "b", "chip", row(tmp_path / "new"))
    done = play(f"import ctypes\nctypes.CDLL('{old}')\n{CATCH}", path=tmp_path / "b")
    assert done.stdout.startswith("dependencies second_copy"), done.stderr
    assert str(old) in done.stdout and str(tmp_path / "new" / "libhelp.so.1") in done.stdout
    assert "main chip" not in done.stderr


PARTS = """
[[libraries]]
setting = "kit"
file = "libkit.so.10"
roots = [{roots}]
stack = "kit"
required = true
[[libraries]]
setting = "blas"
file = "libkitblas.so.10"
roots = [{roots}]
stack = "kit"
"""


def test_plg_02_all_parts_of_a_stack_come_from_one_folder(tmp_path: Path) -> None:
    eight, ten, mixed = (tmp_path / name for name in ("8", "10", "mixed"))
    roots = ", ".join(f'"{folder}"' for folder in (eight, mixed, ten))
    chip = backend(tmp_path / "b", "chip", PARTS.format(roots=roots))
    for folder, names in (
        (eight, ["libkit.so.8", "libkitblas.so.8"]),
        (mixed, ["libkit.so.10"]),
        (ten, ["libkitblas.so.10"]),
    ):
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    record = one(chip)
    stop = record.stages.first_failure
    assert stop is not None and (stop.stage, stop.code) == ("dependencies", "mixed_roots")
    assert f"libkit.so.10 in {mixed}" in stop.detail and f"blas.so.10 in {ten}" in stop.detail
    (ten / "libkit.so.10").touch()
    record = one(chip)
    assert record.error is None
    assert dict(record.settings) == {
        "kit": str(ten / "libkit.so.10"),
        "blas": str(ten / "libkitblas.so.10"),
    }
    assert record.chosen == (f"stack kit is that of {ten}, which has it whole",)
    assert record.stages[4].detail == record.chosen[0]  # doctor prints it


def test_plg_03_a_copy_that_is_in_the_process_is_shared(tmp_path: Path) -> None:
    theirs, ours = kit(tmp_path / "a", 1), kit(tmp_path / "b", 2)
    backend(tmp_path / "c", "chip", row(tmp_path / "b"))
    helper = tmp_path / "a" / "libhelp.so.1"
    open_theirs = f"import ctypes\nctypes.CDLL('{helper}')\nctypes.CDLL('{theirs}')\n"
    done = play(open_theirs + LOAD + MAPPED.format("kit"), path=tmp_path / "c")
    assert f"kit 1 of {theirs}" in done.stderr and str(ours) not in done.stderr
    assert done.stdout.splitlines()[-1] == f"['{theirs}']"


@pytest.mark.parametrize("other", ["numpy", "ml_dtypes", "torch", "onnx", "onnxruntime"])
@pytest.mark.parametrize("first", [True, False])
def test_plg_04_no_order_of_imports_crashes(other: str, first: bool) -> None:
    if importlib.util.find_spec(other) is None:
        pytest.skip(f"{other} is not installed here")
    orders = ["import anyhal as hal", f"import {other}"]
    code = "\n".join(reversed(orders) if first else orders)
    code += "\nx = hal.ones((64, 64), device='cpu')\nprint(float(hal.matmul(x, x).numpy()[0, 0]))\n"
    done = play(code)
    assert (done.returncode, done.stdout) == (0, "64.0\n"), done.stderr


def test_plg_04_every_library_of_the_package_exports_one_entry_and_no_cxx() -> None:
    for library in Path(package_folder()).glob("backends/*/*.so"):
        read = read_elf(library)
        assert read.exports == ("anyhal_backend_main",) and read.unique == (), library
        assert not any("stdc++" in name for name in read.needed), library


SEE = """
import anyhal as hal
maps = open("/proc/self/maps").read()
assert "libcuda" not in maps and "libOpenCL" not in maps and "libanyhal_" not in maps
from anyhal.runtime.device import facts
hal.devices()
for r in facts().refused:
    print(r.name, r.absent, r.stage, r.reason, r.sentence)
assert hal.device("cpu").name == "cpu:0"
"""


def test_plg_06_without_a_driver_import_works_and_devices_says_what_is_missing() -> None:
    done = play(SEE)
    assert done.returncode == 0, done.stderr
    if not os.path.exists("/dev/nvidiactl"):
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("cuda ")]
        assert line.startswith("cuda True architecture hardware_absent")
        assert "/dev/nvidiactl" in line and "connect the device" in line


def test_plg_06_a_stub_driver_costs_only_its_backend(tmp_path: Path) -> None:
    from loading import cc

    cc("int nothing_here;\n", tmp_path / "libcuda.so.1")
    done = play(SEE, ANYHAL_CUDA_DRIVER=str(tmp_path / "libcuda.so.1"))
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("cuda ")]
    assert line.startswith("cuda False init") and "lacks" in line


def test_plg_08_a_driver_that_is_too_old_is_told_before_anything_opens(tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.write_text("535.104.05\n")
    driver = f'[hardware]\ndriver = {{ file = "{version}", least = "550.54" }}\n'
    chip = backend(tmp_path / "b", "chip", driver)
    backend(tmp_path / "b", "other")
    stop = one(chip).stages.first_failure
    assert stop is not None and stop.code == "driver_too_old"
    assert "need driver 550.54 or newer, this driver is 535.104.05" in stop.detail
    mark = tmp_path / "mark"
    done = play(CATCH + "print(hal.device('other'))", path=tmp_path / "b", MARK=str(mark))
    assert "driver_too_old" in done.stdout and "other:0" in done.stdout
    assert mark.read_text() == "constructed other\n"
    version.write_text("550.54\n")
    assert one(chip).error is None


def test_plg_10_a_half_installed_stack_is_withdrawn_and_each_missing_file_named(
    tmp_path: Path,
) -> None:
    a, b = tmp_path / "lib", tmp_path / "lib64"
    rows = "".join(
        f'[[libraries]]\nsetting = "{name}"\nfile = "lib{name}.so.3"\nroots = ["{a}", "{b}"]\n'
        f'package = "no-such-{name}"\nstack = "kit"\n'
        for name in ("kit", "rand", "blas")
    )
    chip = backend(tmp_path / "b", "chip", rows)
    kit(a, 1)
    b.mkdir()
    record = one(chip)
    assert record.error is None
    assert dict(record.settings) == {"kit": "", "rand": "", "blas": ""}
    (note,) = record.notes
    for name in ("rand", "blas"):
        assert f"lib{name}.so.3 is not in {a}, {b}" in note and f"package no-such-{name}" in note
    assert "libkit" not in note.partition("(")[2]
    done = play(LOAD, path=tmp_path / "b")
    assert "chip:0" in done.stdout and "kit " not in done.stderr


def test_plg_12_only_the_version_it_was_built_for_is_taken(tmp_path: Path) -> None:
    wheel, system = tmp_path / "wheel", tmp_path / "system"
    kit(system, 5, soname="libkit.so.2")
    (system / "libkit.so").symlink_to("libkit.so.2")
    chip = backend(tmp_path / "b", "chip", row(wheel, system))
    record = one(chip)
    assert dict(record.settings) == {"kit": ""} and "libkit.so.3 is not in" in record.notes[0]
    library = kit(wheel, 7)
    assert dict(one(chip).settings) == {"kit": str(library)}
    text = (chip / "backend.toml").read_text()
    (chip / "backend.toml").write_text(text.replace('"libkit.so.3"', '"libkit.so"'))
    stop = one(chip).stages.first_failure
    assert stop is not None and stop.code == "bad_manifest" and "names no version" in stop.detail


ORDERS = """
{}
x = hal.ones((8, 8), device="cpu_ref")
hal.matmul(x, x).numpy()
from anyhal import _core
from anyhal.runtime.mapped import copies_of_runtimes
print([c for c in copies_of_runtimes(_core.mapped_libraries()) if c.family == "OpenMP"])
"""


@pytest.mark.parametrize("other", ["numpy", "torch", "sklearn", "faiss"])
@pytest.mark.parametrize("first", [True, False])
def test_pkg_02_one_openmp_at_most(other: str, first: bool) -> None:
    if importlib.util.find_spec(other) is None:
        pytest.skip(f"{other} is not installed here")
    orders = [f"import {other}", "import anyhal as hal"]
    done = play(ORDERS.format("\n".join(orders if first else reversed(orders))))
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_pkg_02_no_library_of_the_package_is_linked_with_openmp() -> None:
    libraries = list(Path(package_folder()).rglob("*.so"))
    assert len(libraries) > 3
    for library in libraries:
        needed = read_elf(library, exports=False).needed
        assert not any("omp" in name for name in needed), library


def test_pkg_02_two_copies_are_named_with_their_files(tmp_path: Path) -> None:
    from loading import cc

    from anyhal.runtime.mapped import copies_of_runtimes

    files = [cc("int x;\n", tmp_path / name) for name in ("libgomp.so.1", "libiomp5.so")]
    code = "import ctypes, json\n" + "".join(f"ctypes.CDLL('{file}')\n" for file in files)
    code += "from anyhal.cli.doctor import examine\nr = examine()\n"
    code += (
        "print(json.dumps(r['libraries']['duplicates']), [n for n in r['notes'] if 'OpenMP' in n])"
    )
    done = play(code)
    assert done.returncode == 0, done.stderr
    assert all(str(file) in done.stdout for file in files) and "OpenMP" in done.stdout
    llvm = copies_of_runtimes(["/a/libLLVM-14.so.1", "/b/libLLVM.so.18.1", "/b/libm.so.6"])
    assert [(c.family, c.files) for c in llvm] == [
        ("LLVM", ("/a/libLLVM-14.so.1", "/b/libLLVM.so.18.1"))
    ]
    assert copies_of_runtimes(["/a/libgomp.so.1", "/a/libgomp.so.1"]) == []


def test_pkg_02_a_backend_that_brings_a_second_copy_says_so(tmp_path: Path) -> None:
    from loading import cc

    first = cc("int x;\n", tmp_path / "libiomp5.so")
    (tmp_path / "kit").mkdir()
    cc("int kit_version(void) { return 3; }\n", tmp_path / "kit" / "libomp.so.5")
    rows = row(tmp_path / "kit").replace("libkit.so.3", "libomp.so.5")
    backend(tmp_path / "b", "chip", rows)
    code = f"import ctypes\nctypes.CDLL('{first}')\n{LOAD}print(hal.device('chip').fact.note)\n"
    done = play(code, path=tmp_path / "b")
    assert "kit 3 of" in done.stderr, done.stderr
    note = done.stdout.splitlines()[-1]
    assert "2 OpenMP runtimes" in note and str(first) in note and "libomp.so.5" in note
