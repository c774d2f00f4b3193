"""rope(x, positions): rotary position embedding, pairing stated by the caller.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops._checks import (
    FLOATS,
    INDICES,
    WIDE,
    check_broadcasts,
    check_choice,
    check_dtype,
    check_shape,
)
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value

PAIRINGS = {"half_split": 1, "interleaved": 2}


def _rotary(x: TensorSpec, attrs: Mapping[str, Any]) -> int:
    """How many leading dims of D rotate."""
    return int(attrs["rotary_dims"]) or x.shape[-1]


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    x, positions, factors = inputs
    assert x is not None and positions is not None
    check_choice("rope", "pairing", attrs["pairing"], PAIRINGS)
    check_dtype("rope", "x", x, FLOATS)
    check_dtype("rope", "positions", positions, INDICES)
    if x.rank < 2:
        raise InvalidArgumentError(f"rope: x is {describe(x)} but must be [..., T, D]; reshape it")
    rotary = _rotary(x, attrs)
    if rotary % 2 or not 0 <= rotary <= x.shape[-1]:
        raise InvalidArgumentError(
            f"rope: rotary_dims={attrs['rotary_dims']} with x {describe(x)}: an even number up to "
            f"{x.shape[-1]} must rotate; give rotary_dims, 0 for all"
        )
    check_broadcasts("rope", "positions", positions, x.shape[:-1], "[..., T]")
    if factors is not None:
        check_dtype("rope", "freq_factors", factors, ("f32",))
        check_shape("rope", "freq_factors", factors, (rotary // 2,), "[rotary_dims / 2]")
    return TensorSpec.dense(x.dtype, x.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    x, positions, factors = inputs
    assert x is not None and positions is not None
    names = ("pairing", "rotary_dims", "base", "position_scale")
    return ([x, positions.broadcast_to(x.shape[:-1]), factors], {n: attrs[n] for n in names}, out)


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 6.0 * out.size, 2.0 * out.nbytes


def frequencies(rotary: int, base: float, position_scale: float) -> Any:
    """position_scale * base^(-2i/rotary) for each pair i, in float64."""
    exponents = -np.arange(0, rotary, 2, dtype=np.float64) / max(rotary, 1)
    return np.float64(np.float32(position_scale)) * np.float64(np.float32(base)) ** exponents


def _pairs(x: Value, rotary: int, pairing: str) -> tuple[Value, Value]:
    """Views of the first and second members of all pairs."""
    half = rotary // 2
    if pairing == "half_split":
        return x.slice(-1, 0, half), x.slice(-1, half, rotary)
    pairs = x.slice(-1, 0, rotary).split(-1, half, 2)
    return pairs.at(-1, 0), pairs.at(-1, 1)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    x, positions, factors = inputs
    assert x is not None and positions is not None
    rotary, size = _rotary(x.spec, attrs), x.shape[-1]
    if out.spec.size == 0:
        trace.zeros(out)
        return
    acc = WIDE[x.dtype.short]
    if rotary:
        speed = trace.constant(frequencies(rotary, attrs["base"], attrs["position_scale"]), acc)
        if factors is not None:
            speed = trace.binary("divide", speed, trace.cast(factors, acc))
        angle = trace.binary(
            "multiply", trace.cast(positions, acc).expand_dims(positions.spec.rank), speed
        )
        cos, sin = trace.unary("cos", angle), trace.unary("sin", angle)
        first, second = _pairs(trace.cast(x.slice(-1, 0, rotary), acc), rotary, attrs["pairing"])
        out_first, out_second = _pairs(out, rotary, attrs["pairing"])
        rotations = (("subtract", first, second, out_first), ("add", second, first, out_second))
        for fn, along, across, target in rotations:
            kept = trace.binary("multiply", along, cos)
            mixed = trace.binary("multiply", across, sin)
            if out.dtype.short == acc:
                trace.binary(fn, kept, mixed, out=target)
            else:
                trace.cast(trace.binary(fn, kept, mixed), out.dtype, out=target)
    if rotary < size:
        trace("copy", x.slice(-1, rotary, size), out=out.slice(-1, rotary, size))


def reference(
    x: Any,
    positions: Any,
    freq_factors: Any = None,
    *,
    pairing: str,
    rotary_dims: int = 0,
    base: float,
    position_scale: float = 1.0,
) -> Any:
    out = wide(x).copy()
    rotary = rotary_dims or x.shape[-1]
    speed = frequencies(rotary, base, position_scale).astype(np.longdouble)
    if freq_factors is not None:
        speed = speed / freq_factors.astype(np.longdouble)
    angle = positions.astype(np.longdouble)[..., None] * speed
    cos, sin = np.cos(angle).astype(out.dtype), np.sin(angle).astype(out.dtype)
    half = rotary // 2
    if pairing == "half_split":
        first, second = out[..., :half].copy(), out[..., half:rotary].copy()
        out[..., :half] = first * cos - second * sin
        out[..., half:rotary] = second * cos + first * sin
    else:
        first, second = out[..., 0:rotary:2].copy(), out[..., 1:rotary:2].copy()
        out[..., 0:rotary:2] = first * cos - second * sin
        out[..., 1:rotary:2] = second * cos + first * sin
    return out


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for name in FLOATS:
        for pairing in PAIRINGS:
            attrs = {"pairing": pairing, "base": 10000.0}
            x = rng.standard_normal((2, 3, 5, 8)).astype(dtype(name).numpy)
            positions = np.array([0, 1, 7, 2048, 2049])
            yield Sample(f"{pairing} {name}", (x, positions, None), attrs)
            yield Sample(
                f"{pairing} partial {name}",
                (x, positions.astype(np.int32), None),
                {**attrs, "rotary_dims": 4, "position_scale": 0.5},
            )
    factors = np.array([1.0, 2.0, 4.0, 8.0], np.float32)
    x = rng.standard_normal((2, 3, 1, 8)).astype(np.float32)
    attrs = {"pairing": "interleaved", "base": 100000.0}
    yield Sample("freq_factors", (x, np.array([40]), factors), attrs)
    yield Sample("positions per row", (x, np.array([[[4]], [[9]]]), None), attrs)
    yield Sample("no rows", (x[:, :, :0], np.zeros(0, np.int64), None), attrs)


SPEC = OpSpec(
    id=16,
    name="rope",
    since="0.1",
    summary="Each pair (u, v) turns by theta: out = (u cos - v sin, v cos + u sin), with theta_i = "
    "position * position_scale * base^(-2i/rotary_dims) / freq_factors[i].",
    inputs=(
        Arg("x", "[..., T, D]"),
        Arg("positions", "[..., T]", doc="i64 or i32; broadcasts to x without D", own="i64"),
        Arg("freq_factors", "[rotary_dims / 2]", optional=True, doc="f32"),
    ),
    output=Arg("out", "[..., T, D]"),
    attrs=(
        Attr(
            "pairing",
            "enum",
            choices=PAIRINGS,
            c_type="int32_t",
            c_enum="pairing",
            doc="half_split pairs i with i + rotary_dims/2, interleaved pairs 2i with 2i + 1",
        ),
        Attr(
            "rotary_dims",
            "i64",
            default=0,
            c_type="int32_t",
            doc="how many leading dims of D turn, the rest passes; 0 = all",
        ),
        Attr("base", "f32", c_type="float", doc="theta of the longest wave, as 10000"),
        Attr("position_scale", "f32", default=1.0, c_type="float"),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="angles are computed in f32 or better for every dtype of x and the result is rounded "
    "once; NaN stays in its pair; dims beyond rotary_dims keep their bits",
    aliasing="none",
    bound="rope",
    source="Su et al. 2021 (arXiv 2104.09864); ONNX RotaryEmbedding, opset 23",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    decompose=decompose,
)
