"""log_softmax(x, axis): the logarithm of softmax, without forming the softmax.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._checks import FLOATS, WIDE, check_dtype
from anyhal.ops._draw import Rng, one_of, shape, values
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, normalize_axis
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (x,) = inputs
    assert x is not None
    check_dtype("log_softmax", "x", x, FLOATS)
    normalize_axis("log_softmax", attrs["axis"], x)
    return TensorSpec.dense(x.dtype, x.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    (x,) = inputs
    assert x is not None
    return [x], {"axis": normalize_axis("log_softmax", attrs["axis"], x)}, out


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
    v = trace.cast(x, WIDE[x.dtype.short])
    # The maximum goes first: added to the logarithm, a large one would swallow it.
    depth = trace.binary("subtract", v, trace("reduce", v, fn="max", axis=axis, keepdims=True))
    total = trace("reduce", trace.unary("exp", depth), fn="sum", axis=axis, keepdims=True)
    log = trace.unary("log", total)
    if out.dtype == v.dtype:
        trace.binary("subtract", depth, log, out=out)
    else:
        trace.cast(trace.binary("subtract", depth, log), out.dtype, out=out)


def reference(x: Any, axis: int = -1) -> Any:
    v = wide(x)
    with np.errstate(all="ignore"):
        depth = v - v.max(axis=axis, keepdims=True, initial=-np.inf)
        return depth - np.log(np.exp(depth).sum(axis=axis, keepdims=True))


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for name in FLOATS:
        np_type = dtype(name).numpy
        for dims, axis in (((1,), 0), ((3, 17), -1), ((4, 5, 6), 1), ((2, 300), -1), ((0, 4), -1)):
            x = (4 * rng.standard_normal(dims)).astype(np_type)
            yield Sample(f"{list(dims)} axis {axis} {name}", (x,), {"axis": axis})
    inf = np.float32(np.inf)
    rows = [[-inf] * 3, [inf, 1, 2], [0, -inf, 1], [-1e7, -1e7, 1 - 1e7], [np.nan, 0, 1]]
    yield Sample("special rows", (np.array(rows, np.float32),), {"axis": -1})
    yield Sample("far apart", (np.array([[0, 200, -3e4]], np.float32),), {"axis": -1})


def random(rng: Rng) -> Sample:
    x = values(rng, shape(rng, 1), one_of(rng, FLOATS), 5)
    return Sample("", (x,), {"axis": int(rng.integers(-x.ndim, x.ndim))})


SPEC = OpSpec(
    id=21,
    name="log_softmax",
    since="0.1",
    summary="out = x - max(x) - log(sum(exp(x - max(x)))) along `axis`.",
    inputs=(Arg("x", "[..., N]"),),
    output=Arg("out", "[..., N]"),
    attrs=(Attr("axis", "axis", default=-1, c_type="int32_t"),),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="-inf stays -inf beside a finite value; a slice of -inf, one with +inf and one with "
    "NaN are NaN as a whole, as in softmax; offsets of any size cancel exactly",
    aliasing="elementwise",
    bound="log_softmax",
    source="ONNX LogSoftmax, opset 13",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
