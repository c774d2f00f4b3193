"""scatter(x, indices, updates, axis, reduction): writes or joins elements where indices say.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import DType, dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _draw
from anyhal.ops._checks import (
    FLOATS,
    INDICES,
    INTS,
    NUMBERS,
    PLAIN,
    WIDE,
    check_choice,
    check_dtype,
    check_same_dtype,
)
from anyhal.ops._indexing import along, check_indices, dense, flat, in_range
from anyhal.ops._oracle import wide
from anyhal.ops._spec import (
    Arg,
    Attr,
    Lowered,
    OpSpec,
    Sample,
    Shape,
    TensorSpec,
    describe,
    normalize_axis,
)
from anyhal.ops._trace import Trace, Value

REDUCTIONS = {"none": 1, "add": 2, "max": 3, "min": 4, "multiply": 5}
# Elements of the table of hits that max, min and multiply look through at a time.
_TABLE_MAX = 1 << 22


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    x, indices, updates = inputs
    assert x is not None and indices is not None and updates is not None
    check_choice("scatter", "reduction", attrs["reduction"], REDUCTIONS)
    check_dtype("scatter", "x", x, PLAIN if attrs["reduction"] == "none" else NUMBERS)
    check_dtype("scatter", "indices", indices, INDICES)
    check_same_dtype("scatter", x, updates)
    axis = normalize_axis("scatter", attrs["axis"], x)
    fits = indices.rank == x.rank and indices.shape == updates.shape
    for d in range(x.rank if fits else 0):
        fits = fits and (d == axis or indices.shape[d] <= x.shape[d])
    if not fits:
        raise InvalidArgumentError(
            f"scatter: indices {describe(indices)} and updates {describe(updates)} along axis "
            f"{axis} of x {describe(x)}: they need one shape, with the rank of x and sizes up to "
            "its own on the other axes; reshape or cut them"
        )
    return TensorSpec.dense(x.dtype, x.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    axis = normalize_axis("scatter", attrs["axis"], out)
    return list(inputs), {"axis": axis, "reduction": attrs["reduction"]}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    updates = inputs[2]
    assert updates is not None
    return float(updates.size), float(2 * out.nbytes + 2 * updates.nbytes)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    x, indices, updates = inputs
    assert x is not None and indices is not None and updates is not None
    axis = normalize_axis("scatter", attrs["axis"], x.spec)
    checked = in_range(trace, indices, x.shape[axis])
    region = tuple(x.shape[d] if d == axis else n for d, n in enumerate(indices.shape))
    if x != out and (region != x.shape or indices.spec.size == 0):
        trace("copy", x, out=out)  # what no index can reach
    if indices.spec.size == 0 or out.spec.size == 0:
        return
    for d, n in enumerate(region):
        x, out = x.slice(d, 0, n), out.slice(d, 0, n)
    if attrs["reduction"] == "none":
        _replace(trace, x, checked, updates, axis, out)
    elif attrs["reduction"] == "add":
        _add(trace, x, checked, updates, axis, out)
    else:
        _join(trace, x, checked, updates, axis, out, attrs["reduction"])


def _add(trace: Trace, x: Value, indices: Value, updates: Value, axis: int, out: Value) -> None:
    places = flat(trace, indices, x.shape, axis, indices.shape)
    target = dense(trace, x).reshape(x.spec.size)
    if out.spec.is_dense:
        trace("scatter_add", target, places, updates, axis=0, out=out.reshape(out.spec.size))
    else:
        made = trace("scatter_add", target, places, updates, axis=0)
        trace("copy", made.reshape(*out.shape), out=out)


def _replace(trace: Trace, x: Value, indices: Value, updates: Value, axis: int, out: Value) -> None:
    """The last update of each element wins. Their numbers along the axis are compared bit by bit,
    from the highest: an update drops out where another one of its element has the bit and it has
    not. The one that is left writes its number, through which its value is read."""
    shape, count = indices.shape, indices.shape[axis]
    places = flat(trace, indices, x.shape, axis, shape)
    nothing = trace.zeros(trace.temp((x.spec.size,), "i64"))
    number, zero = np.arange(count), trace.constant(0, "i64")
    alive = trace.constant(1, "i64").broadcast_to(shape)
    for bit in reversed(range((count - 1).bit_length())):
        has = trace.constant(along(number >> bit & 1, axis, len(shape)), "i64")
        mine = trace.binary("multiply", alive, has)
        hits = trace("scatter_add", nothing, places, mine, axis=0)
        beaten = trace.binary("greater", trace("gather", hits, places, axis=0), zero)
        alive = trace("where", beaten, mine, alive)
    written = trace.binary(
        "multiply", alive, trace.constant(along(number + 1, axis, len(shape)), "i64")
    )
    last = trace("scatter_add", nothing, places, written, axis=0).reshape(*x.shape)
    hit = trace.binary("greater", last, zero)
    which = trace.binary("subtract", last, trace.cast(hit, "i64"))
    source = flat(trace, which, shape, axis, x.shape)
    values = trace("gather", dense(trace, updates).reshape(updates.spec.size), source, axis=0)
    trace("where", hit, values, x, out=out)


# Over all updates of one element, and of that with x.
_WHOLE = {"max": "max", "min": "min", "multiply": "prod"}
_PAIR = {"max": "maximum", "min": "minimum", "multiply": "multiply"}


def _join(
    trace: Trace, x: Value, indices: Value, updates: Value, axis: int, out: Value, reduction: str
) -> None:
    """max, min or multiply: all updates against all elements of the axis, some elements at a
    time."""
    acc = WIDE.get(x.dtype.short, x.dtype.short) if reduction == "multiply" else x.dtype.short
    number = indices.expand_dims(axis)
    values = trace.cast(updates, acc).expand_dims(axis)
    neutral = trace.constant(_neutral(reduction, dtype(acc)), acc)
    step, size = max(1, _TABLE_MAX // indices.spec.size), x.shape[axis]
    for start in range(0, size, step):
        stop = min(start + step, size)
        row = along(np.arange(start, stop), axis, number.spec.rank)
        hit = trace.binary("equal", number, trace.constant(row, indices.dtype))
        told = trace("where", hit, values, neutral)
        kept: dict[str, Any] = {"dtype": dtype(acc).name} if reduction == "multiply" else {}
        joined = trace("reduce", told, fn=_WHOLE[reduction], axis=axis + 1, **kept)
        old = trace.cast(x.slice(axis, start, stop), acc)
        part = out.slice(axis, start, stop)
        if out.dtype.short == acc:
            trace.binary(_PAIR[reduction], old, joined, out=part)
        else:
            trace.cast(trace.binary(_PAIR[reduction], old, joined), out.dtype, out=part)


def _neutral(reduction: str, d: DType) -> Any:
    if reduction == "multiply":
        return 1
    if d.kind == "float":
        return -np.inf if reduction == "max" else np.inf
    return np.iinfo(d.numpy).min if reduction == "max" else np.iinfo(d.numpy).max


_JOIN: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new,
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "multiply": np.multiply,
}


def reference(x: Any, indices: Any, updates: Any, axis: int, reduction: str) -> Any:
    out, values, axis = wide(x).copy(), wide(updates), axis % x.ndim
    check_indices(indices, x.shape[axis])
    with np.errstate(all="ignore"):
        for at in np.ndindex(indices.shape):  # in order: of equal indices the last one wins
            to = (*at[:axis], int(indices[at]), *at[axis + 1 :])
            out[to] = _JOIN[reduction](out[to], values[at])
    return out


def _sample(
    rng: np.random.Generator, short: str, shape: Shape, axis: int, reduction: str
) -> tuple[Any, Any, Any]:
    """x of that shape with five indices along the axis, some of them equal."""
    dims = list(shape)
    dims[axis] = 5
    x, updates = (_draw.values(rng, tuple(s), short, 2) for s in (shape, dims))
    return x, rng.integers(0, shape[axis], dims), updates


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for reduction in REDUCTIONS:
        for short in PLAIN if reduction == "none" else NUMBERS:
            for axis in (0, -1):
                inputs = _sample(rng, short, (4, 2, 3), axis, reduction)
                attrs = {"axis": axis, "reduction": reduction}
                yield Sample(f"{reduction} axis {axis} {short}", inputs, attrs)
        attrs = {"axis": 1, "reduction": reduction}
        x, _, _ = _sample(rng, "f32", (4, 6), 1, reduction)
        one = np.array([[2, 2, 2], [5, 0, 5]], np.int32)
        nan = np.array([[1, np.nan, -0.0], [np.inf, np.nan, -np.inf]], np.float32)
        yield Sample(f"{reduction} fewer rows, NaN, i32", (x, one, nan), attrs)
        yield Sample(f"{reduction} no index", (x, one[:, :0], nan[:, :0]), attrs)
        yield Sample(f"{reduction} no rows", (x[:0], one[:0], nan[:0]), attrs)
    many = rng.integers(0, 3, 300)
    row = rng.standard_normal(300).astype(np.float32)
    yield Sample("many to few", (row[:3], many, row), {"axis": 0, "reduction": "none"})
    yield Sample("many added", (row[:3], many, row), {"axis": 0, "reduction": "add"})


def random(rng: _draw.Rng) -> Sample:
    reduction, dims = _draw.one_of(rng, REDUCTIONS), _draw.shape(rng, 1, 1)[:3]
    short = _draw.one_of(rng, PLAIN if reduction == "none" else NUMBERS)
    axis = int(rng.integers(-len(dims), len(dims)))
    shape = [n if rng.random() < 0.7 else int(rng.integers(0, n + 1)) for n in dims]
    shape[axis] = _draw.size(rng, 7)
    updates = _draw.values(rng, tuple(shape), short, 1.5)
    indices = rng.integers(0, dims[axis], shape)
    x = _draw.values(rng, dims, short, 1.5)
    return Sample("", (x, indices, updates), {"axis": axis, "reduction": reduction})


SPEC = OpSpec(
    id=32,
    name="scatter",
    since="0.2",
    summary="out = x, then each out[a..., indices[a..., i, b...], b...] is joined with "
    "updates[a..., i, b...].",
    inputs=(
        Arg("x", "[A..., N, B...]"),
        Arg("indices", "[C..., I, D...]", doc="i64 or i32; sizes up to those of x"),
        Arg("updates", "[C..., I, D...]"),
    ),
    output=Arg("out", "[A..., N, B...]"),
    attrs=(
        Attr("axis", "axis", c_type="int32_t", doc="the axis of x that is indexed"),
        Attr(
            "reduction",
            "enum",
            choices=REDUCTIONS,
            c_type="int32_t",
            c_enum="scatter_reduction",
            doc="none replaces: of equal indices the last one along the axis wins",
        ),
    ),
    dtypes={
        **{name: WIDE[name] for name in FLOATS},
        **{name: name for name in (*INTS, "bool")},
    },
    special="all repeated indices count, but for none, where the last wins; NaN propagates through "
    "max and min; integers wrap; bool with none only; an index outside 0..N-1 is an error and "
    "nothing is written; negative ones do not wrap",
    aliasing="first",
    bound="scatter",
    source="ONNX ScatterElements, opset 18; which of equal indices wins is ours",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
