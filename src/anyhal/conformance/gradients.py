"""Error bounds of the losses, the backward ops and the optimiser steps.
SPDX-License-Identifier: Apache-2.0

The same method as tolerance.py: `u` at each rounding, `growth` for each sum, carried to the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anyhal.conformance.growth import alike, constant, growth, moments
from anyhal.conformance.tolerance import _EXP_ROUNDINGS, _WIDE, BOUNDS, ULPS, _Case, _stored
from anyhal.ops import _oracle, cross_entropy
from anyhal.ops._attention import visible_keys


def _total(x: Any, axis: Any = -1) -> Any:
    return np.sum(x, axis=axis, keepdims=True)


def _finite(x: Any) -> Any:
    return np.where(np.isfinite(x), x, 0)


def _rows(x: Any) -> Any:
    return np.sum(x, axis=tuple(range(x.ndim - 1)))


# ---------------------------------------------------------------------------------------- losses


def _depths(x: Any) -> tuple[Any, Any, Any]:
    """(max - x, softmax(x), the sum of their products) along the last axis."""
    top = x.max(axis=-1, keepdims=True, initial=-np.inf)
    depth = top - x
    e = _finite(np.exp(-depth))
    p = e / np.maximum(_total(e), 1)
    depth = _finite(depth)
    return depth, p, _total(p * depth)


def _lse_error(c: _Case, x: Any) -> tuple[Any, Any]:
    """(log of the sum of exp(x - max), its error)."""
    depth, _, mean_depth = _depths(x)
    value = np.log(np.maximum(_total(_finite(np.exp(-depth))), 1))
    terms = mean_depth + _EXP_ROUNDINGS + growth(x.shape[-1])
    return value, c.acc.u * (terms + 2 * ULPS["log"] * value)


def _lse(c: _Case) -> Any:
    _, error = _lse_error(c, c.value(0))
    return _stored(c) + np.reshape(error, np.shape(c.reference)) + c.acc.u * np.abs(c.reference)


def _cross_entropy(c: _Case) -> Any:
    x, u = c.value(0), c.acc.u
    if x.size == 0:
        return _stored(c)
    part = _WIDE(np.float32(c.attrs["label_smoothing"]))
    weight, ignored = cross_entropy.weights(
        c.inputs[1], x.shape[-1], c.attrs["ignore_index"], c.attrs["label_smoothing"]
    )
    depth, _, _ = _depths(x)
    log, error = _lse_error(c, x)
    # Each class: its distance from the maximum rounded, weighted, summed; then two differences.
    spread = growth(x.shape[-1]) if part else 0
    picked = _total(weight * depth)
    rows = (error + u * ((spread + 6) * picked + 2 * np.abs(log)))[..., 0]
    rows = np.where(ignored, 0, rows)
    if c.attrs["reduction"] == "none":
        return _stored(c) + rows
    values = np.where(ignored, 0, _finite(np.abs(log + picked))[..., 0])
    total = np.sum(rows) + growth(rows.size) * u * np.sum(values)
    if c.attrs["reduction"] == "mean":
        total = total / max(1, np.sum(~ignored)) + u * np.abs(c.reference)
    return _stored(c) + total


def _cross_entropy_backward(c: _Case) -> Any:
    x, scale, lse, u = c.value(0), c.value(2), c.value(3), c.acc.u
    if x.size == 0:
        return _stored(c)
    weight, ignored = cross_entropy.weights(
        c.inputs[1], x.shape[-1], c.attrs["ignore_index"], c.attrs["label_smoothing"]
    )
    depth, p, mean_depth = _depths(x)
    if lse is None:
        relative = depth + mean_depth + growth(x.shape[-1]) + 2 * _EXP_ROUNDINGS + 3
    else:
        away = x - lse[..., None]
        p, relative = _finite(np.exp(away)), _finite(np.abs(away)) + _EXP_ROUNDINGS + 1
    if c.attrs["reduction"] == "mean":
        scale = scale / max(1, np.sum(~ignored))
    scale = np.abs(np.broadcast_to(scale, ignored.shape))[..., None]
    error = u * (relative * p + 5 * (p + weight)) + 2 * _EXP_ROUNDINGS * c.acc.theta
    return _stored(c) + scale * error + c.acc.theta


def _softmax_backward(c: _Case) -> Any:
    d, y, axis = c.value(0), c.value(1), c.attrs["axis"]
    total = _total(np.abs(d * y), axis)
    error = np.abs(y) * (growth(d.shape[axis]) * total + 3 * (np.abs(d) + total))
    return _stored(c) + c.acc.u * error + (np.abs(y) * d.shape[axis] + 1) * c.acc.theta


def _log_softmax_backward(c: _Case) -> Any:
    d, p, axis = c.value(0), _finite(np.exp(c.value(1))), c.attrs["axis"]
    total = _total(np.abs(d), axis)
    error = p * total * (growth(d.shape[axis]) + _EXP_ROUNDINGS + 3) + 2 * np.abs(d)
    return _stored(c) + c.acc.u * error + (total + 1) * _EXP_ROUNDINGS * c.acc.theta


# ----------------------------------------------------------------------------------------- norms


def _norm_error(c: _Case, x: Any, centred: bool, added: bool = False) -> tuple[Any, Any, Any, Any]:
    """Of rows over the last axis: 1 / root, x over it, their errors: relative for the first,
    absolute for the second. `added`: x is itself a rounded sum."""
    u = c.acc.u
    n = max(x.shape[-1], 1)
    off = u * np.abs(x) if added else 0 * x
    if centred:
        # The mean is taken off twice: the second time it is that of small differences.
        first = growth(n) * u * _total(np.abs(x)) / n
        off = off + _total(off) / n
        x = x - _total(x) / n
        shift = (growth(n) + 1) * u * (_total(np.abs(x)) / n + first)
        off = off + shift + 2 * u * (np.abs(x) + first)
    square = _total(x * x) / n + _WIDE(np.float32(c.attrs["eps"]))
    moved = _total(2 * np.abs(x) * off + off * off) / n
    relative = (16 + 0.5 * np.sqrt(n)) * u + moved / (2 * square)
    factor = 1 / np.sqrt(square)
    unit = x * factor
    return factor, unit, relative, factor * off + np.abs(unit) * (relative + 2 * u)


def _norm_input(c: _Case, g: Any, x: Any, centred: bool, added: bool = False) -> Any:
    """dx of rows over the last axis, from the magnitudes of dout * weight."""
    u, n = c.acc.u, x.shape[-1]
    factor, unit, relative, off = _norm_error(c, x, centred, added)
    along = _total(g * np.abs(unit)) / n
    along_error = (growth(n) + 3) * u * along + _total(g * off) / n
    error = off * along + np.abs(unit) * (along_error + 3 * u * along) + 3 * u * g
    size = g + np.abs(unit) * along
    if centred:
        error = error + (growth(n) + 4) * u * _total(g) / n
        size = size + _total(g) / n
    return factor * (error + size * (relative + 4 * u)) + c.acc.theta


def _norm_backward(c: _Case, centred: bool) -> Any:
    x, weight = c.value(1), c.value(2)
    if x.size == 0:
        return _stored(c)
    g = np.abs(c.value(0) if weight is None else c.value(0) * weight)
    return _stored(c) + _norm_input(c, g, x, centred)


def _row_growth(terms: Any) -> Any:
    """The growth of sums over rows."""
    n = terms.size // max(terms.shape[-1], 1)
    return growth(n, one_number=alike(n, _rows(terms), _rows(terms * terms)))


def _norm_weight(c: _Case, centred: bool) -> Any:
    d, u = c.value(0), c.acc.u
    if d.size == 0:
        return _stored(c)
    _, unit, _, off = _norm_error(c, c.value(1), centred)
    terms = d * unit
    steps = _row_growth(terms) + 2
    return _stored(c) + steps * u * _rows(np.abs(terms)) + _rows(np.abs(d) * off)


def _norm_bias(c: _Case) -> Any:
    d = c.value(0)
    return _stored(c) + _row_growth(d) * c.acc.u * _rows(np.abs(d))


def _over_channels(x: Any) -> Any:
    """Sums over all but axis 1."""
    return np.sum(x, axis=(0, *range(2, x.ndim)))


def _beside(v: Any, x: Any) -> Any:
    """[C] as it stands beside x."""
    return v.reshape(-1, *(1,) * (x.ndim - 2))


def _channel_growth(terms: Any) -> Any:
    """The growth of sums over all but axis 1."""
    n = terms.size // max(terms.shape[1], 1)
    return growth(n, one_number=alike(n, _over_channels(terms), _over_channels(terms * terms)))


def _channel_sum(c: _Case) -> Any:
    d = c.value(0)
    return _stored(c) + _channel_growth(d) * c.acc.u * _over_channels(np.abs(d))


def _group_rows(c: _Case) -> tuple[Any, bool]:
    """(x + residual with one group a row, whether there is a residual)."""
    x, residual = c.value(1), c.value(3)
    t = x if residual is None else x + residual
    return t.reshape(x.shape[0] * c.attrs["groups"], -1), residual is not None


def _group_backward(c: _Case) -> Any:
    d, weight = c.value(0), c.value(2)
    if d.size == 0:
        return _stored(c)
    rows, added = _group_rows(c)
    g = np.abs(d if weight is None else d * _beside(weight, d)).reshape(rows.shape)
    return _stored(c) + _norm_input(c, g, rows, True, added).reshape(d.shape)


def _group_weight(c: _Case) -> Any:
    d, u = c.value(0), c.acc.u
    if d.size == 0:
        return _stored(c)
    rows, added = _group_rows(c)
    _, unit, _, off = _norm_error(c, rows, True, added)
    terms, off = d * unit.reshape(d.shape), off.reshape(d.shape)
    summed = (_channel_growth(terms) + 2) * u * _over_channels(np.abs(terms))
    return _stored(c) + summed + _over_channels(np.abs(d) * off)


def _batch_away(c: _Case) -> tuple[Any, Any]:
    """(t - mean, t)."""
    x, mean, residual = c.value(1), c.value(2), c.value(5)
    t = x if residual is None else x + residual
    return t - _beside(mean, x), t


def _batch_parts(c: _Case) -> tuple[Any, Any, Any, Any]:
    """(|dout|, |weight|, r, |t - mean| and what rounding of t adds to it in units of u)."""
    d, _, mean, variance, weight, residual = (c.value(i) for i in range(6))
    scale = 1 / np.sqrt(variance + _WIDE(np.float32(c.attrs["eps"])))
    weight = np.ones_like(mean) if weight is None else np.abs(weight)
    away, t = _batch_away(c)
    away = np.abs(away)
    return np.abs(d), weight, scale, (away, 0 * away if residual is None else np.abs(t))


# The root of a rounded sum (2 ulp and half of u) and the products beside it.
_BATCH_ROUNDINGS = 8


def _batch_backward(c: _Case) -> Any:
    d, _, scale, _ = _batch_parts(c)
    factor = _beside(scale, d)
    error = _BATCH_ROUNDINGS * c.acc.u * np.abs(c.reference)
    return _stored(c) + error + c.acc.theta * (factor + 1)


def _batch_mean(c: _Case) -> Any:
    d, weight, scale, _ = _batch_parts(c)
    if d.size == 0:
        return _stored(c)
    total = _over_channels(d) * weight * scale
    relative = _channel_growth(c.value(0)) + _BATCH_ROUNDINGS
    return _stored(c) + relative * c.acc.u * total + c.acc.theta * (scale + 1)


def _batch_sum(c: _Case) -> tuple[Any, Any]:
    """(the magnitude of the sum of dout * (t - mean) * r, its error)."""
    d, _, scale, (away, rounded) = _batch_parts(c)
    size = _over_channels(d * away) * scale
    terms = d.size // max(d.shape[1], 1)
    relative = _channel_growth(c.value(0) * _batch_away(c)[0]) + _BATCH_ROUNDINGS + 2
    off = c.acc.u * (relative * size + _over_channels(d * rounded) * scale)
    return size, off + terms * c.acc.theta


def _batch_weight(c: _Case) -> Any:
    return _stored(c) + (0 if c.value(0).size == 0 else _batch_sum(c)[1])


def _batch_variance(c: _Case) -> Any:
    if c.value(0).size == 0:
        return _stored(c)
    _, weight, scale, _ = _batch_parts(c)
    size, off = _batch_sum(c)
    square = scale * scale
    error = weight * square * (off + 2 * _BATCH_ROUNDINGS * c.acc.u * size) / 2
    return _stored(c) + error + c.acc.theta * (1 + scale + square * (1 + weight))


# ------------------------------------------------------------------------------------- attention


def _attention_errors(c: _Case) -> dict[str, Any]:
    """Magnitudes of p and ds over the pairs that take part, and what they may be off."""
    d, q, k, v = (c.value(i) for i in range(4))
    length, mask, sinks, dlse = (c.inputs[i] if i < len(c.inputs) else None for i in range(4, 8))
    group, u = q.shape[1] // max(k.shape[1], 1), c.acc.u
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    d, q, k, v = (_finite(x) for x in (d, q, k, v))
    scale, slope, slope_off = _WIDE(np.float32(c.attrs["scale"])), _WIDE(1), _WIDE(0)
    kt, vt = np.swapaxes(k, -1, -2), np.swapaxes(v, -1, -2)
    s = np.matmul(q, kt) * scale
    error = growth(q.shape[-1]) * u * np.matmul(np.abs(q), np.abs(kt)) * np.abs(scale)
    if c.attrs["softcap"]:
        cap = _WIDE(np.float32(c.attrs["softcap"]))
        t = np.tanh(s / cap)
        # tanh does not stretch errors; its own, the quotient's and those of 1 - t^2 come on top.
        t_off = np.minimum((error + u * np.abs(s)) / cap + 2 * ULPS["tanh"] * u * np.abs(t), 1)
        s, error = cap * t, error + (2 * ULPS["tanh"] + 3) * u * np.abs(cap * t)
        slope, slope_off = 1 - t * t, 2 * np.abs(t) * t_off + t_off**2 + 2 * u
    if mask is not None and mask.dtype != np.bool_:
        s = s + _oracle.wide(mask)
    seen = visible_keys(s.shape, length, mask, c.attrs["causal"], c.attrs["window"])
    error = _finite(np.where(seen, error + 3 * u * np.abs(s), 0))
    # A sink is one more key, without an error of its own and without a value.
    none = np.full(q.shape[1], -np.inf) if sinks is None else _oracle.wide(sinks)
    sink = np.broadcast_to(none.astype(_WIDE)[:, None, None], (*s.shape[:3], 1))
    depth, p, mean_depth = _depths(np.concatenate([np.where(seen, s, -np.inf), sink], axis=-1))
    worst = error.max(axis=-1, keepdims=True, initial=0)
    terms = growth(k.shape[2] + 1)
    relative = 2 * worst + u * (depth + mean_depth + 2 * _EXP_ROUNDINGS + 7 + terms)
    off = relative * p + 2 * _EXP_ROUNDINGS * c.acc.theta
    p_sink, sink_off = p[..., -1:], off[..., -1:]
    p, off = p[..., :-1], np.where(seen, off[..., :-1], 0)
    dp, size = np.abs(np.matmul(d, vt)), np.matmul(np.abs(d), np.abs(vt))
    dp_off = growth(v.shape[-1]) * u * size
    mean = _total(p * dp)
    mean_off = _total(off * dp + p * dp_off) + (growth(k.shape[2]) + 1) * u * mean
    level = 0 if dlse is None else np.abs(_finite(_oracle.wide(dlse))[..., None])
    whole, whole_off = dp + mean + level, dp_off + mean_off + 4 * u * (dp + mean + level)
    ds_off = (off * whole + p * whole_off) * slope + p * whole * (slope_off + 2 * u)
    found = {"p": p, "p_off": off, "ds": p * whole * slope, "ds_off": ds_off}
    found["sink"] = p_sink * (mean + level)
    found["sink_off"] = sink_off * (mean + level) + p_sink * (mean_off + 4 * u * (mean + level))
    return {**found, "d": d, "q": q, "k": k}


def _attention_sinks(c: _Case) -> Any:
    e = _attention_errors(c)
    rows = growth(e["sink"][:, 0].size) * c.acc.u
    return _stored(c) + np.sum(e["sink_off"] + rows * e["sink"], axis=(0, 2, 3))


def _attention_query(c: _Case) -> Any:
    if c.value(0).size * c.value(2).size == 0:
        return _stored(c)
    e, k = _attention_errors(c), np.abs(c.value(2))
    k = _finite(np.repeat(k, c.value(1).shape[1] // k.shape[1], axis=1))
    keys = k.shape[2]
    weight = e["ds_off"] + (growth(keys) + 3) * c.acc.u * e["ds"]
    return _stored(c) + np.abs(_WIDE(np.float32(c.attrs["scale"]))) * np.matmul(weight, k)


def _attention_side(c: _Case, name: str, rows: str) -> Any:
    """dk and dv: products with the queries' side, summed over the heads that share a key."""
    if c.value(0).size * c.value(2).size == 0:
        return _stored(c)
    e, shape = _attention_errors(c), np.shape(c.reference)
    terms = e[name].shape[2] * e[name].shape[1] // max(shape[1], 1)
    weight = e[f"{name}_off"] + (growth(terms) + 3) * c.acc.u * e[name]
    error = np.matmul(np.swapaxes(weight, -1, -2), np.abs(e[rows]))
    if name == "ds":
        error = error * np.abs(_WIDE(np.float32(c.attrs["scale"])))
    return _stored(c) + error.reshape(*shape[:2], -1, *shape[2:]).sum(axis=2)


