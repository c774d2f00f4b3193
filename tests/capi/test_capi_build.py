"""Building against the installed package: headers, symbols, pkg-config, CMake, examples, the guide.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from c_programs import ROOT, WARNINGS, Build, Play, package

sys.path.insert(0, str(ROOT / "tools"))
import symbols

EXAMPLES = ["matmul_epilogue.c", "own_kernel.c", "pipeline.c", "raii.cc"]
GUIDE = ROOT / "docs" / "how-to" / "use-from-c.md"


def config(*flags: str) -> str:
    command = [str(Path(sys.executable).parent / "anyhal"), "config", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("header", ["hal.h", "hal_ops.h"])
@pytest.mark.parametrize(("compiler", "standard"), [("gcc", "c11"), ("g++", "c++17")])
def test_a_header_alone_compiles_clean(
    compiler: str, standard: str, header: str, tmp_path: Path
) -> None:
    source = tmp_path / ("x.c" if compiler == "gcc" else "x.cc")
    source.write_text(f"#include <anyhal/{header}>\nint main(void) {{ return 0; }}\n")
    extra = ["-Wold-style-cast"] if compiler == "g++" else ["-Wstrict-prototypes"]
    command = [compiler, f"-std={standard}", *WARNINGS, *extra, f"-I{ROOT / 'include'}"]
    subprocess.run([*command, "-c", source, "-o", tmp_path / "x.o"], check=True)


def test_the_library_exports_what_the_header_declares() -> None:
    text = (ROOT / "include/anyhal/hal.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"HAL_EXPORT [^;(]*?\b(hal_\w+)\(", text))
    assert len(declared) >= 30
    assert symbols.core_violations(package() / "libanyhal.so", declared) == []
    assert symbols.core_violations(package() / "libanyhal.so", declared - {"hal_op"}) != []


def test_every_call_of_the_header_is_documented() -> None:
    text = (ROOT / "include/anyhal/hal.h").read_text(encoding="utf-8")
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("HAL_EXPORT ") and not lines[number - 1].startswith("HAL_EXPORT "):
            assert lines[number - 1].rstrip().endswith("*/"), line


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_is_recorded_beside_it(build: Build, play: Play, name: str) -> None:
    source = ROOT / "examples" / "c" / name
    assert len(source.read_text(encoding="utf-8").splitlines()) <= 60
    done = play([build(source), "cpu_ref"])
    assert done.returncode == 0, done.stderr
    assert done.stdout == source.with_suffix(".txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_under_valgrind(build: Build, play: Play, name: str) -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("valgrind is not installed: apt-get install valgrind")
    options = ["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]
    done = play([valgrind, *options, build(ROOT / "examples" / "c" / name), "cpu_ref"])
    assert done.returncode == 0, done.stderr


def test_no_python_is_in_the_process(build: Build, play: Play) -> None:
    done = play([build("no_python.c")])
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stdout


def test_cmake_finds_the_package(play: Play, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    folder = f"-Danyhal_DIR={config('--cmake-dir')}"
    command = ["cmake", "-S", str(ROOT / "examples" / "c"), "-B", str(tmp_path), folder]
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(tmp_path)], check=True, capture_output=True)
    done = play([tmp_path / "raii", "cpu_ref"])
    assert done.stdout.startswith("2 1 4 3"), done.stderr


def test_pkg_config_finds_the_package(play: Play, tmp_path: Path) -> None:
    tool = shutil.which("pkg-config")
    if tool is None:
        pytest.skip("pkg-config is not installed")
    environment = {**os.environ, "PKG_CONFIG_PATH": config("--pkgconfig-dir")}
    command = [tool, "--cflags", "--libs", "anyhal"]
    flags = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    source, program = ROOT / "examples/c/pipeline.c", tmp_path / "pipeline"
    subprocess.run(["gcc", source, *flags.stdout.split(), "-o", program], check=True)
    assert play([program, "cpu_ref"]).stdout.startswith("batch 0")


def test_the_command_names_flags_and_folders() -> None:
    root = package()
    assert config("--cflags", "--libs").split()[:2] == [f"-I{root / 'include'}", f"-L{root}"]
    assert (Path(config("--cmake-dir")) / "anyhalConfig.cmake").is_file()


def test_every_program_of_the_guide_is_built_and_prints_what_it_says(
    play: Play, tmp_path: Path
) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    pairs = re.findall(r"```c\n(.*?)```\s*(?:```text\n(.*?)```)?", text, re.DOTALL)
    assert len(pairs) >= 3
    flags = config("--cflags", "--libs").split()
    for number, (program, shown) in enumerate(pairs):
        source, binary = tmp_path / f"{number}.c", tmp_path / str(number)
        source.write_text(program)
        subprocess.run(["gcc", "-std=c11", *WARNINGS, source, *flags, "-o", binary], check=True)
        done = play([binary])
        assert (done.stdout, done.returncode) == (shown, 0), done.stderr
