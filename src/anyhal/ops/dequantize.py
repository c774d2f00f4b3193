"""dequantize(q, scale, zero_point): codes of a small dtype as floating values.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import DType
from anyhal.dtypes import dtype as dtype_of
from anyhal.ops import _groups
from anyhal.ops._checks import FLOATS, FP8, PACKED, WIDE, check_dtype, output_dtype
from anyhal.ops._draw import Rng, one_of, shape
from anyhal.ops._groups import FORMS, QUANTISED
from anyhal.ops._oracle import random_blocks, wide
from anyhal.ops._spec import Arg, Attr, Blocks, Lowered, OpSpec, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    q, scale, zero = inputs
    assert q is not None and scale is not None
    check_dtype("dequantize", "q", q, QUANTISED)
    check_dtype("dequantize", "scale", scale, FLOATS)
    _groups.check("dequantize", q, scale, zero, attrs, q.dtype.short)
    natural = scale.dtype.short
    others = [f for f in FLOATS if f != natural and WIDE[f] == WIDE[natural]]
    return TensorSpec.dense(output_dtype("dequantize", attrs["dtype"], natural, others), q.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    q, scale, zero = inputs
    assert q is not None
    views = [q, _groups.lower_scale(scale, q, attrs), _groups.lower_scale(zero, q, attrs)]
    return views, {"block_size": attrs["block_size"]}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 2.0 * out.size, float(out.nbytes + sum(x.nbytes for x in inputs if x is not None))


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    q, scale, zero = inputs
    assert q is not None and scale is not None
    acc = WIDE[out.dtype.short]
    whole = trace.cast(q, acc)
    scale = trace.cast(scale, acc)
    zero = None if zero is None else trace.cast(zero, acc)
    product = out if out.dtype.short == acc else whole
    for (part, by, offset), to in _views(whole, scale, zero, product, attrs):
        if offset is not None:
            part = trace.binary("subtract", part, offset, out=part)
        trace.binary("multiply", part, by, out=to)
    if product is not out:
        trace.cast(product, out.dtype, out=out)


def _views(
    q: Value, scale: Value, zero: Value | None, out: Value, attrs: Mapping[str, Any]
) -> Iterator[tuple[tuple[Value, Value, Value | None], Value]]:
    for part, (by, offset), to in _groups.parts(q, (scale, zero), out, attrs):
        assert by is not None
        yield (part, by, offset), to


def reference(
    q: Any,
    scale: Any,
    zero_point: Any = None,
    axis: int | None = None,
    block_size: int = 0,
    dtype: str | None = None,
) -> Any:
    with np.errstate(all="ignore"):
        code = wide(q).astype(np.longdouble)
        if zero_point is not None:
            code = code - _groups.spread(zero_point, q.shape, axis, block_size)
        found = code * _groups.spread(scale, q.shape, axis, block_size).astype(np.longdouble)
    double = dtype_of(dtype or scale.dtype).short == "f64"
    return found if double else found.astype(np.float64)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for name in QUANTISED:
        q = codes(rng, name, (3, 8))
        for short in FLOATS:
            for axis, block in FORMS if short == "f32" else FORMS[2:4]:
                attrs = {"axis": axis, "block_size": block}
                scale, zero = _scale(rng, q, dtype_of(short), axis, block)
                label = f"{name} to {short} axis {axis} block {block}"
                yield Sample(label, (q, scale, None), attrs)
                if name not in FP8 and short == "f32":
                    yield Sample(f"{label} with zero", (q, scale, zero), attrs)
        scale = np.array(0.5, np.float16)
        yield Sample(f"{name} f16 to f32", (q, scale, None), {"dtype": "float32"})
    for scale in (0.0, np.inf, np.nan, -1e-40, 3e38):
        q = np.arange(-128, 128, dtype=np.int16).astype(np.int8)
        yield Sample(f"scale {scale}", (q, np.array(scale, np.float32), np.array(3, np.int32)))
    one = np.array(1.0, np.float32)
    yield Sample("nothing", (np.zeros((0, 4), np.int8), one, None))
    yield Sample("no pairs", (random_blocks(rng, "i4", (2, 0)), one, None))
    yield Sample("0-d", (np.array(7, np.uint8), one, np.array(9, np.uint8)))


def codes(rng: Rng, name: str, dims: tuple[int, ...]) -> Any:
    """Any code of a quantised dtype, NaN of the 8-bit floats included."""
    if name in PACKED:
        return random_blocks(rng, name, dims)
    d = dtype_of(name)
    assert d.numpy is not None
    raw = rng.integers(0, 256, (*dims, d.block_bytes), dtype=np.uint8)
    return raw.view(d.numpy).reshape(dims)


def _scale(rng: Rng, q: Any, d: DType, axis: int | None, block: int) -> tuple[Any, Any]:
    spec = TensorSpec.dense(q.dtype if isinstance(q, Blocks) else dtype_of(q.dtype), q.shape)
    dims, _ = _groups.scale_shape("dequantize", spec, axis, block)
    return rng.uniform(0.01, 2, dims).astype(d.numpy), rng.integers(-9, 9, dims).astype(np.int32)


def random(rng: Rng) -> Sample:
    name, dims = one_of(rng, QUANTISED), shape(rng, 1)
    if name in PACKED:
        dims = (*dims[:-1], dims[-1] // 2 * 2)
    q = codes(rng, name, dims)
    axis = one_of(rng, (None, *range(-len(dims), len(dims))))
    block = 0 if axis is None else int(rng.integers(0, 40))
    scale, zero = _scale(rng, q, dtype_of(one_of(rng, FLOATS)), axis, block)
    attrs = {"axis": axis, "block_size": block}
    return Sample("", (q, scale, zero if name not in FP8 and rng.random() < 0.5 else None), attrs)


SPEC = OpSpec(
    id=51,
    name="dequantize",
    since="0.2",
    summary="out = (q - zero_point) * scale.",
    inputs=(
        Arg("q", "[...]"),
        Arg("scale", _groups.SCALE_AXES, doc="floating; its dtype is the output's unless asked"),
        _groups.ZERO_POINT,
    ),
    output=Arg("out", "[...]"),
    attrs=(
        *_groups.ATTRS,
        Attr(
            "dtype",
            "dtype",
            default=None,
            doc="output dtype; f16, bf16 and f32 stand in for each other",
        ),
    ),
    dtypes=dict.fromkeys(QUANTISED, "f32"),
    special="the difference is exact, the product is rounded once to f32 (f64 for an f64 scale), "
    "then to the output; NaN and infinity of 8-bit floats and of scales follow IEEE",
    aliasing="none",
    bound="rounding",
    source="ONNX DequantizeLinear, opset 21",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
