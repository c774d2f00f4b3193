"""take_along_axis(x, indices, axis): for each position the element that its own index names.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _draw
from anyhal.ops._checks import INDICES, PLAIN, check_dtype
from anyhal.ops._indexing import check_indices, dense, flat, in_range
from anyhal.ops._oracle import wide
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
    x, indices = inputs
    assert x is not None and indices is not None
    check_dtype("take_along_axis", "x", x, PLAIN)
    check_dtype("take_along_axis", "indices", indices, INDICES)
    axis = normalize_axis("take_along_axis", attrs["axis"], x)
    shape = list(indices.shape)
    fits = indices.rank == x.rank
    for d in range(x.rank if fits else 0):
        if d != axis and shape[d] != x.shape[d]:
            fits = fits and 1 in (shape[d], x.shape[d])
            shape[d] = x.shape[d] if shape[d] == 1 else shape[d]
    if not fits:
        raise InvalidArgumentError(
            f"take_along_axis: indices {describe(indices)} along axis {axis} of x {describe(x)}: "
            "they need the rank of x, and sizes that are equal or 1 on the other axes; reshape them"
        )
    return TensorSpec.dense(x.dtype, tuple(shape))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    x, indices = inputs
    assert x is not None and indices is not None
    axis = normalize_axis("take_along_axis", attrs["axis"], x)
    full = [x.shape[d] if d == axis else n for d, n in enumerate(out.shape)]
    return [x.broadcast_to(full), indices.broadcast_to(out.shape)], {"axis": axis}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    _, indices = inputs
    assert indices is not None
    return 0.0, float(2 * out.nbytes + indices.nbytes)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    x, indices = inputs
    assert x is not None and indices is not None
    axis = normalize_axis("take_along_axis", attrs["axis"], x.spec)
    checked = in_range(trace, indices, x.shape[axis])
    if out.spec.size == 0:
        trace.zeros(out)
        return
    places = flat(trace, checked, x.shape, axis, out.shape)
    trace("gather", dense(trace, x).reshape(x.spec.size), places, axis=0, out=out)


def reference(x: Any, indices: Any, axis: int) -> Any:
    axis %= x.ndim
    check_indices(indices, x.shape[axis])
    shape = np.broadcast_shapes(
        *(tuple(1 if d == axis else n for d, n in enumerate(a.shape)) for a in (x, indices))
    )
    full = [
        tuple(a.shape[d] if d == axis else n for d, n in enumerate(shape)) for a in (x, indices)
    ]
    return np.take_along_axis(
        np.broadcast_to(wide(x), full[0]), np.broadcast_to(indices, full[1]), axis
    )


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in PLAIN:
        x = (10 * rng.standard_normal((4, 3, 5))).astype(dtype(short).numpy)
        for axis in (0, 1, -1):
            shape = list(x.shape)
            shape[axis] = 7
            indices = rng.integers(0, x.shape[axis], shape)
            yield Sample(f"axis {axis} {short}", (x, indices), {"axis": axis})
    x = np.array([[np.nan, -0.0, 3.0], [np.inf, 1.0, 2.0]], np.float32)
    yield Sample("i32", (x, np.array([[2, 1], [0, 0]], np.int32)), {"axis": 1})
    yield Sample("indices stretch", (x, np.array([[1, 0]])), {"axis": 1})
    yield Sample("x stretches", (x[:1], np.array([[1, 0], [2, 2], [0, 1]])), {"axis": 1})
    yield Sample("no index", (x, np.zeros((2, 0), np.int64)), {"axis": 1})
    yield Sample("no rows", (x[:0], np.zeros((0, 2), np.int64)), {"axis": 1})


def random(rng: _draw.Rng) -> Sample:
    x = _draw.values(rng, _draw.shape(rng, 1, 1), _draw.one_of(rng, PLAIN))
    axis = int(rng.integers(-x.ndim, x.ndim))
    shape = list(x.shape)
    shape[axis] = _draw.size(rng, 9)
    indices = rng.integers(0, x.shape[axis], shape)
    return Sample("", (x, indices.astype(_draw.one_of(rng, (np.int32, np.int64)))), {"axis": axis})


SPEC = OpSpec(
    id=31,
    name="take_along_axis",
    since="0.2",
    summary="out[a..., i, b...] = x[a..., indices[a..., i, b...], b...]; `axis` is where i stands.",
    inputs=(Arg("x", "[A..., N, B...]"), Arg("indices", "[A..., I, B...]", doc="i64 or i32")),
    output=Arg("out", "[A..., I, B...]"),
    attrs=(Attr("axis", "axis", c_type="int32_t", doc="the axis of x that is indexed"),),
    dtypes={name: name for name in PLAIN},
    special="sizes other than that of the axis broadcast; bits are kept; an index outside 0..N-1 "
    "is an error and nothing is written; negative ones do not wrap",
    aliasing="none",
    bound="exact",
    source="array API 2024.12 take_along_axis; ONNX GatherElements, opset 13",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
