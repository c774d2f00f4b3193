"""What a program waits for before its first result: importing anyhal, finding backends, one matmul.
SPDX-License-Identifier: Apache-2.0

    python benchmarks/startup.py [--json] [--blocks N] [--check]

Fresh processes in turn: `import numpy` alone, and a program that imports anyhal and multiplies two
8x8 matrices, with 0, 20 and 100 manifests more on the search path; once of hardware that is not
here, once of strangers whose library is. Modules are compiled and caches filled before. Times are
the least processor time of a process over all blocks: what other programs on the machine add to it
is never negative. Medians and wall times are among the details.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from timing import Figure, show

from anyhal.runtime.discovery import package_folder
from anyhal.runtime.elf import read_elf

MOST_OF_NUMPY, MOST_ADDED_MS = 1.5, 10.0
NUMPY = "import numpy"
OURS = """
import numpy as np
import anyhal as hal
x = np.ones((8, 8), np.float32)
assert hal.matmul(x, x).numpy()[0, 0] == 8
"""
SETTLED_SECONDS = 2.5  # what discovery finds in younger files it does not remember
KINDS = ("absent", "strangers")


def copy_as_another_build(library: Path, to: Path) -> None:
    """With a build id of its own: of two equal libraries the second one is refused."""
    known = bytes.fromhex(read_elf(library, exports=False).build_id)
    to.write_bytes(library.read_bytes().replace(known, os.urandom(len(known))))


def manifests(folder: Path, kind: str, count: int) -> Path:
    """A folder of copies of the smallest backend under names of their own."""
    source = Path(package_folder()) / "backends" / "dayone"
    lines = (source / "backend.toml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("name", "machine"))]
    machine = 'machine = ["s390x"]' if kind == "absent" else f'machine = ["{os.uname().machine}"]'
    for i in range(count):
        place = folder / f"{kind}{count}" / f"chip{i}"
        place.mkdir(parents=True)
        text = "\n".join([f'name = "chip{i}"', *kept, machine, ""])
        (place / "backend.toml").write_text(text)
        for library in source.glob("*.so"):
            copy_as_another_build(library, place / library.name)
    return folder / f"{kind}{count}"


def run(code: str, environment: dict[str, str]) -> tuple[float, float]:
    """Processor and wall milliseconds of one process."""
    started = time.perf_counter()
    process = os.posix_spawn(sys.executable, [sys.executable, "-c", code], environment)
    _, status, usage = os.wait4(process, 0)
    wall = time.perf_counter() - started
    if status:
        raise SystemExit(f"startup: the measured program failed with status {status}")
    return (usage.ru_utime + usage.ru_stime) * 1e3, wall * 1e3


class Programs:
    """The programs with their environments, and what each took."""

    def __init__(self, folder: Path) -> None:
        plain = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        plain |= {
            "ANYHAL_CACHE": str(folder / "cache"),
            "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
            "OPENBLAS_NUM_THREADS": "1",  # the peer's threads would count against it
        }
        plain.pop("ANYHAL_BACKEND_PATH", None)
        self.all = {"numpy": (NUMPY, plain), "ours 0": (OURS, plain)}
        for kind in KINDS:
            for count in (20, 100):
                path = manifests(folder, kind, count)
                found = plain | {"ANYHAL_BACKEND_PATH": str(path)}
                self.all[f"{kind} {count}"] = (OURS, found)
        self.times: dict[str, list[tuple[float, float]]] = {name: [] for name in self.all}

    def measure(self, blocks: int) -> None:
        time.sleep(SETTLED_SECONDS)
        for _ in range(2):
            for program in self.all.values():
                run(*program)
        for block in range(blocks):
            for name in list(self.all)[:: 1 if block % 2 else -1]:
                self.times[name].append(run(*self.all[name]))

    def least(self, name: str) -> float:
        return min(processor for processor, _ in self.times[name])

    def medians(self, name: str) -> tuple[float, float]:
        processor, wall = zip(*self.times[name], strict=True)
        return statistics.median(processor), statistics.median(wall)

    def figures(self) -> Iterator[Figure]:
        base = self.least("numpy")
        for name in ("ours 0", *(f"{kind} 20" for kind in KINDS)):
            rows = zip(self.times[name], self.times["numpy"], strict=True)
            ratios = statistics.quantiles((a[0] / b[0] for a, b in rows), n=4)
            value, extra = self.least(name), name.removeprefix("ours ")
            (ours, wall), (theirs, their_wall) = self.medians(name), self.medians("numpy")
            yield Figure(
                f"import and first matmul, {extra} manifests",
                *(value, "ms", "import numpy", base, value / base, (ratios[0], ratios[2])),
                details={"ratio_of_medians": ours / theirs, "ratio_of_wall": wall / their_wall},
            )
        without = self.least("ours 0")
        for kind in KINDS:
            value = self.least(f"{kind} 100")
            yield Figure(
                f"100 manifests, {kind}",
                *(value, "ms", "no manifest", without, value / without),
                details={"added_ms": value - without},
            )


def too_slow(figures: list[Figure]) -> list[str]:
    """One sentence per figure beyond its limit."""
    said = []
    for f in figures:
        added = f.details.get("added_ms")
        if isinstance(added, float) and added > MOST_ADDED_MS:
            said.append(f"{f.name}: they add {added:.1f} ms, {MOST_ADDED_MS:.0f} is the most")
        if f.baseline == "import numpy" and f.ratio > MOST_OF_NUMPY:
            said.append(f"{f.name}: {f.ratio:.2f} of import numpy, {MOST_OF_NUMPY} is the most")
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    parser.add_argument("--blocks", type=int, default=15, help="runs of each program")
    parser.add_argument("--check", action="store_true", help="1 when a figure is beyond its limit")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="anyhal-startup-") as folder:
        programs = Programs(Path(folder))
        programs.measure(max(given.blocks, 2))
        figures = list(programs.figures())
    show(figures, given.json)
    said = too_slow(figures) if given.check else []
    for sentence in said:
        print(sentence, file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
