"""Builds cores and backends of every age out of this tree, and runs each on each.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import derive

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = [found] if (found := shutil.which("ccache")) else []
WARNINGS = ["-Wall", "-Wextra", "-Werror"]

# name -> the version a backend is built for, and its floor
BACKENDS = {
    "0.3": ("0.3", None),
    "0.4": ("0.4", None),
    "1.0": ("1.0", None),
    "1.1": ("1.1", None),
    "1.1 from 1.0": ("1.1", "1.0"),
    "1.2": ("1.2", None),
    "1.2 from 1.0": ("1.2", "1.0"),
    "1.2 from 1.1": ("1.2", "1.1"),
    "2.0": ("2.0", None),
    "3.0": ("3.0", None),
}
# name -> version and options: those that get it wrong
WRONG = {
    "greedy": ("1.2", ["-DGREEDY"]),
    "sleepy": ("2.0", ["-DSLEEPY"]),
    "unstated": ("1.0", ["-DUNSTATED"]),
}


def compiled(folder: Path, include: str, source: str, output: str, *options: str) -> Path:
    """Compiles in `folder`, so that a compiler cache sees the same paths every time."""
    c = source.endswith(".c")
    command = [*CACHE, "gcc", "-std=c11"] if c else [*CACHE, "g++", "-std=c++20"]
    command += [*WARNINGS, "-fPIC", "-I", include, "-I", str(ROOT), *options]
    part = f"{output}.o"
    subprocess.run([*command, "-c", str(HERE / source), "-o", part], cwd=folder, check=True)
    link = ["gcc", "-shared"] if c else ["g++", "-pthread"]
    subprocess.run([*link, part, "-o", output], cwd=folder, check=True)
    return folder / output


def backend(folder: Path, name: str, version: str, *options: str) -> Path:
    return compiled(folder, version, "aged_backend.c", f"backend {name}.so", *options)


def floor(number: str | None) -> list[str]:
    return [f"-DANYHAL_ABI_FLOOR=ANYHAL_ABI({number.replace('.', ',')})"] if number else []


def make(folder: Path) -> None:
    """Headers, then cores, backends and forks of them."""
    for version in derive.VERSIONS:
        derive.write(folder / version, derive.header(version))
    for fork, edit in derive.FORKS.items():
        derive.write(folder / fork, edit(derive.header("1.1")))
    with ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0)) // 2)) as pool:
        made = [
            pool.submit(compiled, folder, version, "aged_core.cc", f"core {version}")
            for version in derive.VERSIONS
        ]
        for name, (version, lowest) in BACKENDS.items():
            made.append(pool.submit(backend, folder, name, version, *floor(lowest)))
        for fork in derive.FORKS:
            made.append(pool.submit(backend, folder, fork, fork))
        for name, (version, options) in WRONG.items():
            made.append(pool.submit(backend, folder, name, version, *options))
        for job in made:
            job.result()


def folder_of(base: Path) -> Path:
    """Made once, whichever of several test processes comes first."""
    folder = base / "aged"
    with open(base / "aged.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            (folder / "done").touch()
    return folder


def load(folder: Path, core: str, *names: str) -> dict[str, dict[str, str]]:
    """What that core says of each backend: key -> value; nothing when the process died."""
    files = {str(folder / f"backend {name}.so"): name for name in names}
    ran = subprocess.run(
        [str(folder / f"core {core}"), *files], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, f"core {core} ended with {ran.returncode}: {ran.stderr}"
    found = {}
    for line in ran.stdout.splitlines():
        file = next(f for f in files if line.startswith(f))
        words, _, text = line.removeprefix(file).partition(" text=")
        row: dict[str, list[str]] = {}
        for word in words.split():
            key, _, value = word.partition("=")
            row.setdefault(key, []).append(value)
        found[files[file]] = {key: " ".join(values) for key, values in row.items()}
        found[files[file]]["text"] = text
        found[files[file]]["log"] = ran.stderr
    return found
