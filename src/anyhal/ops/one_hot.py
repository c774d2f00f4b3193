"""one_hot(indices, depth): a row for each index, with one value at its place and another elsewhere.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype as dtype_of
from anyhal.errors import InvalidArgumentError, UnsupportedError
from anyhal.ops import _draw
from anyhal.ops._checks import INDICES, PLAIN, check_dtype
from anyhal.ops._indexing import check_indices, in_range
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value


def _axis(indices: TensorSpec, axis: int) -> int:
    rank = indices.rank + 1
    if not -rank <= axis < rank:
        raise InvalidArgumentError(
            f"one_hot: axis {axis} is outside the result of {describe(indices)}, which has {rank} "
            f"dims; use {-rank}..{rank - 1}"
        )
    return axis % rank


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (indices,) = inputs
    assert indices is not None
    check_dtype("one_hot", "indices", indices, INDICES)
    axis, depth = _axis(indices, attrs["axis"]), attrs["depth"]
    if depth < 0:
        raise InvalidArgumentError(
            f"one_hot: depth={depth} of {describe(indices)} is negative; pass 0 or more"
        )
    out = dtype_of(attrs["dtype"] or "float32")
    if out.short not in PLAIN:
        raise UnsupportedError(
            f"one_hot: the result of {describe(indices)} cannot be {out.short}; ask for one of "
            f"{', '.join(PLAIN)}",
            reason="dtype",
        )
    for name in ("on_value", "off_value"):
        _check_value(indices, name, attrs[name], out)
    return TensorSpec.dense(out, (*indices.shape[:axis], depth, *indices.shape[axis:]))


def _check_value(indices: TensorSpec, name: str, value: float, out: Any) -> None:
    """An integer or bool result takes only what it can hold; nothing is rounded silently."""
    if out.kind == "float":
        return
    low, high = (0, 1) if out.kind == "bool" else (np.iinfo(out.numpy).min, np.iinfo(out.numpy).max)
    if not (np.float32(value).is_integer() and low <= int(np.float32(value)) <= high):
        raise InvalidArgumentError(
            f"one_hot: {name}={value} of {describe(indices)} is no {out.short}; ask for another "
            "dtype or value"
        )


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    (indices,) = inputs
    assert indices is not None
    record = {name: attrs[name] for name in ("on_value", "off_value")}
    return [indices], {"axis": _axis(indices, attrs["axis"]), **record}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 0.0, float(out.nbytes)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    (indices,) = inputs
    assert indices is not None
    axis = _axis(indices.spec, attrs["axis"])
    checked = in_range(trace, indices, attrs["depth"])
    if out.spec.size == 0:
        trace.zeros(out)
        return
    behind = (1,) * (out.spec.rank - 1 - axis)
    places = trace.numbers(attrs["depth"], indices.dtype).reshape(attrs["depth"], *behind)
    hit = trace.binary("equal", checked.expand_dims(axis), places)
    on, off = (
        trace.constant(np.float32(attrs[name]), out.dtype) for name in ("on_value", "off_value")
    )
    trace("where", hit, on, off, out=out)


def reference(
    indices: Any,
    depth: int,
    axis: int = -1,
    on_value: float = 1.0,
    off_value: float = 0.0,
    dtype: str | None = None,
) -> Any:
    check_indices(indices, depth)
    out = dtype_of(dtype or "float32")
    kind = np.dtype(np.float64) if out.kind == "float" else out.numpy
    rows = np.full((indices.size, depth), np.float32(off_value), kind)
    rows[np.arange(indices.size), indices.reshape(-1)] = np.float32(on_value)
    return np.moveaxis(rows.reshape(*indices.shape, depth), -1, axis)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    ids = rng.integers(0, 7, (2, 5))
    for short in PLAIN:
        for axis in (0, 1, -1):
            attrs = {"depth": 7, "axis": axis, "dtype": dtype_of(short).name}
            yield Sample(f"axis {axis} {short}", (ids,), attrs)
    yield Sample("f32 by default", (ids.astype(np.int32),), {"depth": 8})
    values = {"depth": 7, "on_value": 0.9, "off_value": -0.0125}
    yield Sample("other values", (ids,), values)
    yield Sample("other values bf16", (ids,), {**values, "dtype": "bfloat16"})
    yield Sample("0-d", (np.array(2),), {"depth": 3})
    yield Sample("no index", (ids[:0],), {"depth": 3})
    yield Sample("no depth", (ids[:, :0],), {"depth": 0})


def random(rng: _draw.Rng) -> Sample:
    depth, dims = _draw.size(rng, 33, 1), _draw.shape(rng)[:3]
    attrs = {
        "depth": depth,
        "axis": int(rng.integers(-len(dims) - 1, len(dims) + 1)),
        "dtype": dtype_of(_draw.one_of(rng, PLAIN)).name,
    }
    return Sample("", (rng.integers(0, depth, dims),), attrs)


SPEC = OpSpec(
    id=35,
    name="one_hot",
    since="0.2",
    summary="out = on_value where the new axis counts indices, else off_value.",
    inputs=(Arg("indices", "[A..., B...]", doc="i64 or i32", own="i64"),),
    output=Arg("out", "[A..., depth, B...]"),
    attrs=(
        Attr("depth", "i64", doc="size of the new axis"),
        Attr("axis", "axis", default=-1, c_type="int32_t", doc="where the new axis goes"),
        Attr("on_value", "f32", default=1.0, c_type="float"),
        Attr("off_value", "f32", default=0.0, c_type="float"),
        Attr("dtype", "dtype", default=None, doc="output dtype; float32 by default"),
    ),
    dtypes={name: name for name in INDICES},
    special="an index outside 0..depth-1 is an error and nothing is written; negative ones do not "
    "wrap; a value that an integer or bool output cannot hold is refused",
    aliasing="none",
    bound="rounding",
    source="ONNX OneHot, opset 11, without its rule for indices outside",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
