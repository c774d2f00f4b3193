"""group_norm(x, weight, bias, residual): channels in groups brought to mean 0 and variance 1.
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
    groups = attrs["groups"]
    if x.rank < 2 or groups < 1 or x.shape[1] % groups:
        raise InvalidArgumentError(
            f"group_norm: x {describe(x)} in {groups} groups: axis 1 holds the channels, and the "
            "groups must divide them; reshape x or change groups"
        )
    vectors = {"weight": weight, "bias": bias}
    return _norm.infer("group_norm", x, residual, vectors, x.shape[1:2], "[C]", attrs)


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    return list(inputs), {"groups": attrs["groups"], "eps": attrs["eps"]}, outs


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
    groups, channels = attrs["groups"], x.shape[1]

    def grouped(v: Value | None, axis: int) -> Value | None:
        return None if v is None else v.split(axis, groups, channels // groups)

    split_x, split_out = grouped(x, 1), grouped(out, 1)
    assert split_x is not None and split_out is not None
    vectors = [grouped(v, 0) for v in (weight, bias)]
    for _ in range(x.spec.rank - 2):
        vectors = [None if v is None else v.expand_dims(v.spec.rank) for v in vectors]
    axes = tuple(range(2, x.spec.rank + 1))
    v = _norm.summed(trace, split_x, grouped(residual, 1))
    scaled, floor = _norm.in_range(trace, v, axes, attrs["eps"], x.dtype.short)
    y = _norm.divided(trace, _norm.centred(trace, scaled, axes), axes, floor)
    _norm.finish(trace, y, vectors[0], vectors[1], split_out)
    split_total = grouped(total, 1)
    if split_total is not None:
        trace.cast(v, split_total.dtype, out=split_total)


def reference(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    residual: Any = None,
    *,
    groups: int,
    eps: float,
) -> Any:
    with np.errstate(all="ignore"):
        t = _norm.reference_sum(x, residual)
        y = np.zeros_like(t)
        width = t.shape[1] // groups
        for g in range(groups if t.size else 0):
            part = t[:, g * width : (g + 1) * width].reshape(t.shape[0], -1)
            d = part - part.mean(axis=1, keepdims=True)
            variance = np.mean(d * d, axis=1, keepdims=True)
            d = d / np.sqrt(variance + t.dtype.type(np.float32(eps)))
            y[:, g * width : (g + 1) * width] = d.reshape(t.shape[0], width, *t.shape[2:])
        channel = (-1, *(1,) * (t.ndim - 2))
        y = y if weight is None else y * wide(weight).reshape(channel)
        y = y if bias is None else y + wide(bias).reshape(channel)
    return y, None if residual is None else t


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    sample = partial(_norm.sample, 4)
    for name in FLOATS:
        np_type = dtype(name).numpy
        for dims, groups in (((2, 6, 5), 3), ((1, 4, 3, 7), 1), ((3, 8), 2), ((2, 4, 2, 2, 3), 4)):
            x, residual = (rng.standard_normal((2, *dims)) + 0.5).astype(np_type)
            weight, bias = rng.standard_normal((2, dims[1])).astype(np_type)
            attrs = {"groups": groups, "eps": 1e-5}
            yield sample(f"{list(dims)} in {groups} {name}", (x, weight, bias), attrs)
            full = (x, weight, bias, residual)
            yield sample(f"residual {list(dims)} in {groups} {name}", full, attrs)
        yield sample(f"plain {name}", (x,), {"groups": 2, "eps": 1e-5})
    x = (1e30 * np.arange(1, 25).reshape(1, 4, 6)).astype(np.float32)
    yield sample("large", (x,), {"groups": 2, "eps": 1e-5})
    x = (1e4 + 1e-3 * np.arange(16).reshape(1, 2, 8)).astype(np.float32)
    yield sample("large mean", (x,), {"groups": 1, "eps": 1e-5})
    x = np.ones((1, 4, 2), np.float32)
    x[0, 3, 1] = np.nan
    yield sample("NaN stays in its group", (x,), {"groups": 2, "eps": 1e-5})
    yield sample("nothing", (x[:, :, :0],), {"groups": 2, "eps": 1e-5})


def random(rng: Rng) -> Sample:
    short, groups = one_of(rng, FLOATS), int(rng.integers(1, 5))
    channels = groups * int(rng.integers(1, 5))
    inner = tuple(size(rng, 9) for _ in range(int(rng.integers(0, 3))))
    dims = (int(rng.integers(0, 4)), channels, *inner)
    weight, bias = (_norm.maybe(rng, (channels,), short) for _ in range(2))
    residual = _norm.maybe(rng, dims, short, 0.3)
    attrs = {"groups": groups, "eps": 1e-5}
    return Sample("", (values(rng, dims, short), weight, bias, residual), attrs)


SPEC = OpSpec(
    id=24,
    name="group_norm",
    since="0.1",
    summary="out = (t - mean(t)) / sqrt(var(t) + eps) * weight + bias, of t = x + residual; mean "
    "and var over C / groups channels and all that follows.",
    inputs=(
        Arg("x", "[N, C, ...]"),
        Arg("weight", "[C]", optional=True),
        Arg("bias", "[C]", optional=True),
        _norm.RESIDUAL,
    ),
    output=Arg("out", "[N, C, ...]"),
    more_outputs=(_norm.TOTAL,),
    attrs=(
        Attr("groups", "i64", c_type="int32_t", doc="a divisor of C; C gives instance norm"),
        _norm.EPS,
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="as layer_norm within each group: population variance, NaN and infinities stay in "
    f"their group; {_norm.RANGE}",
    aliasing="elementwise",
    bound="group_norm",
    source="Wu and He 2018 (arXiv 1803.08494); ONNX GroupNormalization, opset 21",
    infer=infer,
    lower=lower,
    cost=_norm.cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
