"""embedding_backward(dout, ids): the gradient of embedding for its table.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _draw as draw
from anyhal.ops._checks import FLOATS, INDICES, WIDE, check_dtype, check_shape
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value

NAME = "embedding_backward"


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    dout, ids = inputs
    assert dout is not None and ids is not None
    check_dtype(NAME, "dout", dout, FLOATS)
    check_dtype(NAME, "ids", ids, INDICES)
    if dout.rank == 0:
        raise InvalidArgumentError(
            f"{NAME}: dout is {describe(dout)} but must be [I..., D]; reshape it"
        )
    check_shape(NAME, "ids", ids, dout.shape[:-1], "[I...] of dout")
    if attrs["rows"] < 0:
        raise InvalidArgumentError(
            f"{NAME}: rows={attrs['rows']} is no number of rows; give the size V of the table"
        )
    return TensorSpec.dense(dout.dtype, (attrs["rows"], dout.shape[-1]))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return list(inputs), {}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    assert inputs[0] is not None
    return float(inputs[0].size), float(2 * inputs[0].nbytes + out.nbytes)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    dout, ids = inputs
    assert dout is not None and ids is not None
    # Onto one 0 that is repeated: scatter_add does not change its target. Also without elements,
    # because it looks at the ids.
    acc = WIDE[dout.dtype.short]
    nothing = trace.constant(0, acc).broadcast_to(out.shape)
    updates = trace.cast(dout, acc)
    if out.dtype == updates.dtype:
        trace("scatter_add", nothing, ids, updates, axis=0, out=out)
    else:
        trace.cast(trace("scatter_add", nothing, ids, updates, axis=0), out.dtype, out=out)


def reference(dout: Any, ids: Any, *, rows: int) -> Any:
    d = wide(dout)
    if ids.size and (ids.min() < 0 or ids.max() >= rows):
        raise IndexError("an id is no row of the table")
    out = np.zeros((rows, d.shape[-1]), d.dtype)
    with np.errstate(all="ignore"):
        np.add.at(out, ids.reshape(-1), d.reshape(ids.size, d.shape[-1]))
    return out


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for name in FLOATS:
        ids = rng.integers(0, 10, (4, 6))
        dout = rng.standard_normal((4, 6, 7)).astype(dtype(name).numpy)
        yield Sample(f"{name}", (dout, ids), {"rows": 10})
        yield Sample(f"more rows {name}", (dout[0], ids[0].astype(np.int32)), {"rows": 33})
        same = np.ones((300, 2)).astype(dtype(name).numpy)
        yield Sample(f"one row {name}", (same, np.zeros(300, np.int64)), {"rows": 1})
    nan = np.array([[np.nan, 1], [2, 3]], np.float32)
    yield Sample("NaN stays in its row", (nan, np.array([1, 2])), {"rows": 3})
    yield Sample("no ids", (nan[:0], np.zeros(0, np.int64)), {"rows": 3})
    yield Sample("0-d id", (nan[1], np.array(2)), {"rows": 3})
    yield Sample("no rows", (nan[:0], np.zeros(0, np.int64)), {"rows": 0})
    yield Sample("no width", (nan[:, :0], np.array([1, 2])), {"rows": 3})


def random(rng: draw.Rng) -> Sample:
    rows, width = draw.size(rng, 33, 1), draw.size(rng, 65)
    ids = rng.integers(0, rows, draw.one_of(rng, [(), (0,), (7,), (2, 3), (65,)]))
    dout = draw.values(rng, (*ids.shape, width), draw.one_of(rng, FLOATS))
    ids = ids.astype(draw.one_of(rng, [np.int32, np.int64]))
    return Sample("", (dout, ids), {"rows": rows})


SPEC = OpSpec(
    id=88,
    name=NAME,
    since="0.1",
    summary="dtable[r, d] = sum of dout[i..., d] over all i with ids[i...] = r.",
    inputs=(Arg("dout", "[I..., D]"), Arg("ids", "[I...]", doc="i64 or i32", own="i64")),
    output=Arg("out", "[V, D]"),
    attrs=(Attr("rows", "i64", doc="V, the rows of the table"),),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="repeated ids all count; a row that no id names is 0; an id outside 0..V-1 is an error "
    "and nothing is written; negative ids do not wrap; rounded once at the end",
    aliasing="none",
    bound=NAME,
    source="the derivative of ONNX Gather, opset 13, axis 0",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
