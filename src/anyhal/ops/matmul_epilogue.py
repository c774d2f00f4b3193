"""matmul_epilogue(a, b, ...): a matrix product with bias, activation, gate and residual in one go.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype as dtype_of
from anyhal.ops import _epilogue
from anyhal.ops._checks import FLOATS, WIDE, check_dtype, check_same_dtype, output_dtype
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Lowered, OpSpec, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value
from anyhal.ops.matmul import product_shape


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    a, b, *extras = inputs
    assert a is not None and b is not None
    check_dtype("matmul_epilogue", "a", a, FLOATS)
    check_same_dtype("matmul_epilogue", a, b)
    wider = ("f32",) if a.dtype.short in ("f16", "bf16") else ()
    out = TensorSpec.dense(
        output_dtype("matmul_epilogue", attrs["dtype"], a.dtype.short, wider),
        product_shape("matmul_epilogue", a, b),
    )
    _epilogue.check("matmul_epilogue", extras, attrs, a, out)
    return out


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    a, b, *extras = inputs
    assert a is not None and b is not None
    lead = out.shape[:-2]
    product = [a.broadcast_to(lead + a.shape[-2:]), b.broadcast_to(lead + b.shape[-2:])]
    return [*product, *_epilogue.lower(extras, out)], _epilogue.record(attrs), out


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
    a, b, *extras = inputs
    assert a is not None and b is not None
    acc = WIDE[a.dtype.short]
    product = trace("matmul", a, b, dtype=acc, out=_epilogue.accumulator(trace, out, acc))
    _epilogue.emit(trace, product, extras, attrs, out)


def reference(
    a: Any,
    b: Any,
    bias: Any = None,
    multiplier: Any = None,
    residual: Any = None,
    activation: str = "none",
    scale: float = 1.0,
    dtype: str | None = None,
) -> Any:
    with np.errstate(all="ignore"):
        product = np.matmul(wide(a), wide(b))
    return _epilogue.reference(product, (bias, multiplier, residual), activation, scale)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    def normal(*shape: int, name: str = "f32") -> Any:
        return rng.standard_normal(shape).astype(dtype_of(name).numpy)

    for name in FLOATS:
        a, b = normal(5, 33, name=name), normal(33, 7, name=name)
        extras = normal(7, name=name), normal(5, 7, name=name), normal(5, 7, name=name)
        for activation in _epilogue.ACTIVATIONS:
            yield Sample(
                f"all {activation} {name}",
                (a, b, *extras),
                {"activation": activation, "scale": 0.5},
            )
        yield Sample(f"bias {name}", (a, b, extras[0], None, None))
        yield Sample(f"residual {name}", (a, b, None, None, extras[2]))
        yield Sample(f"plain {name}", (a, b, None, None, None))
    half = normal(3, 8, name="bf16"), normal(8, 5, name="bf16")
    yield Sample("bf16 to f32", (*half, None, None, normal(3, 5)), {"dtype": "float32"})
    empty = np.zeros((4, 0), np.float32), np.zeros((0, 3), np.float32)
    yield Sample("K = 0", (*empty, normal(3), None, None), {"activation": "relu"})
    batch = (normal(2, 1, 4, 6), normal(3, 6, 5), normal(5), normal(3, 4, 5), normal(4, 5))
    yield Sample("batched", batch, {"activation": "silu"})
    yield Sample("no rows", (np.zeros((0, 4), np.float32), normal(4, 3), normal(3), None, None))
    # Large enough for products whose factors are rounded, where the caller allows that.
    large = normal(96, 128), normal(128, 96), normal(96), None, normal(96, 96)
    yield Sample("96x128x96", large, {"activation": "silu", "scale": 0.5})


SPEC = OpSpec(
    id=11,
    name="matmul_epilogue",
    since="0.1",
    summary="out = act(scale * (a @ b) + bias) * multiplier + residual, rounded once.",
    inputs=(Arg("a", "[..., M, K]"), Arg("b", "[..., K, N]"), *_epilogue.ARGS),
    output=Arg("out", "[..., M, N]"),
    attrs=_epilogue.ATTRS,
    dtypes={name: WIDE[name] for name in FLOATS},
    special="K = 0 makes the product 0; everything is computed in the accumulation dtype and "
    "rounded once at the end; NaN and infinity follow IEEE; absent operands are left out, not zero",
    aliasing="none",
    bound="epilogue",
    source="cuBLASLt epilogues and oneDNN post-ops, as one formula",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    decompose=decompose,
)
