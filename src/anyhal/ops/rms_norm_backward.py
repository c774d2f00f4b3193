"""rms_norm_backward(dout, x, weight): the gradients of rms_norm for its input and its weight.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops import _draw as draw
from anyhal.ops._checks import FLOATS, WIDE, check_dtype, check_eps, check_same_dtype, check_shape
from anyhal.ops._gradient import dense, normalised, store, sum_rows, zeros
from anyhal.ops._oracle import wide
from anyhal.ops._spec import (
    Arg,
    Attr,
    LoweredOuts,
    OpSpec,
    Outs,
    Sample,
    TensorSpec,
    normalize_axis,
)
from anyhal.ops._trace import Trace, Value

NAME = "rms_norm_backward"


def check(op: str, inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> None:
    check_eps(op, attrs)
    dout, x, weight = inputs
    assert dout is not None and x is not None
    check_dtype(op, "x", x, FLOATS)
    check_same_dtype(op, x, dout)
    normalize_axis(op, -1, x)
    check_shape(op, "dout", dout, x.shape, "x's shape")
    if weight is not None:
        check_same_dtype(op, x, weight)
        check_shape(op, "weight", weight, x.shape[-1:], "[N]")


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    check(NAME, inputs, attrs)
    return dense(inputs[1]), dense(inputs[2])


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    return list(inputs), {"eps": attrs["eps"]}, outs


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
) -> tuple[float, float]:
    assert inputs[1] is not None
    return 11.0 * inputs[1].size, 3.0 * inputs[1].nbytes


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: Sequence[Value | None],
) -> None:
    dout, x, weight = inputs
    dx, dweight = outs
    assert dout is not None and x is not None and dx is not None
    if x.spec.size == 0:
        zeros(trace, outs)
        return
    acc = WIDE[x.dtype.short]
    d, v = trace.cast(dout, acc), trace.cast(x, acc)
    row = normalised(trace, v, attrs["eps"], centred=False)
    unit = row.unit
    g = d
    if weight is not None:
        g = trace.binary("multiply", d, trace.cast(weight, acc))
    along = trace("reduce", trace.binary("multiply", g, unit), fn="mean", axis=-1, keepdims=True)
    across = trace.binary("subtract", g, trace.binary("multiply", unit, along))
    store(trace, "multiply", trace.binary("multiply", across, row.factor), row.power, dx)
    if dweight is not None:
        sum_rows(trace, trace.binary("multiply", d, unit), dweight)


def reference(dout: Any, x: Any, weight: Any = None, *, eps: float) -> tuple[Any, Any]:
    d, v = wide(dout), wide(x)
    n = max(v.shape[-1], 1)
    rows = tuple(range(v.ndim - 1))
    with np.errstate(all="ignore"):
        square = (v * v).sum(axis=-1, keepdims=True) / n + v.dtype.type(np.float32(eps))
        factor = 1 / np.sqrt(square)
        unit = v * factor
        g = d if weight is None else d * wide(weight)
        dx = factor * (g - unit * (g * unit).sum(axis=-1, keepdims=True) / n)
        return dx, None if weight is None else (d * unit).sum(axis=rows)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    eps = {"eps": 1e-5}
    for name in FLOATS:
        np_type = dtype(name).numpy
        for shape in ((1,), (3, 17), (2, 4, 130)):
            d, x = rng.standard_normal((2, *shape)).astype(np_type)
            weight = rng.standard_normal(shape[-1:]).astype(np_type)
            yield Sample(f"{list(shape)} {name}", (d, x, weight), eps)
        yield Sample(f"no weight {name}", (d, x, None), eps)
    ones = np.ones((2, 8), np.float32)
    yield Sample("zeros", (ones, 0 * ones, ones[0]), eps)
    nan = np.array([[1, np.nan, 2], [1, 2, 3]], np.float32)
    yield Sample("NaN stays in its row", (ones[:, :3], nan, None), eps)
    yield Sample("no rows", (ones[:0], ones[:0], ones[0]), eps)
    for scale in (1e30, 1e-30):
        far = scale * np.array([[1, 2, 3, 4], [-3, 1, 0, 2]])
        yield Sample(f"times {scale}", (ones[:, :4], far.astype(np.float32), ones[0, :4]), eps)
        yield Sample(
            f"times {scale} alone", (ones[:, :4], far.astype(np.float32), None), {"eps": 0}
        )


def random(rng: draw.Rng) -> Sample:
    short, dims = draw.one_of(rng, FLOATS), draw.shape(rng, 1)
    d, x = draw.values(rng, dims, short, 1), draw.values(rng, dims, short)
    weight = draw.one_of(rng, [None, draw.values(rng, dims[-1:], short, 1)])
    return Sample("", (d, x, weight), {"eps": 1e-5})


SPEC = OpSpec(
    id=84,
    name=NAME,
    since="0.1",
    summary="dx = r * (g - u * mean(g * u)) and dweight = sum over rows of dout * u, with r = "
    "1 / sqrt(mean(x^2) + eps), u = x * r and g = dout * weight.",
    inputs=(
        Arg("dout", "[..., N]"),
        Arg("x", "[..., N]", doc="what rms_norm took"),
        Arg("weight", "[N]", optional=True),
    ),
    output=Arg("dx", "[..., N]"),
    more_outputs=(Arg("dweight", "[N]", doc="with a weight", bound="rms_norm_backward_weight"),),
    attrs=(Attr("eps", "f32", c_type="float", doc="added to the mean square"),),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="NaN spreads over its row and to dweight; no rows give a dweight of 0; rounded once at "
    "the end",
    aliasing="none",
    bound=NAME,
    source="the derivative of ONNX RMSNormalization, opset 23",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
