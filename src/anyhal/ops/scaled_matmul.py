"""scaled_matmul(a, b, a_scale, b_scale, ...): product of quantised matrices, scaled to floats.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype as dtype_of
from anyhal.errors import InvalidArgumentError
from anyhal.ops._checks import (
    FP8,
    check_broadcasts,
    check_dtype,
    check_shape,
    output_dtype,
)
from anyhal.ops._draw import Rng, one_of, size, stretched
from anyhal.ops._groups import check_zero
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value
from anyhal.ops.dequantize import codes
from anyhal.ops.matmul import product_shape

BYTES = ("i8", "u8")
DECODED_ELEMENTS_MAX = 1 << 22  # of b at a time in the decomposition: 16 MiB of f32


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = inputs
    assert a is not None and b is not None
    family = FP8 if a.dtype.short in FP8 else BYTES
    check_dtype("scaled_matmul", "a", a, (*BYTES, *FP8))
    check_dtype("scaled_matmul", "b", b, family)
    shape = product_shape("scaled_matmul", a, b)
    rows, columns = shape[:-1], (*shape[:-2], shape[-1])
    for name, spec, want in (
        *(("a_scale", a_scale, rows), ("b_scale", b_scale, columns)),
        *(("a_zero", a_zero, rows), ("b_zero", b_zero, columns)),
    ):
        if spec is None:
            continue
        letters = "[..., M]" if want is rows else "[..., N]"
        if "scale" in name:
            check_dtype("scaled_matmul", name, spec, ("f32",))
        else:
            check_zero("scaled_matmul", name, spec, (a if name == "a_zero" else b).dtype.short)
        check_broadcasts("scaled_matmul", name, spec, want, letters)
        if "zero" in name and family is FP8:
            raise InvalidArgumentError(
                f"scaled_matmul: {name} is given, but {a.dtype.short} and {b.dtype.short} have "
                "their zero at 0; leave it out"
            )
    out = output_dtype("scaled_matmul", attrs["dtype"], "f32", ("f16", "bf16"))
    if bias is not None:
        check_dtype("scaled_matmul", "bias", bias, dict.fromkeys(("f32", out.short)))
        check_shape("scaled_matmul", "bias", bias, shape[-1:], "[N]")
    return TensorSpec.dense(out, shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = inputs
    assert a is not None and b is not None
    lead = out.shape[:-2]

    def of_rows(spec: TensorSpec | None) -> TensorSpec | None:
        if spec is not None and spec.rank:
            spec = spec.expand_dims(spec.rank)
        return None if spec is None else spec.broadcast_to(out.shape)

    def of_columns(spec: TensorSpec | None) -> TensorSpec | None:
        if spec is not None and spec.rank:
            spec = spec.expand_dims(spec.rank - 1)
        return None if spec is None else spec.broadcast_to(out.shape)

    views = [a.broadcast_to(lead + a.shape[-2:]), b.broadcast_to(lead + b.shape[-2:])]
    more = [of_rows(a_scale), of_columns(b_scale), of_rows(a_zero), of_columns(b_zero)]
    return [*views, *more, of_columns(bias)], {}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    a = inputs[0]
    assert a is not None
    flops = 2.0 * out.size * a.shape[-1] + 4.0 * out.size
    return flops, float(out.nbytes + sum(x.nbytes for x in inputs if x is not None))


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = inputs
    assert a is not None and b is not None and a_scale is not None and b_scale is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    if a.dtype.short in FP8:
        value = _float_product(trace, a, b, out)
    else:
        value = trace.cast(_integer_product(trace, a, b, _row(a_zero), _column(b_zero)), "f32")
    for scale in (_row(a_scale), _column(b_scale)):
        assert scale is not None
        trace.binary("multiply", value, scale, out=value)
    if bias is not None:
        trace.binary("add", value, trace.cast(bias, "f32"), out=value)
    trace.cast(value, out.dtype, out=out)


def _row(v: Value | None) -> Value | None:
    return v if v is None or not v.spec.rank else v.expand_dims(v.spec.rank)


def _column(v: Value | None) -> Value | None:
    return v if v is None or not v.spec.rank else v.expand_dims(v.spec.rank - 1)


def _float_product(trace: Trace, a: Value, b: Value, out: Value) -> Value:
    """b in f32 a bounded part at a time: all of it would be four times what b takes."""
    a = trace.cast(a, "f32")
    product, columns = trace.temp(out.shape, "f32"), out.shape[-1]
    step = min(columns, max(1, DECODED_ELEMENTS_MAX * columns // max(b.spec.size, 1)))
    decoded = trace.temp((*b.shape[:-1], step), "f32")
    for start in range(0, columns, step):
        stop = min(columns, start + step)
        part = decoded.slice(-1, 0, stop - start)
        trace.cast(b.slice(-1, start, stop), "f32", out=part)
        trace("matmul", a, part, out=product.slice(-1, start, stop))
    return product


def _integer_product(
    trace: Trace, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None
) -> Value:
    """sum over k of (a - a_zero)(b - b_zero), with the zero points taken out of the sums:
    a @ b - a_zero (sum of b - K b_zero) - (sum of a) b_zero, all modulo 2^32."""
    if a.dtype != b.dtype:
        a, a_zero = _signed(trace, a, a_zero)
        b, b_zero = _signed(trace, b, b_zero)
    product, inner = trace("matmul", a, b), a.shape[-1]
    b_zero = None if b_zero is None else trace.cast(b_zero, "i32")
    if a_zero is not None:
        sums = _sum(trace, b, -2)
        if b_zero is not None:
            sums = trace.binary(
                "subtract", sums, trace.binary("multiply", b_zero, trace.constant(inner, "i32"))
            )
        part = trace.binary("multiply", trace.cast(a_zero, "i32"), sums)
        trace.binary("subtract", product, part, out=product)
    if b_zero is not None:
        part = trace.binary("multiply", _sum(trace, a, -1), b_zero)
        trace.binary("subtract", product, part, out=product)
    return product


def _sum(trace: Trace, x: Value, axis: int) -> Value:
    return trace("reduce", x, fn="sum", axis=axis, keepdims=True, dtype="int32")


def _signed(trace: Trace, x: Value, zero: Value | None) -> tuple[Value, Value | None]:
    """u8 as i8: both x and its zero point are 128 less."""
    if x.dtype.short == "i8":
        return x, zero
    shifted = trace.binary("subtract", x, trace.constant(128, "u8"))  # wraps, as the cast does
    shift = trace.constant(128, "i32")
    if zero is None:
        zero = trace.constant(-128, "i32")
    else:
        zero = trace.binary("subtract", trace.cast(zero, "i32"), shift)
    return trace.cast(shifted, "i8"), zero


def scaled_parts(
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    a_zero: Any = None,
    b_zero: Any = None,
    bias: Any = None,
) -> tuple[Any, Any, Any]:
    """The wide product without scales, and the scales as they multiply it."""
    x, w = wide(a), wide(b)
    if x.dtype.kind in "iu":
        x, w = x.astype(np.int64), w.astype(np.int64)
        if a_zero is not None:
            x = x - _stretch(a_zero, -1).astype(np.int64)
        if b_zero is not None:
            w = w - _stretch(b_zero, -2).astype(np.int64)
    with np.errstate(all="ignore"):
        product = np.matmul(x, w)
    if product.dtype.kind == "i":
        product = product.astype(np.int32)  # wraps
    return product.astype(np.float64), _stretch(wide(a_scale), -1), _stretch(wide(b_scale), -2)


def _stretch(x: Any, axis: int) -> Any:
    return x if np.ndim(x) == 0 else np.expand_dims(x, axis)


def reference(
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    a_zero: Any = None,
    b_zero: Any = None,
    bias: Any = None,
    dtype: str | None = None,
) -> Any:
    product, rows, columns = scaled_parts(a, b, a_scale, b_scale, a_zero, b_zero)
    with np.errstate(all="ignore"):
        found = product * rows * columns
        return found if bias is None else found + wide(bias)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    pairs = [(x, y) for x in BYTES for y in BYTES] + [(x, y) for x in FP8 for y in FP8]
    for x, y in pairs:
        for m, k, n in ((1, 1, 1), (3, 37, 5), (4, 64, 9), (2, 0, 3), (0, 4, 2)):
            yield _sample(rng, f"{m}x{k}x{n} {x} {y}", (m, k), (k, n), (m,), (n,), x, y, 0)
        yield _sample(rng, f"plain {x} {y}", (3, 8), (8, 4), (), (), x, y, 0, plain=True)
        for target in ("f16", "bf16"):
            made = _sample(rng, "", (3, 8), (8, 4), (3,), (4,), x, y, 0)
            attrs = {"dtype": dtype_of(target).name}
            yield Sample(f"{x} {y} to {target}", made.inputs, attrs)
    for x, y in pairs[:5]:
        label = f"batched {x} {y}"
        yield _sample(rng, label, (2, 1, 3, 8), (4, 8, 5), (4, 3), (2, 1, 5), x, y, 0)
        yield _sample(rng, f"scalar rows {x} {y}", (3, 8), (8, 4), (), (4,), x, y, 0)
        yield _sample(rng, f"scalar columns {x} {y}", (3, 8), (8, 4), (1,), (), x, y, 0)
    one = np.array(1.0, np.float32)
    least, most = np.full((2, 40), -128, np.int8), np.full((40, 3), 127, np.int8)
    zeros = np.array([-128, 127], np.int32), np.array([127, 0, -128], np.int32)
    yield Sample("ends of i8", (least, most, one, one, *zeros, None))
    far = np.array(2**30, np.int32)
    yield Sample("sums wrap", (least, most, one, one, far, np.array(-(2**30), np.int32), None))


def _sample(
    rng: Rng,
    label: str,
    a_shape: tuple[int, ...],
    b_shape: tuple[int, ...],
    rows: tuple[int, ...],
    columns: tuple[int, ...],
    x: str,
    y: str,
    missing: float,
    plain: bool = False,
) -> Sample:
    """Operands with any code but NaN and infinity (NUM-12 has those), scales, zero points, bias."""

    def scale(dims: tuple[int, ...]) -> Any:
        return rng.uniform(0.01, 0.1, dims).astype(np.float32)

    def zero(dims: tuple[int, ...], name: str) -> Any:
        if name in FP8 or plain or rng.random() < missing:
            return None
        info = np.iinfo(dtype_of(name).numpy)
        return rng.integers(info.min, info.max, dims, endpoint=True).astype(info.dtype)

    operands = []
    for name, dims in ((x, a_shape), (y, b_shape)):
        value = codes(rng, name, dims)
        if name in FP8:
            value = np.where(np.isfinite(value.astype(np.float32)), value, np.ones_like(value))
        operands.append(value)
    bias: Any = rng.standard_normal(b_shape[-1:]).astype(np.float32)
    if plain or rng.random() < missing:
        bias = None
    zeros = zero(rows, x), zero(columns, y)
    return Sample(label, (*operands, scale(rows), scale(columns), *zeros, bias))


def random(rng: Rng) -> Sample:
    m, k, n = size(rng, 33), size(rng, 65), size(rng, 33)
    lead = tuple(int(rng.integers(1, 4)) for _ in range(int(rng.integers(0, 3))))
    family = one_of(rng, (BYTES, FP8))
    return _sample(
        rng,
        "",
        (*stretched(rng, lead), m, k),
        (*lead, k, n),
        one_of(rng, ((), (m,), (*lead, m))),
        one_of(rng, ((), (n,), (*lead, n))),
        one_of(rng, family),
        one_of(rng, family),
        0.4,
    )


SPEC = OpSpec(
    id=52,
    name="scaled_matmul",
    since="0.2",
    summary="out = a_scale * ((a - a_zero) @ (b - b_zero)) * b_scale + bias.",
    inputs=(
        Arg("a", "[..., M, K]", doc="i8, u8 or an 8-bit float"),
        Arg("b", "[..., K, N]", doc="of the same family; as a rule constant, often a transpose"),
        Arg("a_scale", "[] or [..., M]", doc="f32", own="f32"),
        Arg("b_scale", "[] or [..., N]", doc="f32", own="f32"),
        Arg("a_zero", "[] or [..., M]", optional=True, doc="integers, for i8 and u8", own="i32"),
        Arg("b_zero", "[] or [..., N]", optional=True, doc="integers, for i8 and u8", own="i32"),
        Arg("bias", "[N]", optional=True, doc="f32 or the output's dtype", own="f32"),
    ),
    output=Arg("out", "[..., M, N]"),
    attrs=(Attr("dtype", "dtype", default=None, doc="output dtype: f32, f16 or bf16"),),
    dtypes={**dict.fromkeys(BYTES, "i32"), **dict.fromkeys(FP8, "f32")},
    special="sums of integers are exact in i32 and wrap; 8-bit floats are summed in f32, their NaN "
    "and infinity follow IEEE; K = 0 gives the bias; scales are applied in f32 and the result is "
    "rounded once",
    aliasing="none",
    bound="scaled_matmul",
    source="ONNX QLinearMatMul without the output's scale, as ONNX MatMulInteger with scales",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
