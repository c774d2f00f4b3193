"""stack(arrays, axis): arrays of one shape side by side along a new axis.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError, UnsupportedError
from anyhal.ops import _draw
from anyhal.ops._checks import BLOCKS, FP8, MOVED, PACKED, PLAIN, check_dtype, check_same_dtype
from anyhal.ops._oracle import random_blocks, wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    arrays = [x for x in inputs if x is not None]
    if not arrays:
        raise InvalidArgumentError("stack: the list of arrays is empty; pass one or more")
    first, rank = arrays[0], arrays[0].rank + 1
    check_dtype("stack", "arrays[0]", first, MOVED)
    check_same_dtype("stack", *arrays)
    for i, x in enumerate(arrays):
        if x.shape != first.shape:
            raise InvalidArgumentError(
                f"stack: arrays[{i}] is {describe(x)} but arrays[0] is {describe(first)}: all "
                "shapes must agree; reshape or broadcast it"
            )
    if not -rank <= attrs["axis"] < rank:
        raise InvalidArgumentError(
            f"stack: axis {attrs['axis']} is outside the result of {describe(first)}, which has "
            f"{rank} dims; use {-rank}..{rank - 1}"
        )
    axis = attrs["axis"] % rank
    if first.dtype.is_block and axis == first.rank:
        raise UnsupportedError(
            f"stack: {describe(first)} has whole blocks along its last axis, and stacking after it"
            " would take them apart; stack along an earlier axis or cast the arrays",
            reason="layout",
        )
    return TensorSpec.dense(first.dtype, (*first.shape[:axis], len(arrays), *first.shape[axis:]))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return list(inputs), {"axis": attrs["axis"] % out.rank}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 0.0, 2.0 * out.nbytes


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    if out.spec.size == 0:
        trace.zeros(out)
        return
    for i, x in enumerate(inputs):
        trace("copy", x, out=out.at(attrs["axis"], i))


def reference(*arrays: Any, axis: int = 0) -> Any:
    return np.stack([wide(x) for x in arrays], axis=axis)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in (*PLAIN, *FP8):
        parts = tuple((10 * rng.standard_normal((3, 2, 4))).astype(dtype(short).numpy))
        for axis in (0, 1, -1):
            yield Sample(f"axis {axis} {short}", parts, {"axis": axis})
    a = np.array([[np.nan, -0.0]], np.float32)
    yield Sample("special values", (a, -a))
    yield Sample("0-d", (a[0, 0], a[0, 1]))
    yield Sample("one array", (a,), {"axis": 2})
    yield Sample("empty ones", (a[:0], a[:0]), {"axis": 1})
    for name in (*BLOCKS, *PACKED):
        blocks = tuple(random_blocks(rng, name, (3, dtype(name).block_elements)) for _ in range(2))
        for axis in (0, 1):
            yield Sample(f"blocks {name} axis {axis}", blocks, {"axis": axis})
    yield Sample("fifty", tuple(a + i for i in range(50)), {"axis": -2})


def random(rng: _draw.Rng) -> Sample:
    dims, short = _draw.shape(rng)[:3], _draw.one_of(rng, PLAIN)
    parts = tuple(_draw.values(rng, dims, short) for _ in range(int(rng.integers(1, 5))))
    return Sample("", parts, {"axis": int(rng.integers(-len(dims) - 1, len(dims) + 1))})


SPEC = OpSpec(
    id=36,
    name="stack",
    since="0.2",
    summary="out = the arrays side by side along a new axis, `axis`.",
    inputs=(Arg("arrays", "[A..., B...]", variadic=True, doc="a list; one dtype, one shape"),),
    output=Arg("out", "[A..., number of arrays, B...]"),
    attrs=(Attr("axis", "axis", default=0, c_type="int32_t", doc="where the new axis goes"),),
    dtypes={name: name for name in MOVED},
    special="bits are kept",
    aliasing="none",
    bound="exact",
    source="array API 2024.12 stack",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
