"""Which keys a query sees, and products that leave hidden values out: shared by attention ops.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anyhal.ops._trace import Trace, Value

CAUSAL = {"none": 1, "first_key": 2, "last_key": 3}


def visible_to(
    trace: Trace,
    sizes: tuple[int, int, int, int, int],
    kv_length: Value | None,
    mask: Value | None,
    attrs: Mapping[str, Any],
) -> Value | None:
    """Which keys a query sees, as bool that broadcasts to [B, Hkv, g, T, S]; None = all."""
    _, kv_heads, group, queries, keys = sizes
    number = "i64" if kv_length is None else kv_length.dtype
    j, i = np.arange(keys), np.arange(queries)[:, None]
    per_batch = kv_length
    for _ in range(4 if per_batch is not None else 0):  # [] or [B] to [.., 1, 1, 1, 1]
        assert per_batch is not None
        per_batch = per_batch.expand_dims(per_batch.spec.rank)
    stands = None  # the key where a query stands, the last one it sees
    if attrs["causal"] == "first_key":
        stands = trace.constant(i, number)
    elif attrs["causal"] == "last_key":
        stands = trace.constant(i - queries + (keys if per_batch is None else 0), number)
        if per_batch is not None:
            stands = trace.binary("add", per_batch, stands)
    found = []
    if per_batch is not None and attrs["causal"] != "last_key":  # which implies it
        found.append(trace.binary("less", trace.constant(j, number), per_batch))
    if stands is not None:
        found.append(trace.binary("less_equal", trace.constant(j, number), stands))
        if attrs["window"]:
            past = trace.constant(j + min(attrs["window"], keys + queries), number)
            found.append(trace.binary("less", stands, past))
    if mask is not None and mask.dtype.short == "bool":
        full = mask.spec.rank
        for _ in range(4 - full):
            mask = mask.expand_dims(0)
        heads = (kv_heads, group) if mask.shape[1] > 1 else (1, 1)
        found.append(mask.split(1, *heads))
    visible = found[0] if found else None
    for other in found[1:]:
        assert visible is not None
        visible = trace.binary("logical_and", visible, other)
    return visible


def weigh(trace: Trace, p: Value, v: Value, visible: Value | None) -> Value:
    """p @ v in which values of invisible keys, NaN and infinities included, have no part."""
    acc = p.dtype
    zero = trace.constant(0, acc)
    if visible is None:
        return trace("matmul", p, v)
    if visible.shape[-2] == 1:  # every query sees the same keys: take the others out of v
        return trace("matmul", p, trace("where", visible.mT(), v, zero))
    # Each query sees its own keys. Sum the finite values, and find out by counting which results a
    # visible NaN or infinity reaches; 0 * NaN of an invisible one never comes up.
    finite = trace.unary("isfinite", v)
    total = trace("matmul", p, trace("where", finite, v, zero))
    seen_by = trace.cast(visible, acc).broadcast_to((*visible.shape[:-1], v.shape[-2]))
    bad = trace.cast(trace.unary("logical_not", finite), acc)
    signs = trace("where", trace.unary("isinf", v), trace.unary("sign", v), zero)
    count = trace("matmul", seen_by, bad)
    signed = trace("matmul", seen_by, signs)
    inf, nan = trace.constant(np.inf, acc), trace.constant(np.nan, acc)
    lowest = trace.constant(-np.inf, acc)
    all_low = trace.binary("equal", count, trace.unary("neg", signed))
    reached = trace("where", all_low, lowest, nan)
    reached = trace("where", trace.binary("equal", count, signed), inf, reached)
    reached = trace("where", trace.binary("equal", count, zero), zero, reached)
    return trace.binary("add", total, reached)


def visible_keys(
    shape: tuple[int, ...], kv_length: Any, mask: Any, causal: str, window: int = 0
) -> Any:
    """The bool [B, H, T, S] of the definition."""
    batch, _, queries, keys = shape
    length = np.broadcast_to(keys if kv_length is None else kv_length, (batch,)).reshape(
        -1, 1, 1, 1
    )
    j, i = np.arange(keys), np.arange(queries)[:, None]
    seen = np.broadcast_to(j < length, shape)
    if causal != "none":
        stands = i if causal == "first_key" else length - queries + i
        seen = seen & (j <= stands)
        if window:
            seen = seen & (stands - j < window)
    return seen if mask is None or mask.dtype != np.bool_ else seen & mask
