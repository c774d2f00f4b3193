"""Makes source archive and wheels as a release does, and proves each wheel on its own.
SPDX-License-Identifier: Apache-2.0

    python tools/wheel.py [FOLDER] [--python PROGRAM]... [--json]

A wheel is built from the archive alone, in an environment of its own, judged by auditwheel, given
the tag that it earned, installed into an empty environment and used there without compiler and
without network. One for each supported Python that is on this machine, or for those that are named;
the report says which supported ones were not tried. Minutes for each; FOLDER (default dist) then
holds the files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET_BYTES = 15_000_000
OLDEST = (2, 28)  # glibc
TOOLS = ("scikit-build-core>=1.0,<2", "auditwheel>=6,<7", "wheel>=0.45,<1")
# What an interpreter must bring to build for it.
ABLE = """
import ensurepip, os, platform, sys, sysconfig, venv
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
assert sys.implementation.name == "cpython"
print(sys.version_info.minor, platform.python_version(), platform.libc_ver()[1])
"""
SDIST = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
USE = """
import numpy as np, anyhal as hal
x = np.arange(12, dtype=np.float32).reshape(3, 4)
for device in hal.devices():
    y = hal.matmul(hal.asarray(x, device=device.name), hal.asarray(x.T, device=device.name))
    assert (y.numpy() == x @ x.T).all(), device
    print(device.name, end=" ")
"""


def run(command: Sequence[str | Path], **options: object) -> str:
    """The command's output; ends this program with it when the command fails."""
    done = subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        words = " ".join(map(str, command[:5]))
        sys.exit(f"{words} failed with {done.returncode}\n{done.stdout}{done.stderr}"[-8000:])
    return str(done.stdout)


def supported() -> list[int]:
    """The 11 of Python 3.11, of each version that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = " ".join(project["classifiers"])
    return sorted(int(minor) for minor in re.findall(r":: 3\.(\d+)", named))


def able(program: str) -> tuple[int, str, str] | None:
    """(minor, version, glibc) of an interpreter that a wheel can be built for."""
    try:
        done = subprocess.run([program, "-c", ABLE], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    minor, version, libc = [*done.stdout.split(), "unknown"][:3]
    return int(minor), version, libc


def found(wanted: Sequence[int]) -> dict[int, tuple[str, str, str]]:
    """(program, version, glibc) by minor version: this interpreter, else one of the search path,
    else one of pyenv's, whose own names in the search path stand for one version only."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    made = {}
    for minor in wanted:
        name = f"python3.{minor}"
        others = sorted(pyenv.glob(f"3.{minor}.*/bin/{name}"), reverse=True)
        for program in (sys.executable, shutil.which(name), *others):
            what = able(str(program)) if program else None
            if what is not None and what[0] == minor:
                made[minor] = (str(program), *what[1:])
                break
    return made


def environment(folder: Path, python: str) -> Path:
    """A new virtual environment; its interpreter."""
    run([python, "-m", "venv", folder])
    return folder / "bin" / "python"


def make_archive(work: Path) -> Path:
    tools = environment(work / "tools", sys.executable)
    run([tools, "-m", "pip", "install", "-q", *TOOLS])
    run([tools, "-c", SDIST, work], cwd=ROOT)
    (archive,) = work.glob("*.tar.gz")
    return archive


def make_wheel(work: Path, archive: Path, python: str) -> Path:
    builder = environment(work / "builder", python)
    run([builder, "-m", "pip", "wheel", "-q", "--no-deps", "-w", work, archive])
    (wheel,) = work.glob("*.whl")
    return wheel


def tagged(bin_folder: Path, wheel: Path) -> tuple[Path, str]:
    """The wheel under the tag that auditwheel finds for it, and that tag."""
    said = " ".join(run([bin_folder / "auditwheel", "show", wheel]).split())
    found = re.search(r'platform tag: "(manylinux_(\d+)_(\d+)_\w+)"', said)
    if found is None:
        sys.exit(f"auditwheel finds no tag for {wheel.name}: {said}")
    if (int(found[2]), int(found[3])) > OLDEST:
        sys.exit(f"{wheel.name} needs more than glibc {OLDEST}: {said}")
    flags = ["--platform-tag", found[1], "--remove"]
    name = run([bin_folder / "python", "-m", "wheel", "tags", *flags, wheel]).split()[-1]
    return wheel.parent / name, found[1]


