"""Gathers every driver that the tests of foreign devices need, and prints the shell lines that name
them. SPDX-License-Identifier: Apache-2.0

    eval "$(python tools/drivers.py build/drivers)"

Into the folder come Intel's OpenCL runtime for processors and two PJRT plugins of others, both from
the package index and apart from the environment of the tests. PoCL comes from the system
(apt install pocl-opencl-icd ocl-icd-libopencl1); the simulated CUDA driver is built by the tests.
What is there already is not fetched again.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POCL = Path("/etc/OpenCL/vendors/pocl.icd")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def packages(extra: str) -> list[str]:
    """The requirements of that extra in pyproject.toml."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[str] = data["project"]["optional-dependencies"][extra]
    return found


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(
            f"{shlex.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


def system_loader() -> Path:
    """The system's OpenCL loader, which must be met before the wheel's own."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        name, _, path = line.partition(" => ")
        if name.split()[:1] == ["libOpenCL.so.1"]:
            return Path(path)
    sys.exit("there is no OpenCL loader here: apt install ocl-icd-libopencl1 pocl-opencl-icd")


def opencl(folder: Path) -> dict[str, str]:
    """Two platforms: PoCL and Intel's. The wheel's own .icd file holds a placeholder."""
    if not POCL.exists():
        sys.exit(f"{POCL} is missing: apt install pocl-opencl-icd ocl-icd-libopencl1")
    home = folder / "opencl"
    library = home / "lib" / "libintelocl.so"
    if not library.exists():
        say("fetching Intel's OpenCL runtime")
        venv.create(home, with_pip=True, clear=True)
        run(home / "bin" / "pip", "install", "-q", *packages("opencl-test"))
    places = folder / "icd"
    places.mkdir(exist_ok=True)
    (places / "pocl.icd").write_bytes(POCL.read_bytes())
    (places / "intel.icd").write_text(f"{library}\n", encoding="utf-8")
    # A folder of its own: the whole folder of the system would also come before other libraries.
    first = folder / "loader" / "libOpenCL.so.1"
    first.parent.mkdir(exist_ok=True)
    first.unlink(missing_ok=True)
    first.symlink_to(system_loader())
    found = [str(first.parent), str(library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
    search = ":".join(dict.fromkeys(part for whole in found for part in whole.split(":") if part))
    return {"OCL_ICD_VENDORS": str(places), "LD_LIBRARY_PATH": search, "TEST_OPENCL": "2"}


def pjrt(folder: Path) -> dict[str, str]:
    """Two plugins of different ages; without what they depend on, which they do not need."""
    home = folder / "plugins"
    if not (home / "done").exists():
        say("fetching two PJRT plugins")
        environment = folder / "opencl"  # any with pip
        run(environment / "bin" / "pip", "install", "-q", "--no-deps", "--upgrade", "--target",
            home, *packages("pjrt-test"))  # fmt: skip
        (home / "done").touch()
    files = sorted(p for p in home.rglob("*pjrt*.so") if not p.is_symlink())
    return {"PJRT_TEST_PLUGINS": ":".join(map(str, files))}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in {**opencl(folder), **pjrt(folder)}.items():
        print(f"export {name}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
