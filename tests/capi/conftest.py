"""Programs in C and C++ built against the installed package, and registry files for them.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from c_programs import HERE, WARNINGS, Build, Play, Registry, package


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """build(source, *flags, link=True): a program, compiled without a warning."""
    made: dict[tuple[Path, tuple[str, ...]], Path] = {}

    def compile_(source: Path | str, *flags: str, link: bool = True) -> Path:
        path = HERE / source
        key = (path, flags)
        if key not in made:
            cpp = path.suffix == ".cc"
            compiler = shutil.which("g++" if cpp else "gcc")
            if compiler is None:
                pytest.skip("no C compiler is installed: apt-get install g++")
            root = package()
            standard = "-std=c++17" if cpp and link else "-std=c++20" if cpp else "-std=c11"
            program = tmp_path_factory.mktemp("capi") / path.stem
            command = [compiler, standard, "-g", "-O1", *WARNINGS, f"-I{root / 'include'}", *flags]
            command += [str(path)]
            if link:
                command += [f"-L{root}", "-lanyhal", f"-Wl,-rpath,{root}", "-lm", "-lpthread"]
            done = subprocess.run(
                [*command, "-o", str(program)], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            made[key] = program
        return made[key]

    return compile_


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """registry(script): the file that the command writes; with the scriptable backend if asked."""
    written: dict[str, Path] = {}

    def write(script: str = "", *options: str) -> Path:
        key = "\n".join([script, *options])
        if key not in written:
            path = tmp_path_factory.mktemp("registry") / "registry.tsv"
            command = [Path(sys.executable).parent / "anyhal", "devices", "--write-registry"]
            done = subprocess.run(
                [*command, "--registry", str(path), *options],
                env={**os.environ, "ANYHAL_FAKE": script},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout.strip() == str(path)
            written[key] = path
        return written[key]

    return write


@pytest.fixture(scope="session")
def play(registry: Registry) -> Play:
    """play(command, file): runs a program with a registry file, without Python's settings."""

    def run(
        command: Sequence[str | Path], file: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ANYHAL_"))}
        return subprocess.run(
            [str(word) for word in command],
            env={**clean, "ANYHAL_REGISTRY": str(file or registry()), **environment},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=300,
            check=False,
        )

    return run
