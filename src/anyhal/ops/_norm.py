"""What the norms share: the optional residual, squares that stay in range, scale and shift.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._checks import (
    FLOATS,
    WIDE,
    check_dtype,
    check_eps,
    check_same_dtype,
    check_shape,
)
from anyhal.ops._draw import Rng, values
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Outs, Sample, Shape, TensorSpec
from anyhal.ops._trace import Trace, Value

EPS = Attr("eps", "f32", c_type="float", doc="added to the mean square or variance; not negative")
RESIDUAL = Arg("residual", "as x", optional=True, doc="added to x first")
TOTAL = Arg(
    "total", "as x", optional=True, bound="rounding", doc="x + residual, present with a residual"
)
RANGE = (
    "a sum x + residual is normalised before it is rounded to the output; beyond the accumulation "
    "dtype it is an infinity"
)

# Rows whose largest value is past 2^first are scaled by 2^second, a power of two and so exact,
# before they are squared; likewise rows below 2^third by 2^fourth, where eps does not hide them.
_SCALES = {"f32": (48, -80, -48, 96), "f64": (400, -700, -400, 650)}


def infer(
    op: str,
    x: TensorSpec,
    residual: TensorSpec | None,
    vectors: Mapping[str, TensorSpec | None],
    shape: Shape,
    axes: str,
    attrs: Mapping[str, Any],
) -> Outs:
    """Checks all operands; `vectors` have `shape`, whose letters are `axes`."""
    check_dtype(op, "x", x, FLOATS)
    check_eps(op, attrs)
    for name, vector in vectors.items():
        if vector is not None:
            check_same_dtype(op, x, vector)
            check_shape(op, name, vector, shape, axes)
    if residual is not None:
        check_same_dtype(op, x, residual)
        check_shape(op, "residual", residual, x.shape, "as x")
    out = TensorSpec.dense(x.dtype, x.shape)
    return out, None if residual is None else out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
) -> tuple[float, float]:
    moved = sum(s.nbytes for s in (*inputs, *outs) if s is not None)
    assert inputs[0] is not None
    return 8.0 * inputs[0].size, float(moved)


def summed(trace: Trace, x: Value, residual: Value | None) -> Value:
    """x + residual in the accumulation dtype."""
    acc = WIDE[x.dtype.short]
    v = trace.cast(x, acc)
    return v if residual is None else trace.binary("add", v, trace.cast(residual, acc))


def in_range(
    trace: Trace, v: Value, axes: tuple[int, ...], eps: float, source: str
) -> tuple[Value, Value]:
    """v and eps, scaled along `axes` so that squares neither overflow nor vanish."""
    acc = v.dtype
    eps = float(np.float32(eps))
    if source == "f16":  # its squares, and those of its sums, fit in f32 as they are
        return v, trace.constant(eps, acc)
    high, down, low, up = _SCALES[acc.short]
    tiny = 2.0 ** (1.5 * down)  # beside such values only a row of equal ones can see eps

    def number(value: float) -> Value:
        return trace.constant(value, acc)

    top = trace("reduce", trace.unary("abs", v), fn="max", axis=axes, keepdims=True)
    large = trace.binary("greater", top, number(2.0**high))
    factor = trace("where", large, number(2.0**down), number(1))
    scaled = max(eps * 2.0**down * 2.0**down, tiny) if eps else 0.0
    floor = trace("where", large, number(scaled), number(eps))
    if eps < 2.0 ** (2 * low + 16):
        small = trace.binary("less", top, number(2.0**low))
        factor = trace("where", small, number(2.0**up), factor)
        floor = trace("where", small, number(eps * 2.0**up * 2.0**up), floor)
    return trace.binary("multiply", v, factor), floor


def divided(trace: Trace, v: Value, axes: tuple[int, ...], floor: Value) -> Value:
    """v / sqrt(mean(v^2) + floor) along `axes`."""
    square = trace.binary("multiply", v, v)
    mean = trace("reduce", square, fn="mean", axis=axes, keepdims=True)
    return trace.binary("multiply", v, trace.unary("rsqrt", trace.binary("add", mean, floor)))


def centred(trace: Trace, v: Value, axes: tuple[int, ...]) -> Value:
    """v minus its mean. The mean of a large, nearly constant row is off by more than the spread of
    the row; what it is off by is the mean of the differences, which are exact."""
    for _ in range(2):
        mean = trace("reduce", v, fn="mean", axis=axes, keepdims=True)
        v = trace.binary("subtract", v, mean)
    return v


def finish(trace: Trace, y: Value, weight: Value | None, bias: Value | None, out: Value) -> None:
    """out = y * weight + bias, rounded once; weight and bias broadcast to y."""
    steps = [(fn, v) for fn, v in (("multiply", weight), ("add", bias)) if v is not None]
    for i, (fn, vector) in enumerate(steps):
        last = i + 1 == len(steps) and out.dtype == y.dtype
        y = trace.binary(fn, y, trace.cast(vector, y.dtype), out=out if last else None)
    if y != out:
        trace.cast(y, out.dtype, out=out)


def reference_sum(x: Any, residual: Any) -> Any:
    values = wide(x)
    if residual is None:
        return values
    values = values + wide(residual)
    limit = np.finfo(dtype(WIDE[dtype(x.dtype).short]).numpy).max
    return np.where(np.abs(values) > limit, np.copysign(np.inf, values), values)


def sample(count: int, label: str, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Sample:
    """With the last of `count` operands absent."""
    return Sample(label, (*inputs, *(None,) * (count - len(inputs))), attrs)


def maybe(rng: Rng, dims: Shape, short: str, chance: float = 0.6) -> Any:
    """An optional operand for a random case."""
    return values(rng, dims, short, 1) if rng.random() < chance else None
