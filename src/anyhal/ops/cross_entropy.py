"""cross_entropy(logits, targets): minus the log-probability of the target class of each row.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _draw as draw
from anyhal.ops._checks import FLOATS, INDICES, WIDE, check_choice, check_dtype, check_shape
from anyhal.ops._oracle import wide
from anyhal.ops._spec import (
    Arg,
    Attr,
    LoweredOuts,
    OpSpec,
    Outs,
    Sample,
    TensorSpec,
    describe,
    normalize_axis,
)
from anyhal.ops._trace import Trace, Value

REDUCTIONS = {"none": 1, "mean": 2, "sum": 3}
IGNORE_INDEX = -100

LOGITS = Arg("logits", "[..., C]")
TARGETS = Arg("targets", "[...]", doc="i64 or i32; a class, or ignore_index", own="i64")
ATTRS = (
    Attr(
        "reduction",
        "enum",
        choices=REDUCTIONS,
        c_type="int32_t",
        c_enum="loss_reduction",
        doc="none: one loss for each row; mean: over the rows that count; sum",
    ),
    Attr(
        "ignore_index",
        "i64",
        default=IGNORE_INDEX,
        c_type="int32_t",
        doc="a row with this target does not count",
    ),
    Attr(
        "label_smoothing",
        "f32",
        default=0.0,
        c_type="float",
        doc="this part of the weight is spread over all classes",
    ),
)


def check(op: str, inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> None:
    """What the loss and its gradient refuse alike."""
    logits, targets = inputs[:2]
    assert logits is not None and targets is not None
    check_choice(op, "reduction", attrs["reduction"], REDUCTIONS)
    check_dtype(op, "logits", logits, FLOATS)
    check_dtype(op, "targets", targets, INDICES)
    normalize_axis(op, -1, logits)
    check_shape(op, "targets", targets, logits.shape[:-1], "[...] of logits without C")
    if logits.shape[-1] == 0 and targets.size:
        raise InvalidArgumentError(
            f"{op}: logits {describe(logits)} have no class for {targets.size} targets to be; "
            "give at least one class"
        )
    if not 0 <= attrs["label_smoothing"] <= 1:
        raise InvalidArgumentError(
            f"{op}: label_smoothing={attrs['label_smoothing']} is a share of the weight; "
            "give a number from 0 to 1"
        )
    if not -(2**31) <= attrs["ignore_index"] < 2**31:
        raise InvalidArgumentError(
            f"{op}: ignore_index={attrs['ignore_index']} does not fit 32 bits; use another number"
        )


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    check("cross_entropy", inputs, attrs)
    logits, targets = inputs
    assert logits is not None and targets is not None
    acc = dtype(WIDE[logits.dtype.short])
    loss = targets.shape if attrs["reduction"] == "none" else ()
    lse = TensorSpec.dense(acc, targets.shape) if attrs["return_lse"] else None
    return TensorSpec.dense(acc, loss), lse


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    return list(inputs), {a.name: attrs[a.name] for a in ATTRS}, outs


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
) -> tuple[float, float]:
    logits = inputs[0]
    assert logits is not None
    return 5.0 * logits.size, float(logits.nbytes)


def checked_targets(trace: Trace, targets: Value, classes: int, ignore: int) -> tuple[Value, Value]:
    """(class of each row, which rows do not count). Reading the class through a table of the
    allowed ones makes the device refuse any other before anything is written."""
    ignored = trace.binary("equal", targets, trace.constant(ignore, targets.dtype))
    zero = trace.constant(0, targets.dtype)
    table = trace.numbers(classes, targets.dtype)
    safe = trace("gather", table, trace("where", ignored, zero, targets), axis=0)
    return safe, ignored


def hits(trace: Trace, targets: Value, classes: int) -> Value:
    """Which class is the target, as bool [..., C]."""
    numbers = trace.numbers(classes, targets.dtype)
    return trace.binary("equal", numbers, targets.expand_dims(targets.spec.rank))


def counted(trace: Trace, ignored: Value, acc: Any) -> Value:
    """How many rows count, as a number."""
    return trace("reduce", trace.cast(trace.unary("logical_not", ignored), acc), fn="sum")


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: Sequence[Value | None],
) -> None:
    logits, targets = inputs
    loss, lse = outs
    assert logits is not None and targets is not None and loss is not None
    classes, reduction = logits.shape[-1], attrs["reduction"]
    acc, smoothing = loss.dtype, np.float32(attrs["label_smoothing"])
    if targets.spec.size == 0:  # a mean over nothing is NaN
        nothing = np.nan if reduction == "mean" else 0
        trace("fill", trace.constant(nothing, acc), out=loss)
        if lse is not None:
            trace.zeros(lse)
        return
    safe, ignored = checked_targets(trace, targets, classes, attrs["ignore_index"])
    x, zero = trace.cast(logits, acc), trace.constant(0, acc)
    top = trace("reduce", x, fn="max", axis=-1, keepdims=True)
    s = trace.binary("subtract", x, top)
    row = trace.unary("log", trace("reduce", trace.unary("exp", s), fn="sum", axis=-1))
    if lse is not None:
        trace.binary("add", row, top.at(-1, 0), out=lse)
    at_target = trace("where", hits(trace, safe, classes), s, zero)
    picked = trace("reduce", at_target, fn="sum", axis=-1)
    if smoothing:
        spread = trace("reduce", s, fn="mean", axis=-1)
        spread = trace.binary("multiply", spread, trace.constant(smoothing, acc))
        if smoothing < 1:  # else the target has no weight of its own, and 0 * -inf is NaN
            kept = trace.constant(1 - np.float64(smoothing), acc)
            picked = trace.binary("multiply", picked, kept)
            picked = trace.binary("add", picked, spread)
        else:
            picked = spread
    row = trace.binary("subtract", row, picked)
    if reduction == "none":
        trace("where", ignored, zero, row, out=loss)
        return
    row = trace("where", ignored, zero, row)
    if reduction == "sum":
        trace("reduce", row, fn="sum", out=loss)
    else:
        total = trace("reduce", row, fn="sum")
        trace.binary("divide", total, counted(trace, ignored, acc), out=loss)


def weights(targets: Any, classes: int, ignore: int, smoothing: float) -> tuple[Any, Any]:
    """(the weight of every class in every row, which rows do not count), for the references."""
    ignored = targets == ignore
    safe = np.where(ignored, 0, targets)
    if safe.size and (safe.min() < 0 or safe.max() >= classes):
        raise IndexError("a target is no class")
    part = np.longdouble(np.float32(smoothing))
    hit = np.arange(classes) == safe[..., None]
    return np.where(hit, 1 - part, 0) + part / max(classes, 1), ignored


def reference(
    logits: Any,
    targets: Any,
    *,
    reduction: str,
    ignore_index: int = IGNORE_INDEX,
    label_smoothing: float = 0.0,
    return_lse: bool = False,
) -> tuple[Any, Any]:
    x = wide(logits)
    weight, ignored = weights(targets, x.shape[-1], ignore_index, label_smoothing)
    with np.errstate(all="ignore"):
        top = x.max(axis=-1, keepdims=True, initial=-np.inf)
        total = np.log(np.exp(x - top).sum(axis=-1, keepdims=True))
        # A class without weight has no part, even at -inf.
        terms = np.where(weight == 0, 0, weight * (total - (x - top)))
        nan = np.isnan(total[..., 0])
        row = np.where(nan, np.nan, terms.sum(axis=-1)).astype(x.dtype)
        row = np.where(ignored, 0, row)
        found: Any = row
        if reduction != "none":
            found = row.sum()
        if reduction == "mean":
            found = found / np.sum(~ignored, dtype=x.dtype)
        return found, (total + top)[..., 0] if return_lse else None


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for name in FLOATS:
        x = (3 * rng.standard_normal((4, 3, 11))).astype(dtype(name).numpy)
        targets = rng.integers(0, 11, (4, 3))
        for reduction in REDUCTIONS:
            attrs = {"reduction": reduction}
            yield Sample(f"{reduction} {name}", (x, targets), attrs)
            smooth = {**attrs, "label_smoothing": 0.1, "return_lse": True}
            yield Sample(f"{reduction} smooth {name}", (x, targets.astype(np.int32)), smooth)
        few = np.where(rng.random((4, 3)) < 0.5, -100, targets)
        few[0, 0] = -100
        yield Sample(f"ignored {name}", (x, few), {"reduction": "mean", "return_lse": True})
    f32, inf = np.float32, np.inf
    rows = np.array([[-inf, 1, 2], [-inf] * 3, [inf, 1, 2], [np.nan, 0, 0], [5e4, 0, -5e4]], f32)
    none = {"reduction": "none", "return_lse": True}
    yield Sample("special rows", (rows, np.array([1, 0, 1, 2, 2])), none)
    yield Sample("target of -inf", (rows[:1], np.array([0])), none)
    padded = {"reduction": "sum", "ignore_index": 2}
    yield Sample("NaN in a row that does not count", (rows[3:], np.array([2, 0])), padded)
    yield Sample("nothing counts", (rows[:1], np.array([-100])), {"reduction": "mean"})
    yield Sample("large offset", (np.array([[1e6, 1e6 + 1]], f32), np.array([0])), none)
    yield Sample("one row", (rows[4], np.array(1)), {"reduction": "mean"})
    for reduction in REDUCTIONS:
        empty = (rows[:0], np.zeros(0, np.int64))
        yield Sample(f"{reduction} of no rows", empty, {"reduction": reduction, "return_lse": True})


def random(rng: draw.Rng) -> Sample:
    short, classes = draw.one_of(rng, FLOATS), draw.size(rng, 129, 1)
    lead = draw.one_of(rng, [(), (draw.size(rng, 17),), (3, draw.size(rng, 9))])
    targets = rng.integers(0, classes, lead)
    targets = np.where(rng.random(lead) < 0.2, -100, targets)
    attrs = {
        "reduction": draw.one_of(rng, REDUCTIONS),
        "label_smoothing": draw.one_of(rng, [0.0, 0.0, 0.2]),
        "return_lse": bool(rng.integers(2)),
    }
    targets = targets.astype(draw.one_of(rng, [np.int64, np.int32]))
    return Sample("", (draw.values(rng, (*lead, classes), short), targets), attrs)


SPEC = OpSpec(
    id=80,
    name="cross_entropy",
    since="0.1",
    summary="loss = lse(logits) - sum_c w_c * logits_c for each row, with w = (1 - label_smoothing)"
    " at the target + label_smoothing / C everywhere.",
    inputs=(LOGITS, TARGETS),
    output=Arg("loss", "[...], or [] for mean and sum", doc="f32 for f16 and bf16"),
    more_outputs=(
        Arg("lse", "[...]", doc="log(sum(exp(logits))) of every row", bound="cross_entropy_lse"),
    ),
    attrs=(
        *ATTRS,
        Attr("return_lse", "bool", default=False, doc="whether there is a second output"),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="a row that does not count is 0 whatever its logits hold; the mean of no rows is NaN; "
    "a row of -inf, and one with +inf or NaN, gives NaN; a target of -inf gives +inf; a target "
    "outside 0..C-1 that is not ignore_index is an error and nothing is written",
    aliasing="none",
    bound="cross_entropy",
    source="ONNX SoftmaxCrossEntropyLoss, opset 13; smoothing as Szegedy et al. 2016",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
