"""What random cases are drawn from: edge sizes, shapes that broadcast, values of every dtype.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._checks import FLOATS, FP8
from anyhal.ops._spec import Shape

if TYPE_CHECKING:
    from numpy.random import Generator as Rng
else:
    Rng = "numpy.random.Generator"  # annotations need no more, and importing it takes a while

# Around the widths of vectors and tiles, and what lies below them.
EDGES = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 129)
ELEMENTS_MAX = 4096


def size(rng: Rng, largest: int = 129, smallest: int = 0) -> int:
    return int(rng.choice([e for e in EDGES if smallest <= e <= largest]))


def shape(rng: Rng, lowest_rank: int = 0, smallest: int = 0) -> Shape:
    rank = int(rng.integers(lowest_rank, 5))
    while True:
        found = tuple(size(rng, smallest=smallest) for _ in range(rank))
        if np.prod([max(n, 1) for n in found], dtype=int) <= ELEMENTS_MAX:
            return found


def stretched(rng: Rng, full: Shape) -> Shape:
    """A shape that broadcasts to `full`."""
    found = tuple(1 if rng.random() < 0.25 else n for n in full)
    return found[int(rng.integers(0, len(full) + 1)) :] if rng.random() < 0.3 else found


def values(rng: Rng, dims: Shape, short: str, spread: float = 3.0) -> Any:
    np_type = dtype(short).numpy
    if short == "bool":
        return rng.integers(0, 2, dims).astype(np_type)
    if short in (*FLOATS, *FP8):
        return np.asarray(spread * rng.standard_normal(dims)).astype(np_type)
    info = np.iinfo(np_type)
    return rng.integers(max(info.min, -100), min(info.max, 100), dims, endpoint=True).astype(
        np_type
    )


def one_of(rng: Rng, options: Any) -> Any:
    options = list(options)
    return options[int(rng.integers(len(options)))]