# --------------------------------------------------------------------------- tables, optimisers


def _embedding_backward(c: _Case) -> Any:
    d, ids, rows = c.value(0), c.inputs[1], c.attrs["rows"]
    total, hits, *sums = (
        c.spec.reference(part, ids, rows=rows) for part in (np.abs(d), *moments(d))
    )
    return _stored(c) + growth(hits + 1, one_number=alike(hits, *sums)) * c.acc.u * total


def _conv_backward(c: _Case, i: int) -> Any:
    """A product of magnitudes by the op itself: for x over features and taps, for w and bias over
    batch and places."""
    d, x, w = (np.abs(c.inputs[i]) for i in range(3))
    total = c.spec.reference(d, x, w, **c.attrs)[i]
    n = w.size // max(w.shape[1] * c.attrs["groups"], 1) if i == 0 else d.size // max(d.shape[1], 1)
    # The sums are of dout and w, of dout and x, and of dout.
    factors = (c.inputs[0], *((c.inputs[2],), (c.inputs[1],), ())[i])
    steps = growth(n, one_number=all(constant(x) for x in factors))
    return _stored(c) + steps * c.acc.u * total + n * c.acc.theta


def _moments(c: _Case) -> tuple[Any, Any, Any, Any]:
    """(m, its error, v, its error) after a step of Adam, before they are stored."""
    m, v, g = c.value(1), c.value(2), c.value(3)
    b1, b2 = (_WIDE(np.float32(c.attrs[name])) for name in ("beta1", "beta2"))
    u, mean, square = c.acc.u, b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    mean_off = 3 * u * (np.abs(b1 * m) + np.abs((1 - b1) * g)) + 3 * c.acc.theta
    return mean, mean_off, square, 4 * u * (np.abs(b2 * v) + (1 - b2) * g * g) + 4 * c.acc.theta


