"""where(condition, a, b): a select, element by element.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._checks import FP8, PLAIN, check_dtype, check_same_dtype
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Lowered, OpSpec, Sample, TensorSpec, broadcast_shapes


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    condition, a, b = inputs
    assert condition is not None and a is not None and b is not None
    check_dtype("where", "condition", condition, ("bool",))
    check_same_dtype("where", a, b)
    check_dtype("where", "a", a, (*PLAIN, *FP8))
    return TensorSpec.dense(a.dtype, broadcast_shapes("where", condition, a, b))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return [None if x is None else x.broadcast_to(out.shape) for x in inputs], {}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return float(out.size), float(out.nbytes + sum(x.nbytes for x in inputs if x is not None))


def reference(condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition, wide(a), wide(b))


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in (*PLAIN, *FP8):
        np_type = dtype(short).numpy
        a, b = (10 * rng.standard_normal((2, 3, 21))).astype(np_type)
        yield Sample(f"[3,21] {short}", (rng.integers(0, 2, (3, 21)).astype(bool), a, b))
    nan = np.full((2, 4), np.nan, np.float32)
    mask = np.array([[True, False, True, False]] * 2)
    yield Sample("NaN where not chosen", (mask, np.ones((2, 4), np.float32), nan))
    scalar = np.array(-np.inf, np.float32)
    yield Sample("broadcast", (mask[:, :1], nan[:1], scalar))
    yield Sample("empty", (mask[:0], nan[:0], scalar))


SPEC = OpSpec(
    id=6,
    name="where",
    since="0.1",
    summary="out = a where condition is true, else b.",
    inputs=(
        Arg("condition", "[...]", doc="bool", own="bool"),
        Arg("a", "[...]"),
        Arg("b", "[...]"),
    ),
    output=Arg("out", "[...]"),
    attrs=(),
    dtypes={name: name for name in (*PLAIN, *FP8)},
    special="a select, not a blend: what is not chosen cannot touch the result, NaN included",
    aliasing="elementwise",
    bound="exact",
    source="array API 2024.12 where",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
)
