"""Gradient rules of layers: norms, attention, positions, tables, losses, dropout.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import anyhal as hal
from anyhal import Array
from anyhal.training.rules._shapes import Gradients, Rule, added, cast, nothing, sum_to, wide


def _embedding(c: Any, d: Array) -> Gradients:
    table, ids = c.inputs
    return [hal.embedding_backward(cast(d, table.dtype), ids, rows=table.shape[0]), None]


def _cross_entropy(c: Any, d: Array | None, dlse: Array | None = None) -> Gradients:
    logits, targets = c.inputs
    attrs = {k: v for k, v in c.attrs.items() if k != "return_lse"}
    lse = c.outputs[1:2]
    found = None
    if d is not None:
        found = hal.cross_entropy_backward(logits, targets, d, *lse, **attrs)
    if dlse is not None:
        column = (*dlse.shape, 1)
        p = hal.exp(hal.subtract(wide(logits), hal.reshape(lse[0], column)))
        found = added(found, hal.multiply(p, hal.reshape(dlse, column)))
    return [found, None]


# ------------------------------------------------------------------------------------------ norms
# With a residual the second output is what was normalised, and its gradient goes to both terms.


def _rms_norm(c: Any, d: Array | None, dtotal: Array | None = None) -> Gradients:
    x, weight, residual = c.operands(3)
    total = x if residual is None else c.outputs[1]
    if d is None:
        return [dtotal, None if weight is None else nothing(weight), dtotal]
    made = hal.rms_norm_backward(d, total, weight, eps=c.attrs["eps"])
    dx, dweight = made if isinstance(made, tuple) else (made, None)
    dx = added(dx, dtotal)
    return [dx, dweight, dx]


def _layer_norm(c: Any, d: Array | None, dtotal: Array | None = None) -> Gradients:
    x, weight, bias, residual = c.operands(4)
    total = x if residual is None else c.outputs[1]
    d = nothing(x) if d is None else d
    axes = c.attrs.get("axes", 1)
    rows = (*x.shape[: x.ndim - axes], math.prod(x.shape[x.ndim - axes :]))
    d, flat = hal.reshape(d, rows), hal.reshape(total, rows)
    w = None if weight is None else hal.reshape(weight, rows[-1:])
    made = hal.layer_norm_backward(d, flat, w, eps=c.attrs["eps"], bias=bias is not None)
    parts = list(made) if isinstance(made, tuple) else [made]
    dx = added(hal.reshape(parts.pop(0), x.shape), dtotal)
    dweight = None if weight is None else hal.reshape(parts.pop(0), weight.shape)
    dbias = None if bias is None else hal.reshape(parts.pop(0), bias.shape)
    return [dx, dweight, dbias, dx]


def _group_norm(c: Any, d: Array | None, dtotal: Array | None = None) -> Gradients:
    x, weight, bias, residual = c.operands(4)
    d = nothing(x) if d is None else d
    made = hal.group_norm_backward(d, x, weight, residual, bias=bias is not None, **c.attrs)
    parts = list(made) if isinstance(made, tuple) else [made]
    dx = added(parts.pop(0), dtotal)
    dweight = None if weight is None else parts.pop(0)
    return [dx, dweight, None if bias is None else parts.pop(0), dx]


def _batch_norm(c: Any, d: Array | None, dtotal: Array | None = None) -> Gradients:
    x, mean, variance, weight, bias, residual = c.operands(6)
    d = nothing(x) if d is None else d
    statistics = any(c.needed[1:3])
    given = (d, x, mean, variance, weight, residual)
    made = hal.batch_norm_backward(
        *given, eps=c.attrs["eps"], statistics=statistics, bias=bias is not None
    )
    parts = list(made) if isinstance(made, tuple) else [made]
    dx = added(parts.pop(0), dtotal)
    dmean, dvariance = (parts.pop(0) if statistics else None for _ in range(2))
    dweight = None if weight is None else parts.pop(0)
    return [dx, dmean, dvariance, dweight, None if bias is None else parts.pop(0), dx]


# ------------------------------------------------------------------------------------- attention


def _attention(c: Any, d: Array | None, dlse: Array | None = None) -> Gradients:
    """Of q, k, v, the sinks and a mask that is added."""
    q, k, v, kv_length, mask, sinks = c.operands(6)
    d = nothing(c.out) if d is None else d
    attrs = {key: value for key, value in c.attrs.items() if key != "return_lse"}
    made = hal.attention_backward(d, q, k, v, kv_length, mask, sinks, dlse, **attrs)
    dmask = _attention_mask(c, d, dlse) if c.needed[4:5] == (True,) else None
    return [*made[:3], None, dmask, made[3] if sinks is not None else None]


def _attention_mask(c: Any, d: Array, dlse: Array | None) -> Any:
    """p * (dp - sum(p * dp) + dlse), where the op itself shows p on values of unit vectors."""
    q, k, v, kv_length, mask, sinks = c.operands(6)
    (batch, heads, queries, _), (kv_heads, keys) = q.shape, k.shape[1:3]
    units = hal.asarray(np.eye(keys, dtype=np.float32), device=q.device)
    units = hal.broadcast_to(cast(units, q.dtype), (batch, kv_heads, keys, keys))
    attrs = {key: value for key, value in c.attrs.items() if key != "return_lse"}
    one: Any = hal.attention(q, k, units, kv_length, mask, sinks, **attrs)
    p = wide(one)
    grouped = hal.reshape(wide(d), (batch, kv_heads, heads // kv_heads, queries, v.shape[3]))
    values = hal.reshape(wide(v), (batch, kv_heads, 1, keys, v.shape[3]))
    change = hal.reshape(hal.matmul(grouped, values.mT), p.shape)
    mean = hal.sum(hal.multiply(wide(d), wide(c.out)), axis=-1, keepdims=True)
    change = hal.subtract(change, mean)
    if dlse is not None:
        change = hal.add(change, hal.reshape(dlse, (*dlse.shape, 1)))
    # What is hidden has no part, NaN included.
    return sum_to(hal.where(hal.equal(p, 0.0), 0.0, hal.multiply(p, change)), mask)


def _rope(c: Any, d: Array) -> Gradients:
    """A turn by the opposite angle, which is the gradient of a turn; of x alone."""
    attrs = {**c.attrs, "position_scale": -c.attrs.get("position_scale", 1.0)}
    return [hal.rope(d, *c.inputs[1:], **attrs), None, None]


def _dropout(c: Any, d: Array, _: None = None) -> Gradients:
    """The same key keeps the same elements."""
    return [hal.dropout(d, c.inputs[1], p=c.attrs["p"])[0], None]


RULES: dict[str, Rule] = {
    "embedding": _embedding,
    "cross_entropy": _cross_entropy,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "attention": _attention,
    "rope": _rope,
    "dropout": _dropout,
}
