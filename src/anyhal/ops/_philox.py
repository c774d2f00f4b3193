"""Philox4x32-10: the random bits of every device, as core calls and as plain NumPy.
SPDX-License-Identifier: Apache-2.0

Word i of a key (seed, counter) is word i % 4 of the block that the generator makes from the counter
(i / 4, counter), two 64-bit numbers, low halves first, and the key `seed`, low half first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from anyhal.dtypes import DType
from anyhal.errors import InvalidArgumentError
from anyhal.ops._checks import FLOATS, check_dtype, check_shape, output_dtype
from anyhal.ops._draw import Rng, size
from anyhal.ops._spec import Arg, Attr, Shape, TensorSpec
from anyhal.ops._trace import Trace, Value

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF
BLOCKS_IN_ROW = 4096  # how the decomposition counts blocks: row * this + column

KEY = Arg("key", "[2]", doc="u64: seed, counter; a new counter for each call", own="u64")
SHAPE = Attr("shape", "ints", doc="shape of the output")
FLOAT = Attr(
    "dtype", "dtype", default=None, doc="float32 (the default), float16, bfloat16, float64"
)
SOURCE = "Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3"


def check_key(op: str, key: TensorSpec) -> None:
    check_dtype(op, "key", key, ("u64",))
    check_shape(op, "key", key, (2,), "[seed, counter]")


def check_output(op: str, attrs: Mapping[str, Any]) -> Shape:
    shape = tuple(attrs["shape"])
    if any(n < 0 for n in shape):
        raise InvalidArgumentError(
            f"{op}: shape={list(shape)} has a negative size, which no array has; pass sizes of 0 "
            "or more"
        )
    return shape


def float_dtype(op: str, attrs: Mapping[str, Any]) -> DType:
    return output_dtype(op, attrs["dtype"], FLOATS[0], FLOATS[1:])


# ------------------------------------------------------------------------------ as core calls


def words(trace: Trace, key: Value, count: int) -> Value:
    """The first `count` words, u32 [count].

    Both multiplications of a round are one call on [2, rows, columns]. A round swaps the halves of
    its result; instead of moving them, every other round has them the other way round.
    """
    blocks = -(-count // 4)
    columns = min(blocks, BLOCKS_IN_ROW)
    rows = -(-blocks // columns)
    dims = (2, rows, columns)
    low = trace.constant(LOW, "u64")
    half = trace.constant(32, "u64")
    round_keys, counter = _keys(trace, key, low, half)
    state, high, product, previous = (trace.temp(dims, "u64") for _ in range(4))
    first = np.arange(rows, dtype=np.uint64)[:, None] * np.uint64(columns)
    column = trace.constant(np.arange(columns), "u64")
    number = trace.binary("add", trace.constant(first, "u64"), column)
    trace.binary("bitwise_and", number, low, out=state.at(0, 0))
    trace.binary("shift_right", number, half, out=previous.at(0, 0))
    for value, part in zip(counter, (state, previous), strict=True):
        trace("copy", value.broadcast_to(dims[1:]), out=part.at(0, 1))
    factors = [
        trace.constant(np.reshape(m, (2, 1, 1)), "u64") for m in (MULTIPLIERS, MULTIPLIERS[::-1])
    ]
    for r in range(ROUNDS):
        trace.binary("multiply", state, factors[r % 2], out=product)
        trace.binary("shift_right", product, half, out=high)
        trace.binary("bitwise_xor", high, round_keys.at(0, r), out=high)
        for i in range(2):
            trace.binary("bitwise_xor", high.at(0, i), previous.at(0, 1 - i), out=state.at(0, i))
        trace.binary("bitwise_and", state, low, out=state)
        product, previous = previous, product
    found = trace.temp((rows, columns, 2, 2), "u32")
    trace.cast(state.permute(1, 2, 0), "u32", out=found.at(3, 0))
    trace.cast(previous.permute(1, 2, 0), "u32", out=found.at(3, 1))
    return found.reshape(4 * rows * columns).slice(0, 0, count)


def _keys(trace: Trace, key: Value, low: Value, half: Value) -> tuple[Value, tuple[Value, Value]]:
    """The keys of all rounds, [ROUNDS, 2, 1, 1], and the halves of the counter."""
    lows = trace.binary("bitwise_and", key, low)
    highs = trace.binary("shift_right", key, half)
    first = np.arange(2 * ROUNDS).reshape(ROUNDS, 2) % 4 % 3 != 0  # the low half of the key?
    steps = np.arange(ROUNDS, dtype=np.uint64)[:, None] * np.where(
        first, np.uint64(WEYL[0]), np.uint64(WEYL[1])
    )
    halves = trace("where", trace.constant(first, "bool"), lows.at(0, 0), highs.at(0, 0))
    table = trace.binary("add", halves, trace.constant(steps, "u64"))
    trace.binary("bitwise_and", table, low, out=table)
    return table.reshape(ROUNDS, 2, 1, 1), (lows.at(0, 1), highs.at(0, 1))


def long_words(trace: Trace, key: Value, count: int) -> Value:
    """u64 [count]: two words each, the low one first."""
    pairs = words(trace, key, 2 * count).reshape(count, 2)
    high = trace.cast(pairs.at(1, 1), "u64")
    high = trace.binary("shift_left", high, trace.constant(32, "u64"), out=high)
    return trace.binary("bitwise_or", high, trace.cast(pairs.at(1, 0), "u64"), out=high)


def first_of(flat: Value, shape: Shape) -> Value:
    """The first elements of a dense value, in row-major order."""
    return flat.slice(0, 0, math.prod(shape)).reshape(*shape)


# ----------------------------------------------------------------------------- as plain NumPy


def block_words(counter: Any, key: tuple[int, int]) -> Any:
    """The four words of each block; `counter` is u64 [..., 4] of 32-bit numbers."""
    c = [np.asarray(counter, np.uint64)[..., i] for i in range(4)]
    m = [np.uint64(n) for n in MULTIPLIERS]
    low, half = np.uint64(LOW), np.uint64(32)
    for r in range(ROUNDS):
        k = [np.uint64((n + r * w) & LOW) for n, w in zip(key, WEYL, strict=True)]
        p = [c[0] * m[0], c[2] * m[1]]
        c = [p[1] >> half ^ c[1] ^ k[0], p[1] & low, p[0] >> half ^ c[3] ^ k[1], p[0] & low]
    return np.stack(c, axis=-1).astype(np.uint32)


def reference_words(key: Any, count: int) -> Any:
    seed, counter = (int(n) for n in key)
    block = np.arange(-(-count // 4), dtype=np.uint64)
    parts = (block & np.uint64(LOW), block >> np.uint64(32), counter & LOW, counter >> 32)
    c = np.stack([np.broadcast_to(np.asarray(p, np.uint64), block.shape) for p in parts], axis=-1)
    return block_words(c, (seed & LOW, seed >> 32)).reshape(-1)[:count]


def reference_long_words(key: Any, count: int) -> Any:
    pairs = reference_words(key, 2 * count).reshape(count, 2).astype(np.uint64)
    return pairs[:, 1] << np.uint64(32) | pairs[:, 0]


# --------------------------------------------------------------------------------- for samples


def random_key(rng: Rng) -> Any:
    return rng.integers(0, 2**64, 2, np.uint64)


def random_shape(rng: Rng) -> Shape:
    shapes: list[Shape] = [(), (0,), (size(rng),), (3, size(rng)), (2, size(rng, 33), 5)]
    return shapes[int(rng.integers(len(shapes)))]


KEYS = (
    ("zeros", np.zeros(2, np.uint64)),
    ("ones", np.full(2, 2**64 - 1, np.uint64)),
    ("a seed and a step", np.array([0x0123456789ABCDEF, 3], np.uint64)),
)
