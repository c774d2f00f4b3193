"""log_softmax_backward(dout, y): the gradient of log_softmax for its input, from its output.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.ops import _draw as draw
from anyhal.ops._checks import FLOATS, WIDE
from anyhal.ops._gradient import store
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, normalize_axis
from anyhal.ops._trace import Trace, Value
from anyhal.ops.softmax_backward import check, pair_random, pair_samples

NAME = "log_softmax_backward"


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
    return 5.0 * out.size, 3.0 * out.nbytes


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    dout, y = inputs
    assert dout is not None and y is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    acc = WIDE[dout.dtype.short]
    d = trace.cast(dout, acc)
    total = trace("reduce", d, fn="sum", axis=attrs["axis"], keepdims=True)
    spread = trace.binary("multiply", trace.unary("exp", trace.cast(y, acc)), total)
    store(trace, "subtract", d, spread, out)


def reference(dout: Any, y: Any, axis: int = -1) -> Any:
    d = wide(dout)
    with np.errstate(all="ignore"):
        return d - np.exp(wide(y)) * d.sum(axis=axis, keepdims=True)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    return pair_samples(rng, True)


def random(rng: draw.Rng) -> Sample:
    return pair_random(rng, True)


SPEC = OpSpec(
    id=83,
    name=NAME,
    since="0.1",
    summary="dx = dout - exp(y) * sum(dout) along `axis`, with y = log_softmax(x).",
    inputs=(Arg("dout", "[..., N]"), Arg("y", "[..., N]", doc="what log_softmax gave")),
    output=Arg("out", "[..., N]"),
    attrs=(Attr("axis", "axis", default=-1, c_type="int32_t"),),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="NaN spreads over its slice; rounded once at the end",
    aliasing="elementwise",
    bound=NAME,
    source="the derivative of ONNX LogSoftmax, opset 13",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
