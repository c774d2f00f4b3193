"""concat(arrays, axis): arrays one after the other along one axis.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops._checks import BLOCKS, FP8, MOVED, PACKED, PLAIN, check_dtype, check_same_dtype
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
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    arrays = [x for x in inputs if x is not None]
    if not arrays:
        raise InvalidArgumentError("concat: the list of arrays is empty; pass one or more")
    first = arrays[0]
    check_dtype("concat", "arrays[0]", first, MOVED)
    check_same_dtype("concat", *arrays)
    axis = normalize_axis("concat", attrs["axis"], first)
    for i, x in enumerate(arrays):
        rest = (x.shape[:axis], x.shape[axis + 1 :])
        if x.rank != first.rank or rest != (first.shape[:axis], first.shape[axis + 1 :]):
            raise InvalidArgumentError(
                f"concat: arrays[{i}] is {describe(x)} but arrays[0] is {describe(first)}: all "
                f"dims but axis {axis} must agree; reshape or broadcast it"
            )
    total = sum(x.shape[axis] for x in arrays)
    return TensorSpec.dense(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return list(inputs), {"axis": normalize_axis("concat", attrs["axis"], out)}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 0.0, 2.0 * out.nbytes


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    axis = normalize_axis("concat", attrs["axis"], out.spec)
    if out.spec.size == 0:
        trace.zeros(out)
        return
    start = 0
    for x in inputs:
        assert x is not None
        stop = start + x.shape[axis]
        if x.spec.size:
            trace("copy", x, out=out.slice(axis, start, stop))
        start = stop


def reference(*arrays: Any, axis: int = 0) -> Any:
    return np.concatenate([wide(x) for x in arrays], axis=axis)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in (*PLAIN, *FP8):
        np_type = dtype(short).numpy
        parts = tuple((10 * rng.standard_normal((2, n, 3))).astype(np_type) for n in (1, 4, 2))
        yield Sample(f"three {short}", parts, {"axis": 1})
    a, b = np.array([[np.nan, -0.0]], np.float32), np.zeros((3, 2), np.float32)
    yield Sample("special values", (a, b))
    yield Sample("last axis", (b, b), {"axis": -1})
    yield Sample("one array", (b,))
    yield Sample("an empty one", (b[:0], b, b[:0]))
    yield Sample("twenty", tuple(b + i for i in range(20)))
    for name in (*BLOCKS, *PACKED):
        width = dtype(name).block_elements
        for axis, shapes in ((0, ((2, width), (3, width))), (-1, ((2, width), (2, 3 * width)))):
            blocks = tuple(random_blocks(rng, name, s) for s in shapes)
            yield Sample(f"blocks {name} axis {axis}", blocks, {"axis": axis})


SPEC = OpSpec(
    id=20,
    name="concat",
    since="0.1",
    summary="out = the arrays one after the other along `axis`.",
    inputs=(Arg("arrays", "[A..., N_i, B...]", variadic=True, doc="a list; one dtype"),),
    output=Arg("out", "[A..., sum of N_i, B...]"),
    attrs=(Attr("axis", "axis", default=0, c_type="int32_t"),),
    dtypes={name: name for name in MOVED},
    special="bits are kept; arrays of size 0 along the axis count for nothing",
    aliasing="none",
    bound="exact",
    source="array API 2024.12 concat",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    decompose=decompose,
)
