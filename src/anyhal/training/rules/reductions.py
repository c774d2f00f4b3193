"""Gradient rules of reductions, sums along an axis, orders and softmaxes.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from typing import Any

import anyhal as hal
from anyhal import Array
from anyhal.training.rules._shapes import Gradients, Rule, nothing


def _axes(c: Any) -> tuple[int, ...]:
    x, axis = c.inputs[0], c.attrs.get("axis")
    given = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return tuple(sorted(a % x.ndim for a in given))


def _kept(c: Any, y: Array) -> Any:
    """An output or its gradient with the reduced axes as 1."""
    x, axes = c.inputs[0], _axes(c)
    return hal.reshape(y, tuple(1 if i in axes else n for i, n in enumerate(x.shape)))


def _sum(c: Any, d: Array) -> Gradients:
    return [hal.broadcast_to(_kept(c, d), c.inputs[0].shape)]


def _mean(c: Any, d: Array) -> Gradients:
    count = math.prod(c.inputs[0].shape[a] for a in _axes(c))
    return [hal.broadcast_to(hal.divide(_kept(c, d), float(count)), c.inputs[0].shape)]


def _largest(c: Any, d: Array) -> Gradients:
    """max and min: shared evenly by all that are equal to it."""
    x = c.inputs[0]
    hit = hal.astype(hal.equal(x, _kept(c, c.out)), dtype=x.dtype)
    count = hal.sum(hit, axis=_axes(c) or None, keepdims=True)
    return [hal.multiply(hit, hal.divide(_kept(c, d), count))]


def _prod(c: Any, d: Array) -> Gradients:
    """The product of the others, which a division gives only where nothing is 0."""
    x, axes = c.inputs[0], _axes(c) or None
    null = hal.equal(x, 0.0)
    count = hal.sum(hal.astype(null, dtype=x.dtype), axis=axes, keepdims=True)
    filled = hal.where(null, 1.0, x)
    rest = hal.divide(hal.prod(filled, axis=axes, keepdims=True), filled)
    others = hal.subtract(count, hal.astype(null, dtype=x.dtype))
    return [hal.multiply(_kept(c, d), hal.where(hal.equal(others, 0.0), rest, 0.0))]


def _cumsum(c: Any, d: Array) -> Gradients:
    """A sum from the other end."""
    backwards = not c.attrs.get("reverse", False)
    exclusive = c.attrs.get("exclusive", False)
    return [hal.cumsum(d, axis=c.attrs["axis"], exclusive=exclusive, reverse=backwards)]


def _ordered(c: Any, dvalues: Array, _: None = None) -> Gradients:
    """topk and sort: each value's gradient goes where it stood."""
    axis = c.attrs.get("axis", -1)
    target = nothing(c.inputs[0])
    return [hal.scatter(target, c.outputs[1], dvalues, axis=axis, reduction="add")]


def _softmax(c: Any, d: Array) -> Gradients:
    return [hal.softmax_backward(d, c.out, axis=c.attrs.get("axis", -1))]


def _log_softmax(c: Any, d: Array) -> Gradients:
    return [hal.log_softmax_backward(d, c.out, axis=c.attrs.get("axis", -1))]


def _logsumexp(c: Any, d: Array) -> Gradients:
    p = hal.exp(hal.subtract(c.inputs[0], _kept(c, c.out)))
    return [hal.multiply(p, _kept(c, d))]


RULES: dict[str, Rule] = {
    "sum": _sum,
    "mean": _mean,
    "max": _largest,
    "min": _largest,
    "prod": _prod,
    "cumsum": _cumsum,
    "topk": _ordered,
    "sort": _ordered,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
}
