"""cache_append(cache, update, position): writes new rows into a cache in place.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops._checks import FP8, INDICES, PLAIN, check_dtype, check_rank, check_same_dtype
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    cache, update, position = inputs
    assert cache is not None and update is not None and position is not None
    check_dtype("cache_append", "cache", cache, (*PLAIN, *FP8))
    check_same_dtype("cache_append", cache, update)
    check_dtype("cache_append", "position", position, INDICES)
    check_rank("cache_append", "cache", cache, 4, "[B, H, C, D]")
    check_rank("cache_append", "update", update, 4, "[B, H, T, D]")
    batch, heads, capacity, size = cache.shape
    rows = update.shape[2]
    if update.shape != (batch, heads, rows, size) or rows > capacity:
        raise InvalidArgumentError(
            f"cache_append: update {describe(update)} into cache {describe(cache)}: it must be "
            f"[{batch}, {heads}, T, {size}] with T up to {capacity}; enlarge the cache or split it"
        )
    if position.shape not in ((), (batch,)):
        raise InvalidArgumentError(
            f"cache_append: position is {describe(position)} but must be one number or [{batch}], "
            "one per batch entry; reshape it"
        )
    return TensorSpec(cache.dtype, cache.shape, cache.strides)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return list(inputs), {}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    update = inputs[1]
    assert update is not None
    return 0.0, 2.0 * update.nbytes


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    cache, update, position = inputs
    assert cache is not None and update is not None and position is not None
    capacity, rows = cache.shape[2], update.shape[2]
    # Reading the position through a table of the allowed ones makes the device refuse any other
    # before a byte of the cache is written.
    allowed = trace.numbers(capacity - rows + 1, position.dtype)
    checked = trace("gather", allowed, position, axis=0)
    if out.spec.size == 0 or rows == 0:
        return
    if position.spec.rank == 0:
        _write(trace, cache, update, checked, out)
    else:
        for b in range(cache.shape[0]):
            part = [v.slice(0, b, b + 1) for v in (cache, update, out)]
            _write(trace, part[0], part[1], checked.at(0, b), part[2])


def _write(trace: Trace, cache: Value, update: Value, position: Value, out: Value) -> None:
    """out = update inside the window of rows that starts at the 0-d `position`, else cache."""
    capacity, rows = cache.shape[2], update.shape[2]
    zero = trace.constant(0, position.dtype)
    offset = trace.binary("subtract", trace.numbers(capacity, position.dtype), position)
    if rows == 1:
        inside, spread = trace.binary("equal", offset, zero), update
    else:
        last = trace.constant(rows - 1, position.dtype)
        inside = trace.binary(
            "logical_and",
            trace.binary("greater_equal", offset, zero),
            trace.binary("less_equal", offset, last),
        )
        clipped = trace.binary("minimum", trace.binary("maximum", offset, zero), last)
        spread = trace("gather", update, clipped, axis=2)
    trace("where", inside.expand_dims(1), spread, cache, out=out)


def reference(cache: Any, update: Any, position: Any) -> Any:
    out = wide(cache).copy()
    rows = update.shape[2]
    starts = np.broadcast_to(position, (cache.shape[0],))
    if starts.size and (starts.min() < 0 or starts.max() + rows > cache.shape[2]):
        raise IndexError("a position is outside the cache")
    for b, start in enumerate(starts):
        out[b, :, start : start + rows] = wide(update)[b]
    return out


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in (*PLAIN, *FP8):
        np_type = dtype(short).numpy
        cache = (10 * rng.standard_normal((2, 3, 7, 4))).astype(np_type)
        for rows, position in ((1, 0), (1, 6), (3, 2), (7, 0)):
            update = (10 * rng.standard_normal((2, 3, rows, 4))).astype(np_type)
            inputs = (cache, update, np.array(position))
            yield Sample(f"{rows} rows at {position} {short}", inputs)
    cache, update = (np.full((2, 1, 5, 2), np.nan, np.float32), np.ones((2, 1, 2, 2), np.float32))
    yield Sample("position per batch entry", (cache, update, np.array([3, 0], np.int32)))
    yield Sample("no rows", (cache, update[:, :, :0], np.array(5)))


SPEC = OpSpec(
    id=18,
    name="cache_append",
    since="0.1",
    summary="cache[b, h, position[b] + t, d] = update[b, h, t, d], in place; returns the cache.",
    inputs=(
        Arg("cache", "[B, H, C, D]"),
        Arg("update", "[B, H, T, D]"),
        Arg("position", "[] or [B]", doc="i64 or i32; first row to write", own="i64"),
    ),
    output=Arg("out", "[B, H, C, D]", doc="the cache itself"),
    attrs=(),
    dtypes={name: name for name in (*PLAIN, *FP8)},
    special="a position outside 0..C-T is an error and nothing is written; other rows keep their "
    "bits",
    aliasing="required",
    bound="exact",
    source="ONNX TensorScatter, opset 24, mode linear",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    decompose=decompose,
)
