"""Number handling of the references: wide arithmetic, saturation, decoding of block formats.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anyhal.dtypes import DType, dtype
from anyhal.ops._checks import FP8, PACKED
from anyhal.ops._spec import Blocks


def wide(x: Any) -> Any:
    """Floating values in more precision than any backend has: float64, or long double for float64.
    Integers and booleans stay as they are; blocks are decoded, packed integers to int64."""
    if isinstance(x, Blocks):
        return decode(x)
    if x.dtype.kind in "iub":
        return x
    return x.astype(np.longdouble if x.dtype == np.float64 else np.float64)


# ------------------------------------------------------------------------------- block formats


def decode(blocks: Blocks) -> Any:
    """The exact values of a block-format array: float64, of packed integers int64."""
    rows = blocks.data.reshape(-1, blocks.dtype.block_bytes)
    return _DECODERS[blocks.dtype.short](rows).reshape(blocks.shape)


def _f16(rows: Any, at: int) -> Any:
    return rows[:, at : at + 2].copy().view(np.float16).astype(np.float64)


def _nibbles(rows: Any) -> Any:
    """The low nibbles of each row, then the high ones, as integers."""
    return np.concatenate([rows & 15, rows >> 4], axis=1).astype(np.int64)


def _pairs(rows: Any) -> Any:
    """The nibbles of each byte side by side, the low one first."""
    return np.stack([rows & 15, rows >> 4], axis=-1).reshape(len(rows), 2).astype(np.int64)


def _q4_k(rows: Any) -> Any:
    packed = rows[:, 4:16].astype(np.int64)
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    # Groups 0 to 3 have six bits in a byte; 4 to 7 four bits there and two above those of 0 to 3.
    scales = np.concatenate([low & 63, high & 15 | low >> 6 << 4], axis=1)
    minima = np.concatenate([middle & 63, high >> 4 | middle >> 6 << 4], axis=1)
    q = _nibbles(rows[:, 16:].reshape(-1, 32)).reshape(-1, 8, 32)
    found = (_f16(rows, 0) * scales)[..., None] * q - (_f16(rows, 2) * minima)[..., None]
    return found.reshape(len(rows), 256)


def _q6_k(rows: Any) -> Any:
    halves = []  # each of 128 values: 64 bytes of nibbles, 32 of bit pairs
    for half in (0, 1):
        low = _nibbles(rows[:, 64 * half : 64 * half + 64])
        pairs = rows[:, 128 + 32 * half : 160 + 32 * half].astype(np.int64)
        upper = np.concatenate([pairs >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)
        halves.append((low | upper << 4) - 32)
    scales = np.repeat(rows[:, 192:208].view(np.int8).astype(np.int64), 16, axis=1)
    return _f16(rows, 208) * scales * np.concatenate(halves, axis=1)


_DECODERS: dict[str, Any] = {
    "q4_0": lambda rows: _f16(rows, 0) * (_nibbles(rows[:, 2:]) - 8),
    "q4_1": lambda rows: _f16(rows, 0) * _nibbles(rows[:, 4:]) + _f16(rows, 2),
    "q8_0": lambda rows: _f16(rows, 0) * rows[:, 2:].view(np.int8).astype(np.float64),
    "q4_k": _q4_k,
    "q6_k": _q6_k,
    "i4": lambda rows: (_pairs(rows) ^ 8) - 8,
    "u4": _pairs,
}

# Where the f16 factors of a format lie, and about how large one must be for values of order one.
_FACTORS = {
    "q4_0": ((0, 1 / 8),),
    "q4_1": ((0, 1 / 8), (2, 1.0)),
    "q8_0": ((0, 1 / 128),),
    "q4_k": ((0, 1 / 256), (2, 1 / 64)),
    "q6_k": ((208, 1 / 1024),),
    "i4": (),
    "u4": (),
}


def random_blocks(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Blocks:
    """Blocks whose scales differ from block to block (NUM-24), values of order one."""
    dt = dtype(name)
    count = int(np.prod(shape)) // dt.block_elements
    data = rng.integers(0, 256, (count, dt.block_bytes), dtype=np.uint8)
    for at, size in _FACTORS[dt.short]:
        factors = (size * rng.uniform(0.25, 1.0, (count, 1))).astype(np.float16)
        if dt.short == "q4_1" and at == 2:
            factors -= np.float16(1.5)
        data[:, at : at + 2] = factors.view(np.uint8)
    return Blocks(data, dt, shape)


def pack_nibbles(values: Any, name: str) -> Blocks:
    """Integers as an i4 or u4 array; the last axis is even."""
    pairs = (np.asarray(values).astype(np.int64) & 15).astype(np.uint8).reshape(-1, 2)
    return Blocks(pairs[:, :1] | pairs[:, 1:] << 4, dtype(name), np.shape(values))


# --------------------------------------------------------------------------------- conversions


def limits(to: DType) -> tuple[int, int]:
    """The smallest and the largest integer of a dtype."""
    if to.short in PACKED:
        return (-8, 7) if to.short == "i4" else (0, 15)
    assert to.numpy is not None
    return int(np.iinfo(to.numpy).min), int(np.iinfo(to.numpy).max)


def holder(to: DType) -> Any:
    """The NumPy dtype that the values of an integer dtype are handed around in."""
    return to.numpy or np.dtype(np.int8 if to.short == "i4" else np.uint8)


def saturate(x: Any, to: DType) -> Any:
    """Float to integer: toward zero, clamped to the range, NaN to 0."""
    least, most = limits(to)
    # Compare in the float's own type: the limits of 64-bit integers are not all representable,
    # but every float at or beyond them is clamped before it is converted.
    with np.errstate(all="ignore"):
        t = np.trunc(x)
        high = t >= float(most)
        low = t <= float(least)
        safe = np.where(high | low | np.isnan(t), 0, t).astype(holder(to))
        return np.where(high, most, np.where(low, least, safe)).astype(holder(to))


def fp8_codes(d: DType) -> Any:
    """Every value of an 8-bit float, by its code."""
    assert d.numpy is not None
    return np.arange(256, dtype=np.uint8).view(d.numpy)


def fp8(x: Any, to: DType, overflow: str) -> Any:
    """The value of an 8-bit float nearest to x, ties to the even code; what rounds past the largest
    saturates, or becomes infinity in e5m2 and NaN in the others."""
    codes = fp8_codes(to)[:128].astype(np.longdouble)
    finite = codes[np.isfinite(codes)]
    past = 2 * finite[-1] - finite[-2]  # where the next code would be
    steps = np.append(finite, past)
    x = np.asarray(x).astype(np.longdouble)
    with np.errstate(all="ignore"):
        size = np.minimum(np.abs(x), past)
        upper = np.searchsorted(steps, size).clip(1, len(finite))
        below, above = size - steps[upper - 1], steps[upper] - size
        up = (above < below) | ((above == below) & (upper % 2 == 0))
        index = np.where(up, upper, upper - 1)
        largest = finite[-1] if overflow == "saturate" else codes[-4]  # 0x7c: infinity of e5m2
        if overflow != "saturate" and to.short != "f8_e5m2":
            largest = np.longdouble(np.nan)
        found = np.where(index == len(finite), largest, steps[index])
        zero = 1.0 if to.short.endswith("fnuz") else np.copysign(1.0, x)
        signed = np.where(found == 0, found * zero, np.copysign(found, x))
        return np.where(np.isnan(x), np.nan, signed).astype(np.float64)


def convert(x: Any, to: DType, overflow: str = "unstated") -> Any:
    """A value as `cast` converts it; floats keep full width, for the caller to round."""
    if to.kind == "bool":
        return x != 0
    if to.short in FP8:
        return fp8(x, to, overflow)
    if to.kind == "float":
        return x.astype(np.longdouble if to.short == "f64" else np.float64)
    if x.dtype.kind == "f":
        return saturate(x, to)
    if to.short in PACKED:
        low = x.astype(np.int64) & 15
        return (low - 16 * (low > limits(to)[1])).astype(holder(to))
    return x.astype(to.numpy)  # integers wrap


def rounded(x: Any, to: DType) -> Any:
    """A wide reference value in its output dtype, as an ideal backend would store it."""
    if x.dtype == np.longdouble and to.short != "f64":
        x = x.astype(np.float64)
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(to.numpy)
