"""softmax(x, axis): exp(x - max(x)) / sum of them, along one axis.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._checks import FLOATS, WIDE, check_dtype
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, normalize_axis
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (x,) = inputs
    assert x is not None
    check_dtype("softmax", "x", x, FLOATS)
    normalize_axis("softmax", attrs["axis"], x)
    return TensorSpec.dense(x.dtype, x.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
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
    if out.spec.size == 0:
        trace.zeros(out)
        return
    axis = attrs["axis"]
    values = trace.cast(x, WIDE[x.dtype.short])
    top = trace("reduce", values, fn="max", axis=axis, keepdims=True)
    e = trace.unary("exp", trace.binary("subtract", values, top))
    total = trace("reduce", e, fn="sum", axis=axis, keepdims=True)
    if out.dtype == values.dtype:
        trace.binary("divide", e, total, out=out)
    else:
        trace.cast(trace.binary("divide", e, total), out.dtype, out=out)


def reference(x: Any, axis: int = -1) -> Any:
    values = wide(x)
    with np.errstate(all="ignore"):
        e = np.exp(values - values.max(axis=axis, keepdims=True, initial=-np.inf))
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
    dtypes={name: WIDE[name] for name in FLOATS},
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
