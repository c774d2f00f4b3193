"""Error bounds of the norms, of softmax and its family, of attention and rope.
SPDX-License-Identifier: Apache-2.0

The same method as tolerance.py: `u` at each rounding, `growth` for each sum, carried to the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from anyhal.conformance.growth import constant, growth
from anyhal.conformance.tolerance import (
    _EXP_ROUNDINGS,
    _WIDE,
    BOUNDS,
    ULPS,
    _Case,
    _exact,
    _named,
    _stored,
)
from anyhal.ops import _oracle, attention, paged_attention
from anyhal.ops._attention import visible_keys
from anyhal.ops.rope import frequencies


def _rms_norm(c: _Case) -> Any:
    n = c.value(0).shape[-1]
    # The sum with a residual is rounded, which counts in the element and in the mean.
    added = 0 if _named(c, "residual") is None else 2
    return _stored(c) + (8 + 1 + added + 0.5 * np.sqrt(n)) * c.acc.u * np.abs(c.reference)


def _normalized(c: _Case, t: Any, axes: tuple[int, ...], weight: Any) -> Any:
    """Layer and group norm: the differences from the mean, then their root mean square."""
    if t.size == 0:
        return np.zeros(t.shape)
    u, n = c.acc.u, np.prod([t.shape[a] for a in axes])
    mean = partial(np.mean, axis=axes, keepdims=True)
    d = t - mean(t)
    rstd = 1 / np.sqrt(mean(d * d) + _WIDE(np.float32(c.attrs["eps"])))
    # The mean of a row is off by g(n) u; taken again of the differences, by that of those.
    shift = growth(n) * (mean(np.abs(d)) + growth(n) * u * mean(np.abs(t)))
    if _named(c, "residual") is not None:  # t itself is rounded
        rms = np.sqrt(mean(t * t))
        shift = shift + np.abs(t) + mean(np.abs(t)) + np.abs(d) * rstd * rms
    # Two differences, square, mean and root as in rms_norm.
    y = np.abs(d) * rstd
    error = u * (rstd * shift + (4 + 8 + 1 + 0.5 * np.sqrt(n)) * y)
    weight = 1 if weight is None else np.abs(weight)
    return _stored(c) + weight * (error + u * y) + u * np.abs(c.reference)


def _total(c: _Case) -> Any:
    residual = _named(c, "residual")
    return c.value(0) if residual is None else c.value(0) + residual


def _layer_norm(c: _Case) -> Any:
    t = _total(c)
    axes = tuple(range(t.ndim - c.attrs["axes"], t.ndim))
    return _normalized(c, t, axes, _named(c, "weight"))


def _group_norm(c: _Case) -> Any:
    t, weight, groups = _total(c), _named(c, "weight"), c.attrs["groups"]
    split = (t.shape[0], groups, t.shape[1] // groups, *t.shape[2:])
    weight = weight if weight is None else weight.reshape(*split[1:3], *(1,) * (t.ndim - 2))
    case = replace(
        c, inputs=[x if x is None or x.ndim == 1 else x.reshape(split) for x in c.inputs]
    )
    case = replace(case, reference=c.reference.reshape(split))
    found = _normalized(case, t.reshape(split), tuple(range(2, t.ndim + 1)), weight)
    return np.broadcast_to(found, split).reshape(t.shape)


def _batch_norm(c: _Case) -> Any:
    def channel(v: Any) -> Any:
        return 0 if v is None else v.reshape(-1, *(1,) * (c.value(0).ndim - 2))

    t, mean, variance, weight = _total(c), *map(channel, (c.value(1), c.value(2), c.value(3)))
    scale = 1 / np.sqrt(variance + _WIDE(np.float32(c.attrs["eps"])))
    scale = scale if c.value(3) is None else scale * np.abs(weight)
    added = 0 if _named(c, "residual") is None else np.abs(t)
    # A difference, the root of a sum (2 ulp), two products, the bias.
    error = c.acc.u * scale * (added + (1 + 4 + 1 + 2) * np.abs(t - mean))
    return _stored(c) + error + c.acc.u * np.abs(c.reference)


def _softmax(c: _Case) -> Any:
    x, axis = c.value(0), c.attrs["axis"]
    if x.size == 0:
        return _exact(c)
    with np.errstate(all="ignore"):
        depth = x.max(axis=axis, keepdims=True) - x
        depth = np.where(np.isfinite(depth), depth, 0)  # e = 0 has no relative error
        mean_depth = np.sum(c.reference * depth, axis=axis, keepdims=True)
        # A sum of few terms has a rounding for each.
        n = x.shape[axis]
        steps = np.minimum(n - 1, growth(n, one_number=constant(x, axis=axis, keepdims=True)))
    relative = c.acc.u * (depth + mean_depth + 2 * _EXP_ROUNDINGS + 5 + steps)
    return _stored(c) + relative * np.abs(c.reference) + 2 * _EXP_ROUNDINGS * c.acc.theta


def _exponentials(c: _Case, axis: Any) -> Any:
    """The sum of exp(x - max) and the error of its logarithm."""
    x, u = c.value(0), c.acc.u
    depth = x.max(axis=axis, keepdims=True) - x
    e = np.where(np.isfinite(depth), np.exp(-depth), 0)
    total = np.maximum(np.sum(e, axis=axis, keepdims=True), 1)
    depth = np.where(np.isfinite(depth), depth, 0)
    mean_depth = np.sum(e * depth, axis=axis, keepdims=True) / total
    n = x.size // max(1, total.size)
    log = np.log(total)
    return u * (mean_depth + _EXP_ROUNDINGS + growth(n) + 2 * ULPS["log"] * log)


def _log_softmax(c: _Case) -> Any:
    x, axis = c.value(0), c.attrs["axis"]
    if x.size == 0:
        return _exact(c)
    depth = x.max(axis=axis, keepdims=True) - x
    depth = np.where(np.isfinite(depth), depth, 0)
    return _stored(c) + c.acc.u * (depth + np.abs(c.reference)) + _exponentials(c, axis)


def _logsumexp(c: _Case) -> Any:
    axis = c.attrs["axis"]
    if c.value(0).size == 0:
        return _exact(c)
    error = _exponentials(c, axis).reshape(np.shape(c.reference))
    return _stored(c) + c.acc.u * np.abs(c.reference) + error


def _equal_keys(c: _Case) -> Any:
    """For which heads all keys are one, and so are all values, as [B, H, 1, 1]."""
    k, v, mask = c.value(1), c.value(2), c.inputs[4] if len(c.inputs) > 4 else None
    if k.size * v.size == 0 or (mask is not None and mask.dtype != np.bool_):
        return False
    one = np.logical_and(*(constant(x, axis=2).all(axis=-1) for x in (k, v)))
    return np.repeat(one, c.value(0).shape[1] // k.shape[1], axis=1)[..., None, None]


def _attention_scores(c: _Case) -> tuple[Any, Any, Any]:
    """The weight of each key, its relative error, and what the log of their sum may be off."""
    q, k = c.value(0), c.value(1)
    k = np.repeat(k, q.shape[1] // max(k.shape[1], 1), axis=1)
    scale, u = _WIDE(np.float32(c.attrs["scale"])), c.acc.u
    length, mask, sinks = (c.inputs[i] if i < len(c.inputs) else None for i in (3, 4, 5))
    kt = np.swapaxes(k, -1, -2)
    scores = np.matmul(q, kt) * scale
    ds = growth(q.shape[-1]) * u * np.matmul(np.abs(q), np.abs(kt)) * np.abs(scale)
    if c.attrs["softcap"]:
        # tanh does not stretch errors; its own, and those of the quotient and the product.
        cap = _WIDE(np.float32(c.attrs["softcap"]))
        scores = cap * np.tanh(scores / cap)
        ds = ds + (2 * ULPS["tanh"] + 3) * u * np.abs(scores)
    if mask is not None and mask.dtype != np.bool_:
        scores = scores + _oracle.wide(mask)
    seen = visible_keys(scores.shape, length, mask, c.attrs["causal"], c.attrs["window"])
    ds = ds + u * np.abs(scores)
    ds = np.where(seen & np.isfinite(ds), ds, 0).max(axis=-1, keepdims=True, initial=0)
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    rest = _WIDE(0)
    if sinks is not None:
        sink = _oracle.wide(sinks).astype(_WIDE)[:, None, None]
        top = np.maximum(top, sink)
        rest = np.nan_to_num(np.exp(sink - top))
    depth = top - scores
    e = np.where(np.isfinite(depth), np.exp(-depth), 0)
    p = e / np.maximum(e.sum(axis=-1, keepdims=True) + rest, 1)
    depth = np.where(np.isfinite(depth), depth, 0)
    steps = growth(k.shape[2] + 1, one_number=_equal_keys(c))
    relative = 2 * ds + u * (depth + 2 * _EXP_ROUNDINGS + 7) + steps * u
    off = ds + u * ((p * depth).sum(axis=-1, keepdims=True) + _EXP_ROUNDINGS + 2)
    # The logarithm is at most |lse| + |top|, and 3 ulp of it are 6 u; the caller adds the first.
    log = 2 * ULPS["log"] * np.where(np.isfinite(top), np.abs(top), 0)
    return p, relative, off + u * (steps + log)


def _attention(c: _Case) -> Any:
    v = np.repeat(c.value(2), c.value(0).shape[1] // max(c.value(1).shape[1], 1), axis=1)
    p, relative, _ = _attention_scores(c)
    # A key whose weight underflows still counts with what its exponential may be off.
    weight = relative * p + 2 * _EXP_ROUNDINGS * c.acc.theta
    return _stored(c) + np.matmul(weight, np.where(np.isfinite(v), np.abs(v), 0))


def _attention_lse(c: _Case) -> Any:
    *_, off = _attention_scores(c)
    return _stored(c) + off[..., 0] + 2 * ULPS["log"] * c.acc.u * np.abs(c.reference)


def _paged_attention(c: _Case) -> Any:
    """Attention's, sequence by sequence."""
    out = np.zeros(np.shape(c.reference), _WIDE)
    spec = attention.SPEC
    attrs = {a.name: a.default for a in spec.attrs}
    attrs |= {"scale": c.attrs["scale"], "causal": "last_key"}
    for own, parts in paged_attention.each_sequence(c.inputs):
        rows = np.swapaxes(c.reference[own], 0, 1)[None]
        inner = _Case(spec, (*parts, None, None, None), attrs, rows, c.out, c.flushes)
        out[own] = np.swapaxes(_attention(inner)[0], 0, 1)
    return out


