"""matmul(a, b): batched matrix product.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError, UnsupportedError
from anyhal.ops._checks import OUTPUT_DTYPE
from anyhal.ops._oracle import wide
from anyhal.ops._spec import (
    Arg,
    Attr,
    Lowered,
    OpSpec,
    Sample,
    TensorSpec,
    broadcast_shapes,
    describe,
)

# input dtype -> (natural output dtype, other output dtypes that may be asked for)
OUTPUTS = {
    "f32": ("f32", ()),
    "f64": ("f64", ()),
    "f16": ("f16", ("f32",)),
    "bf16": ("bf16", ("f32",)),
    "i8": ("i32", ()),
    "u8": ("i32", ()),
    "i32": ("i32", ()),
    "i64": ("i64", ()),
}


def product_shape(op: str, a: TensorSpec, b: TensorSpec) -> tuple[int, ...]:
    """[..., M, N] for a [..., M, K] and b [..., K, N]; InvalidArgumentError names both."""
    if a.rank < 2 or b.rank < 2:
        raise InvalidArgumentError(
            f"{op}: operands {describe(a)} and {describe(b)} must have at least two dims; "
            "reshape a vector to [1, K] or [K, 1]"
        )
    if a.shape[-1] != b.shape[-2]:
        raise InvalidArgumentError(
            f"{op}: {describe(a)} x {describe(b)}: the inner sizes {a.shape[-1]} and "
            f"{b.shape[-2]} differ; a is [..., M, K], b is [..., K, N]"
        )
    lead = broadcast_shapes(
        op, TensorSpec.dense(a.dtype, a.shape[:-2]), TensorSpec.dense(b.dtype, b.shape[:-2])
    )
    return (*lead, a.shape[-2], b.shape[-1])


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    a, b = inputs
    assert a is not None and b is not None
    if a.dtype != b.dtype or a.dtype.short not in OUTPUTS:
        raise UnsupportedError(
            f"matmul: {describe(a)} x {describe(b)}: operands must have one dtype out of "
            f"{', '.join(OUTPUTS)}; cast one with astype",
            reason="dtype",
        )
    natural, others = OUTPUTS[a.dtype.short]
    out = dtype(attrs.get("dtype") or natural)
    if out.short not in (natural, *others):
        raise UnsupportedError(
            f"matmul: {a.dtype.short} operands give {' or '.join((natural, *others))}, "
            f"not {out.short}; cast the result with astype",
            reason="dtype",
        )
    return TensorSpec.dense(out, product_shape("matmul", a, b))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    a, b = inputs
    assert a is not None and b is not None
    lead = out.shape[:-2]
    return ([a.broadcast_to(lead + a.shape[-2:]), b.broadcast_to(lead + b.shape[-2:])], {}, out)


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    a, b = inputs
    assert a is not None and b is not None
    return 2.0 * out.size * a.shape[-1], float(a.nbytes + b.nbytes + out.nbytes)


def reference(a: Any, b: Any, dtype: str | None = None) -> Any:
    """The wide product (exact int64 for integers); the caller rounds to the output dtype."""
    with np.errstate(all="ignore"):
        if a.dtype.kind in "iu":
            return np.matmul(a.astype(np.int64), b.astype(np.int64))
        return np.matmul(wide(a), wide(b))


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for m, k, n in ((1, 1, 1), (3, 5, 7), (8, 8, 8), (17, 33, 9), (4, 0, 4), (0, 3, 2)):
        for name in ("float32", "float16", "bfloat16", "float64"):
            np_type = dtype(name).numpy
            a = rng.standard_normal((m, k)).astype(np_type)
            b = rng.standard_normal((k, n)).astype(np_type)
            yield Sample(f"{m}x{k}x{n} {name}", (a, b))
    for name in ("int8", "uint8", "int32", "int64"):
        # The whole range: int32 sums wrap, byte products must not saturate on the way.
        info = np.iinfo(dtype(name).numpy)
        a = rng.integers(info.min, info.max, (5, 40), dtype=info.dtype, endpoint=True)
        b = rng.integers(info.min, info.max, (40, 6), dtype=info.dtype, endpoint=True)
        a[0, :4], b[:4, 0] = info.min, info.min
        yield Sample(name, (a, b))
    for name in ("float16", "bfloat16"):
        a = rng.standard_normal((3, 40)).astype(dtype(name).numpy)
        yield Sample(f"{name} to f32", (a, a.T.copy()), {"dtype": "float32"})
    batch = rng.standard_normal((2, 1, 4, 6)).astype(np.float32)
    yield Sample("batched", (batch, rng.standard_normal((3, 6, 5)).astype(np.float32)))
    # Large enough for products whose factors are rounded, where the caller allows that.
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((96, 128), (128, 96)))
    yield Sample("96x128x96 float32", (a, b))
    yield Sample("96x128x96 bfloat16", tuple(x.astype(dtype("bfloat16").numpy) for x in (a, b)))


SPEC = OpSpec(
    id=8,
    name="matmul",
    since="0.1",
    summary="Batched matrix product out[..., m, n] = sum over k of a[..., m, k] * b[..., k, n].",
    inputs=(Arg("a", "[..., M, K]"), Arg("b", "[..., K, N]")),
    output=Arg("out", "[..., M, N]"),
    attrs=(Attr("dtype", "dtype", default=None, doc=OUTPUT_DTYPE),),
    dtypes={
        "f32": "f32",
        "f64": "f64",
        "f16": "f32",
        "bf16": "f32",
        "i8": "i32",
        "u8": "i32",
        "i32": "i32",
        "i64": "i64",
    },
    special="K = 0 gives zeros; NaN and infinity follow IEEE; integers wrap",
    aliasing="none",
    bound="contraction",
    source="array API 2024.12 matmul",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
)
