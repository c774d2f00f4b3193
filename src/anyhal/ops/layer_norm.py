"""layer_norm(x, weight, bias, residual): the last axes brought to mean 0 and variance 1.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _norm
from anyhal.ops._checks import FLOATS, WIDE
from anyhal.ops._draw import Rng, one_of, shape, values
from anyhal.ops._oracle import wide
from anyhal.ops._spec import (
    Arg,
    Attr,
    LoweredOuts,
    OpSpec,
    Outs,
    Sample,
    TensorSpec,
    describe,
)
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    x, weight, bias, residual = inputs
    assert x is not None
    count = attrs["axes"]
    if not 1 <= count <= x.rank:
        raise InvalidArgumentError(
            f"layer_norm: axes={count} of {describe(x)}: it counts the last axes to normalise "
            f"over; pass 1..{x.rank}"
        )
    vectors = {"weight": weight, "bias": bias}
    return _norm.infer("layer_norm", x, residual, vectors, x.shape[-count:], "[N...]", attrs)


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    return list(inputs), {"axes": attrs["axes"], "eps": attrs["eps"]}, outs


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: tuple[Value | None, ...],
) -> None:
    (x, weight, bias, residual), (out, total) = inputs, outs
    assert x is not None and out is not None
    if out.spec.size == 0:
        for empty in (v for v in outs if v is not None):
            trace.zeros(empty)
        return
    axes = tuple(range(x.spec.rank - attrs["axes"], x.spec.rank))
    v = _norm.summed(trace, x, residual)
    scaled, floor = _norm.in_range(trace, v, axes, attrs["eps"], x.dtype.short)
    y = _norm.divided(trace, _norm.centred(trace, scaled, axes), axes, floor)
    _norm.finish(trace, y, weight, bias, out)
    if total is not None:
        trace.cast(v, total.dtype, out=total)


def reference(
    x: Any, weight: Any = None, bias: Any = None, residual: Any = None, *, eps: float, axes: int = 1
) -> Any:
    over = tuple(range(-axes, 0))
    with np.errstate(all="ignore"):
        t = _norm.reference_sum(x, residual)
        y = t
        if t.size:
            d = t - t.mean(axis=over, keepdims=True)
            variance = np.mean(d * d, axis=over, keepdims=True)
            y = d / np.sqrt(variance + t.dtype.type(np.float32(eps)))
        y = y if weight is None else y * wide(weight)
        y = y if bias is None else y + wide(bias)
    return y, None if residual is None else t


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    sample = partial(_norm.sample, 4)
    for name in FLOATS:
        np_type = dtype(name).numpy
        for dims, axes in (((1, 1), 1), ((3, 17), 1), ((2, 3, 4, 5), 2), ((2, 300), 1), ((7,), 1)):
            x, residual = (rng.standard_normal((2, *dims)) + 0.5).astype(np_type)
            weight, bias = rng.standard_normal((2, *dims[-axes:])).astype(np_type)
            attrs = {"eps": 1e-5, "axes": axes}
            yield sample(f"{list(dims)} over {axes} {name}", (x, weight, bias), attrs)
            full = (x, weight, bias, residual)
            yield sample(f"residual {list(dims)} over {axes} {name}", full, attrs)
        yield sample(f"plain {name}", (x,), {"eps": 1e-6})
        yield sample(f"bias alone {name}", (x, None, bias), {"eps": 1e-6})
        yield sample(f"residual alone {name}", (x, None, None, residual), {"eps": 1e-6})
        yield sample(f"large mean {name}", ((x + 50).astype(np_type),), {"eps": 1e-5})
    step = np.arange(16) * 1e-3
    for mean in (0, 100, 1000, 10000):  # one pass over squares cancels here
        yield sample(f"mean {mean}", ((mean + step).astype(np.float32)[None],), {"eps": 1e-5})
    far = np.array([[1, 2, 3, 4], [-3, 1, 0, 2], [3, 3, 3, 3]])
    for short, scale in (("f32", 1e30), ("f32", 8e37), ("f32", 1e-30), ("bf16", 1e30)):
        x = (scale * far).astype(dtype(short).numpy)
        yield sample(f"times {scale} {short}", (x,), {"eps": 1e-5})
    yield sample("tiny without eps", ((1e-30 * far[:2]).astype(np.float32),), {"eps": 0.0})
    yield sample("large f64", (1e300 * far[:2],), {"eps": 1e-5})
    nan = np.array([[1, np.nan, 2], [1, 2, 3], [np.inf, 1, 2]], np.float32)
    yield sample("NaN and infinity", (nan,), {"eps": 1e-5})
    yield sample("constant rows", (np.full((2, 5), 3, np.float32),), {"eps": 1e-5})
    yield sample("no rows", (nan[:0], None, None, nan[:0]), {"eps": 1e-5})


def random(rng: Rng) -> Sample:
    short, dims = one_of(rng, FLOATS), shape(rng, 1)
    axes = int(rng.integers(1, len(dims) + 1))
    weight, bias = (_norm.maybe(rng, dims[-axes:], short) for _ in range(2))
    residual = _norm.maybe(rng, dims, short, 0.3)
    attrs = {"eps": one_of(rng, [1e-5, 1e-3]), "axes": axes}
    return Sample("", (values(rng, dims, short), weight, bias, residual), attrs)


SPEC = OpSpec(
    id=23,
    name="layer_norm",
    since="0.1",
    summary="out = (t - mean(t)) / sqrt(var(t) + eps) * weight + bias over the last `axes` axes, "
    "of t = x + residual.",
    inputs=(
        Arg("x", "[..., N...]"),
        Arg("weight", "[N...]", optional=True),
        Arg("bias", "[N...]", optional=True),
        _norm.RESIDUAL,
    ),
    output=Arg("out", "[..., N...]"),
    more_outputs=(_norm.TOTAL,),
    attrs=(
        Attr("axes", "i64", default=1, c_type="int32_t", doc="how many of the last axes N... are"),
        _norm.EPS,
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="the variance is that of the population; equal values give the bias if eps > 0; NaN "
    "and infinities make their slice NaN; a mean far larger than the spread costs no digits; "
    f"{_norm.RANGE}",
    aliasing="elementwise",
    bound="layer_norm",
    source="Ba, Kiros and Hinton 2016 (arXiv 1607.06450); ONNX LayerNormalization, opset 17",
    infer=infer,
    lower=lower,
    cost=_norm.cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
