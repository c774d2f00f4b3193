"""What rules share: types, sums over what broadcasting stretched, computing in a wider dtype.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyhal as hal
from anyhal import Array

Gradients = Sequence[Array | None]
# (the call, the gradient of each output or None) -> a gradient or None for each input. An op with
# one output never sees None. The tape casts what is returned to the dtype of the input.
Rule = Callable[..., Gradients]


def one_minus(x: Array) -> Any:
    return hal.add(hal.negative(x), 1.0)


def nothing(x: Array) -> Any:
    """Zeros as x."""
    return hal.zeros(x.shape, dtype=x.dtype, device=x.device)


def cast(x: Any, dtype: str) -> Any:
    return x if x.dtype == dtype else hal.astype(x, dtype=dtype)


def sum_dtype(x: Array) -> str:
    """What sums of x are formed in."""
    return "float64" if x.dtype == "float64" else "float32"


def wide(x: Array) -> Any:
    """x in the dtype that sums are formed in."""
    return cast(x, sum_dtype(x))


def added(a: Array | None, b: Array | None) -> Any:
    """a + b, where either may be absent."""
    return b if a is None else a if b is None else hal.add(a, cast(b, a.dtype))


def sum_to(d: Array, x: Any) -> Any:
    """d summed over what broadcasting stretched; None for a number."""
    if not isinstance(x, Array):
        return None
    lead = d.ndim - x.ndim
    axes = [i for i in range(d.ndim) if i < lead or (x.shape[i - lead] == 1 and d.shape[i] != 1)]
    if not axes:
        return d
    return hal.reshape(hal.sum(d, axis=tuple(axes)), x.shape)
