"""Index operands in decompositions: refusing what is outside, and positions in a flat array.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anyhal.ops._spec import Shape, dense_strides
from anyhal.ops._trace import Trace, Value


def in_range(trace: Trace, indices: Value, size: int) -> Value:
    """The indices, with a gather from a row of `size` zeros added: the device refuses an index
    outside of it before anything that depends on the result is written."""
    zeros = trace.constant(0, indices.dtype).broadcast_to((size,))
    return trace.binary("add", indices, trace("gather", zeros, indices, axis=0))


def along(values: Any, axis: int, rank: int) -> Any:
    """A row of numbers shaped to broadcast along one of `rank` axes."""
    return np.reshape(values, [-1 if d == axis else 1 for d in range(rank)])


def flat(trace: Trace, indices: Value, shape: Shape, axis: int, made: Sequence[int]) -> Value:
    """Where in a dense array of `shape` the element stands that has index `indices` along `axis`
    and its own position on the other axes; i64 of shape `made`."""
    strides = dense_strides(shape, indices.dtype)
    found = trace.cast(indices, "i64")
    if strides[axis] != 1:
        found = trace.binary("multiply", found, trace.constant(strides[axis], "i64"))
    for d, n in enumerate(made):
        if d != axis and n > 1 and shape[d] > 1:
            steps = trace.numbers(n, "i64")
            if strides[d] != 1:
                steps = trace.binary("multiply", steps, trace.constant(strides[d], "i64"))
            found = trace.binary("add", found, steps.reshape(n, *(1,) * (len(shape) - 1 - d)))
    return found


def dense(trace: Trace, x: Value) -> Value:
    """x without gaps, copied only if it has some."""
    return x if x.spec.is_dense else trace("copy", x)


def check_indices(indices: Any, size: int) -> None:
    """As a reference refuses an index."""
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        raise IndexError("an index is outside the axis")