def _adamw(c: _Case) -> Any:
    p, rate, step = (np.abs(c.value(i)) for i in (0, 4, 5))
    mean, mean_off, square, square_off = _moments(c)
    b1, b2 = (_WIDE(np.float32(c.attrs[name])) for name in ("beta1", "beta2"))
    # expm1(step * log(beta)) has the relative error of its argument at most, and its own.
    u, corrected = c.acc.u, 2 * ULPS["expm1"] + 4
    first, second = 1 - b1**step, 1 - b2**step
    root = np.sqrt(square / second)
    root_off = np.minimum(np.sqrt(square_off / second), square_off / second / root)
    size = root + _WIDE(np.float32(c.attrs["eps"]))
    relative = (root_off + corrected * u * root) / size + (corrected + 8) * u
    change = np.abs(mean) / first / size
    decay = np.abs(_WIDE(np.float32(c.attrs["weight_decay"])) * p)
    off = change * relative + mean_off / first / size + 4 * u * (change + decay)
    return _stored(c) + rate * off + 2 * u * (p + rate * (change + decay)) + c.acc.theta


def _velocity(c: _Case) -> tuple[Any, Any]:
    """(the magnitude of velocity's terms, that of the gradient's)."""
    p, speed, g = (np.abs(c.value(i)) for i in range(3))
    g = g + _WIDE(np.float32(c.attrs["weight_decay"])) * p
    return np.abs(_WIDE(np.float32(c.attrs["momentum"]))) * speed + g, g


