"""Gradient rules of views and of ops that move elements.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np

import anyhal as hal
from anyhal import Array
from anyhal.training.rules._shapes import Gradients, Rule, nothing, sum_to


def _astype(c: Any, d: Array) -> Gradients:
    return [hal.astype(d, dtype=c.inputs[0].dtype)]


def _reshape(c: Any, d: Array) -> Gradients:
    return [hal.reshape(d, c.inputs[0].shape), None]


def _permute(c: Any, d: Array) -> Gradients:
    axes = c.inputs[1] if len(c.inputs) > 1 else tuple(reversed(range(d.ndim)))
    axes = [int(a) % d.ndim for a in axes]
    return [hal.permute_dims(d, tuple(int(a) for a in np.argsort(axes))), None]


def _index(c: Any, d: Array) -> Gradients:
    out = nothing(c.inputs[0])
    hal.copy(d, out=out[c.attrs["key"]])
    return [out]


# ----------------------------------------------------------------------------- joining and cutting


def _along(ndim: int, axis: int, key: Any) -> tuple[Any, ...]:
    return tuple(key if i == axis else slice(None) for i in range(ndim))


def _concat(c: Any, d: Array) -> Gradients:
    axis, start, found = c.attrs.get("axis", 0) % d.ndim, 0, []
    for x in c.inputs:
        found.append(d[_along(d.ndim, axis, slice(start, start + x.shape[axis]))])
        start += x.shape[axis]
    return found


def _stack(c: Any, d: Array) -> Gradients:
    axis = c.attrs.get("axis", 0) % d.ndim
    return [d[_along(d.ndim, axis, i)] for i in range(len(c.inputs))]


def _split(c: Any, *parts: Array | None) -> Gradients:
    filled = [nothing(y) if d is None else d for y, d in zip(c.outputs, parts, strict=True)]
    return [hal.concat(filled, axis=c.attrs.get("axis", 0)), None]


def _pad(c: Any, d: Array) -> Gradients:
    x, _ = c.operands(2)
    pads, mode = c.attrs["pads"], c.attrs.get("mode", "constant")
    if mode == "constant":
        dx = hal.pad(d, pads=tuple(-n for n in pads))
        dvalue = None
        if c.needed[1:] == (True,):
            ones = hal.ones(x.shape, dtype=d.dtype, device=d.device)
            dvalue = hal.sum(hal.where(hal.equal(hal.pad(ones, pads=pads), 0.0), d, 0.0))
        return [dx, dvalue]
    for axis, size in enumerate(x.shape):
        ends = (pads[axis], pads[axis + x.ndim])
        if ends == (0, 0):
            continue
        # Which element of x each one is, from the op itself.
        source = hal.pad(hal.arange(size, dtype="int64", device=d.device), pads=ends, mode=mode)
        shape = (*d.shape[:axis], size, *d.shape[axis + 1 :])
        target = hal.zeros(shape, dtype=d.dtype, device=d.device)
        d = hal.scatter_add(target, source, d, axis=axis)
    return [d, None]


def _slice_update(c: Any, d: Array) -> Gradients:
    x, update, positions = c.operands(3)
    starts = c.attrs.get("starts")
    if positions is None:
        dx = hal.slice_update(d, nothing(update), starts=starts)
        key = tuple(slice(s, s + n) for s, n in zip(starts, update.shape, strict=True))
        return [dx, d[key], None]
    dx = hal.slice_update(d, nothing(update), positions)
    part = d
    for axis, n in enumerate(update.shape):
        first = hal.astype(positions[axis : axis + 1], dtype="int64")
        steps = hal.arange(n, dtype="int64", device=d.device)
        part = hal.take(part, hal.add(steps, first), axis=axis)
    return [dx, part, None]


# --------------------------------------------------------------------------------------- indexing


def _take(c: Any, d: Array) -> Gradients:
    x, indices = c.inputs
    return [hal.scatter_add(nothing(x), indices, d, axis=c.attrs["axis"]), None]


def _scatter_add(c: Any, d: Array) -> Gradients:
    return [d, None, hal.take(d, c.inputs[1], axis=c.attrs["axis"])]


def _take_along_axis(c: Any, d: Array) -> Gradients:
    x, indices = c.inputs
    axis = c.attrs["axis"] % x.ndim
    shape = (*d.shape[:axis], x.shape[axis], *d.shape[axis + 1 :])
    target = hal.zeros(shape, dtype=d.dtype, device=d.device)
    indices = hal.broadcast_to(indices, d.shape)
    return [sum_to(hal.scatter(target, indices, d, axis=axis, reduction="add"), x), None]


def _scatter(c: Any, d: Array) -> Gradients:
    x, indices, updates = c.inputs
    axis = c.attrs["axis"] % x.ndim

    def put(target: Array, values: Array, reduction: Any) -> Any:
        return hal.scatter(target, indices, values, axis=axis, reduction=reduction)

    def seen(values: Array) -> Any:
        """What stands where each update went."""
        key = tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(updates.shape))
        return hal.take_along_axis(values[key], indices, axis=axis)

    def float_of(condition: Array) -> Any:
        return hal.astype(condition, dtype=d.dtype)

    reduction = c.attrs["reduction"]
    if reduction == "add":
        return [d, None, seen(d)]
    if reduction == "none":
        # The last of equal indices is what stays.
        turns = hal.arange(updates.shape[axis], dtype="int64", device=d.device)
        turns = hal.reshape(turns, tuple(turns.size if i == axis else 1 for i in range(x.ndim)))
        turns = hal.broadcast_to(turns, updates.shape)
        before = hal.full(x.shape, -1, dtype="int64", device=d.device)
        stays = hal.equal(seen(put(before, turns, "max")), turns)
        return [put(d, nothing(updates), "none"), None, hal.where(stays, seen(d), 0.0)]
    if reduction == "multiply":
        # The product of the others, as for prod.
        nulls = [hal.equal(v, 0.0) for v in (x, updates)]
        filled = [hal.where(n, 1.0, v) for n, v in zip(nulls, (x, updates), strict=True)]
        count = put(float_of(nulls[0]), float_of(nulls[1]), "add")
        total = put(filled[0], filled[1], "multiply")
        parts = []
        for n, f, many, whole, dout in (
            (nulls[0], filled[0], count, total, d),
            (nulls[1], filled[1], seen(count), seen(total), seen(d)),
        ):
            alone = hal.equal(hal.subtract(many, float_of(n)), 0.0)
            parts.append(hal.multiply(dout, hal.where(alone, hal.divide(whole, f), 0.0)))
        return [parts[0], None, parts[1]]
    # max and min: shared evenly by all that are equal to the result.
    hits = float_of(hal.equal(x, c.out)), float_of(hal.equal(updates, seen(c.out)))
    share = hal.divide(d, hal.maximum(put(hits[0], hits[1], "add"), 1.0))
    return [hal.multiply(hits[0], share), None, hal.multiply(hits[1], seen(share))]


RULES: dict[str, Rule] = {
    "astype": _astype,
    "copy": lambda c, d: [d],
    "reshape": _reshape,
    "permute_dims": _permute,
    "broadcast_to": lambda c, d: [sum_to(d, c.inputs[0]), None],
    "index": _index,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "pad": _pad,
    "slice_update": _slice_update,
    "take": _take,
    "take_along_axis": _take_along_axis,
    "scatter_add": _scatter_add,
    "scatter": _scatter,
}
