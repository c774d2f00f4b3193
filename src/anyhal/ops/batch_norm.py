"""batch_norm(x, mean, variance, weight, bias, residual): channels by statistics that are given.
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
from anyhal.ops._draw import Rng, one_of, size, values
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, LoweredOuts, OpSpec, Outs, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    x, mean, variance, weight, bias, residual = inputs
    assert x is not None
    if x.rank < 2:
        raise InvalidArgumentError(
            f"batch_norm: x is {describe(x)} but needs two dims or more, [N, C, ...]; reshape it"
        )
    vectors = {"mean": mean, "variance": variance, "weight": weight, "bias": bias}
    return _norm.infer("batch_norm", x, residual, vectors, x.shape[1:2], "[C]", attrs)


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    return list(inputs), {"eps": attrs["eps"]}, outs


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: tuple[Value | None, ...],
) -> None:
    (x, mean, variance, weight, bias, residual), (out, total) = inputs, outs
    assert x is not None and mean is not None and variance is not None and out is not None
    if out.spec.size == 0:
        for empty in (v for v in outs if v is not None):
            trace.zeros(empty)
        return
    acc = WIDE[x.dtype.short]

    def channel(vector: Value) -> Value:
        for _ in range(x.spec.rank - 2):
            vector = vector.expand_dims(vector.spec.rank)
        return trace.cast(vector, acc)

    v = _norm.summed(trace, x, residual)
    floor = trace.constant(np.float32(attrs["eps"]), acc)
    factor = trace.unary("rsqrt", trace.binary("add", channel(variance), floor))
    y = trace.binary("multiply", trace.binary("subtract", v, channel(mean)), factor)
    _norm.finish(
        trace,
        y,
        None if weight is None else channel(weight),
        None if bias is None else channel(bias),
        out,
    )
    if total is not None:
        trace.cast(v, total.dtype, out=total)


def reference(
    x: Any,
    mean: Any,
    variance: Any,
    weight: Any = None,
    bias: Any = None,
    residual: Any = None,
    *,
    eps: float,
) -> Any:
    def channel(v: Any) -> Any:
        return wide(v).reshape(-1, *(1,) * (x.ndim - 2))

    with np.errstate(all="ignore"):
        t = _norm.reference_sum(x, residual)
        y = t - channel(mean)
        y = y / np.sqrt(channel(variance) + t.dtype.type(np.float32(eps)))
        y = y if weight is None else y * channel(weight)
        y = y if bias is None else y + channel(bias)
    return y, None if residual is None else t


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    sample = partial(_norm.sample, 6)
    for name in FLOATS:
        np_type = dtype(name).numpy
        for dims in ((2, 3), (2, 5, 7), (1, 4, 3, 7), (2, 3, 2, 2, 2)):
            x, residual = rng.standard_normal((2, *dims)).astype(np_type)
            mean, weight, bias = rng.standard_normal((3, dims[1])).astype(np_type)
            variance = rng.uniform(0.1, 4, dims[1]).astype(np_type)
            stats = (x, mean, variance)
            yield sample(f"{list(dims)} {name}", (*stats, weight, bias), {"eps": 1e-5})
            full = (*stats, weight, bias, residual)
            yield sample(f"residual {list(dims)} {name}", full, {"eps": 1e-5})
        yield sample(f"plain {name}", stats, {"eps": 1e-3})
        yield sample(f"bias alone {name}", (*stats, None, bias), {"eps": 1e-3})
    x = np.array([[1, np.nan, 2], [np.inf, 1, 3]], np.float32)
    statistics = (np.array([1, 0, 2], np.float32), np.array([0, 1, -1], np.float32))
    yield sample("no variance, NaN, negative variance", (x, *statistics), {"eps": 0.0})
    yield sample("no rows", (x[:0], *statistics), {"eps": 1e-5})


def random(rng: Rng) -> Sample:
    short, channels = one_of(rng, FLOATS), size(rng, 17)
    inner = tuple(size(rng, 9) for _ in range(int(rng.integers(0, 3))))
    dims = (int(rng.integers(0, 4)), channels, *inner)
    mean, variance = values(rng, (channels,), short), values(rng, (channels,), short)
    weight, bias = (_norm.maybe(rng, (channels,), short) for _ in range(2))
    residual = _norm.maybe(rng, dims, short, 0.3)
    inputs = (values(rng, dims, short), mean, np.abs(variance), weight, bias, residual)
    return Sample("", inputs, {"eps": 1e-3})


SPEC = OpSpec(
    id=25,
    name="batch_norm",
    since="0.1",
    summary="out = (x + residual - mean) / sqrt(variance + eps) * weight + bias, channel by "
    "channel, with the statistics of training.",
    inputs=(
        Arg("x", "[N, C, ...]"),
        Arg("mean", "[C]"),
        Arg("variance", "[C]"),
        Arg("weight", "[C]", optional=True),
        Arg("bias", "[C]", optional=True),
        _norm.RESIDUAL,
    ),
    output=Arg("out", "[N, C, ...]"),
    more_outputs=(_norm.TOTAL,),
    attrs=(_norm.EPS,),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="inference only: no statistics are updated; a negative variance + eps gives NaN, 0 an "
    f"infinity or NaN; {_norm.RANGE}",
    aliasing="elementwise",
    bound="batch_norm",
    source="Ioffe and Szegedy 2015 (arXiv 1502.03167); ONNX BatchNormalization, opset 15",
    infer=infer,
    lower=lower,
    cost=_norm.cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
