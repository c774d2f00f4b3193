"""The reference runs on aarch64: cross-built, then asked for known answers under emulation.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anyhal.ops import BY_NAME

ROOT = Path(__file__).resolve().parents[3]
BACKEND = ROOT / "backends" / "cpu_ref"
COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"
SYSROOT = Path("/usr/aarch64-linux-gnu")  # where Debian's cross packages put the target's libraries
EVERY_OP = str(len(BY_NAME))


def require(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"{tool} is absent; apt-get install g++-aarch64-linux-gnu qemu-user")
    return found


def test_known_answers_on_aarch64(tmp_path: Path) -> None:
    compiler, emulator = require(COMPILER), require(EMULATOR)
    common = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}"]

    def compile_one(source: Path) -> str:
        target = tmp_path / f"{source.stem}.o"
        flags = ["-O0", "-fPIC", "-fvisibility=hidden", "-c", str(source), "-o", str(target)]
        subprocess.run([*common, *flags], check=True)
        return str(target)

    sources = [BACKEND / "backend.cc", *sorted((BACKEND / "kernels").glob("*.cc"))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources))
    library = tmp_path / "libanyhal_cpu_ref.so"
    symbols = f"-Wl,--version-script={ROOT / 'backends' / 'one_symbol.map'}"
    link = ["-shared", "-static-libgcc", "-static-libstdc++", "-Wl,--no-undefined", symbols]
    subprocess.run([*common, *link, *objects, "-lm", "-o", str(library)], check=True)
    host = tmp_path / "known_answers"
    source = ROOT / "tests" / "abi" / "known_answers.cc"
    subprocess.run([*common, "-O1", str(source), "-ldl", "-o", str(host)], check=True)
    done = subprocess.run(
        [emulator, "-L", str(SYSROOT), str(host), str(library), EVERY_OP],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failures" in done.stdout