def alone() -> list[str]:
    """What starts a program without network; ends this program where nothing does."""
    for flags in ("-n", "-rn"):
        command = [shutil.which("unshare") or "unshare", flags]
        try:
            if not subprocess.run([*command, "true"], capture_output=True).returncode:
                return command
        except OSError:
            break
    sys.exit("a wheel is used without network by unshare, which does not work here: util-linux")


def use(work: Path, wheel: Path, python: str) -> list[str]:
    """Installs the wheel into an empty environment and runs it with nothing else around; on which
    devices."""
    there = environment(work / "empty", python)
    run([there, "-m", "pip", "install", "-q", "--only-binary=:all:", wheel])
    given = {"PATH": "/nonexistent", "HOME": "/dev/null"}
    kept = {k: v for k, v in os.environ.items() if k.startswith("OPENBLAS_")}
    here = {"env": {**given, **kept}, "cwd": work}
    shown = json.loads(run([*alone(), there.with_name("anyhal"), "devices", "--json"], **here))
    names = run([*alone(), there, "-c", USE], **here).split()
    if not names or len(names) != len(shown["devices"]):
        sys.exit(f"{wheel.name}: anyhal devices shows {len(shown['devices'])}, {names} compute")
    return names


def prove(work: Path, archive: Path, python: str) -> dict[str, object]:
    """Builds, tags and uses the wheel for one interpreter; the file and its figures."""
    work.mkdir()
    wheel, tag = tagged(archive.parent / "tools" / "bin", make_wheel(work, archive, python))
    total = wheel.stat().st_size
    if total > BUDGET_BYTES:
        sys.exit(f"{wheel.name} has {total} bytes, the budget is {BUDGET_BYTES}")
    return {"file": wheel, "bytes": total, "tag": tag, "devices": use(work, wheel, python)}


def chosen(named: Sequence[str]) -> dict[int, tuple[str, str, str]]:
    """The interpreters to build for."""
    if not named:
        return found(supported())
    made = {}
    for program in named:
        what = able(program)
        if what is None:
            sys.exit(f"{program} is no CPython with its headers, venv and ensurepip")
        made[what[0]] = (program, *what[1:])
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", action="append", default=[], help="an interpreter to build for")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    figures: list[dict[str, object]] = []
    sizes: dict[str, int] = {}
    pythons = chosen(given.python)
    with tempfile.TemporaryDirectory(prefix="anyhal-wheel.") as name:
        archive = make_archive(Path(name))
        shutil.copy(archive, given.folder)
        figures.append({"name": "archive", "file": archive.name, "bytes": archive.stat().st_size})
        for minor, (program, version, libc) in pythons.items():
            made = prove(Path(name) / str(minor), archive, program)
            wheel = Path(str(made.pop("file")))
            shutil.copy(wheel, given.folder)
            about = {"python": version, "glibc": libc, "file": wheel.name}
            figures.append({"name": "wheel, runs without compiler and network", **about, **made})
            print(json.dumps(figures[-1]), file=sys.stderr, flush=True)  # the next takes minutes
            rows = sorted(zipfile.ZipFile(wheel).infolist(), key=lambda row: -row.compress_size)
            sizes = {row.filename: row.compress_size for row in rows}
    missing = [f"3.{minor}" for minor in supported() if minor not in pythons]
    figures.append({"name": "supported and not tried", "pythons": missing})
    if given.json:
        largest = dict(list(sizes.items())[:12])
        print(json.dumps({"schema": 1, "figures": figures, "largest": largest}))
    else:
        print("\n".join(f"{nbytes:>9} {name}" for name, nbytes in list(sizes.items())[:15]))
        print("\n".join(json.dumps(row) for row in figures))
    return 0 if pythons else 1


if __name__ == "__main__":
    sys.exit(main())
