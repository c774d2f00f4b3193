"""What attention_backward computes again: who sees what, with which probability.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.ops._attention import visible_to
from anyhal.ops._trace import Trace, Value
from anyhal.records import record


@record
class Rows:
    """One call as [B, Hkv, g, T, S]: which pairs take part, their probabilities, and the slope of
    the softcap; as [B, Hkv, g, T, 1]: which rows see anything at all, what a sink takes."""

    seen: Value
    p: Value
    slope: Value | None
    alive: Value
    sink: Value | None


def _seen(
    trace: Trace,
    shape: Sequence[int],
    length: Value | None,
    mask: Value | None,
    attrs: Mapping[str, Any],
) -> Value:
    """Which keys a query sees, as bool of `shape`."""
    batch, kv_heads, group, queries, keys = shape
    if length is not None:
        # Read through a table of the allowed ones: the device refuses any other length.
        length = trace("gather", trace.numbers(keys + 1, length.dtype), length, axis=0)
    visible = visible_to(trace, (batch, kv_heads, group, queries, keys), length, mask, attrs)
    if visible is None:
        visible = trace.constant(True, "bool")
    return visible.broadcast_to(shape)


def _softcapped(trace: Trace, scores: Value, softcap: float) -> tuple[Value, Value | None]:
    """(cap * tanh(scores / cap), the slope of that)."""
    if not softcap:
        return scores, None
    cap, one = (trace.constant(np.float32(x), scores.dtype) for x in (softcap, 1))
    t = trace.unary("tanh", trace.binary("divide", scores, cap))
    slope = trace.binary("subtract", one, trace.binary("multiply", t, t))
    return trace.binary("multiply", t, cap), slope


def probabilities(
    trace: Trace,
    scores: Value,
    length: Value | None,
    mask: Value | None,
    sinks: Value | None,
    attrs: Mapping[str, Any],
) -> Rows:
    """A row that sees nothing, or only scores of -inf, takes no part at all."""
    acc, (batch, kv_heads, group, queries, keys) = scores.dtype, scores.shape
    scores, slope = _softcapped(trace, scores, attrs["softcap"])
    if mask is not None and mask.dtype.short != "bool":
        added = trace.cast(mask, acc).broadcast_to((batch, kv_heads * group, queries, keys))
        scores = trace.binary("add", scores, added.split(1, kv_heads, group))
    zero, one = trace.constant(0, acc), trace.constant(1, acc)
    lowest = trace.constant(-np.inf, acc)
    seen = _seen(trace, scores.shape, length, mask, attrs)
    scores = trace("where", seen, scores, lowest)
    top = trace("reduce", scores, fn="max", axis=-1, keepdims=True)
    sink = None
    if sinks is not None:  # one more key, which has no value
        sink = trace.cast(sinks, acc).split(0, kv_heads, group).expand_dims(2).expand_dims(3)
        top = trace.binary("maximum", top, sink)
    alive = trace.binary("not_equal", top, lowest)
    shift = trace("where", alive, top, zero)
    e = trace.unary("exp", trace.binary("subtract", scores, shift))
    total = trace("reduce", e, fn="sum", axis=-1, keepdims=True)
    if sink is not None:
        sink = trace.unary("exp", trace.binary("subtract", sink, shift))
        total = trace.binary("add", total, sink)
    total = trace("where", alive, total, one)
    p = trace.binary("divide", e, total)
    if sink is not None:
        sink = trace.binary("divide", sink, total)
    return Rows(trace.binary("logical_and", seen, alive), p, slope, alive, sink)


def finite(trace: Trace, x: Value) -> tuple[Value, Value]:
    """(x with 0 for what is not finite, which rows over the last axis hold such values)."""
    good = trace.unary("isfinite", x)
    clean = trace("where", good, x, trace.constant(0, x.dtype))
    whole = trace("reduce", good, fn="all", axis=-1)
    return clean, trace.unary("logical_not", whole)


def rejected(trace: Trace, seen: Value, bad_query: Value, bad_key: Value) -> tuple[Value, Value]:
    """(queries [B, Hkv, g, T, 1], keys [B, Hkv, S, 1]) whose gradients are NaN: a query that takes
    in anything not finite, and every key that such a query sees."""
    bad = trace.binary(
        "logical_or", bad_query.expand_dims(4), bad_key.expand_dims(2).expand_dims(2)
    )
    bad = trace.binary("logical_and", seen, bad)
    query = trace("reduce", bad, fn="any", axis=-1, keepdims=True)
    key = trace("reduce", trace.binary("logical_and", seen, query), fn="any", axis=(2, 3))
    return query, key.expand_dims(3)
