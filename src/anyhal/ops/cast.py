"""cast(x, dtype): the same values in another dtype; block formats are decoded.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype as dtype_of
from anyhal.errors import InvalidArgumentError, UnsupportedError
from anyhal.ops._checks import (
    BLOCKS,
    FLOATS,
    FP8,
    INTS,
    MOVED,
    PACKED,
    PLAIN,
    check_choice,
    check_dtype,
)
from anyhal.ops._oracle import convert, fp8_codes, pack_nibbles, random_blocks, wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe

OVERFLOW = {"unstated": 1, "saturate": 2, "nonfinite": 3}


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (x,) = inputs
    assert x is not None
    check_dtype("cast", "x", x, MOVED)
    out, overflow = dtype_of(attrs["dtype"]), attrs["overflow"]
    check_choice("cast", "overflow", overflow, OVERFLOW)
    allowed = FLOATS if x.dtype.short in BLOCKS else (*PLAIN, *FP8, *PACKED)
    if out.short not in allowed:
        raise UnsupportedError(
            f"cast: {describe(x)} cannot become {out.short}; it can become {', '.join(allowed)}",
            reason="dtype",
        )
    if (out.short in FP8) == (overflow == "unstated"):
        raise InvalidArgumentError(
            f"cast: {describe(x)} to {out.short} with overflow={overflow!r}: formats of 8 bits "
            "differ in what lies past their largest value, so the caller says it, and only there; "
            + ("give 'saturate' or 'nonfinite'" if out.short in FP8 else "leave overflow out")
        )
    if out.is_block and (x.rank == 0 or x.shape[-1] % out.block_elements):
        raise InvalidArgumentError(
            f"cast: {describe(x)} to {out.short}: two elements share a byte, so the last axis must "
            "have an even size; pad it"
        )
    return TensorSpec.dense(out, x.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    (x,) = inputs
    return [x], {"overflow": attrs["overflow"]}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    (x,) = inputs
    assert x is not None
    return float(out.size), float(x.nbytes + out.nbytes)


def reference(x: Any, dtype: str, overflow: str = "unstated") -> Any:
    return convert(wide(x), dtype_of(dtype), overflow)


def _targets(*names: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A label and attributes for each target, 8-bit floats in both manners."""
    for name in names:
        for overflow in ("saturate", "nonfinite") if name in FP8 else ("unstated",):
            label = f"{name} {overflow}" if name in FP8 else name
            yield label, {"dtype": dtype_of(name).name, "overflow": overflow}


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for source in PLAIN:
        x = (60 * rng.standard_normal((3, 11))).astype(dtype_of(source).numpy)
        for target, attrs in _targets(*PLAIN, *FP8):
            if target != source:
                yield Sample(f"{source} to {target}", (x,), attrs)
        yield Sample(f"{source} to i4", (x[:, :10],), {"dtype": "int4"})
        yield Sample(f"{source} to u4", (x[:, :10],), {"dtype": "uint4"})
    yield from _special(rng)
    for source in FP8:  # every code
        x = fp8_codes(dtype_of(source))
        for target, attrs in _targets(*PLAIN, *FP8, *PACKED):
            if not target.startswith(source + " "):
                yield Sample(f"all of {source} to {target}", (x,), attrs)
    for source in PACKED:
        pairs = pack_nibbles(np.arange(16).reshape(2, 8), source)
        for target, attrs in _targets(*PLAIN, *FP8, *(t for t in PACKED if t != source)):
            yield Sample(f"{source} to {target}", (pairs,), attrs)
    for name in BLOCKS:
        for target in FLOATS:
            blocks = random_blocks(rng, name, (3, 2 * dtype_of(name).block_elements))
            yield Sample(f"{name} to {target}", (blocks,), {"dtype": dtype_of(target).name})
    yield Sample("empty", (np.zeros((0, 3), np.float32),), {"dtype": "int32"})
    yield Sample("no pairs", (np.zeros((2, 0), np.float32),), {"dtype": "int4"})


def _special(rng: np.random.Generator) -> Iterator[Sample]:
    edges = np.array([np.nan, np.inf, -np.inf, 3e10, -3e10, 0.5, -0.5, 2.5, 1e-40, -0.0])
    edges = edges.astype(np.float32)
    for target, attrs in _targets(*INTS, "bool", "f16", "bf16", "f64", *FP8, *PACKED):
        yield Sample(f"edges to {target}", (edges,), attrs)
    large = np.array([2.0**63, -(2.0**63), 2.0**64, 2.0**53 + 2, 65519.9, 65520.0, 3.5e38])
    for target, attrs in _targets("i64", "u64", "i32", "f32", "f16", "bf16", *FP8):
        yield Sample(f"large f64 to {target}", (large,), attrs)
    for target, attrs in _targets(*FP8):  # ties of every binade, and just beside them
        values = fp8_codes(dtype_of(attrs["dtype"]))[:128].astype(np.float64)
        values = values[np.isfinite(values)]
        ties = (values[1:] + values[:-1]) / 2
        ties = np.concatenate([ties, [1.5 * values[-1] - 0.5 * values[-2]], values])
        near = np.concatenate([ties, np.nextafter(ties, 0), np.nextafter(ties, np.inf)])
        yield Sample(f"ties to {target}", (np.concatenate([near, -near]),), attrs)


SPEC = OpSpec(
    id=3,
    name="cast",
    since="0.1",
    summary="out = x in `dtype`; block formats are decoded to a floating dtype.",
    inputs=(Arg("x", "[...]"),),
    output=Arg("out", "[...]"),
    attrs=(
        Attr("dtype", "dtype", doc="output dtype; block formats of GGUF files cannot be made"),
        Attr(
            "overflow",
            "enum",
            default="unstated",
            choices=OVERFLOW,
            c_type="int32_t",
            c_enum="overflow",
            doc="past the largest 8-bit float, required there and only there: saturate gives the "
            "largest, nonfinite infinity in e5m2 and NaN in the other three",
        ),
    ),
    dtypes={name: "f32" if name in BLOCKS else name for name in MOVED},
    special="to a float: nearest even, overflow to infinity, NaN stays; float to integer: toward "
    "zero, saturates, NaN gives 0; integer to integer wraps; to bool: true unless zero; fnuz "
    "formats have no -0",
    aliasing="none",
    bound="rounding",
    source="array API 2024.12 astype; saturation as ONNX Cast and WebAssembly trunc_sat; OCP OFP8",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    variants={"astype": {}},
)
