"""What the decompositions of several backward and optimiser ops share.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Sequence

from anyhal.ops._spec import TensorSpec
from anyhal.ops._trace import Trace, Value


def store(trace: Trace, fn: str, a: Value, b: Value, out: Value) -> None:
    """out = fn(a, b), computed in the dtype of a and b and rounded once."""
    if out.dtype == a.dtype:
        trace.binary(fn, a, b, out=out)
    else:
        trace.cast(trace.binary(fn, a, b), out.dtype, out=out)


def sum_rows(trace: Trace, x: Value, out: Value) -> None:
    """out[n] = sum over all rows of x[..., n]."""
    if x.spec.rank == 1:
        trace.cast(x, out.dtype, out=out)
        return
    rows = tuple(range(x.spec.rank - 1))
    if out.dtype == x.dtype:
        trace("reduce", x, fn="sum", axis=rows, out=out)
    else:
        trace.cast(trace("reduce", x, fn="sum", axis=rows), out.dtype, out=out)


def zeros(trace: Trace, outs: Sequence[Value | None]) -> None:
    for out in outs:
        if out is not None:
            trace.zeros(out)


def dense(spec: TensorSpec | None) -> TensorSpec | None:
    return None if spec is None else TensorSpec.dense(spec.dtype, spec.shape)
