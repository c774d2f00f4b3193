"""softmax_backward(dout, y): the gradient of softmax for its input, from its output.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops import _draw as draw
from anyhal.ops._checks import FLOATS, WIDE, check_dtype, check_same_dtype, check_shape
from anyhal.ops._gradient import store
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, normalize_axis
from anyhal.ops._trace import Trace, Value

NAME = "softmax_backward"


def check(op: str, inputs: Sequence[TensorSpec | None], axis: int) -> TensorSpec:
    dout, y = inputs
    assert dout is not None and y is not None
    check_dtype(op, "dout", dout, FLOATS)
    check_same_dtype(op, dout, y)
    check_shape(op, "y", y, dout.shape, "dout's shape")
    normalize_axis(op, axis, dout)
    return TensorSpec.dense(dout.dtype, dout.shape)


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    return check(NAME, inputs, attrs["axis"])


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    assert inputs[0] is not None
    return list(inputs), {"axis": normalize_axis(NAME, attrs["axis"], inputs[0])}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 4.0 * out.size, 3.0 * out.nbytes


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    dout, y = inputs
    assert dout is not None and y is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    acc = WIDE[dout.dtype.short]
    d, p = trace.cast(dout, acc), trace.cast(y, acc)
    both = trace.binary("multiply", d, p)
    total = trace("reduce", both, fn="sum", axis=attrs["axis"], keepdims=True)
    store(trace, "multiply", trace.binary("subtract", d, total), p, out)


def reference(dout: Any, y: Any, axis: int = -1) -> Any:
    d, p = wide(dout), wide(y)
    with np.errstate(all="ignore"):
        return p * (d - (d * p).sum(axis=axis, keepdims=True))


def pair_samples(rng: np.random.Generator, log: bool) -> Iterator[Sample]:
    """Gradients beside outputs of a softmax, or of its logarithm."""
    for name in FLOATS:
        np_type = dtype(name).numpy
        for shape, axis in (((1,), 0), ((3, 17), -1), ((4, 5, 6), 1), ((2, 300), -1), ((0, 4), -1)):
            x = 4 * rng.standard_normal(shape)
            y = x - np.log(np.exp(x).sum(axis=axis, keepdims=True))
            y = y if log else np.exp(y)
            d = rng.standard_normal(shape)
            label = f"{list(shape)} axis {axis} {name}"
            yield Sample(label, (d.astype(np_type), y.astype(np_type)), {"axis": axis})
    nan = np.array([[0, np.nan, 1], [0, 1, 2]], np.float32)
    y = np.array([[0.25, 0.25, 0.5], [0, 1, 0]], np.float32)
    with np.errstate(divide="ignore"):
        y = np.log(y) if log else y
    yield Sample("NaN stays in its slice", (nan, y), {"axis": -1})


def pair_random(rng: draw.Rng, log: bool) -> Sample:
    short, dims = draw.one_of(rng, FLOATS), draw.shape(rng, 1)
    axis = int(rng.integers(-len(dims), len(dims)))
    x = 3 * rng.standard_normal(dims)
    y = x - np.log(np.exp(x).sum(axis=axis, keepdims=True)) if x.size else x
    y = (y if log else np.exp(y)).astype(dtype(short).numpy)
    return Sample("", (draw.values(rng, dims, short, 1), y), {"axis": axis})


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    return pair_samples(rng, False)


def random(rng: draw.Rng) -> Sample:
    return pair_random(rng, False)


SPEC = OpSpec(
    id=82,
    name=NAME,
    since="0.1",
    summary="dx = y * (dout - sum(dout * y)) along `axis`, with y = softmax(x).",
    inputs=(Arg("dout", "[..., N]"), Arg("y", "[..., N]", doc="what softmax gave")),
    output=Arg("out", "[..., N]"),
    attrs=(Attr("axis", "axis", default=-1, c_type="int32_t"),),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="NaN spreads over its slice; rounded once at the end",
    aliasing="elementwise",
    bound=NAME,
    source="the derivative of ONNX Softmax, opset 13",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
