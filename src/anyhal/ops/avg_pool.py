"""avg_pool(x, kernel, strides, count_include_pad): the mean of each window.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops import _draw
from anyhal.ops._checks import FLOATS, WIDE
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value
from anyhal.ops._window import (
    POOL_ATTRS,
    Windows,
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
    return infer_pool("avg_pool", x, attrs, FLOATS)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    (x,) = inputs
    assert x is not None
    record = pool_record("avg_pool", x, attrs)
    return [x], {**record, "count_include_pad": attrs["count_include_pad"]}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    (x,) = inputs
    assert x is not None
    return float(out.size * math.prod(attrs["kernel"])), float(x.nbytes + out.nbytes)


def _counts(at: Windows, sizes: Sequence[int], with_pads: bool) -> Any:
    """How many elements each window counts; what ceil_mode adds past the pads never does."""
    none = (0,) * len(sizes)
    inside = at.inside(sizes, *((at.before, at.after) if with_pads else (none, none)))
    found = np.ones((), np.int64)
    for each in inside:
        found = found[..., None] * each.sum(axis=1)
    return found


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    (x,) = inputs
    assert x is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    at, acc = pool_windows("avg_pool", x.spec, attrs), WIDE[x.dtype.short]
    counts = _counts(at, x.shape[2:], attrs["count_include_pad"])
    if (counts == counts.flat[0]).all():
        counts = counts.flat[0]
    looks = view(padded(trace, trace.cast(x, acc), at, 0), at, kernel_last=True)
    total = trace("reduce", looks, fn="sum", axis=tuple(range(x.spec.rank, looks.spec.rank)))
    if out.dtype == total.dtype:
        trace.binary("divide", total, trace.constant(counts, acc), out=out)
    else:
        trace.cast(trace.binary("divide", total, trace.constant(counts, acc)), out.dtype, out=out)


def reference(
    x: Any,
    *,
    kernel: Any,
    strides: Any,
    count_include_pad: bool,
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
    at = pool_windows("avg_pool", TensorSpec.dense(dtype("f32"), x.shape), given)
    values = wide(x)
    out = np.zeros((*x.shape[:2], *at.sizes), values.dtype)
    for place in np.ndindex(at.sizes):
        seen, count = values, 1
        for a, o in enumerate(place):
            first = o * at.strides[a] - at.before[a]
            taps = [first + k * at.dilations[a] for k in range(at.kernel[a])]
            real = [t for t in taps if 0 <= t < x.shape[2 + a]]
            last = x.shape[2 + a] + at.after[a]
            count *= sum(t < last for t in taps) if count_include_pad else len(real)
            seen = np.take(seen, real, axis=2 + a)
        with np.errstate(all="ignore"):
            total = seen.sum(axis=tuple(range(2, x.ndim)))
            out[(slice(None), slice(None), *place)] = total / count
    return out


_LAYOUTS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 9), {"kernel": (3,), "strides": (2,)}),
    ((2, 3, 7), {"kernel": (2,), "strides": (2,), "pads": (1, 0), "ceil_mode": True}),
    ((1, 2, 6), {"kernel": (3,), "strides": (2,), "pads": (1, 1), "ceil_mode": True}),
    (
        (2, 1, 7, 6),
        {"kernel": (3, 2), "strides": (1, 2), "pads": (1, 0, 0, 1), "dilations": (1, 3)},
    ),
    ((1, 2, 4, 3, 5), {"kernel": (2, 3, 2), "strides": (2, 1, 3), "ceil_mode": True}),
    ((1, 2, 5, 5), {"kernel": (5, 5), "strides": (1, 1)}),
)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in FLOATS:
        for shape, attrs in _LAYOUTS:
            x = _draw.values(rng, shape, short)
            for include in (False, True):
                full = {**attrs, "count_include_pad": include}
                yield Sample(f"{list(shape)} {full} {short}", (x,), full)
    x = np.ones((1, 1, 8), np.float32)
    x[0, 0, 3], x[0, 0, 5], x[0, 0, 7] = np.nan, np.inf, -np.inf
    attrs = {"kernel": (2,), "strides": (1,), "pads": (1, 1), "count_include_pad": True}
    yield Sample("NaN and infinities", (x,), attrs)
    yield Sample("no batch", (x[:0],), attrs)


def random(rng: _draw.Rng) -> Sample:
    shape, attrs = random_pool(rng)
    attrs["count_include_pad"] = bool(rng.integers(2))
    return Sample("", (_draw.values(rng, shape, _draw.one_of(rng, FLOATS)),), attrs)


SPEC = OpSpec(
    id=43,
    name="avg_pool",
    since="0.2",
    summary="out[n, c, p] = mean over k of x[n, c, p * stride - before + dilation * k].",
    inputs=(Arg("x", "[N, C, S...]", doc="one to three spatial axes"),),
    output=Arg("out", "[N, C, P...]", doc="P = (S + pads - (K - 1) * dilation - 1) // stride + 1"),
    attrs=(
        *POOL_ATTRS,
        Attr(
            "count_include_pad",
            "bool",
            c_type="int32_t",
            doc="whether padding counts as zeros; what ceil_mode adds past the pads never does",
        ),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="NaN spreads over its windows; a window that lies in the padding alone is an error; "
    "rounded once at the end",
    aliasing="none",
    bound="avg_pool",
    source="ONNX AveragePool, opset 22",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
