"""What arrays are filled with: distributions of real numbers, special values, all codes.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anyhal.dtypes import dtype

Rng = np.random.Generator

# The largest finite value and the smallest normal one, as powers of 2.
_RANGE = {"f64": (1023, -1022), "f32": (127, -126), "f16": (15, -14), "bf16": (127, -126)}


def _signed(rng: Rng, shape: tuple[int, ...], low: float, high: float) -> Any:
    sign = np.where(rng.integers(0, 2, shape), 1.0, -1.0)
    return sign * np.exp2(rng.uniform(low, high, shape))


def _cancelling(rng: Rng, shape: tuple[int, ...]) -> Any:
    """x and -x at a distance of half the last axis, and a thousandth of what is left."""
    x = rng.standard_normal(shape)
    half = shape[-1] // 2 if shape else 0
    if half:
        x[..., half : 2 * half] = -x[..., :half]
    return x + 1e-3 * rng.standard_normal(shape)


def _outliers(rng: Rng, shape: tuple[int, ...]) -> Any:
    x = rng.standard_normal(shape)
    if shape and shape[-1]:
        x[..., int(rng.integers(shape[-1]))] *= 100
    return x


def _rows_apart(rng: Rng, shape: tuple[int, ...]) -> Any:
    """Rows whose sizes are apart by up to 2^16."""
    rows = (*shape[:-1], 1) if shape else ()
    return rng.standard_normal(shape) * np.exp2(rng.integers(-8, 8, rows, endpoint=True))


def _repeated(rng: Rng, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(rng.standard_normal(shape[-1:]), shape).copy()


DISTRIBUTIONS: dict[str, Callable[[Rng, tuple[int, ...]], Any]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape),
    "positive": lambda rng, shape: rng.uniform(0.01, 1, shape),
    "rows_apart": _rows_apart,
    "cancelling": _cancelling,
    "constant": lambda rng, shape: np.full(shape, rng.uniform(0.5, 2)),
    "outliers": _outliers,
    "repeated": _repeated,
}


def scaled(rng: Rng, shape: tuple[int, ...], short: str, where: str) -> Any:
    """Numbers near an end of a dtype's range: "large", "small" (normal) or "subnormal"."""
    top, bottom = _RANGE[short]
    ends = {"large": (top - 4, top - 1), "small": (bottom, bottom + 3)}
    ends["subnormal"] = (bottom - 6, bottom - 1)
    return _signed(rng, shape, *ends[where])


def special(short: str) -> Any:
    """Zeros, infinities, NaN, the ends of the range, numbers next to 1, ties, and a few others."""
    kind = dtype(short).numpy
    top, bottom = _RANGE[short]
    bits = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}[short]
    ends = [2.0 ** (bottom - bits), 2.0**bottom * (1 - 2.0**-bits), 2.0**bottom]
    ends += [2.0**top * (2 - 2.0**-bits)]
    near = [1.0, 1 + 2.0**-bits, 1 - 2.0 ** (-bits - 1), 0.5, 1.5, 2.5, 3.0, 1e-3, 10.0, 88.0]
    found = np.array([0.0, np.inf, *ends, *near], np.float64)
    return np.concatenate([found, -found, [np.nan]]).astype(kind)


def codes(short: str, rng: Rng | None = None, count: int = 0) -> Any:
    """Every value of a dtype of 8 or 16 bits; or `count` bit patterns at random."""
    kind = dtype(short).numpy
    assert kind is not None
    word = np.dtype(f"u{kind.itemsize}")
    if rng is None:
        return np.arange(1 << 8 * kind.itemsize, dtype=word).view(kind)
    return rng.integers(0, 1 << 8 * kind.itemsize, count, dtype=word, endpoint=False).view(kind)


def integers(short: str) -> Any:
    """The ends of an integer dtype and what lies next to them, and small numbers."""
    info = np.iinfo(dtype(short).numpy)
    found = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2 + 1, 0, 1, 2, 3, 7, 8]
    if info.min < 0:
        found += [-1, -2, -3, -7, -8, info.min // 2]
    return np.array(sorted(set(found)), info.dtype)


def around(targets: Any, short: str) -> Any:
    """What rounds to values of another dtype: those, the middle between two of them, and the
    numbers of `short` next to each."""
    kind = dtype(short).numpy
    assert kind is not None
    finite = np.unique(np.asarray(targets).astype(np.float64))
    finite = finite[np.isfinite(finite)]
    with np.errstate(all="ignore"):
        middle = finite[:-1] / 2 + finite[1:] / 2
        past = finite[-1] + (finite[-1] - finite[-2]) * np.array([0.25, 0.5, 0.75, 1, 2])
        points = np.concatenate([finite, middle, past, -past]).astype(kind)
        points = points[np.isfinite(points)]
        up, down = (np.nextafter(points, kind.type(e)) for e in (np.inf, -np.inf))
    return np.concatenate([points, up, down])
