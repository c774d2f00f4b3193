"""Gradient rules: for each op, its inputs' gradients from the gradient of its output.
SPDX-License-Identifier: Apache-2.0

A rule gets the recorded call and dout, and gives one gradient or None for each input. It is built
from public ops, so it runs wherever they do and can itself be captured in a graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import anyhal as hal
from anyhal import Array
from anyhal.errors import InvalidArgumentError

Gradients = Sequence[Array | None]
Rule = Callable[[Any, Array], Gradients]


def _one_minus(x: Array) -> Any:
    return hal.add(hal.negative(x), 1.0)


def _sum_to(d: Array, x: Any) -> Any:
    """d summed over what broadcasting stretched; None for a number."""
    if not isinstance(x, Array):
        return None
    lead = d.ndim - x.ndim
    axes = [i for i in range(d.ndim) if i < lead or (x.shape[i - lead] == 1 and d.shape[i] != 1)]
    if not axes:
        return d
    return hal.reshape(hal.sum(d, axis=tuple(axes)), x.shape)


# ------------------------------------------------------------------------------ of each element


def _elementwise(derivative: Callable[[Array, Array], Array]) -> Rule:
    """dx = dout * derivative(x, out)."""
    return lambda c, d: [hal.multiply(d, derivative(c.inputs[0], c.out))]


def _sigmoid_slope(y: Array) -> Any:
    return hal.multiply(y, _one_minus(y))


def _silu(x: Array, _: Array) -> Any:
    s = hal.sigmoid(x)
    return hal.multiply(s, hal.add(hal.multiply(x, _one_minus(s)), 1.0))


def _gelu(x: Array, _: Array) -> Any:
    normal = hal.exp(hal.multiply(hal.multiply(x, x), -0.5))
    density = hal.multiply(hal.multiply(x, normal), 1 / math.sqrt(2 * math.pi))
    below = hal.multiply(hal.add(hal.erf(hal.multiply(x, math.sqrt(0.5))), 1.0), 0.5)
    return hal.add(below, density)


def _gelu_tanh(x: Array, _: Array) -> Any:
    # x * sigmoid(u) with u = 2 sqrt(2/pi) (x + 0.044715 x^3).
    k, square = 2 * math.sqrt(2 / math.pi), hal.multiply(x, x)
    s = hal.sigmoid(hal.multiply(x, hal.add(hal.multiply(square, 0.044715 * k), k)))
    slope = hal.add(hal.multiply(square, 3 * 0.044715 * k), k)
    return hal.add(s, hal.multiply(hal.multiply(x, slope), _sigmoid_slope(s)))


UNARY: dict[str, Callable[[Array, Array], Array]] = {
    "abs": lambda x, y: hal.sign(x),
    "exp": lambda x, y: y,
    "expm1": lambda x, y: hal.add(y, 1.0),
    "log": lambda x, y: hal.reciprocal(x),
    "log1p": lambda x, y: hal.reciprocal(hal.add(x, 1.0)),
    "sqrt": lambda x, y: hal.multiply(hal.reciprocal(y), 0.5),
    "rsqrt": lambda x, y: hal.multiply(hal.divide(y, x), -0.5),
    "reciprocal": lambda x, y: hal.negative(hal.multiply(y, y)),
    "sin": lambda x, y: hal.cos(x),
    "cos": lambda x, y: hal.negative(hal.sin(x)),
    "tanh": lambda x, y: _one_minus(hal.multiply(y, y)),
    "erf": lambda x, y: hal.multiply(
        hal.exp(hal.negative(hal.multiply(x, x))), 2 / math.sqrt(math.pi)
    ),
    "sigmoid": lambda x, y: _sigmoid_slope(y),
    "relu": lambda x, y: hal.astype(hal.greater(x, 0.0), dtype=x.dtype),
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}


def _binary(rule: Callable[[Any, Any, Array, Array], tuple[Array, Array]]) -> Rule:
    """A rule of (a, b, out, dout) before what broadcasting stretched is summed."""

    def run(c: Any, d: Array) -> Gradients:
        a, b = c.inputs
        da, db = rule(a, b, c.out, d)
        return [_sum_to(da, a), _sum_to(db, b)]

    return run


def _divide(a: Any, b: Any, out: Array, d: Array) -> tuple[Array, Array]:
    da = hal.divide(d, b)
    return da, hal.negative(hal.multiply(da, out))


def _pow(a: Any, b: Any, out: Array, d: Array) -> tuple[Array, Array]:
    slope = hal.multiply(hal.pow(a, hal.subtract(b, 1.0) if isinstance(b, Array) else b - 1.0), b)
    # A base of 0 stays 0 when the power moves.
    base = hal.where(hal.equal(out, 0.0), 1.0, a)
    return hal.multiply(d, slope), hal.multiply(d, hal.multiply(out, hal.log(base)))


def _extreme(a: Any, b: Any, out: Array, d: Array) -> tuple[Array, Array]:
    """maximum and minimum: all to the one chosen, half to each of two equal ones."""

    def share(x: Any, other: Any) -> Any:
        chosen = hal.astype(hal.equal(out, x), dtype=d.dtype)
        both = hal.multiply(chosen, hal.astype(hal.equal(out, other), dtype=d.dtype))
        return hal.multiply(d, hal.subtract(chosen, hal.multiply(both, 0.5)))

    return share(a, b), share(b, a)


def _where(c: Any, d: Array) -> Gradients:
    condition, a, b = c.inputs
    return [
        None,
        _sum_to(hal.where(condition, d, 0.0), a),
        _sum_to(hal.where(condition, 0.0, d), b),
    ]


# ------------------------------------------------------------------------------------ reductions


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


# --------------------------------------------------------------------------- products and layers


def _matmul(c: Any, d: Array) -> Gradients:
    a, b = c.inputs
    d = d if d.dtype == a.dtype else hal.astype(d, dtype=a.dtype)
    da = hal.matmul(d, b.mT) if c.needed[0] else None
    db = hal.matmul(a.mT, d) if c.needed[1] else None
    return [None if da is None else _sum_to(da, a), None if db is None else _sum_to(db, b)]


def _take(c: Any, d: Array) -> Gradients:
    x, indices = c.inputs
    nothing = hal.zeros(x.shape, dtype=x.dtype, device=x.device)
    return [hal.scatter_add(nothing, indices, d, axis=c.attrs["axis"]), None]


def _scatter_add(c: Any, d: Array) -> Gradients:
    return [d, None, hal.take(d, c.inputs[1], axis=c.attrs["axis"])]


def _embedding(c: Any, d: Array) -> Gradients:
    table, ids = c.inputs
    d = d if d.dtype == table.dtype else hal.astype(d, dtype=table.dtype)
    return [hal.embedding_backward(d, ids, rows=table.shape[0]), None]


def _softmax(c: Any, d: Array) -> Gradients:
    return [hal.softmax_backward(d, c.out, axis=c.attrs.get("axis", -1))]


def _log_softmax(c: Any, d: Array) -> Gradients:
    return [hal.log_softmax_backward(d, c.out, axis=c.attrs.get("axis", -1))]


def _logsumexp(c: Any, d: Array) -> Gradients:
    x = c.inputs[0]
    p = hal.exp(hal.subtract(x, _kept(c, c.out)))
    return [hal.multiply(p, _kept(c, d))]


def _cross_entropy(c: Any, d: Array) -> Gradients:
    logits, targets = c.inputs
    attrs = {k: v for k, v in c.attrs.items() if k != "return_lse"}
    lse = c.outputs[1:2]
    return [hal.cross_entropy_backward(logits, targets, d, *lse, **attrs), None]


def _operands(c: Any, count: int) -> list[Any]:
    return [*c.inputs, *(None,) * (count - len(c.inputs))]


def _rms_norm(c: Any, d: Array) -> Gradients:
    """x, weight, and where the op has one the residual, whose gradient is that of x."""
    x, weight, residual = _operands(c, 3)
    total = x if residual is None else c.outputs[1]
    made = hal.rms_norm_backward(d, total, weight, eps=c.attrs["eps"])
    dx, dweight = made if isinstance(made, tuple) else (made, None)
    return [dx, dweight, dx]


def _layer_norm(c: Any, d: Array) -> Gradients:
    x, weight, bias, residual = _operands(c, 4)
    total = x if residual is None else c.outputs[1]
    rows = (*x.shape[: x.ndim - c.attrs.get("axes", 1)], -1)
    flat = [hal.reshape(a, rows) for a in (d, total)]
    w = None if weight is None else hal.reshape(weight, (-1,))
    made = hal.layer_norm_backward(*flat, w, eps=c.attrs["eps"], bias=bias is not None)
    parts = list(made) if isinstance(made, tuple) else [made]
    dx = hal.reshape(parts.pop(0), x.shape)
    dweight = None if weight is None else hal.reshape(parts.pop(0), weight.shape)
    dbias = None if bias is None else hal.reshape(parts.pop(0), bias.shape)
    return [dx, dweight, dbias, dx]


def _attention(c: Any, d: Array) -> Gradients:
    known = {k: c.attrs[k] for k in ("scale", "causal")}
    besides = [k for k, v in c.attrs.items() if v and k not in (*known, "return_lse")]
    if besides or any(x is not None for x in c.inputs[5:]):
        raise InvalidArgumentError(
            f"gradients: attention with {', '.join(besides) or 'sinks'} has no rule; leave it out "
            "where gradients are wanted"
        )
    return [*hal.attention_backward(d, *c.inputs[:5], **known), None, None]


def _rope(c: Any, d: Array) -> Gradients:
    """A turn by the opposite angle, which is the gradient of a turn."""
    attrs = {**c.attrs, "position_scale": -c.attrs.get("position_scale", 1.0)}
    return [hal.rope(d, *c.inputs[1:], **attrs), None, None]


def _conv(c: Any, d: Array) -> Gradients:
    x, w, bias, residual = _operands(c, 4)
    if c.attrs.get("activation", "none") != "none":
        raise InvalidArgumentError(
            f"gradients: conv with activation={c.attrs['activation']!r} has no rule, because the "
            "value before it is gone; record the activation as a call of its own"
        )
    where = {k: v for k, v in c.attrs.items() if k != "activation"}
    made = hal.conv_backward(d, x, w, bias=bias is not None, **where)
    return [*made[:2], made[2] if bias is not None else None, _sum_to(d, residual)]


# ------------------------------------------------------------------------------- views and moves


def _astype(c: Any, d: Array) -> Gradients:
    return [hal.astype(d, dtype=c.inputs[0].dtype)]


def _reshape(c: Any, d: Array) -> Gradients:
    return [hal.reshape(d, c.inputs[0].shape), None]


def _permute(c: Any, d: Array) -> Gradients:
    axes = c.inputs[1] if len(c.inputs) > 1 else tuple(reversed(range(d.ndim)))
    return [hal.permute_dims(d, tuple(int(a) for a in np.argsort(axes))), None]


def _index(c: Any, d: Array) -> Gradients:
    x = c.inputs[0]
    out = hal.zeros(x.shape, dtype=x.dtype, device=x.device)
    hal.copy(d, out=out[c.attrs["key"]])
    return [out]


def _concat(c: Any, d: Array) -> Gradients:
    axis, start, found = c.attrs.get("axis", 0) % d.ndim, 0, []
    for x in c.inputs:
        key = [slice(None)] * d.ndim
        key[axis] = slice(start, start + x.shape[axis])
        start += x.shape[axis]
        found.append(d[tuple(key)])
    return found


RULES: dict[str, Rule] = {
    **{name: _elementwise(slope) for name, slope in UNARY.items()},
    "negative": lambda c, d: [hal.negative(d)],
    "add": _binary(lambda a, b, out, d: (d, d)),
    "subtract": _binary(lambda a, b, out, d: (d, hal.negative(d))),
    "multiply": _binary(lambda a, b, out, d: (hal.multiply(d, b), hal.multiply(d, a))),
    "divide": _binary(_divide),
    "pow": _binary(_pow),
    "maximum": _binary(_extreme),
    "minimum": _binary(_extreme),
    "where": _where,
    "sum": _sum,
    "mean": _mean,
    "max": _largest,
    "min": _largest,
    "prod": _prod,
    "matmul": _matmul,
    "take": _take,
    "scatter_add": _scatter_add,
    "embedding": _embedding,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "cross_entropy": _cross_entropy,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "attention": _attention,
    "rope": _rope,
    "conv": _conv,
    "astype": _astype,
    "copy": lambda c, d: [d],
    "reshape": _reshape,
    "permute_dims": _permute,
    "broadcast_to": lambda c, d: [_sum_to(d, c.inputs[0]), None],
    "index": _index,
    "concat": _concat,
}
