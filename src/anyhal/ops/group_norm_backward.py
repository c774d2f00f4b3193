"""group_norm_backward(dout, x, weight, residual): the gradients of group_norm.
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
from anyhal.ops._gradient import dense, normalised, store, sum_over, zeros
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, LoweredOuts, OpSpec, Outs, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value

NAME = "group_norm_backward"


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    dout, x, weight, residual = inputs
    assert dout is not None and x is not None
    check_dtype(NAME, "x", x, FLOATS)
    check_eps(NAME, attrs)
    groups = attrs["groups"]
    if x.rank < 2 or groups < 1 or x.shape[1] % groups:
        raise InvalidArgumentError(
            f"{NAME}: x {describe(x)} in {groups} groups: axis 1 holds the channels, and the "
            "groups must divide them; reshape x or change groups"
        )
    for name, spec in (("dout", dout), ("residual", residual)):
        if spec is not None:
            check_same_dtype(NAME, x, spec)
            check_shape(NAME, name, spec, x.shape, "x's shape")
    if weight is not None:
        check_same_dtype(NAME, x, weight)
        check_shape(NAME, "weight", weight, x.shape[1:2], "[C]")
    dbias = TensorSpec.dense(x.dtype, x.shape[1:2]) if attrs["bias"] else None
    return dense(x), dense(weight), dbias


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    return list(inputs), {"groups": attrs["groups"], "eps": attrs["eps"]}, outs


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
) -> tuple[float, float]:
    assert inputs[1] is not None
    return 14.0 * inputs[1].size, 3.0 * inputs[1].nbytes


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: Sequence[Value | None],
) -> None:
    dout, x, weight, residual = inputs
    dx, dweight, dbias = outs
    assert dout is not None and x is not None and dx is not None
    if x.spec.size == 0:
        zeros(trace, outs)
        return
    acc, groups, rank = WIDE[x.dtype.short], attrs["groups"], x.spec.rank
    width = x.shape[1] // groups
    # [N, groups, width, ...]: a row is all that follows the groups, a channel all but two axes.
    row_axes, channel_axes = tuple(range(2, rank + 1)), (0, *range(3, rank + 1))
    d = trace.cast(dout.split(1, groups, width), acc)
    added = None if residual is None else residual.split(1, groups, width)
    v = _norm.summed(trace, x.split(1, groups, width), added)
    row = normalised(trace, v, attrs["eps"], centred=True, axes=row_axes)
    g = d
    if weight is not None:
        w = trace.cast(weight, acc).split(0, groups, width)
        for _ in range(rank - 2):
            w = w.expand_dims(w.spec.rank)
        g = trace.binary("multiply", d, w)

    def mean(values: Value) -> Value:
        return trace("reduce", values, fn="mean", axis=row_axes, keepdims=True)

    along = mean(trace.binary("multiply", g, row.unit))
    across = trace.binary("subtract", g, mean(g))
    across = trace.binary("subtract", across, trace.binary("multiply", row.unit, along))
    across = trace.binary("multiply", across, row.factor)
    store(trace, "multiply", across, row.power, dx.split(1, groups, width))
    if dweight is not None:
        terms = trace.binary("multiply", d, row.unit)
        sum_over(trace, terms, channel_axes, dweight.split(0, groups, width))
    if dbias is not None:
        sum_over(trace, d, channel_axes, dbias.split(0, groups, width))


def reference(
    dout: Any,
    x: Any,
    weight: Any = None,
    residual: Any = None,
    *,
    groups: int,
    eps: float,
    bias: bool = True,
) -> tuple[Any, Any, Any]:
    n, channels = x.shape[:2]
    split = (n, groups, channels // groups, *x.shape[2:])
    rows, per_channel = tuple(range(2, x.ndim + 1)), (0, *range(3, x.ndim + 1))
    count = max(int(np.prod(split[2:])), 1)

    def mean(values: Any) -> Any:
        return values.sum(axis=rows, keepdims=True) / count

    with np.errstate(all="ignore"):
        d = wide(dout).reshape(split)
        v = _norm.reference_sum(x, residual).reshape(split)
        v = v - mean(v)
        factor = 1 / np.sqrt(mean(v * v) + v.dtype.type(np.float32(eps)))
        unit = v * factor
        g = d
        if weight is not None:
            g = d * wide(weight).reshape(*split[1:3], *(1,) * (x.ndim - 2))
        dx = factor * (g - mean(g) - unit * mean(g * unit))
        dweight = (d * unit).sum(axis=per_channel).reshape(channels)
        dbias = d.sum(axis=per_channel).reshape(channels)
    return dx.reshape(x.shape), None if weight is None else dweight, dbias if bias else None


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for name in FLOATS:
        np_type = dtype(name).numpy
        for dims, groups in (((2, 6, 5), 3), ((1, 4, 3, 7), 1), ((3, 8), 2), ((2, 4, 2, 2, 3), 4)):
            d, x, residual = rng.standard_normal((3, *dims)).astype(np_type)
            weight = rng.standard_normal(dims[1]).astype(np_type)
            attrs = {"groups": groups, "eps": 1e-5}
            yield Sample(f"{list(dims)} in {groups} {name}", (d, x, weight, None), attrs)
            full = (d, x, weight, residual)
            yield Sample(f"residual {list(dims)} in {groups} {name}", full, attrs)
        yield Sample(f"bare {name}", (d, x, None, None), {**attrs, "bias": False})
    d = rng.standard_normal((1, 4, 6)).astype(np.float32)
    attrs = {"groups": 2, "eps": 1e-5}
    nan = np.ones((1, 4, 6), np.float32)
    nan[0, 3, 1] = np.nan
    yield Sample("NaN stays in its group", (d, nan, None, None), attrs)
    yield Sample("constant groups", (d, 0 * d + 3, d[0, :, 0], None), attrs)
    yield Sample("nothing", (d[:, :, :0], d[:, :, :0], d[0, :, 0], None), attrs)
    yield Sample("no rows", (d[:0], d[:0], d[0, :, 0], d[:0]), attrs)
    for mean in (100, 1e4):
        offset = (mean + 1e-3 * np.arange(24).reshape(1, 4, 6)).astype(np.float32)
        yield Sample(f"around {mean}", (d, offset, None, None), attrs)
    for scale in (1e30, 1e-30):
        far = (scale * np.arange(1, 25).reshape(1, 4, 6)).astype(np.float32)
        yield Sample(f"times {scale}", (d, far, d[0, :, 0], None), attrs)


def random(rng: draw.Rng) -> Sample:
    short, groups = draw.one_of(rng, FLOATS), int(rng.integers(1, 5))
    channels = groups * int(rng.integers(1, 5))
    inner = tuple(draw.size(rng, 9) for _ in range(int(rng.integers(0, 3))))
    dims = (int(rng.integers(0, 4)), channels, *inner)
    d, x = draw.values(rng, dims, short, 1), draw.values(rng, dims, short)
    weight = _norm.maybe(rng, (channels,), short)
    residual = _norm.maybe(rng, dims, short, 0.3)
    attrs = {"groups": groups, "eps": 1e-5, "bias": bool(rng.integers(2))}
    return Sample("", (d, x, weight, residual), attrs)


SPEC = OpSpec(
    id=87,
    name=NAME,
    since="0.1",
    summary="dx = r * (g - mean(g) - u * mean(g * u)), dweight = sum of dout * u and dbias = sum "
    "of dout over all but the channel, with t = x + residual, r = 1 / sqrt(var(t) + eps), "
    "u = (t - mean(t)) * r and g = dout * weight; dx is the gradient of the residual, too.",
    inputs=(
        Arg("dout", "[N, C, ...]"),
        Arg("x", "[N, C, ...]", doc="what group_norm took"),
        Arg("weight", "[C]", optional=True),
        _norm.RESIDUAL,
    ),
    output=Arg("dx", "[N, C, ...]"),
    more_outputs=(
        Arg("dweight", "[C]", doc="with a weight", bound="group_norm_backward_weight"),
        Arg("dbias", "[C]", doc="with bias", bound="channel_sum"),
    ),
    attrs=(
        Attr("groups", "i64", c_type="int32_t", doc="a divisor of C; C gives instance norm"),
        Attr("eps", "f32", c_type="float", doc="added to the variance"),
        Attr("bias", "bool", default=True, doc="also give dbias"),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="NaN spreads over its group and to dweight of its channels; nothing to sum gives a "
    "dweight and a dbias of 0; a sum x + residual is not rounded to x's dtype",
    aliasing="none",
    bound=NAME,
    source="the derivative of ONNX GroupNormalization, opset 21",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
