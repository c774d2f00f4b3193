"""Cross-compiles for aarch64 and runs known answers there, on an emulated processor.
SPDX-License-Identifier: Apache-2.0

    python tools/aarch64.py [FOLDER] [--quick] [--json]

Builds core, cpu_ref, dayone and two programs in FOLDER (default build/aarch64): the known answers
of each backend through its table, and an example of the C interface. --quick builds dayone and its
answers alone, some seconds. Needs Debian's g++-aarch64-linux-gnu and qemu-user.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIPLE = "aarch64-linux-gnu"
SYSROOT = Path("/usr") / TRIPLE
# Not by -L, which would turn the root folder too into that of the other system.
EMULATOR = ("qemu-aarch64", "-E", f"LD_LIBRARY_PATH={SYSROOT / 'lib'}")
LOADER = f"-Wl,--dynamic-linker={SYSROOT / 'lib' / 'ld-linux-aarch64.so.1'}"
NEEDED = {
    f"{TRIPLE}-gcc": "gcc-aarch64-linux-gnu",
    f"{TRIPLE}-g++": "g++-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
    "cmake": "cmake",
    "ninja": "ninja-build",
}
OPS = {"dayone": "10"}  # of others: as many as they have


def missing() -> list[str]:
    """Debian packages of the programs that are not here."""
    return [package for program, package in NEEDED.items() if shutil.which(program) is None]


def run(command: Sequence[str | Path], **environment: str) -> str:
    """The command's output; ends this program with it when the command fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}
    )
    if done.returncode:
        words = " ".join(map(str, command[:6]))
        sys.exit(f"{words} failed with {done.returncode}\n{done.stdout}{done.stderr}"[-8000:])
    return done.stdout


def configure(folder: Path) -> None:
    definitions = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
        "CMAKE_C_COMPILER": f"{TRIPLE}-gcc",
        "CMAKE_CXX_COMPILER": f"{TRIPLE}-g++",
        "ANYHAL_PYTHON": "OFF",
    }
    flags = [f"-D{name}={value}" for name, value in definitions.items()]
    run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, *flags])


def program(folder: Path, source: str, *flags: str) -> Path:
    made = folder / Path(source).stem
    kind = ["-x", "c", "-std=c11"] if source.endswith(".c") else ["-std=c++20"]
    command = [f"{TRIPLE}-g++", *kind, f"-I{ROOT / 'include'}", str(ROOT / source), "-x", "none"]
    run([*command, "-o", str(made), *flags, LOADER, "-ldl"])
    return made


def known_answers(folder: Path, backend: str) -> str:
    """How many checks passed; every answer is compared in the program."""
    host = program(folder, "tests/abi/known_answers.cc")
    return run([*EMULATOR, host, library(folder, backend), OPS.get(backend, "0")]).strip()


def library(folder: Path, backend: str) -> Path:
    return folder / "backends" / backend / f"libanyhal_{backend}.so"


def c_interface(folder: Path, backend: str) -> str:
    """An example of the C interface, which finds the backend by a registry file."""
    example = "examples/c/matmul_epilogue"
    made = program(folder, f"{example}.c", f"-L{folder}", "-lanyhal", f"-Wl,-rpath,{folder}")
    file = library(folder, backend)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    row = ("backend", backend, "0.3", "self-tested", "no", "10", digest, str(file))
    registry = folder / "registry.tsv"
    lines = ["anyhal-registry\t2", "\t".join(row), "end\t1"]
    registry.write_text("".join(f"{line}\n" for line in lines))
    said = run([*EMULATOR, made, backend], ANYHAL_REGISTRY=str(registry))
    if said != (ROOT / f"{example}.txt").read_text():
        sys.exit(f"{example}.c printed other lines than {example}.txt:\n{said}")
    return said.splitlines()[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "aarch64")
    parser.add_argument("--quick", action="store_true", help="dayone and its known answers alone")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    given = parser.parse_args()
    lacking = missing()
    if lacking:
        sys.exit(f"aarch64 cannot be built here: {', '.join(lacking)} missing; apt install them")
    folder, started = given.folder.resolve(), time.monotonic()
    backends = ["dayone"] if given.quick else ["dayone", "cpu_ref"]
    configure(folder)
    core = [] if given.quick else ["anyhal"]
    run(["cmake", "--build", folder, "--target", *backends, *core])
    figures = [{"name": f"{b} on aarch64", "said": known_answers(folder, b)} for b in backends]
    if not given.quick:
        said = c_interface(folder, "cpu_ref")
        figures.append({"name": "C interface on aarch64", "said": said})
    seconds = round(time.monotonic() - started, 1)
    if given.json:
        print(json.dumps({"schema": 1, "seconds": seconds, "figures": figures}))
    else:
        print("\n".join(f"{row['name']}: {row['said']}" for row in figures), f"\n{seconds} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
