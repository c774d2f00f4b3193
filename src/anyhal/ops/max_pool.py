"""max_pool(x, kernel, strides): the largest element of each window.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops import _draw
from anyhal.ops._checks import NUMBERS
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Lowered, OpSpec, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value
from anyhal.ops._window import (
    POOL_ATTRS,
    infer_pool,
    padded,
    pool_record,
    pool_windows,
    random_pool,
    view,
)


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (x,) = inputs
    assert x is not None
    return infer_pool("max_pool", x, attrs, NUMBERS)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    (x,) = inputs
    assert x is not None
    return [x], pool_record("max_pool", x, attrs), out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    (x,) = inputs
    assert x is not None
    return float(out.size * math.prod(attrs["kernel"])), float(x.nbytes + out.nbytes)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    (x,) = inputs
    assert x is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    at = pool_windows("max_pool", x.spec, attrs)
    lowest = -np.inf if x.dtype.kind == "float" else np.iinfo(x.dtype.numpy).min
    looks = view(padded(trace, x, at, lowest), at, kernel_last=True)
    axes = tuple(range(x.spec.rank, looks.spec.rank))
    trace("reduce", looks, fn="max", axis=axes, out=out)


def reference(
    x: Any,
    *,
    kernel: Any,
    strides: Any,
    pads: Any = None,
    dilations: Any = None,
    ceil_mode: bool = False,
) -> Any:
    given = {
        "kernel": kernel,
        "strides": strides,
        "pads": pads,
        "dilations": dilations,
        "ceil_mode": ceil_mode,
    }
    at = pool_windows("max_pool", TensorSpec.dense(dtype("f32"), x.shape), given)
    values, none = wide(x), (0,) * len(at.kernel)
    inside = at.inside(x.shape[2:], none, none)
    out = np.zeros((*x.shape[:2], *at.sizes), values.dtype)
    for place in np.ndindex(at.sizes):
        # Only elements that are there are looked at, so padding cannot win.
        seen = values
        for a, o in enumerate(place):
            first = o * at.strides[a] - at.before[a]
            taken = [first + int(k) * at.dilations[a] for k in np.flatnonzero(inside[a][o])]
            seen = np.take(seen, taken, axis=2 + a)
        out[(slice(None), slice(None), *place)] = seen.max(axis=tuple(range(2, x.ndim)))
    return out


_LAYOUTS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 9), {"kernel": (3,), "strides": (2,)}),
    ((2, 3, 7), {"kernel": (2,), "strides": (2,), "pads": (1, 0), "ceil_mode": True}),
    ((1, 2, 6), {"kernel": (2,), "strides": (3,), "pads": (1, 1), "ceil_mode": True}),
    (
        (2, 1, 7, 6),
        {"kernel": (3, 2), "strides": (1, 2), "pads": (1, 0, 0, 1), "dilations": (1, 3)},
    ),
    ((1, 2, 4, 3, 5), {"kernel": (2, 3, 2), "strides": (2, 1, 3), "ceil_mode": True}),
)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in NUMBERS:
        for shape, attrs in _LAYOUTS:
            x = _draw.values(rng, shape, short) - np.asarray(5).astype(dtype(short).numpy)
            yield Sample(f"{list(shape)} {attrs} {short}", (x.astype(dtype(short).numpy),), attrs)
    x = np.full((1, 1, 8), -np.inf, np.float32)
    x[0, 0, 3], x[0, 0, 6], x[0, 0, 7] = np.nan, np.inf, -0.0
    attrs = {"kernel": (2,), "strides": (1,), "pads": (1, 1)}
    yield Sample("NaN and infinities", (x,), attrs)
    yield Sample("no batch", (x[:0],), attrs)


def random(rng: _draw.Rng) -> Sample:
    shape, attrs = random_pool(rng)
    return Sample("", (_draw.values(rng, shape, _draw.one_of(rng, NUMBERS)),), attrs)


SPEC = OpSpec(
    id=42,
    name="max_pool",
    since="0.2",
    summary="out[n, c, p] = max over k of x[n, c, p * stride - before + dilation * k].",
    inputs=(Arg("x", "[N, C, S...]", doc="one to three spatial axes"),),
    output=Arg("out", "[N, C, P...]", doc="P = (S + pads - (K - 1) * dilation - 1) // stride + 1"),
    attrs=POOL_ATTRS,
    dtypes={name: name for name in NUMBERS},
    special="NaN if any is NaN; padding never wins; a window that lies in the padding alone is an "
    "error",
    aliasing="none",
    bound="selection",
    source="ONNX MaxPool, opset 22, values only",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
