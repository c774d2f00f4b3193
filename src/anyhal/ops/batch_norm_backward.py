"""batch_norm_backward(dout, x, mean, variance, weight, residual): the gradients of batch_norm.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _draw as draw
from anyhal.ops import _norm
from anyhal.ops._checks import FLOATS, WIDE, check_dtype, check_eps, check_same_dtype, check_shape
from anyhal.ops._gradient import dense, store, sum_over, zeros
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, LoweredOuts, OpSpec, Outs, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value

NAME = "batch_norm_backward"


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    dout, x, mean, variance, weight, residual = inputs
    assert dout is not None and x is not None
    check_dtype(NAME, "x", x, FLOATS)
    check_eps(NAME, attrs)
    if x.rank < 2:
        raise InvalidArgumentError(
            f"{NAME}: x is {describe(x)} but needs two dims or more, [N, C, ...]; reshape it"
        )
    vectors = {"mean": mean, "variance": variance, "weight": weight}
    for name, spec in {"dout": dout, "residual": residual, **vectors}.items():
        if spec is not None:
            check_same_dtype(NAME, x, spec)
            vector = name in vectors
            shape, axes = (x.shape[1:2], "[C]") if vector else (x.shape, "x's shape")
            check_shape(NAME, name, spec, shape, axes)
    channel = TensorSpec.dense(x.dtype, x.shape[1:2])
    statistic = channel if attrs["statistics"] else None
    return dense(x), statistic, statistic, dense(weight), channel if attrs["bias"] else None


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    return list(inputs), {"eps": attrs["eps"]}, outs


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
) -> tuple[float, float]:
    assert inputs[1] is not None
    return 7.0 * inputs[1].size, 3.0 * inputs[1].nbytes


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: Sequence[Value | None],
) -> None:
    dout, x, mean, variance, weight, residual = inputs
    dx, dmean, dvariance, dweight, dbias = outs
    assert dout is not None and x is not None and dx is not None
    assert mean is not None and variance is not None
    if x.spec.size == 0:
        zeros(trace, outs)
        return
    acc = WIDE[x.dtype.short]
    others = (0, *range(2, x.spec.rank))

    def number(value: Any) -> Value:
        return trace.constant(value, acc)

    def times(a: Value, b: Value) -> Value:
        return trace.binary("multiply", a, b)

    def spread(vector: Value) -> Value:
        """[C] as it stands beside x."""
        for _ in range(x.spec.rank - 2):
            vector = vector.expand_dims(vector.spec.rank)
        return vector

    d, v = trace.cast(dout, acc), _norm.summed(trace, x, residual)
    floor = number(np.float32(attrs["eps"]))
    factor = trace.unary("rsqrt", trace.binary("add", trace.cast(variance, acc), floor))
    w = None if weight is None else trace.cast(weight, acc)
    store(trace, "multiply", d if w is None else times(d, spread(w)), spread(factor), dx)
    if dmean is not None:
        total = trace("reduce", trace.unary("neg", d), fn="sum", axis=others)
        store(trace, "multiply", total if w is None else times(total, w), factor, dmean)
    if dvariance is not None or dweight is not None:
        away = trace.binary("subtract", v, spread(trace.cast(mean, acc)))
        terms = times(d, times(away, spread(factor)))
        if dweight is not None:
            sum_over(trace, terms, others, dweight)
        if dvariance is not None:
            total = times(trace("reduce", terms, fn="sum", axis=others), number(-0.5))
            total = times(total if w is None else times(total, w), factor)
            store(trace, "multiply", total, factor, dvariance)
    if dbias is not None:
        sum_over(trace, d, others, dbias)


def reference(
    dout: Any,
    x: Any,
    mean: Any,
    variance: Any,
    weight: Any = None,
    residual: Any = None,
    *,
    eps: float,
    statistics: bool = True,
    bias: bool = True,
) -> tuple[Any, ...]:
    others = (0, *range(2, x.ndim))

    def spread(v: Any) -> Any:
        return v.reshape(-1, *(1,) * (x.ndim - 2))

    with np.errstate(all="ignore"):
        d, t = wide(dout), _norm.reference_sum(x, residual)
        factor = 1 / np.sqrt(wide(variance) + t.dtype.type(np.float32(eps)))
        w = np.ones_like(factor) if weight is None else wide(weight)
        dx = d * spread(w) * spread(factor)
        dweight = (d * ((t - spread(wide(mean))) * spread(factor))).sum(axis=others)
        dmean = -d.sum(axis=others) * w * factor
        dvariance = -0.5 * dweight * w * factor * factor
        if x.size == 0:  # whatever the variances are
            dmean, dvariance = 0 * d.sum(axis=others), 0 * d.sum(axis=others)
    return (
        dx,
        dmean if statistics else None,
        dvariance if statistics else None,
        None if weight is None else dweight,
        d.sum(axis=others) if bias else None,
    )


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    eps = {"eps": 1e-5}
    for name in FLOATS:
        np_type = dtype(name).numpy
        for dims in ((2, 3), (2, 5, 7), (1, 4, 3, 7), (2, 3, 2, 2, 2)):
            d, x, residual = rng.standard_normal((3, *dims)).astype(np_type)
            mean, weight = rng.standard_normal((2, dims[1])).astype(np_type)
            variance = rng.uniform(0.1, 4, dims[1]).astype(np_type)
            given = (d, x, mean, variance, weight)
            yield Sample(f"{list(dims)} {name}", (*given, None), eps)
            yield Sample(f"residual {list(dims)} {name}", (*given, residual), eps)
        bare = {**eps, "statistics": False, "bias": False}
        yield Sample(f"bare {name}", (*given[:4], None, None), bare)
        yield Sample(f"no weight {name}", (*given[:4], None, residual), eps)
    d = np.array([[1, 2, -1], [1, 1, 3]], np.float32)
    x = np.array([[1, np.nan, 2], [3, 1, 3]], np.float32)
    mean, variance = np.array([0, 0, 1], np.float32), np.array([0, 1, -1], np.float32)
    odd = (d, x, mean, variance, None, None)
    yield Sample("no variance, NaN, negative variance", odd, {"eps": 0.0})
    yield Sample("no rows", (d[:0], x[:0], mean, variance, mean, None), eps)
    small = (d, np.nan_to_num(x), mean, np.float32(1e-20) * np.ones(3, np.float32), None, None)
    yield Sample("small variance", small, {"eps": 0.0})


def random(rng: draw.Rng) -> Sample:
    short, channels = draw.one_of(rng, FLOATS), draw.size(rng, 17)
    inner = tuple(draw.size(rng, 9) for _ in range(int(rng.integers(0, 3))))
    dims = (int(rng.integers(0, 4)), channels, *inner)
    d, x = draw.values(rng, dims, short, 1), draw.values(rng, dims, short, 1)
    mean, variance = (draw.values(rng, (channels,), short, 1) for _ in range(2))
    weight = _norm.maybe(rng, (channels,), short)
    residual = _norm.maybe(rng, dims, short, 0.3)
    attrs = {"eps": 1e-3, "bias": bool(rng.integers(2)), "statistics": bool(rng.integers(2))}
    return Sample("", (d, x, mean, np.abs(variance), weight, residual), attrs)


_SUMS = "batch_norm_backward_"

SPEC = OpSpec(
    id=92,
    name=NAME,
    since="0.1",
    summary="With t = x + residual, r = 1 / sqrt(variance + eps), sums over all but the channel: "
    "dx = dout * weight * r, dmean = -sum(dout) * weight * r, dweight = sum(dout * (t - mean) * "
    "r), dvariance = -dweight * weight * r^2 / 2, dbias = sum(dout); dx is the gradient of the "
    "residual, too.",
    inputs=(
        Arg("dout", "[N, C, ...]"),
        Arg("x", "[N, C, ...]", doc="what batch_norm took"),
        Arg("mean", "[C]"),
        Arg("variance", "[C]"),
        Arg("weight", "[C]", optional=True),
        _norm.RESIDUAL,
    ),
    output=Arg("dx", "[N, C, ...]"),
    more_outputs=(
        Arg("dmean", "[C]", doc="with statistics", bound=f"{_SUMS}mean"),
        Arg("dvariance", "[C]", doc="with statistics", bound=f"{_SUMS}variance"),
        Arg("dweight", "[C]", doc="with a weight", bound=f"{_SUMS}weight"),
        Arg("dbias", "[C]", doc="with bias", bound="channel_sum"),
    ),
    attrs=(
        Attr("eps", "f32", c_type="float", doc="added to the variance"),
        Attr("statistics", "bool", default=True, doc="also give dmean and dvariance"),
        Attr("bias", "bool", default=True, doc="also give dbias"),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="mean and variance are operands of their own, as in batch_norm: where they come from "
    "x, pass dmean and dvariance on to it; a negative variance + eps gives NaN, 0 an infinity or "
    "NaN; nothing to sum gives 0",
    aliasing="none",
    bound=NAME,
    source="the derivative of ONNX BatchNormalization, opset 15, for statistics that are given",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
