"""Number handling of the references: wide arithmetic, saturation, decoding of block formats.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anyhal.dtypes import DType, dtype
from anyhal.ops._spec import Blocks

BLOCK = 32  # elements per block of both formats


def wide(x: Any) -> Any:
    """Floating values in more precision than any backend has: float64, or long double for float64.
    Integers and booleans stay as they are; blocks are decoded."""
    if isinstance(x, Blocks):
        return decode(x)
    if x.dtype.kind in "iub":
        return x
    return x.astype(np.longdouble if x.dtype == np.float64 else np.float64)


def decode(blocks: Blocks) -> Any:
    """The exact values of a block-format array, as float64."""
    rows = blocks.data.reshape(-1, blocks.dtype.block_bytes)
    scale = rows[:, :2].copy().view(np.float16).astype(np.float64)
    if blocks.dtype.short == "q8_0":
        values = scale * rows[:, 2:].view(np.int8).astype(np.float64)
    else:
        minimum = rows[:, 2:4].copy().view(np.float16).astype(np.float64)
        nibbles = np.concatenate([rows[:, 4:] & 15, rows[:, 4:] >> 4], axis=1)
        values = scale * nibbles.astype(np.float64) + minimum
    return values.reshape(blocks.shape)


def random_blocks(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Blocks:
    """Blocks whose scales differ from block to block (NUM-24), values of order one."""
    dt = dtype(name)
    count = int(np.prod(shape)) // BLOCK
    data = rng.integers(0, 256, (count, dt.block_bytes), dtype=np.uint8)
    header = 1 if dt.short == "q8_0" else 2
    scales = rng.uniform(0.25, 1.0, (count, header)).astype(np.float16)
    scales[:, 0] /= np.float16(128 if dt.short == "q8_0" else 8)
    if header == 2:
        scales[:, 1] -= np.float16(1.5)
    data[:, : 2 * header] = scales.view(np.uint8)
    return Blocks(data, dt, shape)


def saturate(x: Any, to: DType) -> Any:
    """Float to integer: toward zero, clamped to the range, NaN to 0."""
    assert to.numpy is not None
    limits = np.iinfo(to.numpy)
    # Compare in the float's own type: the limits of 64-bit integers are not all representable,
    # but every float at or beyond them is clamped before it is converted.
    with np.errstate(all="ignore"):
        t = np.trunc(x)
        high = t >= float(limits.max)
        low = t <= float(limits.min)
        safe = np.where(high | low | np.isnan(t), 0, t).astype(to.numpy)
        return np.where(high, limits.max, np.where(low, limits.min, safe)).astype(to.numpy)


def convert(x: Any, to: DType) -> Any:
    """A value as `cast` converts it; floats keep full width, for the caller to round."""
    if to.kind == "bool":
        return x != 0
    if to.kind == "float":
        return x.astype(np.longdouble if to.short == "f64" else np.float64)
    if x.dtype.kind == "f":
        return saturate(x, to)
    return x.astype(to.numpy)  # integers wrap


def rounded(x: Any, to: DType) -> Any:
    """A wide reference value in its output dtype, as an ideal backend would store it."""
    if x.dtype == np.longdouble and to.short != "f64":
        x = x.astype(np.float64)
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(to.numpy)
