"""grouped_matmul(x, group_sizes, w): consecutive rows of x, each group times its own matrix.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops._checks import (
    FLOATS,
    INDICES,
    WIDE,
    check_dtype,
    check_rank,
    check_same_dtype,
    check_shape,
)
from anyhal.ops._draw import Rng, one_of, size, values
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value

GATHERED_ELEMENTS_MAX = 1 << 22  # of w at a time in the decomposition, if that needs few steps
STEPS_MAX = 32


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    x, sizes, w = inputs
    assert x is not None and sizes is not None and w is not None
    check_dtype("grouped_matmul", "x", x, FLOATS)
    check_dtype("grouped_matmul", "group_sizes", sizes, INDICES)
    check_same_dtype("grouped_matmul", x, w)
    check_rank("grouped_matmul", "x", x, 2, "[T, K]")
    check_rank("grouped_matmul", "w", w, 3, "[E, K, N]")
    check_shape("grouped_matmul", "group_sizes", sizes, w.shape[:1], "[E]")
    if x.shape[1] != w.shape[1]:
        raise InvalidArgumentError(
            f"grouped_matmul: {describe(x)} x {describe(w)}: the inner sizes {x.shape[1]} and "
            f"{w.shape[1]} differ; x is [T, K], w is [E, K, N]"
        )
    return TensorSpec.dense(x.dtype, (x.shape[0], w.shape[2]))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return list(inputs), {}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    x, _, w = inputs
    assert x is not None and w is not None
    return 2.0 * out.size * x.shape[1], float(x.nbytes + w.nbytes + out.nbytes)


class _Places:
    """Where rows and tiles lie, as i64 on the device.

    Each group is cut into tiles of `height` rows, the last one filled up; so a tile needs one
    matrix, and there is a number of tiles that always suffices, whatever the sizes are.
    """

    def __init__(self, trace: Trace, sizes: Value, rows: int) -> None:
        self.trace, self.rows, self.groups = trace, rows, sizes.shape[0]
        self.height = -(-rows // self.groups)
        self.tiles = rows // self.height + self.groups
        # Read through tables of the allowed numbers: the device refuses any other.
        allowed = self.number(np.arange(rows + 1))
        self.sizes = trace("gather", allowed, trace.cast(sizes, "i64"), axis=0)
        self.last = self._running(self.sizes)  # one past the last row of each group
        total = self.last.slice(0, self.groups - 1, self.groups)
        self.total = trace("gather", allowed, total, axis=0)
        up = trace.binary("add", self.sizes, self.number(self.height - 1))
        self.tile_last = self._running(trace.binary("floor_divide", up, self.number(self.height)))

    def number(self, x: Any) -> Value:
        return self.trace.constant(x, "i64")

    def _running(self, x: Value) -> Value:
        lower = self.trace.constant(np.tri(self.groups), "bool")
        masked = self.trace("where", lower, x, self.number(0))
        return self.trace("reduce", masked, fn="sum", axis=1)

    def _group_of(self, ends: Value, count: int) -> Value:
        """The group of each of 0..count-1, whose groups end at `ends`; past all, the last one."""
        trace = self.trace
        past = trace.binary("less_equal", ends, self.number(np.arange(count)[:, None]))
        group = trace("reduce", trace.cast(past, "i64"), fn="sum", axis=1)
        return trace.binary("minimum", group, self.number(self.groups - 1), out=group)

    def _start(self, ends: Value, group: Value) -> Value:
        """Where the group begins: where the one before it ends."""
        trace = self.trace
        before = trace.binary("subtract", group, self.number(1))
        begin = trace("gather", ends, trace.binary("maximum", before, self.number(0)), axis=0)
        first = trace.binary("equal", group, self.number(0))
        return trace("where", first, self.number(0), begin)

    def rows_of_tiles(self) -> tuple[Value, Value]:
        """The group of each tile, and the rows [tiles, height] that it takes."""
        trace = self.trace
        group = self._group_of(self.tile_last, self.tiles)
        first = self._start(self.tile_last, group)
        inside = trace.binary("subtract", self.number(np.arange(self.tiles)), first)
        row = trace.binary("multiply", inside, self.number(self.height))
        row = trace.binary("add", row, self._start(self.last, group))
        row = trace.binary("add", row.expand_dims(1), self.number(np.arange(self.height)))
        return group, trace.binary("minimum", row, self.number(self.rows - 1), out=row)

    def tile_rows_of_rows(self) -> Value:
        """Where the result of each row is, counted in rows of tiles."""
        trace = self.trace
        group = self._group_of(self.last, self.rows)
        row = trace.binary(
            "subtract", self.number(np.arange(self.rows)), self._start(self.last, group)
        )
        tile = trace.binary(
            "multiply", self._start(self.tile_last, group), self.number(self.height)
        )
        row = trace.binary("add", row, tile)
        last = self.number(self.tiles * self.height - 1)
        return trace.binary("minimum", row, last, out=row)  # rows of no group go anywhere


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    x, sizes, w = inputs
    assert x is not None and sizes is not None and w is not None
    (rows, inner), (groups, _, columns) = x.shape, w.shape
    if rows == 0 or groups == 0 or columns == 0:
        if groups:  # the sizes are still judged
            allowed = trace.constant(np.arange(rows + 1), sizes.dtype)
            trace("gather", allowed, sizes, axis=0)
        trace.zeros(out)
        return
    acc = WIDE[x.dtype.short]
    at = _Places(trace, sizes, rows)
    group, taken = at.rows_of_tiles()
    tiles = trace.cast(trace("gather", x, taken, axis=0), acc)
    product = trace.temp((at.tiles, at.height, columns), acc)
    fits = max(1, GATHERED_ELEMENTS_MAX // max(inner * columns, 1))
    step = max(fits, -(-at.tiles // STEPS_MAX))
    for start in range(0, at.tiles, step):
        stop = min(at.tiles, start + step)
        matrices = trace.cast(trace("gather", w, group.slice(0, start, stop), axis=0), acc)
        trace("matmul", tiles.slice(0, start, stop), matrices, out=product.slice(0, start, stop))
    flat = product.reshape(at.tiles * at.height, columns)
    result = trace("gather", flat, at.tile_rows_of_rows(), axis=0)
    owned = trace.binary("less", at.number(np.arange(rows)), at.total).expand_dims(1)
    if out.dtype.short == acc:
        trace("where", owned, result, trace.constant(0, acc), out=out)
    else:
        result = trace("where", owned, result, trace.constant(0, acc))
        trace.cast(result, out.dtype, out=out)


def reference(x: Any, group_sizes: Any, w: Any) -> Any:
    sizes = [int(n) for n in group_sizes]
    if min(sizes, default=0) < 0 or sum(sizes) > x.shape[0]:
        raise IndexError("the groups have more rows than there are")
    xw, ww = wide(x), wide(w)
    out = np.zeros((x.shape[0], w.shape[2]), xw.dtype)
    start = 0
    with np.errstate(all="ignore"):
        for matrix, count in zip(ww, sizes, strict=True):
            out[start : start + count] = xw[start : start + count] @ matrix
            start += count
    return out


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    def normal(*shape: int, name: str = "f32") -> Any:
        return rng.standard_normal(shape).astype(dtype(name).numpy)

    for name in FLOATS:
        w = normal(4, 6, 5, name=name)
        for sizes in ([3, 0, 4, 2], [0, 9, 0, 0], [0, 0, 0, 0], [1, 2, 3, 1]):
            x = normal(9, 6, name=name)
            yield Sample(f"{sizes} of 9 rows {name}", (x, np.array(sizes), w))
    nan = normal(8, 3)
    nan[5:] = np.nan  # rows of another group, and of none
    yield Sample("NaN stays in its rows", (nan, np.array([0, 5, 0, 2], np.int32), normal(4, 3, 2)))
    yield Sample(
        "more groups than rows", (normal(6, 3), np.array([0, 1] * 5 + [0]), normal(11, 3, 2))
    )
    yield Sample("no inner axis", (normal(3, 0), np.array([2, 1]), normal(2, 0, 4)))
    yield Sample("no rows", (normal(0, 3), np.array([0, 0]), normal(2, 3, 4)))
    yield Sample("no groups", (normal(3, 3), np.zeros(0, np.int64), normal(0, 3, 4)))
    yield Sample("no columns", (normal(3, 3), np.array([1, 1]), normal(2, 3, 0)))


def random(rng: Rng) -> Sample:
    rows, inner, columns, groups = size(rng, 65), size(rng, 33), size(rng, 17), size(rng, 9)
    fair = rows // max(groups, 1)  # so that any of them repeated fits, too
    sizes = rng.integers(0, fair + 1, groups).astype(one_of(rng, [np.int32, np.int64]))
    short = one_of(rng, FLOATS)
    x, w = values(rng, (rows, inner), short, 1), values(rng, (groups, inner, columns), short, 1)
    return Sample("", (x, sizes, w))


SPEC = OpSpec(
    id=62,
    name="grouped_matmul",
    since="0.2",
    summary="out[t] = x[t] @ w[e], where the first group_sizes[0] rows have e = 0, the next 1, ...",
    inputs=(
        Arg("x", "[T, K]", doc="rows in the order of their groups"),
        Arg("group_sizes", "[E]", doc="i64 or i32; may be 0; together at most T", own="i64"),
        Arg("w", "[E, K, N]"),
    ),
    output=Arg("out", "[T, N]"),
    attrs=(),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="rows beyond the groups are 0; a negative size, or more rows in groups than T, is an "
    "error; K = 0 gives zeros; NaN stays in its rows and in its group's",
    aliasing="none",
    bound="grouped_matmul",
    source="Gale et al. 2022, MegaBlocks (arXiv 2211.15841)",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
