"""rms_norm(x, weight, residual): x divided by its root mean square along the last axis.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops import _norm
from anyhal.ops._checks import FLOATS, WIDE, check_dtype
from anyhal.ops._draw import Rng, one_of, shape, values
from anyhal.ops._oracle import wide
from anyhal.ops._spec import (
    Arg,
    LoweredOuts,
    OpSpec,
    Outs,
    Sample,
    TensorSpec,
    normalize_axis,
)
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    x, weight, residual = inputs
    assert x is not None
    check_dtype("rms_norm", "x", x, FLOATS)
    normalize_axis("rms_norm", -1, x)
    vectors = {"weight": weight}
    return _norm.infer("rms_norm", x, residual, vectors, x.shape[-1:], "[N]", attrs)


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    return list(inputs), {"eps": attrs["eps"]}, outs


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: tuple[Value | None, ...],
) -> None:
    (x, weight, residual), (out, total) = inputs, outs
    assert x is not None and out is not None
    if out.spec.size == 0:
        for empty in (v for v in outs if v is not None):
            trace.zeros(empty)
        return
    axes = (x.spec.rank - 1,)
    v = _norm.summed(trace, x, residual)
    scaled, floor = _norm.in_range(trace, v, axes, attrs["eps"], x.dtype.short)
    y = _norm.divided(trace, scaled, axes, floor)
    _norm.finish(trace, y, weight, None, out)
    if total is not None:
        trace.cast(v, total.dtype, out=total)


def reference(x: Any, weight: Any = None, residual: Any = None, *, eps: float) -> Any:
    with np.errstate(all="ignore"):
        t = _norm.reference_sum(x, residual)
        square = np.mean(t * t, axis=-1, keepdims=True) if t.size else t
        y = t / np.sqrt(square + t.dtype.type(np.float32(eps)))
        y = y if weight is None else y * wide(weight)
    return y, None if residual is None else t


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    sample = partial(_norm.sample, 3)
    for name in FLOATS:
        np_type = dtype(name).numpy
        for dims in ((1, 1), (3, 17), (2, 4, 576)):
            x, residual = rng.standard_normal((2, *dims)).astype(np_type)
            weight = rng.standard_normal(dims[-1:]).astype(np_type)
            yield sample(f"{list(dims)} {name}", (x, weight), {"eps": 1e-5})
            yield sample(f"residual {list(dims)} {name}", (x, weight, residual), {"eps": 1e-5})
        yield sample(f"no weight {name}", (x, None), {"eps": 1e-6})
        yield sample(f"residual alone {name}", (x, None, residual), {"eps": 1e-6})
        large, small = (1e30, 1e-30) if name in ("f32", "bf16") else (1e4, 1e-4)
        far = np.array([[1, 2, 3, 4], [-3, 1, 0, 2]])
        for scale, eps in ((large, 1e-5), (small, 1e-5), (small, 0.0)):
            x = (scale * far).astype(np_type)
            yield sample(f"times {scale} eps {eps} {name}", (x, None), {"eps": eps})
    zeros = np.zeros((2, 8), np.float32)
    yield sample("zeros", (zeros, zeros[0] + 1), {"eps": 1e-5})
    yield sample("zeros without eps", (zeros, None), {"eps": 0.0})
    nan = np.array([[1, np.nan, 2], [1, 2, 3], [np.inf, 1, 2]], np.float32)
    yield sample("NaN stays in its row", (nan, None), {"eps": 1e-5})
    yield sample("NaN in the residual", (nan[::-1].copy(), None, nan), {"eps": 1e-5})
    yield sample("no rows", (np.zeros((0, 4), np.float32), None), {"eps": 1e-5})
    yield sample("rows of nothing", (zeros[:, :0], None, zeros[:, :0]), {"eps": 1e-5})


def random(rng: Rng) -> Sample:
    short, dims = one_of(rng, FLOATS), shape(rng, 1)
    x, weight = values(rng, dims, short), _norm.maybe(rng, dims[-1:], short)
    return Sample("", (x, weight, _norm.maybe(rng, dims, short, 0.3)), {"eps": 1e-5})


SPEC = OpSpec(
    id=14,
    name="rms_norm",
    since="0.1",
    summary="out = t / sqrt(mean(t^2) + eps) * weight along the last axis, of t = x + residual.",
    inputs=(Arg("x", "[..., N]"), Arg("weight", "[N]", optional=True), _norm.RESIDUAL),
    output=Arg("out", "[..., N]"),
    more_outputs=(_norm.TOTAL,),
    attrs=(_norm.EPS,),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="a row of zeros gives zeros if eps > 0; NaN spreads over its row; an infinity makes "
    f"itself NaN and the rest of its row 0; rounded once at the end; {_norm.RANGE}",
    aliasing="elementwise",
    bound="rms_norm",
    source="Zhang and Sennrich 2019 (arXiv 1910.07467); ONNX RMSNormalization, opset 23",
    infer=infer,
    lower=lower,
    cost=_norm.cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
