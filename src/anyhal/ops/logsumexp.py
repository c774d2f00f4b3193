"""logsumexp(x, axis): the logarithm of the sum of exponentials over whole axes.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._checks import FLOATS, WIDE, check_dtype, normalize_axes
from anyhal.ops._draw import Rng, one_of, shape, values
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (x,) = inputs
    assert x is not None
    check_dtype("logsumexp", "x", x, FLOATS)
    axes = normalize_axes("logsumexp", attrs["axis"], x)
    kept = [1 if i in axes else n for i, n in enumerate(x.shape)]
    if not attrs["keepdims"]:
        kept = [n for i, n in enumerate(kept) if i not in axes]
    return TensorSpec.dense(x.dtype, kept)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    (x,) = inputs
    assert x is not None
    axes = normalize_axes("logsumexp", attrs["axis"], x)
    if not attrs["keepdims"]:
        for axis in axes:
            out = out.expand_dims(axis)
    return [x], {"axis": axes}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    (x,) = inputs
    assert x is not None
    return 4.0 * x.size, float(x.nbytes + out.nbytes)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    (x,) = inputs
    assert x is not None
    if x.spec.size == 0:
        nothing = -np.inf if out.spec.size else 0
        trace("fill", trace.constant(nothing, out.dtype), out=out)
        return
    axes = normalize_axes("logsumexp", attrs["axis"], x.spec)
    over = axes or None  # of a 0-d x
    v = trace.cast(x, WIDE[x.dtype.short])
    top = trace("reduce", v, fn="max", axis=over, keepdims=True)
    # An infinite maximum is not subtracted from itself: exp gives 0 or infinity, which is right.
    finite, zero = trace.unary("isfinite", top), trace.constant(0, v.dtype)
    shift = trace("where", finite, top, zero)
    e = trace.unary("exp", trace.binary("subtract", v, shift))
    log = trace.unary("log", trace("reduce", e, fn="sum", axis=over, keepdims=True))
    if not attrs["keepdims"]:
        for axis in axes:
            out = out.expand_dims(axis)
    if out.dtype == v.dtype:
        trace.binary("add", log, shift, out=out)
    else:
        trace.cast(trace.binary("add", log, shift), out.dtype, out=out)


def reference(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    v = wide(x)
    with np.errstate(all="ignore"):
        top = v.max(axis=axis, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0)
        total = np.log(np.exp(v - top).sum(axis=axis, keepdims=True)) + top
        return total if keepdims else total.reshape(np.sum(v, axis=axis).shape)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    layouts: tuple[tuple[tuple[int, ...], Any], ...] = (
        ((1,), None),
        ((3, 17), -1),
        ((4, 5, 6), (0, 2)),
        ((2, 300), None),
        ((3, 0), 1),
        ((0, 3), 1),
    )
    for name in FLOATS:
        np_type = dtype(name).numpy
        for dims, axis in layouts:
            x = (4 * rng.standard_normal(dims)).astype(np_type)
            yield Sample(f"{list(dims)} axis {axis} {name}", (x,), {"axis": axis})
    inf = np.float32(np.inf)
    rows = [[-inf] * 3, [inf, 1, -inf], [0, -inf, 1], [1e4, 1e4, 0], [np.nan, 0, inf]]
    attrs = {"axis": -1, "keepdims": True}
    yield Sample("special rows", (np.array(rows, np.float32),), attrs)
    yield Sample("near zero", (np.full((1, 4), -np.log(4), np.float32),), attrs)
    yield Sample("0-d", (np.array(-2.5, np.float32),), {})


def random(rng: Rng) -> Sample:
    x = values(rng, shape(rng, 1), one_of(rng, FLOATS), 5)
    axes = tuple(a for a in range(x.ndim) if rng.random() < 0.5) or None
    return Sample("", (x,), {"axis": axes, "keepdims": bool(rng.integers(2))})


SPEC = OpSpec(
    id=22,
    name="logsumexp",
    since="0.1",
    summary="out = log(sum(exp(x))) over the axes of `axis`, without overflow.",
    inputs=(Arg("x", "[...]"),),
    output=Arg("out", "[...] without the reduced axes, or with 1 there"),
    attrs=(
        Attr(
            "axis",
            "axes",
            default=None,
            c_type="uint64_t",
            c_name="axes",
            doc="None for all axes, one axis or a tuple",
        ),
        Attr("keepdims", "bool", default=False, doc="keep the reduced axes with size 1"),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="over nothing and over -inf alone it is -inf; +inf gives +inf; NaN spreads",
    aliasing="none",
    bound="logsumexp",
    source="ONNX ReduceLogSumExp, opset 18",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
