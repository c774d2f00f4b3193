"""gather(x, indices, axis): slices of x along one axis, in the order of `indices`.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import UnsupportedError
from anyhal.ops._checks import BLOCKS, FP8, INDICES, MOVED, PACKED, PLAIN, check_dtype
from anyhal.ops._oracle import random_blocks, wide
from anyhal.ops._spec import (
    Arg,
    Attr,
    Lowered,
    OpSpec,
    Sample,
    TensorSpec,
    describe,
    normalize_axis,
)


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    x, indices = inputs
    assert x is not None and indices is not None
    check_dtype("take", "x", x, MOVED)
    check_dtype("take", "indices", indices, INDICES)
    axis = normalize_axis("take", attrs["axis"], x)
    if x.dtype.is_block and axis == x.rank - 1:
        raise UnsupportedError(
            f"take: {describe(x)} along its last axis would cut blocks of "
            f"{x.dtype.block_elements}; take along another axis, or cast it first",
            reason="layout",
        )
    return TensorSpec.dense(x.dtype, x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    x, _ = inputs
    assert x is not None
    return list(inputs), {"axis": normalize_axis("take", attrs["axis"], x)}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    _, indices = inputs
    assert indices is not None
    return 0.0, float(2 * out.nbytes + indices.nbytes)


def reference(x: Any, indices: Any, axis: int) -> Any:
    values = wide(x)
    if indices.size and (indices.min() < 0 or indices.max() >= values.shape[axis]):
        raise IndexError("an index is outside the axis")
    return np.take(values, indices, axis=axis)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in (*PLAIN, *FP8):
        x = (10 * rng.standard_normal((5, 3, 7))).astype(dtype(short).numpy)
        for axis in (0, 1, -1):
            indices = rng.integers(0, x.shape[axis], (2, 4))
            yield Sample(f"axis {axis} {short}", (x, indices), {"axis": axis})
    matrix = rng.standard_normal((4, 9)).astype(np.float32)
    yield Sample("columns", (matrix, rng.integers(0, 9, 20)), {"axis": 1})
    x = np.array([np.nan, -0.0, 3.0], np.float32)
    yield Sample("i32 indices", (x, np.array([2, 0, 0, 1], np.int32)), {"axis": 0})
    yield Sample("0-d index", (x, np.array(1, np.int64)), {"axis": 0})
    yield Sample("no index", (x, np.zeros(0, np.int64)), {"axis": 0})
    for name in (*BLOCKS, *PACKED):
        rows, width = np.array([3, 0, 3], np.int32), 2 * dtype(name).block_elements
        yield Sample(f"blocks {name}", (random_blocks(rng, name, (4, width)), rows), {"axis": 0})


SPEC = OpSpec(
    id=9,
    name="gather",
    since="0.1",
    summary="out[a..., i..., b...] = x[a..., indices[i...], b...]; `axis` is where i stands.",
    inputs=(Arg("x", "[A..., N, B...]"), Arg("indices", "[I...]", doc="i64 or i32", own="i64")),
    output=Arg("out", "[A..., I..., B...]"),
    attrs=(Attr("axis", "axis", c_type="int32_t", doc="the axis of x that is indexed"),),
    dtypes={name: name for name in MOVED},
    special="an index outside 0..N-1 is an error and nothing is written; negative ones do not wrap",
    aliasing="none",
    bound="exact",
    source="array API 2024.12 take",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    variants={"take": {}},
)
