"""embedding(table, ids): rows of a table, decoded if it is in a block format.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype as dtype_of
from anyhal.ops._checks import BLOCKS, FLOATS, INDICES, check_dtype, check_rank, output_dtype
from anyhal.ops._oracle import random_blocks
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value
from anyhal.ops.gather import reference as gather_reference


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    table, ids = inputs
    assert table is not None and ids is not None
    check_dtype("embedding", "table", table, (*FLOATS, *BLOCKS))
    check_dtype("embedding", "ids", ids, INDICES)
    check_rank("embedding", "table", table, 2, "[V, D]")
    natural = "f32" if table.dtype.is_block else table.dtype.short
    out = output_dtype("embedding", attrs["dtype"], natural, [f for f in FLOATS if f != natural])
    return TensorSpec.dense(out, (*ids.shape, table.shape[1]))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return list(inputs), {}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return float(out.size), 2.0 * out.nbytes


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    table, ids = inputs
    assert table is not None and ids is not None
    if out.dtype == table.dtype:
        trace("gather", table, ids, axis=0, out=out)
    else:
        trace.cast(trace("gather", table, ids, axis=0), out.dtype, out=out)


def reference(table: Any, ids: Any, dtype: str | None = None) -> Any:
    return gather_reference(table, ids, 0)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    ids = np.array([[3, 0], [9, 3]])
    for name in FLOATS:
        table = rng.standard_normal((10, 7)).astype(dtype_of(name).numpy)
        yield Sample(f"{name}", (table, ids))
        yield Sample(f"{name} to f32", (table, ids.astype(np.int32)), {"dtype": "float32"})
    for name in BLOCKS:
        blocks = random_blocks(rng, name, (10, 2 * dtype_of(name).block_elements))
        yield Sample(f"{name}", (blocks, ids))
        yield Sample(f"{name} to f16", (blocks, ids[0]), {"dtype": "float16"})
    yield Sample("no ids", (table, np.zeros((0,), np.int64)))
    yield Sample("0-d id", (table, np.array(2)))


SPEC = OpSpec(
    id=17,
    name="embedding",
    since="0.1",
    summary="out[i..., d] = table[ids[i...], d].",
    inputs=(
        Arg("table", "[V, D]", doc="floating or in a block format; as a rule constant"),
        Arg("ids", "[I...]", doc="i64 or i32", own="i64"),
    ),
    output=Arg("out", "[I..., D]"),
    attrs=(
        Attr("dtype", "dtype", default=None, doc="output dtype; f32 for blocks, else the table's"),
    ),
    dtypes={name: name if name in FLOATS else "f32" for name in (*FLOATS, *BLOCKS)},
    special="an id outside 0..V-1 is an error and nothing is written; negative ids do not wrap",
    aliasing="none",
    bound="rounding",
    source="ONNX Gather, opset 13, axis 0",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    decompose=decompose,
)
