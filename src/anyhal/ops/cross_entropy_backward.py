"""cross_entropy_backward(logits, targets, dloss): the gradient of cross_entropy for its logits.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops import _draw as draw
from anyhal.ops import cross_entropy as loss_op
from anyhal.ops._checks import FLOATS, WIDE, check_dtype, check_shape
from anyhal.ops._gradient import store
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Lowered, OpSpec, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value

NAME = "cross_entropy_backward"


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    loss_op.check(NAME, inputs, attrs)
    logits, targets, dloss, lse = inputs
    assert logits is not None and targets is not None and dloss is not None
    acc = WIDE[logits.dtype.short]
    check_dtype(NAME, "dloss", dloss, (acc,))
    want = targets.shape if attrs["reduction"] == "none" else ()
    check_shape(NAME, "dloss", dloss, want, "the loss's shape")
    if lse is not None:
        check_dtype(NAME, "lse", lse, (acc,))
        check_shape(NAME, "lse", lse, targets.shape, "[...]")
    return TensorSpec.dense(logits.dtype, logits.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return list(inputs), {a.name: attrs[a.name] for a in loss_op.ATTRS}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 6.0 * out.size, 2.0 * out.nbytes


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    logits, targets, dloss, lse = inputs
    assert logits is not None and targets is not None and dloss is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    classes, acc = logits.shape[-1], dloss.dtype
    smoothing = np.float64(np.float32(attrs["label_smoothing"]))
    safe, ignored = loss_op.checked_targets(trace, targets, classes, attrs["ignore_index"])
    x = trace.cast(logits, acc)
    if lse is None:
        top = trace("reduce", x, fn="max", axis=-1, keepdims=True)
        e = trace.unary("exp", trace.binary("subtract", x, top))
        p = trace.binary("divide", e, trace("reduce", e, fn="sum", axis=-1, keepdims=True))
    else:
        p = trace.unary("exp", trace.binary("subtract", x, lse.expand_dims(lse.spec.rank)))
    target = trace.constant(1 - smoothing + smoothing / classes, acc)
    other = trace.constant(smoothing / classes, acc)
    weight = trace("where", loss_op.hits(trace, safe, classes), target, other)
    g = trace.binary("subtract", p, weight)
    scale = dloss
    if attrs["reduction"] == "mean":
        scale = trace.binary("divide", dloss, loss_op.counted(trace, ignored, acc))
    scale = scale.broadcast_to(targets.shape).expand_dims(targets.spec.rank)
    zero = trace.constant(0, acc)
    g = trace("where", ignored.expand_dims(targets.spec.rank), zero, g)
    scale = trace("where", ignored.expand_dims(targets.spec.rank), zero, scale)
    store(trace, "multiply", g, scale, out)


def reference(
    logits: Any,
    targets: Any,
    dloss: Any,
    lse: Any = None,
    *,
    reduction: str,
    ignore_index: int = loss_op.IGNORE_INDEX,
    label_smoothing: float = 0.0,
) -> Any:
    x = wide(logits)
    weight, ignored = loss_op.weights(targets, x.shape[-1], ignore_index, label_smoothing)
    with np.errstate(all="ignore"):
        if lse is None:
            e = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
            p = e / e.sum(axis=-1, keepdims=True)
        else:
            p = np.exp(x - wide(lse)[..., None])
        scale = wide(dloss)
        if reduction == "mean":
            scale = scale / np.sum(~ignored, dtype=x.dtype)
        scale = np.broadcast_to(scale, targets.shape)[..., None]
        return np.where(ignored[..., None], 0, (p - weight) * scale).astype(x.dtype)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for case in loss_op.samples(rng):
        logits, targets = case.inputs
        attrs = {k: v for k, v in case.attrs.items() if k != "return_lse"}
        acc = dtype(WIDE[dtype(logits.dtype).short]).numpy
        dims = targets.shape if attrs["reduction"] == "none" else ()
        dloss = np.asarray(rng.standard_normal(dims)).astype(acc)
        lse = None
        if case.attrs.get("return_lse"):
            lse = loss_op.reference(logits, targets, **case.attrs)[1].astype(acc)
        yield Sample(case.label, (logits, targets, dloss, lse), attrs)


def random(rng: draw.Rng) -> Sample:
    case = loss_op.random(rng)
    logits, targets = case.inputs
    attrs = {k: v for k, v in case.attrs.items() if k != "return_lse"}
    acc = WIDE[dtype(logits.dtype).short]
    dloss = draw.values(rng, targets.shape if attrs["reduction"] == "none" else (), acc)
    lse = None
    if case.attrs["return_lse"]:
        lse = loss_op.reference(logits, targets, **case.attrs)[1].astype(dtype(acc).numpy)
    return Sample("", (logits, targets, dloss, lse), attrs)


SPEC = OpSpec(
    id=81,
    name=NAME,
    since="0.1",
    summary="dlogits = (softmax(logits) - w) * dloss, over the number of rows that count for mean, "
    "with the w of cross_entropy.",
    inputs=(
        loss_op.LOGITS,
        loss_op.TARGETS,
        Arg("dloss", "[...] or []", doc="as the loss"),
        Arg("lse", "[...]", optional=True, doc="as cross_entropy gave it; else computed again"),
    ),
    output=Arg("out", "[..., C]"),
    attrs=loss_op.ATTRS,
    dtypes={name: WIDE[name] for name in FLOATS},
    special="a row that does not count is 0 whatever its logits hold; a row of -inf, and one with "
    "+inf or NaN, is NaN; a target outside 0..C-1 that is not ignore_index is an error and nothing "
    "is written",
    aliasing="none",
    bound=NAME,
    source="the derivative of ONNX SoftmaxCrossEntropyLoss, opset 13",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
