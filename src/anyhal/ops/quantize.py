"""quantize(x, scale, zero_point): floating values as codes of a small dtype, with given scales.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype as dtype_of
from anyhal.errors import InvalidArgumentError, UnsupportedError
from anyhal.ops import _groups
from anyhal.ops._checks import FLOATS, FP8, PACKED, WIDE, check_dtype
from anyhal.ops._draw import Rng, one_of, shape, values
from anyhal.ops._groups import FORMS, QUANTISED
from anyhal.ops._oracle import fp8, limits, saturate
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    x, scale, zero = inputs
    assert x is not None and scale is not None
    check_dtype("quantize", "x", x, FLOATS)
    out = dtype_of(attrs["dtype"])
    if out.short not in QUANTISED:
        raise UnsupportedError(
            f"quantize: {describe(x)} cannot become {out.short}; give one of "
            f"{', '.join(QUANTISED)}",
            reason="dtype",
        )
    check_dtype("quantize", "scale", scale, dict.fromkeys((x.dtype.short, WIDE[x.dtype.short])))
    _groups.check("quantize", x, scale, zero, attrs, out.short)
    if out.is_block and (x.rank == 0 or x.shape[-1] % 2):
        raise InvalidArgumentError(
            f"quantize: {describe(x)} to {out.short}: two elements share a byte, so the last axis "
            "must have an even size; pad it"
        )
    return TensorSpec.dense(out, x.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    x, scale, zero = inputs
    assert x is not None
    views = [x, _groups.lower_scale(scale, x, attrs), _groups.lower_scale(zero, x, attrs)]
    return views, {"block_size": attrs["block_size"]}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 3.0 * out.size, float(out.nbytes + sum(x.nbytes for x in inputs if x is not None))


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    x, scale, zero = inputs
    assert x is not None and scale is not None
    acc = WIDE[x.dtype.short]
    x, scale = trace.cast(x, acc), trace.cast(scale, acc)
    zero = None if zero is None else trace.cast(zero, acc)
    code = trace.temp(x.shape, acc)
    for part, (by, offset), to in _groups.parts(x, (scale, zero), code, attrs):
        assert by is not None
        trace.binary("divide", part, by, out=to)
        if out.dtype.short in FP8:
            continue
        trace.unary("round", to, out=to)
        if offset is not None:
            trace.binary("add", to, offset, out=to)
    overflow = "saturate" if out.dtype.short in FP8 else "unstated"
    trace("cast", code, dtype=out.dtype.name, overflow=overflow, out=out)


def reference(
    x: Any,
    scale: Any,
    zero_point: Any = None,
    dtype: str = "int8",
    axis: int | None = None,
    block_size: int = 0,
) -> Any:
    to = dtype_of(dtype)
    acc = np.float64 if x.dtype == np.float64 else np.float32
    with np.errstate(all="ignore"):
        by = _groups.spread(scale, x.shape, axis, block_size)
        # The quotient is rounded once to the accumulation dtype; the rest is exact.
        quotient = np.divide(x.astype(acc), by.astype(acc))
        if to.short in FP8:
            return fp8(quotient, to, "saturate")
        code = np.rint(quotient).astype(np.float64)
        if zero_point is not None:
            code = code + _groups.spread(zero_point, x.shape, axis, block_size)
        return saturate(code, to)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for name in FLOATS:
        x = (4 * rng.standard_normal((3, 8))).astype(dtype_of(name).numpy)
        for target in QUANTISED:
            for axis, block in FORMS if name == "f32" else FORMS[2:4]:
                attrs = {"dtype": dtype_of(target).name, "axis": axis, "block_size": block}
                scale, zero = _scale(rng, x, target, axis, block)
                label = f"{name} to {target} axis {axis} block {block}"
                yield Sample(label, (x, scale, None), attrs)
                if target not in FP8 and name == "f32":
                    yield Sample(f"{label} with zero", (x, scale, zero), attrs)
    edges = np.array([np.nan, np.inf, -np.inf, 0.5, 1.5, 2.5, -0.5, -0.0, 1e30, 127.5, -128.5, 464])
    one = np.array(1.0, np.float32)
    for target in QUANTISED:
        yield Sample(
            f"edges to {target}",
            (edges.astype(np.float32), one, None),
            {"dtype": dtype_of(target).name},
        )
    for scale in (0.0, -0.5, np.inf, np.nan, 1e-40):
        yield Sample(
            f"scale {scale}",
            (edges.astype(np.float32), np.array(scale, np.float32), np.array(3, np.int32)),
            {"dtype": "int8"},
        )
    half = np.array([0.1, 70.0], np.float16)
    yield Sample("f16 with an f32 scale", (half, one / 3, None), {"dtype": "int8"})
    nothing = np.zeros((0, 4), np.float32)
    yield Sample("nothing to i8", (nothing, one, None), {"dtype": "int8"})
    yield Sample("nothing to i4", (nothing, one, None), {"dtype": "int4"})
    yield Sample("0-d", (np.array(2.6, np.float32), one, np.array(5, np.uint8)), {"dtype": "uint8"})


def _scale(rng: Rng, x: Any, target: str, axis: int | None, block: int) -> tuple[Any, Any]:
    """Scales that put a part of x past the range, and zero points."""
    spec = TensorSpec.dense(dtype_of(x.dtype), x.shape)
    dims, _ = _groups.scale_shape("quantize", spec, axis, block)
    span = 240.0 if target in FP8 else limits(dtype_of(target))[1]
    scale = (rng.uniform(2, 12, dims) / span).astype(x.dtype)
    low, high = (-8, 8) if target in (*PACKED, "i8", "i16") else (0, 16)
    return scale, rng.integers(low, high, dims).astype(np.int32)


def random(rng: Rng) -> Sample:
    target = one_of(rng, QUANTISED)
    x = values(rng, shape(rng, 1), one_of(rng, FLOATS))
    if target in PACKED and x.shape[-1] % 2:
        x = x[..., 1:]
    axis = one_of(rng, (None, *range(-x.ndim, x.ndim)))
    block = 0 if axis is None else int(rng.integers(0, 40))
    scale, zero = _scale(rng, x, target, axis, block)
    attrs = {"dtype": dtype_of(target).name, "axis": axis, "block_size": block}
    return Sample("", (x, scale, zero if target not in FP8 and rng.random() < 0.5 else None), attrs)


SPEC = OpSpec(
    id=50,
    name="quantize",
    since="0.2",
    summary="out = saturate(round(x / scale) + zero_point), ties to even.",
    inputs=(
        Arg("x", "[...]"),
        Arg("scale", _groups.SCALE_AXES, doc="in x's dtype or the one it is computed in"),
        _groups.ZERO_POINT,
    ),
    output=Arg("out", "[...]"),
    attrs=(
        Attr("dtype", "dtype", doc="i8, u8, i16, u16, i4, u4 or an 8-bit float"),
        *_groups.ATTRS,
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="x / scale is one division in the accumulation dtype, so the codes are the same "
    "everywhere; what is past the range saturates, 8-bit floats too; NaN gives the code 0, of an "
    "8-bit float NaN; scales are not checked: x / 0 is infinite or NaN",
    aliasing="none",
    bound="rounding",
    source="ONNX QuantizeLinear, opset 21; saturating always, NaN defined",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
