"""What argmax and argmin share: the index of the element that stands out along one axis.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from anyhal.dtypes import dtype as dtype_of
from anyhal.errors import InvalidArgumentError
from anyhal.ops._checks import FLOATS, INDICES, NUMBERS, along, check_dtype, output_dtype
from anyhal.ops._draw import Rng, one_of, shape, values
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


def _lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    (x,) = inputs
    assert x is not None
    axis = normalize_axis("lower", attrs["axis"], x)
    return [x], {"axis": axis}, out if attrs["keepdims"] else out.expand_dims(axis)


def _cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    (x,) = inputs
    assert x is not None
    return float(x.size), float(x.nbytes + out.nbytes)


def _samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in NUMBERS:
        x = (4 * rng.standard_normal((3, 17, 2))).astype(dtype_of(short).numpy)
        for axis in (0, 1, -1):
            yield Sample(f"axis {axis} {short}", (x,), {"axis": axis})
    rows = np.array(
        [
            [1, 3, 3, 2],
            [2, 1, 1, 3],
            [np.nan, 5, np.nan, 1],
            [1, np.inf, np.nan, 0],
            [-np.inf] * 4,
            [np.inf] * 4,
            [-0.0, 0, 0, 0],
            [0, -0.0, 0, 0],
        ],
        np.float32,
    )
    yield Sample("ties and NaN", (rows,), {"axis": -1, "keepdims": True})
    yield Sample("to i32", (rows,), {"axis": 1, "dtype": "int32"})
    yield Sample("wide", (rng.standard_normal((1, 1001)).astype(np.float32),))
    yield Sample("no rows", (rows[:0],))


def _random(rng: Rng) -> Sample:
    x = values(rng, shape(rng, 1, 1), one_of(rng, NUMBERS))
    attrs = {"axis": int(rng.integers(-x.ndim, x.ndim)), "keepdims": bool(rng.integers(2))}
    return Sample("", (x,), attrs)


def _infer(
    name: str, word: str, inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]
) -> TensorSpec:
    (x,) = inputs
    assert x is not None
    check_dtype(name, "x", x, NUMBERS)
    axis = normalize_axis(name, attrs["axis"], x)
    kept = (1,) if attrs["keepdims"] else ()
    dims = x.shape[:axis] + kept + x.shape[axis + 1 :]
    out = TensorSpec.dense(output_dtype(name, attrs["dtype"], *INDICES[:1], INDICES[1:]), dims)
    if x.size == 0 and out.size > 0:
        raise InvalidArgumentError(
            f"{name}: {describe(x)} has no elements{along(attrs['axis'])}, and the {word} of none"
            " is not defined; check the size first"
        )
    return out


def _decompose(
    fn: str,
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    out: Value,
) -> None:
    (x,) = inputs
    assert x is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    axis = normalize_axis(fn, attrs["axis"], x.spec)
    found = trace("reduce", x, fn=fn, axis=axis, keepdims=True)
    hit = trace.binary("equal", x, found)
    if x.dtype.short in FLOATS:
        # A NaN makes the result NaN, and nothing equals it; without one this changes nothing.
        hit = trace.binary("logical_or", hit, trace.unary("isnan", x))
    size = x.shape[axis]
    places = trace.numbers(size, out.dtype).reshape(size, *(1,) * (x.spec.rank - axis - 1))
    place = trace("where", hit, places, trace.constant(size, out.dtype))
    trace("reduce", place, fn="min", axis=axis, keepdims=attrs["keepdims"], out=out)


def _reference(
    name: str, x: Any, axis: int = -1, keepdims: bool = False, dtype: str | None = None
) -> Any:
    # NumPy has both rules: the first NaN, else the lowest index.
    if x.size == 0:
        return np.zeros(np.sum(x, axis=axis, keepdims=keepdims).shape, np.int64)
    return getattr(np, name)(wide(x), axis=axis, keepdims=keepdims)


def make(name: str, id: int, fn: str, word: str) -> OpSpec:
    """The op whose element is the one that `reduce` finds with `fn`, the `word` one."""

    def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
        return _infer(name, word, inputs, attrs)

    return OpSpec(
        id=id,
        name=name,
        since="0.1",
        summary=f"out = the index of the {word} element along `axis`.",
        inputs=(Arg("x", "[..., N, ...]"),),
        output=Arg("out", "[..., ...], or [..., 1, ...] with keepdims"),
        attrs=(
            Attr("axis", "axis", default=-1, c_type="int32_t"),
            Attr("keepdims", "bool", default=False, doc="keep the axis with size 1"),
            Attr("dtype", "dtype", default=None, doc="int64 or int32"),
        ),
        dtypes={n: n for n in NUMBERS},
        special=f"the lowest index wins; NaN counts as the {word}; -0 and 0 are equal; N = 0 is an "
        "error",
        aliasing="none",
        bound="exact",
        source=f"array API 2024.12 {name}; ties and NaN as NumPy",
        infer=infer,
        lower=_lower,
        cost=_cost,
        reference=partial(_reference, name),
        samples=_samples,
        random=_random,
        decompose=partial(_decompose, fn),
    )
