"""Sorting with core ops: each element's place is how many elements come before it.
SPDX-License-Identifier: Apache-2.0

One total order for sort and topk: NaN is above every number and equal to itself, -0 equals 0,
equal elements keep the order of their indices, in both directions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anyhal.ops._checks import FLOATS
from anyhal.ops._oracle import wide
from anyhal.ops._trace import Trace, Value
from anyhal.records import record

# Pairs compared at a time: what one temporary of a comparison holds in bytes.
_PAIRS = 1 << 22
# The least length that topk shortens by looking at blocks first.
_BLOCK = 256


@record
class _Rows:
    """The axis laid out last. Elements are known by their number in `values`."""

    values: Value  # [elements of x]
    keys: Value  # the same with NaN replaced by infinity
    ties: Value  # i64: who comes first among equal keys
    descending: bool


def arrange(
    trace: Trace, x: Value, axis: int, k: int, descending: bool, values: Value, indices: Value
) -> None:
    """The first k elements along `axis` in order, and where they stood."""
    size, last = x.shape[axis], x.spec.rank - 1
    order = (*(i for i in range(last + 1) if i != axis), axis)
    moved = x.permute(*order)
    rows, numbers = _rows(trace, trace("copy", moved), descending)
    found = _first(trace, rows, numbers.reshape(x.spec.size // size, size), k)
    at = trace("copy", found).reshape(*moved.shape[:-1], k)
    trace("gather", rows.values, at, axis=0, out=values.permute(*order))
    trace.binary("remainder", at, trace.constant(size, "i64"), out=indices.permute(*order))


def _rows(trace: Trace, x: Value, descending: bool) -> tuple[_Rows, Value]:
    """The rows of a dense x, and the numbers of all elements."""
    total = x.spec.size
    flat, numbers = x.reshape(total), trace.numbers(total, "i64")
    if x.dtype.short not in FLOATS:
        return _Rows(flat, flat, numbers, descending), numbers
    top = trace.constant(np.inf, x.dtype)
    nan = trace.unary("isnan", flat)
    keys = trace("where", nan, top, flat)
    # Beside a real infinity NaN is the greater one: last upwards, first downwards.
    late = trace.binary("add", numbers, trace.constant(total, "i64"))
    pair = (numbers, late) if descending else (late, numbers)
    return _Rows(flat, keys, trace("where", nan, *pair), descending), numbers


def _first(trace: Trace, rows: _Rows, at: Value, k: int) -> Value:
    """The first k in order of each row of element numbers [rows, m]."""
    count, m = at.shape
    block = max(_BLOCK, 4 * k)
    while m > 2 * block:
        # Whoever is among the first k of a row is among the first k of its block.
        whole, left = m // block, m % block
        kept = trace.temp((count, whole * k + min(left, k)), "i64")
        blocks = at.slice(1, 0, whole * block).split(1, whole, block)
        best = _select(trace, rows, blocks, k)
        trace("copy", best, out=kept.slice(1, 0, whole * k).split(1, whole, k))
        if left:
            best = _select(trace, rows, at.slice(1, whole * block, m), min(left, k))
            trace("copy", best, out=kept.slice(1, whole * k, kept.shape[1]))
        at, m = kept, kept.shape[1]
    return _select(trace, rows, at, k)


def _select(trace: Trace, rows: _Rows, at: Value, k: int) -> Value:
    """The same by comparing all pairs; at [..., m], the answer is a view [..., k]."""
    lead, m = at.shape[:-1], at.shape[-1]
    keys = trace("gather", rows.keys, at, axis=0)
    ties = trace("gather", rows.ties, at, axis=0)
    places = trace.temp(at.shape, "i64")
    step = max(1, _PAIRS // (m * math.prod(lead)))
    for start in range(0, m, step):
        mine = slice(start, min(start + step, m))
        _count(trace, rows.descending, keys, ties, mine, places)
    # What is not among the first k goes to one place behind them.
    spot = trace.binary("minimum", places, trace.constant(k, "i64")) if k < m else places
    width = k + 1 if k < m else k
    groups = trace.numbers(math.prod(lead), "i64").reshape(*lead, 1)
    groups = trace.binary("multiply", groups, trace.constant(width, "i64"))
    spot = trace.binary("add", spot, groups)
    flat = trace.temp((math.prod(lead) * width,), "i64")
    trace.zeros(flat)
    updates = trace("copy", at).reshape(at.spec.size)
    sorted_ = trace("scatter_add", flat, spot.reshape(at.spec.size), updates, axis=0)
    return sorted_.reshape(*lead, width).slice(-1, 0, k)


def _count(
    trace: Trace, descending: bool, keys: Value, ties: Value, mine: slice, places: Value
) -> None:
    """places[..., mine] = how many elements come before each of mine."""
    rank = keys.spec.rank

    def of(v: Value) -> tuple[Value, Value]:
        return v.expand_dims(rank - 1), v.slice(-1, mine.start, mine.stop).expand_dims(rank)

    (other, own), (other_tie, own_tie) = of(keys), of(ties)
    ahead = trace.binary("greater" if descending else "less", other, own)
    equal = trace.binary("equal", other, own)
    earlier = trace.binary("less", other_tie, own_tie)
    before = trace.binary("logical_or", ahead, trace.binary("logical_and", equal, earlier))
    ones = trace.cast(before, "u8")
    trace("reduce", ones, fn="sum", axis=-1, out=places.slice(-1, mine.start, mine.stop))


def reference(x: Any, axis: int, descending: bool) -> tuple[Any, Any]:
    """Values and indices along `axis` in order."""
    v = np.moveaxis(wide(x), axis, -1)
    if descending:  # sorted upwards from the end, and read backwards, ties are in order again
        order = v.shape[-1] - 1 - np.argsort(v[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(v, axis=-1, kind="stable")
    found = np.take_along_axis(v, order, axis=-1)
    return np.moveaxis(found, -1, axis), np.moveaxis(order.astype(np.int64), -1, axis)
