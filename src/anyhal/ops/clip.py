"""clip(x, min, max): x, but not below min and not above max.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._checks import NUMBERS, check_dtype, check_same_dtype
from anyhal.ops._draw import Rng, one_of, shape, stretched, values
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Lowered, OpSpec, Sample, TensorSpec, broadcast_shapes
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    given = [x for x in inputs if x is not None]
    check_dtype("clip", "x", given[0], NUMBERS)
    check_same_dtype("clip", *given)
    return TensorSpec.dense(given[0].dtype, broadcast_shapes("clip", *given))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return [None if x is None else x.broadcast_to(out.shape) for x in inputs], {}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    moved = out.nbytes + sum(x.nbytes for x in inputs if x is not None)
    return 2.0 * out.size, float(moved)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    x, low, high = inputs
    assert x is not None
    if low is None and high is None:
        trace("copy", x, out=out)
        return
    if low is not None:
        x = trace.binary("maximum", x, low, out=out if high is None else None)
    if high is not None:
        trace.binary("minimum", x, high, out=out)


def reference(x: Any, min: Any = None, max: Any = None) -> Any:
    v = wide(x)
    v = v if min is None else np.maximum(v, wide(min))
    return v if max is None else np.minimum(v, wide(max))


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in NUMBERS:
        np_type = dtype(short).numpy
        x = (20 * rng.standard_normal((3, 17))).astype(np_type)
        low, high = np.array(-5).astype(np_type), np.array(9).astype(np_type)
        yield Sample(f"both {short}", (x, low, high))
        yield Sample(f"min {short}", (x, low, None))
        yield Sample(f"max {short}", (x, None, high))
        yield Sample(f"neither {short}", (x, None, None))
        rows = rng.integers(0, 9, (2, 3, 1)).astype(np_type)
        yield Sample(f"broadcast {short}", (x, rows[0], (rows[1] + rows[0]).astype(np_type)))
        yield Sample(f"crossed {short}", (x, high, low))
    nan, inf = np.nan, np.inf
    x = np.array([nan, inf, -inf, 0.0, -0.0, 5, -5], np.float32)
    one = np.array(1, np.float32)
    yield Sample("special values", (x, -one, one))
    yield Sample("NaN bounds", (x, one * np.float32(nan), one))
    yield Sample("infinite bounds", (x, -one * np.float32(inf), one * np.float32(inf)))
    yield Sample("larger bounds", (one, x, None))
    yield Sample("empty", (x[:0], one, None))


def random(rng: Rng) -> Sample:
    full, short = shape(rng), one_of(rng, NUMBERS)
    dims = [full, stretched(rng, full), stretched(rng, full)]
    rng.shuffle(dims)
    inputs = [values(rng, d, short) for d in dims]
    keep = [True, rng.random() < 0.7, rng.random() < 0.7]
    return Sample("", tuple(x if k else None for x, k in zip(inputs, keep, strict=True)))


SPEC = OpSpec(
    id=30,
    name="clip",
    since="0.1",
    summary="out = minimum(maximum(x, min), max); a bound that is absent does not apply.",
    inputs=(
        Arg("x", "[...]"),
        Arg("min", "[...]", optional=True, doc="array or number; broadcasts"),
        Arg("max", "[...]", optional=True, doc="array or number; broadcasts"),
    ),
    output=Arg("out", "[...]"),
    attrs=(),
    dtypes={name: name for name in NUMBERS},
    special="NaN stays, in x and in a bound; min > max gives max; which zero is open",
    aliasing="elementwise",
    bound="chosen",
    source="array API 2024.12 clip; min > max as NumPy",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
