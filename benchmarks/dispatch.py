"""What a small call costs from Python: 8x8 f32 matmul against NumPy, in the same run.
SPDX-License-Identifier: Apache-2.0

    python benchmarks/dispatch.py [--json] [--blocks N] [--device NAME]

Blocks rotate over 64 operand sets with different values, synchronise inside, and compare results.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a busy second core must not slow the peer

import numpy as np
from timing import Figure, compare, show, threads

import anyhal as hal

SETS, ROUNDS = 64, 50
CALLS = SETS * ROUNDS


class Sets:
    """The same 64 operand sets as ndarrays and as Arrays."""

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        self.np_in = [rng.standard_normal((8, 8)).astype(np.float32) for _ in range(SETS)]
        self.np_out = [np.empty((8, 8), np.float32) for _ in range(SETS)]
        self.hal_in = [hal.asarray(x) for x in self.np_in]
        self.hal_out = [hal.empty((8, 8), dtype="float32") for _ in range(SETS)]

    def numpy_out(self) -> None:
        for _ in range(ROUNDS):
            for x, y in zip(self.np_in, self.np_out, strict=True):
                np.matmul(x, x, out=y)

    def hal_given(self) -> None:
        matmul = hal.matmul
        for _ in range(ROUNDS):
            for x, y in zip(self.hal_in, self.hal_out, strict=True):
                matmul(x, x, out=y)
        hal.synchronize()

    def numpy_new(self) -> None:
        for _ in range(ROUNDS):
            for x in self.np_in:
                x @ x

    def hal_new(self) -> None:
        matmul = hal.matmul
        for _ in range(ROUNDS):
            for x in self.hal_in:
                matmul(x, x)
        hal.synchronize()

    def check(self) -> None:
        for x, y, z in zip(self.np_in, self.hal_out, self.hal_in, strict=True):
            wanted = x.astype(np.float64) @ x.astype(np.float64)
            for got in (y, hal.matmul(z, z)):
                if not np.allclose(got.numpy(), wanted, atol=1e-5):
                    raise SystemExit("the products differ: the timing means nothing")


def figure(
    name: str, ours: Callable[[], None], theirs: Callable[[], None], peer: str, blocks: int
) -> Figure:
    mine, other, interval = compare(ours, theirs, blocks)
    return Figure(
        name,
        mine / CALLS * 1e9,
        "ns",
        peer,
        other / CALLS * 1e9,
        mine / other,
        interval,
        {"numpy": np.__version__, "threads": threads(), "device": hal.device().name},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--device", default=None)
    given = parser.parse_args()
    device = hal.device(given.device) if given.device else hal.device()
    with hal.use(device=device):  # a scope is set, as in a real program
        sets = Sets()
        sets.hal_given()
        sets.check()
        figures = [
            figure(
                "matmul 8x8 out=",
                sets.hal_given,
                sets.numpy_out,
                "numpy.matmul(out=)",
                given.blocks,
            ),
            figure("matmul 8x8 new", sets.hal_new, sets.numpy_new, "numpy a @ b", given.blocks),
        ]
    show(figures, given.json)


if __name__ == "__main__":
    main()