def _rope(c: _Case) -> Any:
    x = np.abs(c.value(0))
    rotary = c.attrs["rotary_dims"] or x.shape[-1]
    half = rotary // 2
    speed = frequencies(rotary, c.attrs["base"], c.attrs["position_scale"])
    factors = c.value(2)
    if factors is not None:
        speed = speed / factors
    angle = np.abs(c.inputs[1].astype(_WIDE)[..., None] * speed)
    split = c.attrs["pairing"] == "half_split"
    first = x[..., :half] if split else x[..., 0:rotary:2]
    second = x[..., half:rotary] if split else x[..., 1:rotary:2]
    # The angle: frequency rounded, divided by its factor, times the position, with slack 2. The
    # turn: sine and cosine within 4 ulp, two products and a sum.
    u = c.acc.u
    error = (first + second) * u * (8 * angle + 2 * ULPS["sin"] + 3)
    out = np.zeros(x.shape, _WIDE)
    stored = np.broadcast_to(_stored(c), x.shape)
    if split:
        out[..., :half] = out[..., half:rotary] = error
    else:
        out[..., 0:rotary:2] = out[..., 1:rotary:2] = error
    out[..., :rotary] += stored[..., :rotary]
    return out


BOUNDS_OF_ROWS: dict[str, Callable[[_Case], Any]] = {
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "attention": _attention,
    "attention_lse": _attention_lse,
    "paged_attention": _paged_attention,
    "rope": _rope,
}
BOUNDS |= BOUNDS_OF_ROWS
