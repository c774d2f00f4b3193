"""conv(x, w, bias, residual): cross-correlation over one to three spatial axes, in groups.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _draw, _epilogue
from anyhal.ops._checks import (
    FLOATS,
    WIDE,
    check_broadcasts,
    check_choice,
    check_dtype,
    check_rank,
    check_same_dtype,
    check_shape,
)
from anyhal.ops._indexing import dense
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value
from anyhal.ops._window import (
    DILATIONS,
    PADS,
    STRIDES,
    Windows,
    check_spatial,
    padded,
    view,
    windows,
)

# Elements of windows that are copied out and multiplied at a time, if one output row has no more.
_COLUMNS_MAX = 1 << 22


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    x, w, bias, residual = inputs
    assert x is not None and w is not None
    check_choice("conv", "activation", attrs["activation"], _epilogue.ACTIVATIONS)
    check_dtype("conv", "x", x, FLOATS)
    check_same_dtype("conv", *(s for s in inputs if s is not None))
    check_spatial("conv", x)
    check_rank("conv", "w", w, x.rank, "[O, C/groups, kernel...]")
    groups, channels, features = attrs["groups"], x.shape[1], w.shape[0]
    if groups < 1 or features % groups or w.shape[1] * groups != channels:
        raise InvalidArgumentError(
            f"conv: w {describe(w)} with groups={groups} does not fit x {describe(x)}: x needs "
            "C = groups * w's second size, and groups must divide w's first; correct one"
        )
    out = TensorSpec.dense(
        x.dtype, (x.shape[0], features, *windows("conv", x, w.shape[2:], attrs).sizes)
    )
    if bias is not None:
        check_shape("conv", "bias", bias, (features,), "[O]")
    if residual is not None:
        check_broadcasts("conv", "residual", residual, out.shape, "[N, O, out...]")
    return out


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    x, w, bias, residual = inputs
    assert x is not None and w is not None
    record = windows("conv", x, w.shape[2:], attrs).record()
    record |= {name: attrs[name] for name in ("groups", "activation")}
    return (
        [x, w, bias, None if residual is None else residual.broadcast_to(out.shape)],
        record,
        out,
    )


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    w = inputs[1]
    assert w is not None
    flops = 2.0 * out.size * math.prod(w.shape[1:])
    return flops, float(out.nbytes + sum(x.nbytes for x in inputs if x is not None))


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    x, w, bias, residual = inputs
    assert x is not None and w is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    acc, at = WIDE[x.dtype.short], windows("conv", x.spec, w.shape[2:], attrs)
    own = out.dtype.short == acc and out.spec.is_dense
    product = out if own else trace.temp(out.shape, acc)
    if w.spec.size == 0:
        trace.zeros(product)
    else:
        _multiply(trace, x, w, at, attrs["groups"], product)
    if bias is not None:
        for _ in at.sizes:
            bias = bias.expand_dims(bias.spec.rank)
    epilogue = {"activation": attrs["activation"], "scale": 1.0}
    _epilogue.emit(trace, product, (bias, None, residual), epilogue, out)


def _multiply(trace: Trace, x: Value, w: Value, at: Windows, groups: int, out: Value) -> None:
    """out = w times the windows of x, which are copied side by side a part at a time."""
    batch, places = x.shape[0], math.prod(at.sizes)
    inner = math.prod(w.shape[1:])
    weights = dense(trace, w).reshape(groups, w.shape[0] // groups, inner)
    result = out.reshape(batch, groups, w.shape[0] // groups, places)
    still = at.extents == x.shape[2:] == at.sizes and not any(at.before)
    if still and x.spec.is_dense:  # 1x1: nothing to copy
        columns = x.reshape(batch, groups, inner, places)
        trace("matmul", weights, columns, dtype=out.dtype.name, out=result)
        return
    looks = view(padded(trace, x, at, 0), at, kernel_last=False)
    row_axis = looks.spec.rank - len(at.sizes)
    each = groups * inner * places  # elements of one batch entry
    entries = max(1, min(batch, _COLUMNS_MAX // each))
    rows = max(1, min(at.sizes[0], _COLUMNS_MAX * at.sizes[0] // each))
    for n in range(0, batch, entries):
        some = looks.slice(0, n, min(n + entries, batch))
        for r in range(0, at.sizes[0], rows):
            stop, width = min(r + rows, at.sizes[0]), places // at.sizes[0]
            part = trace("copy", some.slice(row_axis, r, stop))
            columns = part.reshape(part.shape[0], groups, inner, (stop - r) * width)
            to = result.slice(0, n, n + part.shape[0]).slice(3, r * width, stop * width)
            trace("matmul", weights, columns, dtype=out.dtype.name, out=to)


def reference(
    x: Any,
    w: Any,
    bias: Any = None,
    residual: Any = None,
    *,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    groups: int = 1,
    activation: str = "none",
) -> Any:
    given = {"strides": strides, "pads": pads, "dilations": dilations}
    at = windows("conv", TensorSpec.dense(dtype("f32"), x.shape), w.shape[2:], given)
    border = ((0, 0), (0, 0), *zip(at.before, at.after, strict=True))
    values, weights = np.pad(wide(x), border), wide(w)
    per, made = w.shape[1], w.shape[0] // groups
    out = np.zeros((x.shape[0], w.shape[0], *at.sizes), values.dtype)
    with np.errstate(all="ignore"):
        for g in range(groups):
            own = weights[g * made : (g + 1) * made].reshape(made, math.prod(w.shape[1:]))
            part, target = values[:, g * per : (g + 1) * per], out[:, g * made : (g + 1) * made]
            for place, window in at.places():
                seen = part[(slice(None), slice(None), *window)]
                product = seen.reshape(x.shape[0], 1, own.shape[1]) * own
                target[(slice(None), slice(None), *place)] = product.sum(-1)
    return finish(out, bias, residual, activation)


def finish(product: Any, bias: Any, residual: Any, activation: str) -> Any:
    """The reference's epilogue: bias counts along the second axis."""
    if bias is not None:
        bias = np.reshape(bias, (-1, *(1,) * (product.ndim - 2)))
    return _epilogue.reference(product, (bias, None, residual), activation, 1.0)


