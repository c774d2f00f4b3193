"""slice_update(x, update, positions): x with a block of it replaced.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _draw
from anyhal.ops._checks import INDICES, PLAIN, check_dtype, check_same_dtype, check_shape
from anyhal.ops._indexing import in_range
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value

RANK_MAX = 16


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    x, update, positions = inputs
    assert x is not None and update is not None
    check_dtype("slice_update", "x", x, PLAIN)
    check_same_dtype("slice_update", x, update)
    shown = f"slice_update: update {describe(update)} into x {describe(x)}"
    if update.rank != x.rank or any(u > n for u, n in zip(update.shape, x.shape, strict=True)):
        raise InvalidArgumentError(
            f"{shown}: it must have the rank of x and no larger sizes; reshape or cut it"
        )
    starts = attrs["starts"]
    if (starts is None) == (positions is None):
        raise InvalidArgumentError(
            f"{shown}: where it goes must be said once, and is said "
            f"{'nowhere' if starts is None else 'twice'}; pass either starts or positions"
        )
    if positions is not None:
        check_dtype("slice_update", "positions", positions, INDICES)
        check_shape("slice_update", "positions", positions, (x.rank,), "[rank of x]")
    elif len(starts) != x.rank or any(
        not 0 <= s <= n - u for s, n, u in zip(starts, x.shape, update.shape, strict=True)
    ):
        raise InvalidArgumentError(
            f"{shown}: starts={starts} must be {x.rank} numbers from 0 to "
            f"{[n - u for n, u in zip(x.shape, update.shape, strict=True)]}; negative ones do not "
            "wrap; correct them"
        )
    return TensorSpec.dense(x.dtype, x.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    starts = attrs["starts"] or ()
    return list(inputs), {"starts": (*starts, *(0,) * (RANK_MAX - len(starts)))}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 0.0, 2.0 * out.nbytes


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    x, update, positions = inputs
    assert x is not None and update is not None
    if positions is not None:
        _at_positions(trace, x, update, positions, out)
        return
    if x != out:
        trace("copy", x, out=out)
    if update.spec.size:
        for d, (start, n) in enumerate(zip(attrs["starts"], update.shape, strict=True)):
            out = out.slice(d, start, start + n)
        trace("copy", update, out=out)


def _at_positions(trace: Trace, x: Value, update: Value, positions: Value, out: Value) -> None:
    """The update is spread over all of x axis by axis, and chosen inside the block."""
    inside: Value | None = None
    rank, zero = x.spec.rank, trace.constant(0, positions.dtype)
    starts = [
        in_range(trace, positions.at(0, d), n - u + 1)
        for d, (n, u) in enumerate(zip(x.shape, update.shape, strict=True))
    ]
    if update.spec.size == 0:
        if x != out:
            trace("copy", x, out=out)
        return
    for d, (n, u) in enumerate(zip(x.shape, update.shape, strict=True)):
        if n == u:
            continue
        offset = trace.binary("subtract", trace.numbers(n, positions.dtype), starts[d])
        last = trace.constant(u - 1, positions.dtype)
        here = trace.binary(
            "logical_and",
            trace.binary("greater_equal", offset, zero),
            trace.binary("less_equal", offset, last),
        ).reshape(*(n if i == d else 1 for i in range(rank)))
        inside = here if inside is None else trace.binary("logical_and", inside, here)
        clipped = trace.binary("minimum", trace.binary("maximum", offset, zero), last)
        update = trace("gather", update, clipped, axis=d)
    if inside is None:
        trace("copy", update, out=out)
    else:
        trace("where", inside, update, x, out=out)


def reference(x: Any, update: Any, positions: Any = None, starts: Any = None) -> Any:
    out = np.array(wide(x))
    first = [int(s) for s in (starts if positions is None else positions)]
    ends = [s + u for s, u in zip(first, update.shape, strict=True)]
    if any(s < 0 or e > n for s, e, n in zip(first, ends, x.shape, strict=True)):
        raise IndexError("a position is outside")
    out[tuple(slice(s, e) for s, e in zip(first, ends, strict=True))] = wide(update)
    return out


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in PLAIN:
        x = (10 * rng.standard_normal((4, 3, 7))).astype(dtype(short).numpy)
        update = (10 * rng.standard_normal((2, 3, 4))).astype(x.dtype)
        yield Sample(f"starts {short}", (x, update, None), {"starts": (1, 0, 3)})
        yield Sample(f"positions {short}", (x, update, np.array([2, 0, 1])))
    x, one = np.full((3, 4), np.nan, np.float32), np.array([[-0.0]], np.float32)
    yield Sample("i32", (x, one, np.array([2, 3], np.int32)))
    yield Sample("all of it", (x, x + 1, np.array([0, 0])))
    yield Sample("none of it", (x, one[:0], None), {"starts": (3, 3)})
    yield Sample("none of it, positions", (x, one[:0], np.array([3, 3])))
    yield Sample("0-d", (x[0, 0], one[0, 0], None), {"starts": ()})
    yield Sample("0-d, positions", (x[0, 0], one[0, 0], np.zeros(0, np.int64)))
    yield Sample("empty", (x[:0], one[:0], None), {"starts": (0, 1)})


def random(rng: _draw.Rng) -> Sample:
    dims, short = _draw.shape(rng), _draw.one_of(rng, PLAIN)
    shape = tuple(n if rng.random() < 0.4 else int(rng.integers(0, n + 1)) for n in dims)
    room = [n - u for n, u in zip(dims, shape, strict=True)]
    x, update = _draw.values(rng, dims, short), _draw.values(rng, shape, short)
    if rng.random() < 0.5:
        starts = tuple(int(rng.integers(0, r + 1)) for r in room)
        return Sample("", (x, update, None), {"starts": starts})
    # One number for all axes, since a random case may repeat what an input holds.
    positions = np.full(len(dims), rng.integers(0, min(room, default=0) + 1))
    return Sample("", (x, update, positions.astype(_draw.one_of(rng, (np.int32, np.int64)))))


SPEC = OpSpec(
    id=33,
    name="slice_update",
    since="0.2",
    summary="out = x, but update from `starts` (or `positions`) on.",
    inputs=(
        Arg("x", "[N...]"),
        Arg("update", "[U...]", doc="sizes up to those of x"),
        Arg("positions", "[rank of x]", optional=True, doc="i64 or i32; in place of starts"),
    ),
    output=Arg("out", "[N...]"),
    attrs=(
        Attr(
            "starts",
            "ints",
            default=None,
            c_type="uint64_t",
            c_count=RANK_MAX,
            doc="first element of the block, for each axis",
        ),
    ),
    dtypes={name: name for name in PLAIN},
    special="bits are kept; a start outside 0..N-U is an error and nothing is written; negative "
    "ones do not wrap",
    aliasing="first",
    bound="exact",
    source="StableHLO dynamic_update_slice, without its clamping",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
