"""layer_norm_backward(dout, x, weight): the gradients of layer_norm over the last axis.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops import _draw as draw
from anyhal.ops._checks import FLOATS, WIDE
from anyhal.ops._gradient import dense, normalised, store, sum_rows, zeros
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, LoweredOuts, OpSpec, Outs, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value
from anyhal.ops.rms_norm_backward import check

NAME = "layer_norm_backward"


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    check(NAME, inputs, attrs)
    x = inputs[1]
    assert x is not None
    dbias = TensorSpec.dense(x.dtype, x.shape[-1:]) if attrs["bias"] else None
    return dense(x), dense(inputs[2]), dbias


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    return list(inputs), {"eps": attrs["eps"]}, outs


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
    dout, x, weight = inputs
    dx, dweight, dbias = outs
    assert dout is not None and x is not None and dx is not None
    if x.spec.size == 0:
        zeros(trace, outs)
        return

    def mean(v: Value) -> Value:
        return trace("reduce", v, fn="mean", axis=-1, keepdims=True)

    acc = WIDE[x.dtype.short]
    d, v = trace.cast(dout, acc), trace.cast(x, acc)
    row = normalised(trace, v, attrs["eps"], centred=True)
    unit = row.unit
    g = d
    if weight is not None:
        g = trace.binary("multiply", d, trace.cast(weight, acc))
    along = mean(trace.binary("multiply", g, unit))
    across = trace.binary("subtract", g, mean(g))
    across = trace.binary("subtract", across, trace.binary("multiply", unit, along))
    store(trace, "multiply", trace.binary("multiply", across, row.factor), row.power, dx)
    if dweight is not None:
        sum_rows(trace, trace.binary("multiply", d, unit), dweight)
    if dbias is not None:
        sum_rows(trace, d, dbias)


def reference(
    dout: Any, x: Any, weight: Any = None, *, eps: float, bias: bool = True
) -> tuple[Any, Any, Any]:
    d, v = wide(dout), wide(x)
    n = max(v.shape[-1], 1)
    rows = tuple(range(v.ndim - 1))

    def mean(values: Any) -> Any:
        return values.sum(axis=-1, keepdims=True) / n

    with np.errstate(all="ignore"):
        v = v - mean(v)
        factor = 1 / np.sqrt(mean(v * v) + v.dtype.type(np.float32(eps)))
        unit = v * factor
        g = d if weight is None else d * wide(weight)
        dx = factor * (g - mean(g) - unit * mean(g * unit))
        dweight = None if weight is None else (d * unit).sum(axis=rows)
        return dx, dweight, d.sum(axis=rows) if bias else None


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    eps = {"eps": 1e-5}
    for name in FLOATS:
        np_type = dtype(name).numpy
        for shape in ((1,), (3, 17), (2, 4, 130)):
            d, x = rng.standard_normal((2, *shape)).astype(np_type)
            weight = rng.standard_normal(shape[-1:]).astype(np_type)
            yield Sample(f"{list(shape)} {name}", (d, x, weight), eps)
        yield Sample(f"bare {name}", (d, x, None), {**eps, "bias": False})
    ones = np.ones((2, 8), np.float32)
    yield Sample("constant rows", (ones, 3 * ones, ones[0]), eps)
    for kind in (np.float32, np.float64):  # roundings of sums over equal rows repeat
        alike = np.broadcast_to(np.linspace(0.3, 3.1, 40).astype(kind), (300, 40))
        yield Sample(f"equal rows {np.dtype(kind)}", (alike, alike, alike[0]), eps)
    nan = np.array([[1, np.nan, 2], [1, 2, 3]], np.float32)
    yield Sample("NaN stays in its row", (ones[:, :3], nan, None), eps)
    yield Sample("no rows", (ones[:0], ones[:0], ones[0]), eps)
    d = rng.standard_normal((2, 16)).astype(np.float32)
    for mean in (0, 100, 1e4):
        offset = (mean + np.arange(16) * [[1e-3], [1]]).astype(np.float32)
        yield Sample(f"around {mean}", (d, offset, None), eps)
    for scale in (1e30, 1e-30):
        far = scale * np.array([[1, 2, 3, 4], [-3, 1, 0, 2]])
        yield Sample(f"times {scale}", (d[:, :4], far.astype(np.float32), ones[0, :4]), eps)
        yield Sample(f"equal {scale}", (d, 0 * d + np.float32(scale), None), eps)


def random(rng: draw.Rng) -> Sample:
    short, dims = draw.one_of(rng, FLOATS), draw.shape(rng, 1)
    d, x = draw.values(rng, dims, short, 1), draw.values(rng, dims, short)
    weight = draw.one_of(rng, [None, draw.values(rng, dims[-1:], short, 1)])
    return Sample("", (d, x, weight), {"eps": 1e-5, "bias": bool(rng.integers(2))})


SPEC = OpSpec(
    id=85,
    name=NAME,
    since="0.1",
    summary="dx = r * (g - mean(g) - u * mean(g * u)), dweight = sum over rows of dout * u and "
    "dbias = sum over rows of dout, with r = 1 / sqrt(var(x) + eps), u = (x - mean(x)) * r and "
    "g = dout * weight.",
    inputs=(
        Arg("dout", "[..., N]"),
        Arg("x", "[..., N]", doc="what layer_norm took"),
        Arg("weight", "[N]", optional=True),
    ),
    output=Arg("dx", "[..., N]"),
    more_outputs=(
        Arg("dweight", "[N]", doc="with a weight", bound="layer_norm_backward_weight"),
        Arg("dbias", "[N]", doc="with bias", bound="layer_norm_backward_bias"),
    ),
    attrs=(
        Attr("eps", "f32", c_type="float", doc="added to the variance"),
        Attr("bias", "bool", default=True, doc="also give dbias"),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="NaN spreads over its row and to dweight; no rows give a dweight and a dbias of 0; "
    "rounded once at the end",
    aliasing="none",
    bound=NAME,
    source="the derivative of ONNX LayerNormalization, opset 17, over the last axis",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
