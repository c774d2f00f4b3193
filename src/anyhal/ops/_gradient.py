"""What the decompositions of several backward and optimiser ops share.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anyhal.ops._spec import TensorSpec
from anyhal.ops._trace import Trace, Value
from anyhal.records import record


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
    sum_over(trace, x, tuple(range(x.spec.rank - 1)), out)


def sum_over(trace: Trace, x: Value, axes: tuple[int, ...], out: Value) -> None:
    """out = the sum of x over some axes, rounded once."""
    if out.dtype == x.dtype:
        trace("reduce", x, fn="sum", axis=axes, out=out)
    else:
        trace.cast(trace("reduce", x, fn="sum", axis=axes), out.dtype, out=out)


def zeros(trace: Trace, outs: Sequence[Value | None]) -> None:
    for out in outs:
        if out is not None:
            trace.zeros(out)


def dense(spec: TensorSpec | None) -> TensorSpec | None:
    return None if spec is None else TensorSpec.dense(spec.dtype, spec.shape)


@record
class Normalised:
    """x / root along some axes, and 1 / root as a product of two numbers per row, of which the
    second is a power of two: so neither leaves the range of the dtype."""

    unit: Value
    factor: Value
    power: Value


# A row whose largest value is past 2^first is scaled by 2^second before it is squared, and one
# below 2^third by 2^fourth: powers of two, and so exact.
_SCALES = {"f32": (48, -80, -48, 96), "f64": (400, -700, -400, 650)}


def normalised(
    trace: Trace, v: Value, eps: float, centred: bool, axes: tuple[int, ...] = (-1,)
) -> Normalised:
    """v over the root of its mean square plus eps, its mean taken off first if `centred`."""

    def mean(values: Value) -> Value:
        return trace("reduce", values, fn="mean", axis=axes, keepdims=True)

    def number(value: float) -> Value:
        return trace.constant(value, v.dtype)

    high, down, low, up = _SCALES[v.dtype.short]
    top = trace("reduce", trace.unary("abs", v), fn="max", axis=axes, keepdims=True)
    small = trace.binary("less", top, number(2.0**low))
    power = trace("where", small, number(2.0**up), number(1))
    large = trace.binary("greater", top, number(2.0**high))
    power = trace("where", large, number(2.0**down), power)
    v = trace.binary("multiply", v, power)
    # What the first mean of a large, nearly constant row is off by is the mean of the differences.
    for _ in range(2 if centred else 0):
        v = trace.binary("subtract", v, mean(v))
    root = trace.unary("sqrt", mean(trace.binary("multiply", v, v)))
    least = trace.binary("multiply", power, number(np.sqrt(np.float64(np.float32(eps)))))
    # sqrt(root^2 + least^2) as longer * sqrt(1 + t^2).
    longer, shorter = (trace.binary(fn, root, least) for fn in ("maximum", "minimum"))
    t = trace.binary("divide", shorter, longer)
    t = trace.binary("add", trace.binary("multiply", t, t), number(1))
    factor = trace.binary("divide", trace.unary("rsqrt", t), longer)
    return Normalised(trace.binary("multiply", v, factor), factor, power)
