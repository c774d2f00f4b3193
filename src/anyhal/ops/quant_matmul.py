"""quant_matmul(x, w, ...): product with weights in a block format, each row of w one output.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype as dtype_of
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _epilogue
from anyhal.ops._checks import BLOCKS, check_dtype, check_rank, output_dtype
from anyhal.ops._oracle import random_blocks, wide
from anyhal.ops._spec import Arg, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value

ACTIVATION_DTYPES = ("f32", "f16", "bf16")
DECODED_ELEMENTS_MAX = 1 << 22  # of w at a time in the decomposition: 16 MiB of f32


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    x, w, *extras = inputs
    assert x is not None and w is not None
    check_dtype("quant_matmul", "x", x, ACTIVATION_DTYPES)
    check_dtype("quant_matmul", "w", w, BLOCKS)
    check_rank("quant_matmul", "w", w, 2, "[N, K]")
    if x.rank < 2 or x.shape[-1] != w.shape[1]:
        raise InvalidArgumentError(
            f"quant_matmul: {describe(x)} x {describe(w)}: x must be [..., M, K] and w [N, K] "
            "with one K; reshape x (a vector is [1, K])"
        )
    wider = () if x.dtype.short == "f32" else ("f32",)
    out = TensorSpec.dense(
        output_dtype("quant_matmul", attrs["dtype"], x.dtype.short, wider),
        (*x.shape[:-1], w.shape[0]),
    )
    _epilogue.check("quant_matmul", extras, attrs, x, out)
    return out


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    x, w, *extras = inputs
    return [x, w, *_epilogue.lower(extras, out)], _epilogue.record(attrs), out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    x = inputs[0]
    assert x is not None
    flops = 2.0 * out.size * x.shape[-1] + 4.0 * out.size
    return flops, float(out.nbytes + sum(t.nbytes for t in inputs if t is not None))


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    x, w, *extras = inputs
    assert x is not None and w is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    x = trace.cast(x, "f32")
    rows, inner = w.shape
    # Decode a bounded part of w at a time: a vocabulary's worth at once would cost four to seven
    # times the memory that the block format saved.
    step = min(rows, max(1, DECODED_ELEMENTS_MAX // max(inner, 1)))
    decoded = trace.temp((step, inner), "f32")
    product = _epilogue.accumulator(trace, out, "f32")
    for start in range(0, rows, step):
        stop = min(rows, start + step)
        part = trace.cast(w.slice(0, start, stop), "f32", out=decoded.slice(0, 0, stop - start))
        trace("matmul", x, part.mT(), out=product.slice(-1, start, stop))
    _epilogue.emit(trace, product, extras, attrs, out)


def reference(
    x: Any,
    w: Any,
    bias: Any = None,
    multiplier: Any = None,
    residual: Any = None,
    activation: str = "none",
    scale: float = 1.0,
    dtype: str | None = None,
) -> Any:
    with np.errstate(all="ignore"):
        product = np.matmul(wide(x), wide(w).T)
    return _epilogue.reference(product, (bias, multiplier, residual), activation, scale)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    def normal(*shape: int, name: str = "f32") -> Any:
        return rng.standard_normal(shape).astype(dtype_of(name).numpy)

    for block in BLOCKS:
        e = dtype_of(block).block_elements
        for m, k, n in ((1, e, 5), (2, 3 * e, 17), (5, 768 if e > 32 else 576, 33), (0, e, 3)):
            for name in ACTIVATION_DTYPES:
                w = random_blocks(rng, block, (n, k))
                yield Sample(
                    f"{m}x{k}x{n} {name} {block}", (normal(m, k, name=name), w, None, None, None)
                )
        w = random_blocks(rng, block, (9, 2 * e))
        extras = normal(9), normal(3, 9), normal(3, 9)
        for activation in _epilogue.ACTIVATIONS:
            yield Sample(
                f"all {activation} {block}",
                (normal(3, 2 * e), w, *extras),
                {"activation": activation, "scale": 0.5},
            )
        yield Sample(f"batched {block}", (normal(2, 3, 2 * e), w, extras[0], None, normal(2, 3, 9)))
        half = normal(2, 2 * e, name="f16")
        yield Sample(
            f"f16 to f32 {block}", (half, w, None, None, normal(2, 9)), {"dtype": "float32"}
        )
        # Large enough for products whose factors are rounded, where the caller allows that.
        w = random_blocks(rng, block, (48, 256))
        yield Sample(f"80x256x48 {block}", (normal(80, 256), w, normal(48), None, None))


SPEC = OpSpec(
    id=12,
    name="quant_matmul",
    since="0.1",
    summary="out = act(scale * (x @ decode(w)^T) + bias) * multiplier + residual, rounded once.",
    inputs=(
        Arg("x", "[..., M, K]"),
        Arg(
            "w",
            "[N, K]",
            doc="q4_0, q4_1, q8_0 (K a multiple of 32), q4_k, q6_k (of 256); as a rule constant",
        ),
        *_epilogue.ARGS,
    ),
    output=Arg("out", "[..., M, N]"),
    attrs=_epilogue.ATTRS,
    dtypes=dict.fromkeys(ACTIVATION_DTYPES, "f32"),
    special="x is never rounded to 8 or 16 bits; every block has its own scale; K = 0 makes the "
    "product 0; NaN and infinity follow IEEE",
    aliasing="none",
    bound="epilogue",
    source="block formats of GGUF files (ggml-common.h)",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    decompose=decompose,
)
