"""conv_transpose(x, w, bias): each element of x spreads a weighted kernel over the output.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _draw
from anyhal.ops._checks import (
    FLOATS,
    WIDE,
    check_dtype,
    check_rank,
    check_same_dtype,
    check_shape,
)
from anyhal.ops._indexing import dense
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, Shape, TensorSpec, describe
from anyhal.ops._trace import Trace, Value
from anyhal.ops._window import DILATIONS, PADS, STRIDES, Windows, check_spatial, every, per_axis
from anyhal.ops.conv import finish


def _geometry(
    x: TensorSpec, kernel: Sequence[int], attrs: Mapping[str, Any]
) -> tuple[Windows, Shape]:
    """The windows of the convolution that this one transposes (its output is x here), and the
    output's spatial sizes."""
    count, op = check_spatial("conv_transpose", x), "conv_transpose"
    sizes = per_axis(op, x, "kernel", kernel, count, 1, 1)
    strides = per_axis(op, x, "strides", attrs["strides"], count, 1, 1)
    dilations = per_axis(op, x, "dilations", attrs["dilations"], count, 1, 1)
    pads = per_axis(op, x, "pads", attrs["pads"], 2 * count, 0, 0)
    more = per_axis(op, x, "output_padding", attrs["output_padding"], count, 0, 0)
    at = Windows(sizes, strides, dilations, pads[:count], pads[count:], x.shape[2:])
    out = tuple(
        max(e, 0) - b - a + m
        for e, b, a, m in zip(at.extents, at.before, at.after, more, strict=True)
    )
    for axis, (n, m) in enumerate(zip(out, more, strict=True)):
        if m >= max(strides[axis], dilations[axis]):
            raise InvalidArgumentError(
                f"conv_transpose: output_padding={more} of x {describe(x)} must be below stride or "
                f"dilation on spatial axis {axis}, {strides[axis]} and {dilations[axis]}; lower it"
            )
        if n < 1:
            raise InvalidArgumentError(
                f"conv_transpose: spatial axis {axis} of x {describe(x)} would have {n} elements "
                f"between pads {at.before[axis]} and {at.after[axis]}; cut off less"
            )
    return at, out


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    x, w, bias = inputs
    assert x is not None and w is not None
    check_dtype("conv_transpose", "x", x, FLOATS)
    check_same_dtype("conv_transpose", *(s for s in inputs if s is not None))
    check_spatial("conv_transpose", x)
    check_rank("conv_transpose", "w", w, x.rank, "[C, O/groups, kernel...]")
    groups, channels = attrs["groups"], x.shape[1]
    if groups < 1 or channels % groups or w.shape[0] != channels:
        raise InvalidArgumentError(
            f"conv_transpose: w {describe(w)} with groups={groups} does not fit x {describe(x)}: "
            "w's first size must be C, and groups must divide it; correct one"
        )
    features = w.shape[1] * groups
    if bias is not None:
        check_shape("conv_transpose", "bias", bias, (features,), "[O]")
    _, sizes = _geometry(x, w.shape[2:], attrs)
    return TensorSpec.dense(x.dtype, (x.shape[0], features, *sizes))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    x, w, _ = inputs
    assert x is not None and w is not None
    at, _ = _geometry(x, w.shape[2:], attrs)
    return list(inputs), {**at.record(), "groups": attrs["groups"]}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    x, w = inputs[0], inputs[1]
    assert x is not None and w is not None
    flops = 2.0 * x.size * math.prod(w.shape[1:])
    return flops, float(x.nbytes + w.nbytes + out.nbytes)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    x, w, bias = inputs
    assert x is not None and w is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    at, sizes = _geometry(x.spec, w.shape[2:], attrs)
    acc, groups = WIDE[x.dtype.short], attrs["groups"]
    # Long enough for every tap, for what is cut off, and for the output.
    extents = [max(e, b + n) for e, b, n in zip(at.extents, at.before, sizes, strict=True)]
    whole = trace.zeros(trace.temp((*out.shape[:2], *extents), acc))
    if x.spec.size:
        _spread(trace, x, w, at, groups, whole)
    ones = (1,) * len(sizes)
    result = every(whole, at.before, ones, sizes)
    if bias is not None:
        wide_bias = trace.cast(bias, acc)
        for _ in sizes:
            wide_bias = wide_bias.expand_dims(wide_bias.spec.rank)
        direct = out if out.dtype.short == acc else None
        result = trace.binary("add", result, wide_bias, out=direct)
        if direct is not None:
            return
    trace.cast(result, out.dtype, out=out)


def _spread(trace: Trace, x: Value, w: Value, at: Windows, groups: int, whole: Value) -> None:
    """Adds the product of each tap of the kernel to where it goes."""
    batch, per, made = x.shape[0], x.shape[1] // groups, w.shape[1]
    acc, places = whole.dtype, math.prod(x.shape[2:])
    columns = dense(trace, x).reshape(batch, groups, per, places)
    for tap in np.ndindex(at.kernel):
        weights = w
        for k in tap:
            weights = weights.at(2, k)
        weights = weights.split(0, groups, per).permute(0, 2, 1)
        product = trace("matmul", weights, columns, dtype=acc.name)
        starts = [k * d for k, d in zip(tap, at.dilations, strict=True)]
        to = every(whole, starts, at.strides, x.shape[2:])
        trace.binary("add", to, product.reshape(batch, groups * made, *x.shape[2:]), out=to)


