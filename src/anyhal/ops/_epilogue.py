"""What matmul_epilogue and quant_matmul do with the product: act(scale * p + bias) * m + r.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.errors import UnsupportedError
from anyhal.ops._checks import OUTPUT_DTYPE, check_broadcasts, check_choice, check_shape
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, TensorSpec, describe
from anyhal.ops._trace import Trace, Value
from anyhal.ops.unary import reference as unary_reference

ACTIVATIONS = {"none": 1, "relu": 2, "gelu": 3, "gelu_tanh": 4, "silu": 5, "sigmoid": 6, "tanh": 7}
FORMULA = "act(scale * p + bias) * multiplier + residual"

ARGS = (
    Arg("bias", "[N]", optional=True),
    Arg("multiplier", "[..., M, N]", optional=True),
    Arg("residual", "[..., M, N]", optional=True),
)
ATTRS = (
    Attr(
        "activation",
        "enum",
        default="none",
        choices=ACTIVATIONS,
        c_type="int32_t",
        c_enum="activation",
    ),
    Attr("scale", "f32", default=1.0, c_type="float", doc="multiplies the product"),
    Attr("dtype", "dtype", default=None, doc=OUTPUT_DTYPE),
)


def check(
    op: str,
    extras: Sequence[TensorSpec | None],
    attrs: Mapping[str, Any],
    inner: TensorSpec,
    out: TensorSpec,
) -> None:
    """Shapes and dtypes of bias, multiplier and residual; `inner` is the first operand."""
    check_choice(op, "activation", attrs["activation"], ACTIVATIONS)
    bias, multiplier, residual = extras
    for name, spec in (("bias", bias), ("multiplier", multiplier), ("residual", residual)):
        if spec is not None and spec.dtype not in (inner.dtype, out.dtype):
            raise UnsupportedError(
                f"{op}: {name} is {describe(spec)} but must be {inner.dtype.short} as the first "
                f"operand or {out.dtype.short} as the output; cast it with astype",
                reason="dtype",
            )
    if bias is not None:
        check_shape(op, "bias", bias, out.shape[-1:], "[N]")
    for name, spec in (("multiplier", multiplier), ("residual", residual)):
        if spec is not None:
            check_broadcasts(op, name, spec, out.shape, "[..., M, N]")


def lower(extras: Sequence[TensorSpec | None], out: TensorSpec) -> list[TensorSpec | None]:
    bias, multiplier, residual = extras
    return [
        bias,
        *(None if x is None else x.broadcast_to(out.shape) for x in (multiplier, residual)),
    ]


def record(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {"activation": attrs["activation"], "scale": attrs["scale"]}


def accumulator(trace: Trace, out: Value, acc: str) -> Value:
    """Where the product goes: `out` itself if it has the accumulation dtype (nothing else may
    overlap it), else a temporary."""
    return out if out.dtype.short == acc else trace.temp(out.shape, acc)


def emit(
    trace: Trace,
    product: Value,
    extras: Sequence[Value | None],
    attrs: Mapping[str, Any],
    out: Value,
) -> None:
    """The epilogue as core calls, in place on the accumulator; rounded into `out` at the end."""
    bias, multiplier, residual = extras
    acc = product.dtype
    if attrs["scale"] != 1.0:
        scale = trace.constant(np.float32(attrs["scale"]), acc)
        trace.binary("multiply", product, scale, out=product)
    if bias is not None:
        trace.binary("add", product, trace.cast(bias, acc), out=product)
    if attrs["activation"] != "none":
        trace.unary(attrs["activation"], product, out=product)
    if multiplier is not None:
        trace.binary("multiply", product, trace.cast(multiplier, acc), out=product)
    if residual is not None:
        trace.binary("add", product, trace.cast(residual, acc), out=product)
    if product is not out:
        trace.cast(product, out.dtype, out=out)


def reference(product: Any, extras: Sequence[Any], activation: str, scale: float) -> Any:
    bias, multiplier, residual = extras
    value = product * product.dtype.type(np.float32(scale))
    with np.errstate(all="ignore"):
        if bias is not None:
            value = value + wide(bias)
        if activation != "none":
            value = unary_reference(value, activation)
        if multiplier is not None:
            value = value * wide(multiplier)
        if residual is not None:
            value = value + wide(residual)
    return value
