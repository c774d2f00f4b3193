"""scatter_add(target, indices, updates, axis): adds slices onto the target where indices say.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._checks import (
    FLOATS,
    INDICES,
    INTS,
    NUMBERS,
    WIDE,
    check_dtype,
    check_same_dtype,
    check_shape,
)
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, normalize_axis


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    target, indices, updates = inputs
    assert target is not None and indices is not None and updates is not None
    check_dtype("scatter_add", "target", target, NUMBERS)
    check_dtype("scatter_add", "indices", indices, INDICES)
    check_same_dtype("scatter_add", target, updates)
    axis = normalize_axis("scatter_add", attrs["axis"], target)
    want = target.shape[:axis] + indices.shape + target.shape[axis + 1 :]
    check_shape("scatter_add", "updates", updates, want, "[A..., I..., B...]")
    return TensorSpec.dense(target.dtype, target.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    target, _, _ = inputs
    assert target is not None
    return (list(inputs), {"axis": normalize_axis("scatter_add", attrs["axis"], target)}, out)


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    target, _, updates = inputs
    assert target is not None and updates is not None
    return float(updates.size), float(target.nbytes + 2 * updates.nbytes + out.nbytes)


def reference(target: Any, indices: Any, updates: Any, axis: int) -> Any:
    axis %= target.ndim
    out = wide(target).copy()
    if indices.size and (indices.min() < 0 or indices.max() >= out.shape[axis]):
        raise IndexError("an index is outside the axis")
    # Bring the indexed axes to the front on both sides, then add slice by slice.
    slices = np.moveaxis(out, axis, 0)
    order = list(range(axis, axis + indices.ndim))
    added = np.moveaxis(wide(updates), order, list(range(indices.ndim)))
    with np.errstate(all="ignore"):
        np.add.at(slices, indices.reshape(-1), added.reshape(indices.size, *slices.shape[1:]))
    return out


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in NUMBERS:
        np_type = dtype(short).numpy
        target = (10 * rng.standard_normal((5, 4, 3))).astype(np_type)
        for axis in (0, 1, -1):
            indices = rng.integers(0, target.shape[axis], (2, 3))
            shape = list(target.shape)
            shape[axis : axis + 1 or None] = indices.shape
            updates = (10 * rng.standard_normal(shape)).astype(np_type)
            yield Sample(f"axis {axis} {short}", (target, indices, updates), {"axis": axis})
    ones = np.ones((300, 2), np.float32)
    same = np.zeros(300, np.int32)
    yield Sample("one bin", (np.zeros((1, 2), np.float32), same, ones), {"axis": 0})
    none = np.zeros((0,), np.int64)
    yield Sample("no index", (np.ones((3, 2), np.float32), none, ones[:0]), {"axis": 0})


SPEC = OpSpec(
    id=10,
    name="scatter_add",
    since="0.1",
    summary="out = target, then out[a..., indices[i...], b...] += updates[a..., i..., b...].",
    inputs=(
        Arg("target", "[A..., N, B...]"),
        Arg("indices", "[I...]", doc="i64 or i32", own="i64"),
        Arg("updates", "[A..., I..., B...]"),
    ),
    output=Arg("out", "[A..., N, B...]"),
    attrs=(Attr("axis", "axis", c_type="int32_t", doc="the axis of target that is indexed"),),
    dtypes={**{name: WIDE[name] for name in FLOATS}, **{name: name for name in INTS}},
    special="repeated indices all count; integers wrap; an index outside 0..N-1 is an error and "
    "nothing is written; negative ones do not wrap",
    aliasing="first",
    bound="scatter_add",
    source="ONNX ScatterND(reduction=add), opset 16, along one axis",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
)
