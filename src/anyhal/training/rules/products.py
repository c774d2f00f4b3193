"""Gradient rules of products: matrices, groups, convolutions, and what is fused behind them.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import anyhal as hal
from anyhal import Array
from anyhal.training.rules._shapes import Gradients, Rule, cast, nothing, sum_to, wide
from anyhal.training.rules.elementwise import SLOPES


def _sides(c: Any, a: Array, b: Array, d: Array) -> list[Any]:
    """The gradients of a @ b."""
    d = cast(d, a.dtype)
    da = sum_to(hal.matmul(d, b.mT), a) if c.needed[0] else None
    db = sum_to(hal.matmul(a.mT, d), b) if c.needed[1] else None
    return [da, db]


def _matmul(c: Any, d: Array) -> Gradients:
    a, b = c.inputs
    return _sides(c, a, b, d)


def _behind(c: Any, product: Any, d: Array) -> tuple[Array, list[Any]]:
    """The gradients of `product` and of bias, multiplier and residual, of
    act(scale * product + bias) * multiplier + residual; `product` makes it again."""
    _, _, bias, multiplier, residual = c.operands(5)
    activation, scale = c.attrs.get("activation", "none"), c.attrs.get("scale", 1.0)
    d = wide(d)
    before: Any = None
    after: Any = None
    dmultiplier = None
    if activation != "none" or multiplier is not None:
        before = wide(hal.multiply(product(), scale))
        before = before if bias is None else hal.add(before, cast(bias, before.dtype))
        after = before if activation == "none" else getattr(hal, activation)(before)
    inner = d
    if multiplier is not None:
        inner = hal.multiply(d, cast(multiplier, d.dtype))
        dmultiplier = sum_to(hal.multiply(d, after), multiplier)
    if activation != "none":
        inner = hal.multiply(inner, SLOPES[activation](before, after))
    rest = [sum_to(inner, bias), dmultiplier, sum_to(d, residual)]
    return hal.multiply(inner, scale), rest


def _matmul_epilogue(c: Any, d: Array) -> Gradients:
    a, b = c.inputs[:2]
    inner, rest = _behind(c, lambda: hal.matmul(a, b), d)
    return [*_sides(c, a, b, inner), *rest]


def _quant_matmul(c: Any, d: Array) -> Gradients:
    """Of x and what is fused behind; the weights are storage."""
    x, w = c.inputs[:2]
    decoded = hal.astype(w, dtype="float32")
    inner, rest = _behind(c, lambda: hal.matmul(hal.astype(x, dtype="float32"), decoded.mT), d)
    return [hal.matmul(inner, decoded), None, *rest]


def _scaled_matmul(c: Any, d: Array) -> Gradients:
    """Of scales and bias; the codes are storage."""
    a, b, a_scale, b_scale, a_zero, b_zero, bias = c.operands(7)
    d = wide(d)

    def product(left: Array, right: Array) -> Any:
        return hal.scaled_matmul(a, b, left, right, a_zero, b_zero, dtype="float32")

    found: list[Any] = [None] * 7
    if c.needed[2]:
        ones = hal.ones(a_scale.shape, dtype="float32", device=d.device)
        rows = hal.sum(hal.multiply(d, product(ones, b_scale)), axis=-1)
        found[2] = sum_to(rows, a_scale)
    if c.needed[3]:
        ones = hal.ones(b_scale.shape, dtype="float32", device=d.device)
        columns = hal.sum(hal.multiply(d, product(a_scale, ones)), axis=-2)
        found[3] = sum_to(columns, b_scale)
    found[6] = None if bias is None else sum_to(d, bias)
    return found


def _grouped_matmul(c: Any, d: Array) -> Gradients:
    x, sizes, w = c.inputs
    d = cast(d, x.dtype)
    dx = hal.grouped_matmul(d, sizes, w.mT) if c.needed[0] else None
    if not c.needed[2]:
        return [dx, None, None]
    # One product for each group, in which the rows of the others are 0.
    ends = hal.cumsum(hal.astype(sizes, dtype="int64"), axis=0)
    starts = hal.subtract(ends, hal.astype(sizes, dtype="int64"))
    row = hal.arange(x.shape[0], dtype="int64", device=x.device)
    starts, ends = (hal.reshape(v, (v.size, 1)) for v in (starts, ends))
    inside = hal.logical_and(hal.less_equal(starts, row), hal.less(row, ends))
    inside = hal.reshape(inside, (*inside.shape, 1))
    own = [hal.where(inside, v, 0.0) for v in (x, d)]
    return [dx, None, hal.matmul(own[0].mT, own[1])]


def _conv(c: Any, d: Array) -> Gradients:
    x, w, bias, residual = c.operands(4)
    where = {k: v for k, v in c.attrs.items() if k != "activation"}
    activation = c.attrs.get("activation", "none")
    inner = d
    if activation != "none":
        given = (x, w) if bias is None else (x, w, bias)
        before = hal.conv(*given, **where)
        after = getattr(hal, activation)(before)
        inner = hal.multiply(d, SLOPES[activation](before, after))
    made = hal.conv_backward(inner, x, w, bias=bias is not None, **where)
    return [*made[:2], made[2] if bias is not None else None, sum_to(d, residual)]


def _conv_transpose(c: Any, d: Array) -> Gradients:
    """conv is what this is the transpose of."""
    x, w, bias = c.operands(3)
    where = {k: v for k, v in c.attrs.items() if k != "output_padding"}
    dbias = None if bias is None else hal.sum(d, axis=(0, *range(2, d.ndim)))
    if x.size == 0:  # no place for the windows of conv
        return [nothing(x), nothing(w), dbias]
    dx = hal.conv(d, w, **where)
    # Where the output was made longer by more than a stride, conv sees places that x has not.
    more = tuple(n - m for n, m in zip(dx.shape, x.shape, strict=True))
    if any(more):
        x = hal.pad(x, pads=(*(0,) * x.ndim, *more))
        dx = dx[tuple(slice(n) for n in c.inputs[0].shape)]
    dw = hal.conv_backward(x, d, w, bias=False, **where)[1] if c.needed[1] else None
    return [dx, dw, dbias]


RULES: dict[str, Rule] = {
    "matmul": _matmul,
    "matmul_epilogue": _matmul_epilogue,
    "quant_matmul": _quant_matmul,
    "scaled_matmul": _scaled_matmul,
    "grouped_matmul": _grouped_matmul,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
}
