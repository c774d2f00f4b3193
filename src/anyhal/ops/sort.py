"""sort(x, axis): the elements along one axis in order, and where they stood.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops import _order
from anyhal.ops._checks import NUMBERS, check_dtype
from anyhal.ops._draw import Rng, one_of, shape, values
from anyhal.ops._spec import (
    Arg,
    Attr,
    LoweredOuts,
    OpSpec,
    Outs,
    Sample,
    TensorSpec,
    normalize_axis,
)
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    (x,) = inputs
    assert x is not None
    check_dtype("sort", "x", x, NUMBERS)
    normalize_axis("sort", attrs["axis"], x)
    return TensorSpec.dense(x.dtype, x.shape), TensorSpec.dense(dtype("i64"), x.shape)


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    (x,) = inputs
    assert x is not None
    axis = normalize_axis("sort", attrs["axis"], x)
    return [x], {"axis": axis, "descending": attrs["descending"]}, outs


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
) -> tuple[float, float]:
    (x,) = inputs
    assert x is not None
    length = x.shape[normalize_axis("sort", attrs["axis"], x)]
    return x.size * math.log2(length + 1), 2.0 * x.nbytes + 8.0 * x.size


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: tuple[Value | None, ...],
) -> None:
    (x,), (found, indices) = inputs, outs
    assert x is not None and found is not None and indices is not None
    if x.spec.size == 0:
        trace.zeros(found)
        trace.zeros(indices)
        return
    axis = normalize_axis("sort", attrs["axis"], x.spec)
    _order.arrange(trace, x, axis, x.shape[axis], attrs["descending"], found, indices)


def reference(x: Any, axis: int = -1, descending: bool = False) -> Any:
    return _order.reference(x, axis, descending)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in NUMBERS:
        np_type = dtype(short).numpy
        for dims, axis in (((1,), 0), ((3, 17), -1), ((5, 4, 2), 0), ((2, 9, 3), 1)):
            x = (4 * rng.standard_normal(dims)).astype(np_type)  # with ties, short of f32
            attrs = {"axis": axis, "descending": bool(rng.integers(2))}
            yield Sample(f"{list(dims)} {attrs} {short}", (x,), attrs)
    nan, inf = np.nan, np.inf
    row = [nan, 1, inf, -0.0, 0.0, nan, -inf, -nan, 1, -0.0, inf]
    for short in ("f32", "f16", "bf16", "f64"):
        x = np.array([row, row[::-1], [nan] * 11], dtype(short).numpy)
        for descending in (False, True):
            label = f"special values descending={descending} {short}"
            yield Sample(label, (x,), {"descending": descending})
    ends = np.iinfo(np.int64)
    yield Sample("ends of i64", (np.array([0, ends.max, ends.min, -1]),), {"descending": True})
    yield Sample("long", (rng.integers(0, 50, 1000),), {})
    yield Sample("equal", (np.full((2, 40), 7, np.int32),), {"descending": True})
    yield Sample("nothing", (np.zeros((3, 0), np.float32),), {})


def random(rng: Rng) -> Sample:
    x = values(rng, shape(rng, 1), one_of(rng, NUMBERS))
    attrs = {"axis": int(rng.integers(-x.ndim, x.ndim)), "descending": bool(rng.integers(2))}
    return Sample("", (x,), attrs)


SPEC = OpSpec(
    id=29,
    name="sort",
    since="0.1",
    summary="values = x in ascending order along `axis`; indices = where each value stood.",
    inputs=(Arg("x", "[..., N, ...]"),),
    output=Arg("values", "[..., N, ...]"),
    more_outputs=(Arg("indices", "[..., N, ...]", doc="i64"),),
    attrs=(
        Attr("axis", "axis", default=-1, c_type="int32_t"),
        Attr("descending", "bool", default=False, c_type="int32_t", doc="the largest first"),
    ),
    dtypes={name: name for name in NUMBERS},
    special="stable: equal elements keep their order, descending too; NaN is above every number, "
    "so last when ascending and first when descending; -0 and 0 are equal and keep their bits",
    aliasing="none",
    bound="exact",
    source="array API 2024.12 sort and argsort; NaN as NumPy",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