def _sgd(c: _Case) -> Any:
    speed, g = _velocity(c)
    if c.attrs["nesterov"]:
        speed = g + np.abs(_WIDE(np.float32(c.attrs["momentum"]))) * speed
    rate, p, u = np.abs(c.value(3)), np.abs(c.value(0)), c.acc.u
    return _stored(c) + 8 * u * rate * speed + 2 * u * (p + rate * speed) + 4 * c.acc.theta


BOUNDS_OF_TRAINING: dict[str, Callable[[_Case], Any]] = {
    "cross_entropy": _cross_entropy,
    "cross_entropy_lse": _lse,
    "cross_entropy_backward": _cross_entropy_backward,
    "softmax_backward": _softmax_backward,
    "log_softmax_backward": _log_softmax_backward,
    "rms_norm_backward": lambda c: _norm_backward(c, False),
    "rms_norm_backward_weight": lambda c: _norm_weight(c, False),
    "layer_norm_backward": lambda c: _norm_backward(c, True),
    "layer_norm_backward_weight": lambda c: _norm_weight(c, True),
    "layer_norm_backward_bias": _norm_bias,
    "group_norm_backward": _group_backward,
    "group_norm_backward_weight": _group_weight,
    "batch_norm_backward": _batch_backward,
    "batch_norm_backward_mean": _batch_mean,
    "batch_norm_backward_variance": _batch_variance,
    "batch_norm_backward_weight": _batch_weight,
    "channel_sum": _channel_sum,
    "attention_backward": _attention_query,
    "attention_backward_key": lambda c: _attention_side(c, "ds", "q"),
    "attention_backward_value": lambda c: _attention_side(c, "p", "d"),
    "attention_backward_sinks": _attention_sinks,
    "embedding_backward": _embedding_backward,
    "conv_backward": lambda c: _conv_backward(c, 0),
    "conv_backward_weight": lambda c: _conv_backward(c, 1),
    "conv_backward_bias": lambda c: _conv_backward(c, 2),
    "adamw_step": _adamw,
    "adamw_step_m": lambda c: _stored(c) + _moments(c)[1],
    "adamw_step_v": lambda c: _stored(c) + _moments(c)[3],
    "sgd_step": _sgd,
    "sgd_step_velocity": lambda c: _stored(c) + 4 * c.acc.u * _velocity(c)[0] + 4 * c.acc.theta,
}
BOUNDS |= BOUNDS_OF_TRAINING
