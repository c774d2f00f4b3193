"""cast(x, dtype): the same values in another dtype; block formats are decoded.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype as dtype_of
from anyhal.errors import UnsupportedError
from anyhal.ops._checks import BLOCKS, FLOATS, INTS, PLAIN, check_dtype
from anyhal.ops._oracle import convert, random_blocks, wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (x,) = inputs
    assert x is not None
    check_dtype("cast", "x", x, (*PLAIN, *BLOCKS))
    out = dtype_of(attrs["dtype"])
    allowed = FLOATS if x.dtype.is_block else PLAIN
    if out.short not in allowed:
        raise UnsupportedError(
            f"cast: {describe(x)} cannot become {out.short}; it can become {', '.join(allowed)}",
            reason="dtype",
        )
    return TensorSpec.dense(out, x.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    (x,) = inputs
    return [x], {}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    (x,) = inputs
    assert x is not None
    return float(out.size), float(x.nbytes + out.nbytes)


def reference(x: Any, dtype: str) -> Any:
    return convert(wide(x), dtype_of(dtype))


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for source in PLAIN:
        x = (60 * rng.standard_normal((3, 11))).astype(dtype_of(source).numpy)
        for target in PLAIN:
            if target != source:
                yield Sample(f"{source} to {target}", (x,), {"dtype": dtype_of(target).name})
    edges = np.array([np.nan, np.inf, -np.inf, 3e10, -3e10, 0.5, -0.5, 2.5, 1e-40], np.float32)
    for target in (*INTS, "bool", "f16", "bf16", "f64"):
        yield Sample(f"edges to {target}", (edges,), {"dtype": dtype_of(target).name})
    large = np.array([2.0**63, -(2.0**63), 2.0**64, 2.0**53 + 2, 65519.9, 65520.0, 3.5e38])
    for target in ("i64", "u64", "i32", "f32", "f16", "bf16"):
        yield Sample(f"large f64 to {target}", (large,), {"dtype": dtype_of(target).name})
    for name in BLOCKS:
        for target in FLOATS:
            blocks = random_blocks(rng, name, (3, 64))
            yield Sample(f"{name} to {target}", (blocks,), {"dtype": dtype_of(target).name})
    yield Sample("empty", (np.zeros((0, 3), np.float32),), {"dtype": "int32"})


SPEC = OpSpec(
    id=3,
    name="cast",
    since="0.1",
    summary="out = x in `dtype`; q4_1 and q8_0 are decoded to a floating dtype.",
    inputs=(Arg("x", "[...]"),),
    output=Arg("out", "[...]"),
    attrs=(Attr("dtype", "dtype", doc="output dtype; block formats cannot be made"),),
    dtypes={**{name: name for name in PLAIN}, "q4_1": "f32", "q8_0": "f32"},
    special="to a float: nearest even, overflow to infinity, NaN stays; float to integer: toward "
    "zero, saturates, NaN gives 0; integer to integer wraps; to bool: true unless zero",
    aliasing="none",
    bound="rounding",
    source="array API 2024.12 astype; saturation as ONNX Cast and WebAssembly trunc_sat",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    variants={"astype": {}},
)