def reference(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    output_padding: Any = None,
    groups: int = 1,
) -> Any:
    given = {
        "strides": strides,
        "pads": pads,
        "dilations": dilations,
        "output_padding": output_padding,
    }
    at, sizes = _geometry(TensorSpec.dense(dtype("f32"), x.shape), w.shape[2:], given)
    values, weights = wide(x), wide(w)
    per, made = x.shape[1] // groups, w.shape[1]
    room = [max(e, 0) + b + n for e, b, n in zip(at.extents, at.before, sizes, strict=True)]
    whole = np.zeros((x.shape[0], made * groups, *room), values.dtype)
    with np.errstate(all="ignore"):
        for g in range(groups):
            own = weights[g * per : (g + 1) * per].reshape(per, math.prod(w.shape[1:]))
            for place, window in at.places():
                seen = values[(slice(None), slice(g * per, (g + 1) * per), *place)]
                spread = (seen[:, :, None] * own).sum(1)
                to = whole[(slice(None), slice(g * made, (g + 1) * made), *window)]
                to += spread.reshape(to.shape)
    cut = tuple(slice(b, b + n) for b, n in zip(at.before, sizes, strict=True))
    return finish(whole[(slice(None), slice(None), *cut)], bias, None, "none")


_LAYOUTS: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 4, 5), (4, 3, 3), {}),
    ((2, 4, 5), (4, 3, 3), {"groups": 2, "strides": (3,), "pads": (2, 0), "output_padding": (1,)}),
    (
        (2, 3, 4, 3),
        (3, 2, 3, 2),
        {"strides": (2, 1), "pads": (1, 0, 2, 1), "dilations": (1, 3), "output_padding": (1, 2)},
    ),
    ((1, 6, 3, 3), (6, 1, 2, 2), {"groups": 6, "strides": (3, 3)}),
    ((1, 2, 3, 2, 3), (2, 2, 2, 3, 1), {"strides": (1, 2, 1), "pads": (0, 1, 0, 1, 1, 0)}),
    ((1, 2, 1), (2, 3, 2), {"pads": (0, 1), "strides": (4,), "output_padding": (3,)}),
)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    def normal(shape: Sequence[int], name: str = "f32") -> Any:
        return rng.standard_normal(tuple(shape)).astype(dtype(name).numpy)

    for name in FLOATS:
        for shape, kernel, attrs in _LAYOUTS:
            x, w = normal(shape, name), normal(kernel, name)
            yield Sample(f"{list(shape)} {list(kernel)} {attrs} {name}", (x, w, None), attrs)
        x, w, bias = normal((2, 3, 5), name), normal((3, 4, 2), name), normal((4,), name)
        yield Sample(f"bias {name}", (x, w, bias), {"strides": (2,)})
    x, w = normal((1, 1, 4)), normal((1, 2, 3))
    x[0, 0, 2], w[0, 1, 0] = np.nan, np.inf
    yield Sample("NaN and infinity", (x, w, None), {"strides": (4,), "pads": (1, 0)})
    yield Sample("no batch", (x[:0], w, None))
    yield Sample("no channels", (x[:, :0], w[:0], w[0, :, 2]))
    yield Sample("no features", (x, w[:, :0], None))


def random(rng: _draw.Rng) -> Sample:
    count, groups = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    per, made = (int(n) for n in rng.integers(1, 4, 2))
    kernel, sizes = rng.integers(1, 4, count), rng.integers(1, 5, count)
    dilations, strides = rng.integers(1, 3, count), rng.integers(1, 4, count)
    more = np.array([rng.integers(0, max(s, d)) for s, d in zip(strides, dilations, strict=True)])
    room = (sizes - 1) * strides + (kernel - 1) * dilations + more  # and one that must be left
    before = np.array([rng.integers(0, min(r, 2) + 1) for r in room])
    after = np.array([rng.integers(0, min(r, 2) + 1) for r in room - before])
    short, batch = _draw.one_of(rng, FLOATS), int(rng.integers(0, 4))
    x = _draw.values(rng, (batch, groups * per, *map(int, sizes)), short, 1)
    w = _draw.values(rng, (groups * per, made, *map(int, kernel)), short, 1)
    bias = _draw.values(rng, (groups * made,), short, 1) if rng.random() < 0.5 else None
    attrs = {
        "strides": tuple(map(int, strides)),
        "pads": tuple(map(int, (*before, *after))),
        "dilations": tuple(map(int, dilations)),
        "output_padding": tuple(map(int, more)),
        "groups": groups,
    }
    return Sample("", (x, w, bias), attrs)


SPEC = OpSpec(
    id=41,
    name="conv_transpose",
    since="0.2",
    summary="out[n, o, p * stride - before + dilation * k] += x[n, c, p] * w[c, o, k], with the "
    "channels of o's group; bias[o] everywhere.",
    inputs=(
        Arg("x", "[N, C, S...]", doc="one to three spatial axes"),
        Arg("w", "[C, O/groups, K...]"),
        Arg("bias", "[O]", optional=True),
    ),
    output=Arg(
        "out",
        "[N, O, P...]",
        doc="P = (S - 1) * stride + (K - 1) * dilation + 1 - pads + output_padding",
    ),
    attrs=(
        STRIDES,
        PADS,
        DILATIONS,
        Attr(
            "output_padding",
            "ints",
            default=None,
            doc="more elements after each spatial axis, fewer than its stride or dilation; 0 by "
            "default",
        ),
        Attr("groups", "i64", default=1, c_type="int32_t", doc="divides C"),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="the transpose of conv: pads cut off; what no element reaches is 0 plus bias; only "
    "products of elements of x count, so no zero meets an infinite weight; rounded once at the end",
    aliasing="none",
    bound="conv",
    source="ONNX ConvTranspose, opset 22, without its automatic pads",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
