"""Gradient rules of functions of each element.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import anyhal as hal
from anyhal import Array
from anyhal.training.rules._shapes import Gradients, Rule, nothing, one_minus, sum_to

Slope = Callable[[Array, Array], Any]


def _of(slope: Slope) -> Rule:
    """dx = dout * slope(x, out)."""
    return lambda c, d: [hal.multiply(d, slope(c.inputs[0], c.out))]


def _sigmoid_slope(y: Array) -> Any:
    return hal.multiply(y, one_minus(y))


def _silu(x: Array, _: Array) -> Any:
    s = hal.sigmoid(x)
    return hal.multiply(s, hal.add(hal.multiply(x, one_minus(s)), 1.0))


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


def _arc(x: Array, _: Array) -> Any:
    """1 / sqrt(1 - x^2), without cancellation near 1."""
    return hal.rsqrt(hal.multiply(one_minus(x), hal.add(x, 1.0)))


SLOPES: dict[str, Slope] = {
    "abs": lambda x, y: hal.sign(x),
    "square": lambda x, y: hal.multiply(x, 2.0),
    "exp": lambda x, y: y,
    "exp2": lambda x, y: hal.multiply(y, math.log(2)),
    "expm1": lambda x, y: hal.add(y, 1.0),
    "log": lambda x, y: hal.reciprocal(x),
    "log2": lambda x, y: hal.multiply(hal.reciprocal(x), 1 / math.log(2)),
    "log10": lambda x, y: hal.multiply(hal.reciprocal(x), 1 / math.log(10)),
    "log1p": lambda x, y: hal.reciprocal(hal.add(x, 1.0)),
    "sqrt": lambda x, y: hal.multiply(hal.reciprocal(y), 0.5),
    "rsqrt": lambda x, y: hal.multiply(hal.divide(y, x), -0.5),
    "reciprocal": lambda x, y: hal.negative(hal.multiply(y, y)),
    "sin": lambda x, y: hal.cos(x),
    "cos": lambda x, y: hal.negative(hal.sin(x)),
    "tan": lambda x, y: hal.add(hal.multiply(y, y), 1.0),
    "asin": _arc,
    "acos": lambda x, y: hal.negative(_arc(x, y)),
    "atan": lambda x, y: hal.reciprocal(hal.add(hal.multiply(x, x), 1.0)),
    "sinh": lambda x, y: hal.cosh(x),
    "cosh": lambda x, y: hal.sinh(x),
    "tanh": lambda x, y: one_minus(hal.multiply(y, y)),
    "asinh": lambda x, y: hal.reciprocal(hal.hypot(x, 1.0)),
    "acosh": lambda x, y: hal.multiply(hal.rsqrt(hal.subtract(x, 1.0)), hal.rsqrt(hal.add(x, 1.0))),
    "atanh": lambda x, y: hal.reciprocal(hal.multiply(one_minus(x), hal.add(x, 1.0))),
    "erf": lambda x, y: hal.multiply(
        hal.exp(hal.negative(hal.multiply(x, x))), 2 / math.sqrt(math.pi)
    ),
    "sigmoid": lambda x, y: _sigmoid_slope(y),
    "softplus": lambda x, y: hal.sigmoid(x),
    "relu": lambda x, y: hal.astype(hal.greater(x, 0.0), dtype=x.dtype),
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}
# Steps: 0 between them, and taken as 0 at them.
STEPS = ("sign", "floor", "ceil", "round", "trunc")


def _binary(rule: Callable[[Any, Any, Array, Array], tuple[Any, Any]]) -> Rule:
    """A rule of (a, b, out, dout) before what broadcasting stretched is summed."""

    def run(c: Any, d: Array) -> Gradients:
        a, b = c.inputs
        da, db = rule(a, b, c.out, d)
        return [sum_to(da, a), sum_to(db, b)]

    return run


def _divide(a: Any, b: Any, out: Array, d: Array) -> tuple[Any, Any]:
    da = hal.divide(d, b)
    return da, hal.negative(hal.multiply(da, out))


def _pow(c: Any, d: Array) -> Gradients:
    (a, b), found = c.inputs, [None, None]
    if c.needed[0]:
        if isinstance(b, Array):
            slope = hal.multiply(hal.pow(a, hal.subtract(b, 1.0)), b)
            slope = hal.where(hal.equal(b, 0.0), 0.0, slope)  # also where a is 0
        else:
            slope = hal.multiply(hal.pow(a, b - 1.0), b) if b else nothing(c.out)
        found[0] = sum_to(hal.multiply(d, slope), a)
    if c.needed[1]:
        # A base of 0 stays 0 when the power moves.
        a = a if isinstance(a, Array) else hal.full((), a, dtype=b.dtype, device=b.device)
        stays = hal.logical_and(hal.equal(a, 0.0), hal.greater_equal(b, 0.0))
        base = hal.where(stays, 1.0, a)
        found[1] = sum_to(hal.multiply(d, hal.multiply(c.out, hal.log(base))), b)
    return found


def _extreme(a: Any, b: Any, out: Array, d: Array) -> tuple[Any, Any]:
    """maximum and minimum: all to the one chosen, half to each of two equal ones."""

    def share(x: Any, other: Any) -> Any:
        chosen = hal.astype(hal.equal(out, x), dtype=d.dtype)
        both = hal.multiply(chosen, hal.astype(hal.equal(out, other), dtype=d.dtype))
        return hal.multiply(d, hal.subtract(chosen, hal.multiply(both, 0.5)))

    return share(a, b), share(b, a)


def _remainder(a: Any, b: Any, out: Array, d: Array) -> tuple[Any, Any]:
    """a - floor(a / b) * b between the steps of floor."""
    return d, hal.negative(hal.multiply(d, hal.floor_divide(a, b)))


def _atan2(a: Any, b: Any, out: Array, d: Array) -> tuple[Any, Any]:
    turn = hal.divide(d, hal.hypot(a, b))
    return hal.multiply(turn, hal.cos(out)), hal.negative(hal.multiply(turn, hal.sin(out)))


def _hypot(a: Any, b: Any, out: Array, d: Array) -> tuple[Any, Any]:
    """0 at the origin, where there is no slope."""
    share = hal.divide(d, hal.where(hal.equal(out, 0.0), 1.0, out))
    return hal.multiply(share, a), hal.multiply(share, b)


def _logaddexp(a: Any, b: Any, out: Array, d: Array) -> tuple[Any, Any]:
    # Two equal infinities, whose difference is NaN, share.
    part = hal.where(hal.equal(a, b), 0.5, hal.sigmoid(hal.subtract(a, b)))
    return hal.multiply(d, part), hal.multiply(d, one_minus(part))


def _copysign(c: Any, d: Array) -> Gradients:
    a, b = c.inputs
    found = [None, nothing(b) if c.needed[1] else None]  # a step of b
    if c.needed[0]:
        kept = hal.equal(hal.signbit(c.out), hal.signbit(a))
        found[0] = sum_to(hal.where(kept, d, hal.negative(d)), a)
    return found


def _steps(c: Any, d: Array) -> Gradients:
    return [nothing(x) if needed else None for x, needed in zip(c.inputs, c.needed, strict=True)]


def _where(c: Any, d: Array) -> Gradients:
    condition, a, b = c.inputs
    return [
        None,
        sum_to(hal.where(condition, d, 0.0), a),
        sum_to(hal.where(condition, 0.0, d), b),
    ]


def _clip(c: Any, d: Array) -> Gradients:
    """To x where it is within the bounds, or on one, else to the bound that is the result."""
    x, low, high = c.operands(3)
    dx, dlow, dhigh = d, None, None
    raised = x if low is None else hal.maximum(x, low)
    if low is not None:
        under = hal.less(x, low)
        dx, dlow = hal.where(under, 0.0, d), hal.where(under, d, 0.0)
    if high is not None:
        over = hal.greater(raised, high)
        dhigh = sum_to(hal.where(over, d, 0.0), high)
        dx = hal.where(over, 0.0, dx)
        dlow = None if dlow is None else hal.where(over, 0.0, dlow)
    return [sum_to(dx, x), None if dlow is None else sum_to(dlow, low), dhigh]


RULES: dict[str, Rule] = {
    **{name: _of(slope) for name, slope in SLOPES.items()},
    **dict.fromkeys((*STEPS, "floor_divide"), _steps),
    "negative": lambda c, d: [hal.negative(d)],
    "positive": lambda c, d: [d],
    "add": _binary(lambda a, b, out, d: (d, d)),
    "subtract": _binary(lambda a, b, out, d: (d, hal.negative(d))),
    "multiply": _binary(lambda a, b, out, d: (hal.multiply(d, b), hal.multiply(d, a))),
    "divide": _binary(_divide),
    "remainder": _binary(_remainder),
    "pow": _pow,
    "maximum": _binary(_extreme),
    "minimum": _binary(_extreme),
    "atan2": _binary(_atan2),
    "hypot": _binary(_hypot),
    "logaddexp": _binary(_logaddexp),
    "copysign": _copysign,
    "where": _where,
    "clip": _clip,
}
