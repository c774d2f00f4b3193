"""Makes source archive and wheel as a release does, and proves the wheel on its own.
SPDX-License-Identifier: Apache-2.0

    python tools/wheel.py [FOLDER] [--python PROGRAM] [--json]

The wheel is built from the archive alone, in an environment of its own, judged by auditwheel, given
the tag that it earned, installed into an empty environment and used there without compiler and
without network. Minutes; FOLDER (default dist) then holds both files.
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
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET_BYTES = 15_000_000
OLDEST = (2, 28)  # glibc
TOOLS = ("scikit-build-core>=1.0,<2", "auditwheel>=6,<7", "wheel>=0.45,<1")
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


def environment(folder: Path, python: str) -> Path:
    """A new virtual environment; its interpreter."""
    run([python, "-m", "venv", folder])
    return folder / "bin" / "python"


def make(work: Path, python: str) -> tuple[Path, Path]:
    """(archive, wheel), the second from the first."""
    tools = environment(work / "tools", python)
    run([tools, "-m", "pip", "install", "-q", *TOOLS])
    run([tools, "-c", SDIST, work], cwd=ROOT)
    (archive,) = work.glob("*.tar.gz")
    run([tools, "-m", "pip", "wheel", "-q", "--no-deps", "-w", work, archive])
    (wheel,) = work.glob("*.whl")
    return archive, wheel


def tagged(work: Path, wheel: Path) -> tuple[Path, str]:
    """The wheel under the tag that auditwheel finds for it, and that tag."""
    bin_folder = work / "tools" / "bin"
    said = " ".join(run([bin_folder / "auditwheel", "show", wheel]).split())
    found = re.search(r'platform tag: "(manylinux_(\d+)_(\d+)_\w+)"', said)
    if found is None:
        sys.exit(f"auditwheel finds no tag for {wheel.name}: {said}")
    if (int(found[2]), int(found[3])) > OLDEST:
        sys.exit(f"{wheel.name} needs more than glibc {OLDEST}: {said}")
    flags = ["--platform-tag", found[1], "--remove"]
    name = run([bin_folder / "python", "-m", "wheel", "tags", *flags, wheel]).split()[-1]
    return wheel.parent / name, found[1]


def use(work: Path, wheel: Path, python: str) -> str:
    """Installs the wheel into an empty environment and runs it with nothing else around."""
    there = environment(work / "empty", python)
    run([there, "-m", "pip", "install", "-q", "--only-binary=:all:", wheel])
    alone = ["unshare", "-rn"] if shutil.which("unshare") else []
    if alone and subprocess.run([*alone, "true"], capture_output=True).returncode:
        alone = []
    program = shutil.which(alone[0]) if alone else None
    command = [str(program), *alone[1:]] if program else []
    given = {"PATH": "/nonexistent", "HOME": "/dev/null"}
    kept = {k: v for k, v in os.environ.items() if k.startswith("OPENBLAS_")}
    return run([*command, there, "-c", USE], env={**given, **kept}, cwd=work).strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to build for")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="anyhal-wheel.") as name:
        work = Path(name)
        archive, made = make(work, given.python)
        wheel, tag = tagged(work, made)
        devices = use(work, wheel, given.python)
        rows = sorted(zipfile.ZipFile(wheel).infolist(), key=lambda row: -row.compress_size)
        sizes = {row.filename: row.compress_size for row in rows}
        given.folder.mkdir(parents=True, exist_ok=True)
        total = wheel.stat().st_size
        figures = [
            {"name": "wheel", "file": wheel.name, "bytes": total, "tag": tag},
            {"name": "archive", "file": archive.name, "bytes": archive.stat().st_size},
            {"name": "runs without compiler and network", "devices": devices.split()},
        ]
        for file in (archive, wheel):
            shutil.copy(file, given.folder)
    if given.json:
        largest = dict(list(sizes.items())[:12])
        print(json.dumps({"schema": 1, "figures": figures, "largest": largest}))
    else:
        print("\n".join(f"{nbytes:>9} {name}" for name, nbytes in list(sizes.items())[:15]))
        print("\n".join(json.dumps(row) for row in figures))
    if total > BUDGET_BYTES:
        sys.exit(f"{wheel.name} has {total} bytes, the budget is {BUDGET_BYTES}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
