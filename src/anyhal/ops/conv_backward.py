"""conv_backward(dout, x, w): the gradients of a convolution over one to three spatial axes.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _draw as draw
from anyhal.ops._checks import FLOATS, WIDE, check_dtype, check_same_dtype, check_shape
from anyhal.ops._gradient import dense
from anyhal.ops._oracle import wide
from anyhal.ops._spec import (
    Arg,
    Attr,
    LoweredOuts,
    OpSpec,
    Outs,
    Sample,
    Shape,
    TensorSpec,
    describe,
)
from anyhal.ops._trace import Trace, Value
from anyhal.records import record

NAME = "conv_backward"
SPATIAL_MAX = 3
# Elements of windows that stand side by side at a time, if one place has no more.
_COLUMNS_MAX = 1 << 22


@record
class Windows:
    """One number for each spatial axis: output o meets input o * stride - before + dilation * k."""

    kernel: Shape
    strides: Shape
    dilations: Shape
    before: Shape
    after: Shape
    sizes: Shape  # of the output

    def places(self, spatial: Shape) -> Any:
        """[kernel, output] as flat input places; what lies in the padding is the place behind."""
        taps, outs = math.prod(self.kernel), math.prod(self.sizes)
        flat, inside = np.zeros((taps, outs), np.int64), np.ones((taps, outs), bool)
        k, o = np.indices(self.kernel).reshape(-1, taps), np.indices(self.sizes).reshape(-1, outs)
        for a, n in enumerate(spatial):
            at = o[a] * self.strides[a] - self.before[a] + k[a][:, None] * self.dilations[a]
            flat = flat * n + at
            inside &= (at >= 0) & (at < n)
        return np.where(inside, flat, math.prod(spatial))


def _numbers(
    x: TensorSpec, attrs: Mapping[str, Any], name: str, lowest: int, per: int = 1
) -> Shape:
    count = per * (x.rank - 2)
    found = (lowest,) * count if attrs[name] is None else tuple(attrs[name])
    if len(found) != count or any(not lowest <= n < 2**31 for n in found):
        raise InvalidArgumentError(
            f"{NAME}: {name}={found} of x {describe(x)} must be {count} numbers from {lowest} to "
            "2^31 - 1; correct them"
        )
    return found


def windows(x: TensorSpec, kernel: Shape, attrs: Mapping[str, Any]) -> Windows:
    strides, dilations = (_numbers(x, attrs, name, 1) for name in ("strides", "dilations"))
    pads = _numbers(x, attrs, "pads", 0, 2)
    before, after = pads[: x.rank - 2], pads[x.rank - 2 :]
    sizes = []
    for a, n in enumerate(x.shape[2:]):
        room = n + before[a] + after[a] - (kernel[a] - 1) * dilations[a] - 1
        if kernel[a] < 1 or room < 0:
            raise InvalidArgumentError(
                f"{NAME}: kernel {list(kernel)} leaves the padded x {describe(x)} along spatial "
                f"axis {a}; pad more or use a smaller kernel"
            )
        sizes.append(room // strides[a] + 1)
    return Windows(kernel, strides, dilations, before, after, tuple(sizes))


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    dout, x, w = inputs
    assert dout is not None and x is not None and w is not None
    check_dtype(NAME, "x", x, FLOATS)
    check_same_dtype(NAME, x, w, dout)
    groups = attrs["groups"]
    if not 3 <= x.rank <= 2 + SPATIAL_MAX or w.rank != x.rank:
        raise InvalidArgumentError(
            f"{NAME}: x {describe(x)} and w {describe(w)} must be [N, C, S...] and "
            "[O, C/groups, K...] with one to three spatial axes; reshape them"
        )
    if groups < 1 or w.shape[0] % groups or w.shape[1] * groups != x.shape[1]:
        raise InvalidArgumentError(
            f"{NAME}: w {describe(w)} with groups={groups} does not fit x {describe(x)}: x needs "
            "C = groups * w's second size, and groups must divide w's first; correct one"
        )
    sizes = windows(x, w.shape[2:], attrs).sizes
    check_shape(NAME, "dout", dout, (x.shape[0], w.shape[0], *sizes), "[N, O, P...]")
    dbias = TensorSpec.dense(x.dtype, w.shape[:1]) if attrs["bias"] else None
    return dense(x), dense(w), dbias


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    x, w = inputs[1:]
    assert x is not None and w is not None
    at, rest = windows(x, w.shape[2:], attrs), SPATIAL_MAX + 2 - x.rank
    record = {
        "strides": at.strides + (1,) * rest,
        "dilations": at.dilations + (1,) * rest,
        "pads": at.before + (0,) * rest + at.after + (0,) * rest,
        "groups": attrs["groups"],
    }
    return list(inputs), record, outs


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
) -> tuple[float, float]:
    dout, x, w = inputs
    assert dout is not None and x is not None and w is not None
    flops = 4.0 * dout.size * math.prod(w.shape[1:])
    return flops, float(dout.nbytes + 2 * x.nbytes + 2 * w.nbytes)


def _solid(trace: Trace, x: Value, acc: str) -> Value:
    """x in the accumulation dtype, dense."""
    x = trace.cast(x, acc)
    return x if x.spec.is_dense else trace("copy", x)


def _spatial(flat: Value, sizes: Shape) -> Value:
    """[N, C, S + 1] without its last place, as [N, C, S...]."""
    x = flat.slice(2, 0, math.prod(sizes))
    for a, n in enumerate(sizes[:-1]):
        x = x.split(2 + a, n, math.prod(sizes[a + 1 :]))
    return x


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: Sequence[Value | None],
) -> None:
    dout, x, w = inputs
    dx, dw, dbias = outs
    assert dout is not None and x is not None and w is not None
    assert dx is not None and dw is not None
    acc = WIDE[x.dtype.short]
    if dbias is not None:
        axes = (0, *range(2, dout.spec.rank))
        total = trace("reduce", trace.cast(dout, acc), fn="sum", axis=axes)
        trace.cast(total, dbias.dtype, out=dbias)
    if 0 in (x.spec.size, w.spec.size, dout.spec.size):
        trace.zeros(dx)
        trace.zeros(dw)
        return
    # Input places side by side as a kernel meets them, with one place more that is all padding.
    held = trace.zeros(trace.temp((*x.shape[:2], math.prod(x.shape[2:]) + 1), acc))
    trace.cast(x, acc, out=_spatial(held, x.shape[2:]))
    back = trace.zeros(trace.temp(held.shape, acc))
    at = windows(x.spec, w.shape[2:], attrs)
    total = _accumulate(trace, dout, w, held, back, at.places(x.shape[2:]), attrs["groups"])
    trace.cast(total.reshape(*w.shape), dw.dtype, out=dw)
    trace.cast(_spatial(back, x.shape[2:]), dx.dtype, out=dx)


def _accumulate(
    trace: Trace, dout: Value, w: Value, held: Value, back: Value, table: Any, groups: int
) -> Value:
    """Adds dx into `back` and gives dw as [groups, O / groups, inner], a part at a time."""
    (batch, channels, _), (taps, places) = held.shape, table.shape
    features, inner = w.shape[0] // groups, w.shape[1] * taps
    acc = held.dtype.short
    d = _solid(trace, dout, acc).reshape(batch, groups, features, places)
    weights = _solid(trace, w, acc).reshape(groups, features, inner)
    entries = max(1, min(batch, _COLUMNS_MAX // (channels * taps * places)))
    width = max(1, min(places, _COLUMNS_MAX // (channels * taps)))
    total: Value | None = None
    for p in range(0, places, width):
        stop = min(p + width, places)
        index = trace.constant(table[:, p:stop].reshape(-1), "i64")
        for n in range(0, batch, entries):
            last = min(n + entries, batch)
            some, to = d.slice(3, p, stop).slice(0, n, last), back.slice(0, n, last)
            columns = trace("gather", held.slice(0, n, last), index, axis=2)
            columns = columns.reshape(some.shape[0], groups, inner, stop - p)
            part = trace("reduce", trace("matmul", some, columns.mT()), fn="sum", axis=0)
            total = part if total is None else trace.binary("add", total, part, out=total)
            spread = trace("matmul", weights.mT(), some)
            spread = spread.reshape(some.shape[0], channels, taps * (stop - p))
            trace("scatter_add", to, index, spread, axis=2, out=to)
    assert total is not None
    return total


def reference(
    dout: Any,
    x: Any,
    w: Any,
    *,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    groups: int = 1,
    bias: bool = True,
) -> tuple[Any, Any, Any]:
    given = {"strides": strides, "pads": pads, "dilations": dilations}
    at = windows(TensorSpec.dense(dtype(x.dtype), x.shape), w.shape[2:], given)
    d, weights = wide(dout), wide(w)
    edges = [(0, 0), (0, 0), *zip(at.before, at.after, strict=True)]
    padded = np.pad(wide(x), edges)
    inner = math.prod(w.shape[1:])
    dx, dw = np.zeros_like(padded), np.zeros((groups, w.shape[0] // groups, inner), padded.dtype)
    rows = weights.reshape(dw.shape)
    with np.errstate(all="ignore"):
        # A sum over no batch is 0, which einsum leaves unwritten.
        for place in np.ndindex(at.sizes if x.shape[0] else (0,)):
            window = tuple(
                slice(o * s, o * s + (k - 1) * e + 1, e)
                for o, s, k, e in zip(place, at.strides, at.kernel, at.dilations, strict=True)
            )
            here = (slice(None), slice(None), *window)
            patch = padded[here]
            flat = patch.reshape(x.shape[0], groups, inner)
            some = d[(slice(None), slice(None), *place)].reshape(x.shape[0], *dw.shape[:2])
            dw += np.einsum("ngo,ngi->goi", some, flat)
            dx[here] += np.einsum("ngo,goi->ngi", some, rows).reshape(patch.shape)
        inside = tuple(slice(b, b + n) for b, n in zip(at.before, x.shape[2:], strict=True))
        dbias = d.sum(axis=(0, *range(2, d.ndim))) if bias else None
        return dx[(slice(None), slice(None), *inside)], dw.reshape(w.shape), dbias


def _sample(
    rng: np.random.Generator, short: str, x: Shape, w: Shape, attrs: Mapping[str, Any]
) -> tuple[Any, Any, Any]:
    np_type = dtype(short).numpy
    full = {a.name: attrs.get(a.name, a.default) for a in SPEC.attrs}
    sizes = windows(TensorSpec.dense(dtype(short), x), w[2:], full).sizes
    shapes = ((x[0], w[0], *sizes), x, w)
    d, a, b = (rng.standard_normal(s).astype(np_type) for s in shapes)
    return d, a, b


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    cases: list[tuple[str, Shape, Shape, dict[str, Any]]] = [
        ("1-d", (2, 3, 9), (4, 3, 3), {}),
        ("2-d", (2, 4, 5, 6), (6, 2, 3, 2), {"groups": 2, "pads": (1, 0, 2, 1)}),
        ("3-d", (1, 2, 3, 4, 3), (2, 2, 2, 2, 1), {"strides": (1, 2, 1), "bias": False}),
        ("depthwise", (3, 4, 7), (4, 1, 3), {"groups": 4, "dilations": (2,), "strides": (2,)}),
        ("pointwise", (2, 3, 4, 4), (5, 3, 1, 1), {}),
    ]
    for short in FLOATS:
        for label, x, w, attrs in cases:
            yield Sample(f"{label} {short}", _sample(rng, short, x, w, attrs), attrs)
    for label, x, w in (("batch", (0, 3, 9), (4, 3, 3)), ("feature", (2, 3, 9), (0, 3, 3))):
        yield Sample(f"no {label}", _sample(rng, "f32", x, w, {}), {})
    yield Sample("no channel", _sample(rng, "f32", (2, 0, 9), (4, 0, 3), {}), {})
    d, x, w = _sample(rng, "f32", (1, 1, 5), (1, 1, 3), {"pads": (1, 1)})
    x[0, 0, 2] = np.nan
    yield Sample("NaN in x", (d, x, w), {"pads": (1, 1)})


def random(rng: draw.Rng) -> Sample:
    count, groups = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    kernel, strides, dilations = (rng.integers(1, 4, count) for _ in range(3))
    pads = rng.integers(0, 3, 2 * count)
    spatial = (kernel - 1) * dilations + rng.integers(1, 5, count)
    x = (int(rng.integers(0, 4)), groups * int(rng.integers(1, 3)), *map(int, spatial))
    w = (groups * int(rng.integers(1, 3)), x[1] // groups, *map(int, kernel))
    attrs = {
        "strides": tuple(map(int, strides)),
        "pads": tuple(map(int, pads)),
        "dilations": tuple(map(int, dilations)),
        "groups": groups,
        "bias": bool(rng.integers(2)),
    }
    return Sample("", _sample(rng, draw.one_of(rng, FLOATS), x, w, attrs), attrs)


_EACH = "one number for each spatial axis; 1 by default"
SPEC = OpSpec(
    id=89,
    name=NAME,
    since="0.1",
    summary="Of out[n, o, p] = sum over c, k of x[n, c, p * stride - before + dilation * k] * "
    "w[o, c, k] + bias[o], with the channels of o's group: the gradients for x, w and bias.",
    inputs=(
        Arg("dout", "[N, O, P...]"),
        Arg("x", "[N, C, S...]", doc="one to three spatial axes"),
        Arg("w", "[O, C/groups, K...]"),
    ),
    output=Arg("dx", "[N, C, S...]"),
    more_outputs=(
        Arg("dw", "[O, C/groups, K...]", bound="conv_backward_weight"),
        Arg("dbias", "[O]", doc="with bias", bound="conv_backward_bias"),
    ),
    attrs=(
        Attr("strides", "ints", default=None, c_type="int32_t", c_count=3, doc=_EACH),
        Attr(
            "pads",
            "ints",
            default=None,
            c_type="int32_t",
            c_count=6,
            doc="elements before each spatial axis, then elements after each; 0 by default",
        ),
        Attr("dilations", "ints", default=None, c_type="int32_t", c_count=3, doc=_EACH),
        Attr("groups", "i64", default=1, c_type="int32_t", doc="divides C and O"),
        Attr("bias", "bool", default=True, doc="also give dbias"),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="padding is zeros, which take part in dw (0 times an infinite dout is NaN); rounded "
    "once at the end",
    aliasing="none",
    bound=NAME,
    source="the derivative of ONNX Conv, opset 22",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
