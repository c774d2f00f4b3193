"""softmax(x, axis): exp(x - max(x)) / sum of them, along one axis.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import UnsupportedError
from anyhal.ops._spec import Arg, Attr, OpSpec, Sample, TensorSpec, describe, normalize_axis
from anyhal.ops._trace import Trace, Value

DTYPES = {"f32": "f32", "f16": "f32", "bf16": "f32", "f64": "f64"}


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (x,) = inputs
    assert x is not None
    if x.dtype.short not in DTYPES:
        raise UnsupportedError(
            f"softmax: {describe(x)} is not floating; cast it with astype", reason="dtype"
        )
    normalize_axis("softmax", attrs["axis"], x)
    return TensorSpec.dense(x.dtype, x.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[list[TensorSpec | None], dict[str, Any], TensorSpec]:
    (x,) = inputs
    assert x is not None
    return [x], {"axis": normalize_axis("softmax", attrs["axis"], x)}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 5.0 * out.size, 2.0 * out.nbytes


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    (x,) = inputs
    assert x is not None
    axis = attrs["axis"]
    wide = trace.cast(x, DTYPES[x.dtype.short])
    top = trace("reduce", wide, fn="max", axis=axis, keepdims=True)
    e = trace.unary("exp", trace.binary("subtract", wide, top))
    total = trace("reduce", e, fn="sum", axis=axis, keepdims=True)
    if out.dtype == wide.dtype:
        trace.binary("divide", e, total, out=out)
    else:
        trace.cast(trace.binary("divide", e, total), out.dtype, out=out)


def reference(x: Any, axis: int = -1) -> Any:
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        e = np.exp(wide - wide.max(axis=axis, keepdims=True, initial=-np.inf))
        return e / e.sum(axis=axis, keepdims=True)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for name in ("float32", "float16", "bfloat16", "float64"):
        np_type = dtype(name).numpy
        for shape, axis in (((1,), 0), ((3, 17), -1), ((4, 5, 6), 1), ((2, 300), -1), ((0, 4), -1)):
            yield Sample(
                f"{list(shape)} axis {axis} {name}",
                ((4 * rng.standard_normal(shape)).astype(np_type),),
                {"axis": axis},
            )
    inf = np.float32(np.inf)
    rows = np.array([[-inf] * 4, [inf, 1, 2, 3], [0, -inf, 1, 2], [-5e4] * 4], np.float32)
    yield Sample("special rows", (rows,), {"axis": -1})


SPEC = OpSpec(
    id=15,
    name="softmax",
    since="0.1",
    summary="out = exp(x - max(x)) / sum(exp(x - max(x))) along `axis`.",
    inputs=(Arg("x", "[..., N]"),),
    output=Arg("out", "[..., N]"),
    attrs=(Attr("axis", "axis", default=-1, c_type="int32_t"),),
    dtypes=DTYPES,
    special="a slice of -inf gives NaN; one +inf makes its slice NaN; NaN spreads over its slice",
    aliasing="elementwise",
    bound="softmax",
    source="ONNX Softmax, opset 13",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    decompose=decompose,
)
