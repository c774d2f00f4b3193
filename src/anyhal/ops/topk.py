"""topk(x, k, axis, largest): the k largest or smallest elements in order, and where they stood.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
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
    describe,
    normalize_axis,
)
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    (x,) = inputs
    assert x is not None
    check_dtype("topk", "x", x, NUMBERS)
    axis, k = normalize_axis("topk", attrs["axis"], x), attrs["k"]
    if not 0 <= k <= x.shape[axis]:
        raise InvalidArgumentError(
            f"topk: k={k} of {describe(x)} along axis {attrs['axis']}: there are {x.shape[axis]} "
            f"elements; pass 0..{x.shape[axis]}"
        )
    dims = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return TensorSpec.dense(x.dtype, dims), TensorSpec.dense(dtype("i64"), dims)


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    (x,) = inputs
    assert x is not None
    axis = normalize_axis("topk", attrs["axis"], x)
    return [x], {"k": attrs["k"], "axis": axis, "largest": attrs["largest"]}, outs


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
) -> tuple[float, float]:
    (x,) = inputs
    assert x is not None
    moved = x.nbytes + sum(o.nbytes for o in outs if o is not None)
    return x.size * math.log2(attrs["k"] + 2), float(moved)


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: tuple[Value | None, ...],
) -> None:
    (x,), (found, indices) = inputs, outs
    assert x is not None and found is not None and indices is not None
    if found.spec.size == 0:
        trace.zeros(found)
        trace.zeros(indices)
        return
    axis = normalize_axis("topk", attrs["axis"], x.spec)
    _order.arrange(trace, x, axis, attrs["k"], attrs["largest"], found, indices)


def reference(x: Any, *, k: int, largest: bool, axis: int = -1) -> Any:
    found, indices = _order.reference(x, axis, largest)
    first = np.arange(k)
    return np.take(found, first, axis=axis), np.take(indices, first, axis=axis)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in NUMBERS:
        np_type = dtype(short).numpy
        for dims, axis, k in (((1,), 0, 1), ((3, 17), -1, 5), ((5, 4, 2), 0, 5), ((2, 9, 3), 1, 2)):
            x = (4 * rng.standard_normal(dims)).astype(np_type)
            attrs = {"axis": axis, "k": k, "largest": bool(rng.integers(2))}
            yield Sample(f"{list(dims)} {attrs} {short}", (x,), attrs)
    nan, inf = np.nan, np.inf
    row = [nan, 1, inf, -0.0, 0.0, nan, -inf, 1, -0.0, inf]
    for short in ("f32", "f16", "bf16", "f64"):
        x = np.array([row, row[::-1], [nan] * 10], dtype(short).numpy)
        for largest in (False, True):
            label = f"special values largest={largest} {short}"
            yield Sample(label, (x,), {"k": 7, "largest": largest})
    for length, k in ((3000, 3), (2049, 40), (700, 300)):  # in blocks, with a rest, and not
        x = rng.standard_normal((2, length)).astype(np.float32)
        x[0, ::97] = nan
        yield Sample(f"{k} of {length}", (x,), {"k": k, "largest": True})
        ties = rng.integers(0, 9, (1, length)).astype(np.int8)
        yield Sample(f"{k} of {length} with ties", (ties,), {"k": k, "largest": False})
    yield Sample("none of some", (x,), {"k": 0, "largest": True})
    yield Sample("no rows", (x[:0],), {"k": 2, "largest": True})


def random(rng: Rng) -> Sample:
    x = values(rng, shape(rng, 1), one_of(rng, NUMBERS))
    axis = int(rng.integers(-x.ndim, x.ndim))
    k = int(rng.integers(0, x.shape[axis] + 1))
    return Sample("", (x,), {"axis": axis, "k": k, "largest": bool(rng.integers(2))})


SPEC = OpSpec(
    id=28,
    name="topk",
    since="0.1",
    summary="values = the first k elements along `axis` of x in order, the largest or the smallest "
    "first; indices = where each stood.",
    inputs=(Arg("x", "[..., N, ...]"),),
    output=Arg("values", "[..., k, ...]"),
    more_outputs=(Arg("indices", "[..., k, ...]", doc="i64"),),
    attrs=(
        Attr("k", "i64", c_type="uint64_t", doc="0..N"),
        Attr("axis", "axis", default=-1, c_type="int32_t"),
        Attr("largest", "bool", c_type="int32_t", doc="False for the smallest"),
    ),
    dtypes={name: name for name in NUMBERS},
    special="in order; of equal elements the lowest index first; NaN is above every number, so "
    "first among the largest and last among the smallest; -0 and 0 are equal and keep their bits",
    aliasing="none",
    bound="exact",
    source="ONNX TopK, opset 24, sorted; NaN as argmax",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
