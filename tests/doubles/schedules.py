"""Random programs over two backends with hostile timing: every value must be what it would be in
order. SPDX-License-Identifier: Apache-2.0

    python tests/doubles/schedules.py --count 2000 --seed 1

Producers and consumers stand on two queues of the simulated CUDA driver and on two of the
scriptable backend, which puts work off as long as the contract allows.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]

LENGTH = 96


class Program:
    """One array's way over queues and devices, with the value it must have."""

    def __init__(self, seed: int, homes: list[tuple[str, list[Any]]]) -> None:
        import anyhal as hal

        self.hal = hal
        self.random = random.Random(seed)
        self.homes = homes
        self.place = self.random.randrange(len(homes))
        self.value = float(self.random.randrange(8))
        with hal.use(device=self.device):
            self.array = hal.asarray(np.full(LENGTH, self.value, np.float32))

    @property
    def device(self) -> str:
        return self.homes[self.place][0]

    def step(self) -> None:
        """Adds, doubles, writes in place or moves on; each on a queue drawn anew."""
        queue = self.random.choice(self.homes[self.place][1])
        with self.hal.use(device=self.device, queue=queue):
            what = self.random.randrange(5)
            if what == 0:
                self.array, self.value = self.hal.add(self.array, 1.0), self.value + 1
            elif what == 1:
                self.array, self.value = self.hal.add(self.array, self.array), self.value * 2
            elif what == 2:
                self.hal.add(self.array, 2.0, out=self.array)
                self.value += 2
            elif what == 3:
                self.hal.subtract(self.array, self.array, out=self.array)
                self.value = 0
            else:
                self.move()

    def move(self) -> None:
        self.place = (self.place + 1) % len(self.homes)
        with self.hal.use(device=self.device):
            self.array = self.hal.asarray(self.array, device=self.device)

    def run(self) -> str | None:
        """What is wrong, or None."""
        for _ in range(self.random.randrange(4, 16)):
            self.step()
            if self.random.random() < 0.15 and (wrong := self.look()):
                return wrong
        return self.look()

    def look(self) -> str | None:
        found = self.array.numpy()
        if (found == self.value).all():
            return None
        return f"{found[0]} and {found[-1]} on {self.device} instead of {self.value}"


def run_schedules(count: int, seed: int, script: str = "") -> list[str]:
    """Runs that many programs; what was wrong. `script` says more to the simulated driver."""
    os.environ["CUDA_DOUBLE"] = f"seed={seed}; {script}"
    import anyhal as hal

    late = {"script": "mode=async; delay=30us"}
    (scripted,) = hal.load_backend("fake", instance=f"fake_{seed}", settings=late)
    devices = [hal.device("cuda:0"), scripted]
    scope = hal.use(allow_uncertified=("fake", scripted.name.split(":")[0]))
    wrong = []
    with scope:
        homes = [(d.name, [hal.Queue(d), hal.Queue(d)]) for d in devices]
        for i in range(count):
            if found := Program(seed * 100_003 + i, homes).run():
                wrong.append(f"schedule {seed * 100_003 + i}: {found}")
    return wrong


def find_double() -> None:
    """The variable that names the double, or the double built anew."""
    if "ANYHAL_CUDA_DRIVER" in os.environ:
        return
    sys.path.insert(0, str(ROOT / "backends" / "cuda" / "tests"))
    from simulated import build_double

    folder = ROOT / "build" / "cuda-double"
    build_double(folder)
    os.environ["ANYHAL_CUDA_DRIVER"] = str(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    find_double()
    started = time.monotonic()
    wrong = run_schedules(given.count, given.seed)
    print("\n".join(wrong[:20]))
    seconds = time.monotonic() - started
    print(f"{given.count} schedules in {seconds:.0f} s, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
