"""rms_norm(x, weight): x divided by its root mean square along the last axis.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._checks import FLOATS, WIDE, check_dtype, check_same_dtype, check_shape
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, normalize_axis
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    x, weight = inputs
    assert x is not None
    check_dtype("rms_norm", "x", x, FLOATS)
    normalize_axis("rms_norm", -1, x)
    if weight is not None:
        check_same_dtype("rms_norm", x, weight)
        check_shape("rms_norm", "weight", weight, x.shape[-1:], "[N]")
    return TensorSpec.dense(x.dtype, x.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return list(inputs), {"eps": attrs["eps"]}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 4.0 * out.size, 2.0 * out.nbytes


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    x, weight = inputs
    assert x is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    acc = WIDE[x.dtype.short]
    v = trace.cast(x, acc)
    mean = trace("reduce", trace.binary("multiply", v, v), fn="mean", axis=-1, keepdims=True)
    eps = trace.constant(np.float32(attrs["eps"]), acc)
    factor = trace.unary("rsqrt", trace.binary("add", mean, eps))
    direct = out.dtype == v.dtype
    if weight is None:
        y = trace.binary("multiply", v, factor, out=out if direct else None)
    else:
        y = trace.binary("multiply", v, factor)
        y = trace.binary("multiply", y, trace.cast(weight, acc), out=out if direct else None)
    if not direct:
        trace.cast(y, out.dtype, out=out)


def reference(x: Any, weight: Any = None, *, eps: float) -> Any:
    values = wide(x)
    with np.errstate(all="ignore"):
        square = np.mean(values * values, axis=-1, keepdims=True) if values.size else values
        y = values / np.sqrt(square + values.dtype.type(np.float32(eps)))
        return y if weight is None else y * wide(weight)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for name in FLOATS:
        np_type = dtype(name).numpy
        for shape in ((1, 1), (3, 17), (2, 4, 576)):
            x = rng.standard_normal(shape).astype(np_type)
            weight = rng.standard_normal(shape[-1:]).astype(np_type)
            yield Sample(f"{list(shape)} {name}", (x, weight), {"eps": 1e-5})
        yield Sample(f"no weight {name}", (x, None), {"eps": 1e-6})
    zeros = np.zeros((2, 8), np.float32)
    yield Sample("zeros", (zeros, zeros[0] + 1), {"eps": 1e-5})
    nan = np.array([[1, np.nan, 2], [1, 2, 3], [np.inf, 1, 2]], np.float32)
    yield Sample("NaN stays in its row", (nan, None), {"eps": 1e-5})
    yield Sample("no rows", (np.zeros((0, 4), np.float32), None), {"eps": 1e-5})


SPEC = OpSpec(
    id=14,
    name="rms_norm",
    since="0.1",
    summary="out = x / sqrt(mean(x^2) + eps) * weight, along the last axis.",
    inputs=(Arg("x", "[..., N]"), Arg("weight", "[N]", optional=True)),
    output=Arg("out", "[..., N]"),
    attrs=(Attr("eps", "f32", c_type="float", doc="added to the mean square"),),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="a row of zeros gives zeros if eps > 0; NaN spreads over its row; an infinity makes "
    "itself NaN and the rest of its row 0; rounded once at the end",
    aliasing="elementwise",
    bound="rms_norm",
    source="Zhang and Sennrich 2019 (arXiv 1910.07467); ONNX RMSNormalization, opset 23",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    decompose=decompose,
)
