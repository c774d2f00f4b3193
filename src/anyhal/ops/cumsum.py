"""cumsum(x, axis): running sums along one axis.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype as dtype_of
from anyhal.ops._checks import FLOATS, INTS, NUMBERS, WIDE, check_dtype, output_dtype
from anyhal.ops._draw import Rng, one_of, shape, values
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, normalize_axis
from anyhal.ops._trace import Trace, Value


def _sums(short: str) -> str:
    """What the sums are formed in."""
    return WIDE.get(short, "u64" if short == "u64" else "i64")


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (x,) = inputs
    assert x is not None
    check_dtype("cumsum", "x", x, NUMBERS)
    normalize_axis("cumsum", attrs["axis"], x)
    short = x.dtype.short
    natural, others = (short, ()) if short in FLOATS else (_sums(short), INTS)
    return TensorSpec.dense(output_dtype("cumsum", attrs["dtype"], natural, others), x.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    (x,) = inputs
    assert x is not None
    axis = normalize_axis("cumsum", attrs["axis"], x)
    return [x], {"axis": axis, "exclusive": attrs["exclusive"], "reverse": attrs["reverse"]}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    (x,) = inputs
    assert x is not None
    return float(x.size), float(x.nbytes + out.nbytes)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    (x,) = inputs
    assert x is not None
    axis, reverse = normalize_axis("cumsum", attrs["axis"], x.spec), attrs["reverse"]
    if out.spec.size == 0:
        trace.zeros(out)
        return
    n = x.shape[axis]
    if attrs["exclusive"]:  # the sums of all but the last element, one place further
        first, rest = (n - 1, (0, n - 1)) if reverse else (0, (1, n))
        trace.zeros(out.slice(axis, first, first + 1))
        if n == 1:
            return
        out = out.slice(axis, *rest)
        x = x.slice(axis, 1, n) if reverse else x.slice(axis, 0, n - 1)
        n -= 1
    v, step = trace.cast(x, _sums(x.dtype.short)), 1
    while step < n:
        # v[i] sums the last `step` elements up to i; with v[i - step] it is twice as many. No
        # element is added to a sum that it is not part of, so NaN and infinities stay in place.
        last = 2 * step >= n and out.dtype == v.dtype
        doubled = out if last else trace.temp(v.shape, v.dtype)
        early, late = (0, n - step), (step, n)
        done, grown = ((n - step, n), early) if reverse else ((0, step), late)
        trace("copy", v.slice(axis, *done), out=doubled.slice(axis, *done))
        parts = v.slice(axis, *early), v.slice(axis, *late)
        trace.binary("add", *parts, out=doubled.slice(axis, *grown))
        v, step = doubled, 2 * step
    if v != out:
        trace.cast(v, out.dtype, out=out)


def reference(
    x: Any, axis: int, exclusive: bool = False, reverse: bool = False, dtype: str | None = None
) -> Any:
    v = wide(x)
    if v.dtype.kind in "iu":
        v = v.astype(np.uint64 if v.dtype == np.uint64 else np.int64)
    v = np.flip(v, axis) if reverse else v
    with np.errstate(all="ignore"):
        sums = np.cumsum(v, axis=axis)
    if exclusive:
        sums = np.roll(sums, 1, axis)
        np.moveaxis(sums, axis, 0)[:1] = 0
    sums = np.flip(sums, axis) if reverse else sums
    return sums if dtype is None else sums.astype(dtype_of(dtype).numpy)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in NUMBERS:
        np_type = dtype_of(short).numpy
        for dims, axis in (((1,), 0), ((3, 17), -1), ((5, 4, 2), 0), ((2, 300), 1)):
            x = (
                rng.standard_normal(dims) if short in FLOATS else rng.integers(0, 100, dims)
            ).astype(np_type)
            for exclusive in (False, True):
                attrs = {"axis": axis, "exclusive": exclusive, "reverse": bool(rng.integers(2))}
                yield Sample(f"{list(dims)} {attrs} {short}", (x,), attrs)
    special = np.array([1, -np.inf, 2, np.nan, 3, np.inf, 1], np.float32)
    for exclusive in (False, True):
        for reverse in (False, True):
            attrs = {"axis": 0, "exclusive": exclusive, "reverse": reverse}
            yield Sample(f"special values {attrs}", (special,), attrs)
    yield Sample("opposite infinities", (special[[1, 0, 5, 2]],), {"axis": 0})
    yield Sample("i8 does not wrap", (np.full(300, 127, np.int8),), {"axis": 0})
    yield Sample("to i32", (np.arange(9, dtype=np.uint8),), {"axis": 0, "dtype": "int32"})
    yield Sample("f16 sums in f32", (np.full(4097, 0.5, np.float16),), {"axis": 0})
    yield Sample("nothing", (np.zeros((3, 0), np.float32),), {"axis": 1})


def random(rng: Rng) -> Sample:
    x = values(rng, shape(rng, 1), one_of(rng, NUMBERS), 1)
    attrs = {"exclusive": bool(rng.integers(2)), "reverse": bool(rng.integers(2))}
    return Sample("", (x,), {"axis": int(rng.integers(-x.ndim, x.ndim)), **attrs})


SPEC = OpSpec(
    id=26,
    name="cumsum",
    since="0.1",
    summary="out[i] = the sum of x[0..i] along `axis`.",
    inputs=(Arg("x", "[..., N, ...]"),),
    output=Arg("out", "[..., N, ...]"),
    attrs=(
        Attr("axis", "axis", c_type="int32_t"),
        Attr("exclusive", "bool", default=False, c_type="int32_t", doc="leave x[i] itself out"),
        Attr("reverse", "bool", default=False, c_type="int32_t", doc="sum from the end"),
        Attr("dtype", "dtype", default=None, doc="integer dtype of an integer sum"),
    ),
    dtypes={name: _sums(name) for name in NUMBERS},
    special="integers sum in 64 bits; NaN and infinities reach only the sums that hold them; an "
    "exclusive sum begins with 0",
    aliasing="none",
    bound="cumsum",
    source="ONNX CumSum, opset 14; integer dtypes as array API 2024.12 cumulative_sum",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
