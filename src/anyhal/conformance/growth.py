"""How far rounding takes a sum, by how many terms it has and whether these are all one number.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Terms whose relative spread is below 1e-7 count as one number; wide numbers tell it from their
# own rounding.
_SPREAD = 1e-14


def growth(n: int | Any, data: str = "any", one_number: Any = False) -> Any:
    """How many u a sum of n terms may be off, per sum of magnitudes.

    The roundings of a sum of various terms are as good as random, so that they add up to
    2 + 2 sqrt(n) with all but certainty, in any order; to 8 where the terms have mean zero. That is
    no worst case. Where all terms are `one_number` (a bool, or one for each sum), each rounding
    repeats the one before as long as the exponent of the sum stays: then only n holds, which is
    the worst case.
    """
    usual = 8.0 if data == "mean_zero" else 2 + 2 * np.sqrt(n)
    return np.where(one_number, np.maximum(usual, n), usual)


def moments(x: Any) -> tuple[Any, Any, Any]:
    """What summed gives what `alike` takes; in f64, of which the references make long doubles."""
    x = x.astype(np.float64)
    return np.ones_like(x), x, x * x


def alike(n: int | Any, total: Any, squares: Any) -> Any:
    """Whether all n terms of sums are one number, from their totals and totals of squares."""
    return n * squares - total * total <= _SPREAD * total * total


def constant(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether x holds one number along an axis, or as a whole."""
    if x.size == 0:
        return False
    return np.ptp(x, axis=axis, keepdims=keepdims) == 0


def constant_products(a: Any, b: Any) -> Any:
    """Whether all terms of each element of a @ b are one number, because both factors are."""
    if a.size == 0 or b.size == 0:
        return False
    if a.ndim < 2 or b.ndim < 2:
        return constant(a, axis=-1) & constant(b, axis=min(b.ndim, 2) * -1)
    return constant(a, axis=-1, keepdims=True) & constant(b, axis=-2, keepdims=True)