# x, w, attributes: odd sizes, uneven pads, strides and dilations that differ from axis to axis.
_LAYOUTS: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 4, 9), (6, 4, 3), {}),
    ((2, 4, 10), (6, 2, 3), {"groups": 2, "strides": (3,), "pads": (2, 0)}),
    ((2, 3, 8, 7), (5, 3, 3, 2), {"strides": (2, 1), "pads": (1, 0, 2, 1), "dilations": (1, 3)}),
    ((1, 6, 5, 5), (6, 1, 3, 3), {"groups": 6, "pads": (1, 1, 1, 1)}),
    ((2, 4, 4, 3), (8, 2, 1, 1), {"groups": 2}),
    ((1, 2, 4, 5, 3), (3, 2, 2, 3, 1), {"strides": (1, 2, 1), "pads": (0, 1, 0, 1, 1, 0)}),
)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    def normal(shape: Sequence[int], name: str = "f32") -> Any:
        return rng.standard_normal(tuple(shape)).astype(dtype(name).numpy)

    for name in FLOATS:
        for shape, kernel, attrs in _LAYOUTS:
            x, w = normal(shape, name), normal(kernel, name)
            yield Sample(f"{list(shape)} {list(kernel)} {name}", (x, w, None, None), attrs)
        x, w, bias = normal((2, 3, 5), name), normal((4, 3, 2), name), normal((4,), name)
        for activation in _epilogue.ACTIVATIONS:
            inputs = (x, w, bias, normal((2, 4, 4), name))
            yield Sample(f"all {activation} {name}", inputs, {"activation": activation})
        yield Sample(f"bias {name}", (x, w, bias, None))
        # As many places as elements, and none of them looks at one.
        attrs = {"strides": (3,), "pads": (1, 1)}
        lone = (normal((1, 2, 1), name), normal((2, 2, 1), name), None, None)
        yield Sample(f"padding alone {name}", lone, attrs)
        yield Sample(f"residual {name}", (x, w, None, bias[:, None]))
    x, w = normal((1, 1, 6)), normal((2, 1, 3))
    x[0, 0, 3], w[1, 0, 0] = np.nan, np.inf
    yield Sample("NaN and infinity", (x, w, None, None), {"pads": (1, 2)})
    yield Sample("all padding", (x[:, :, :0], w, None, None), {"pads": (2, 3)})
    yield Sample("pads beyond the kernel", (x, w, None, None), {"pads": (5, 9), "strides": (4,)})
    yield Sample("no batch", (x[:0], w, None, None))
    yield Sample("no channels", (x[:, :0], w[:, :0], w[:, 0, 0], None))
    yield Sample("no features", (x, w[:0], None, None))


def random(rng: _draw.Rng) -> Sample:
    count, groups = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    per, made = (int(n) for n in rng.integers(1, 4, 2))
    kernel = rng.integers(1, 4, count)
    dilations, strides = rng.integers(1, 3, count), rng.integers(1, 4, count)
    pads = rng.integers(0, 3, 2 * count)
    reach = (kernel - 1) * dilations + 1 - pads[:count] - pads[count:]
    sizes = np.maximum(reach, 0) + rng.integers(0, 5, count)
    short, batch = _draw.one_of(rng, FLOATS), int(rng.integers(0, 4))
    x = _draw.values(rng, (batch, groups * per, *map(int, sizes)), short, 1)
    w = _draw.values(rng, (groups * made, per, *map(int, kernel)), short, 1)
    bias = _draw.values(rng, w.shape[:1], short, 1) if rng.random() < 0.5 else None
    attrs = {
        "strides": tuple(map(int, strides)),
        "pads": tuple(map(int, pads)),
        "dilations": tuple(map(int, dilations)),
        "groups": groups,
        "activation": _draw.one_of(rng, _epilogue.ACTIVATIONS),
    }
    return Sample("", (x, w, bias, None), attrs)


SPEC = OpSpec(
    id=40,
    name="conv",
    since="0.2",
    summary="out[n, o, p] = act(sum over c, k of x[n, c, p * stride - before + dilation * k] * "
    "w[o, c, k] + bias[o]) + residual[n, o, p], with the channels of o's group.",
    inputs=(
        Arg("x", "[N, C, S...]", doc="one to three spatial axes"),
        Arg("w", "[O, C/groups, K...]"),
        Arg("bias", "[O]", optional=True),
        Arg("residual", "[N, O, P...]", optional=True, doc="broadcasts"),
    ),
    output=Arg("out", "[N, O, P...]", doc="P = (S + pads - (K - 1) * dilation - 1) // stride + 1"),
    attrs=(
        STRIDES,
        PADS,
        DILATIONS,
        Attr("groups", "i64", default=1, c_type="int32_t", doc="divides C and O"),
        _epilogue.ATTRS[0],
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="a cross-correlation: the kernel is not flipped; padding is zeros, which take part (0 "
    "times an infinite weight is NaN); rounded once at the end; a kernel larger than the padded "
    "input is an error",
    aliasing="none",
    bound="conv",
    source="ONNX Conv, opset 22, with the epilogue of matmul_epilogue",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
