"""copy(x): the same values under other strides.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._checks import BLOCKS, FP8, MOVED, PACKED, PLAIN
from anyhal.ops._oracle import random_blocks, wide
from anyhal.ops._spec import Arg, Lowered, OpSpec, Sample, TensorSpec


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (x,) = inputs
    assert x is not None
    return TensorSpec.dense(x.dtype, x.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    (x,) = inputs
    assert x is not None
    return [x.broadcast_to(out.shape)], {}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 0.0, 2.0 * out.nbytes


def reference(x: Any) -> Any:
    return wide(x)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for name in (*PLAIN, *FP8):
        x = (10 * rng.standard_normal((3, 5))).astype(dtype(name).numpy)
        yield Sample(f"[3,5] {name}", (x,))
    yield Sample("0-d", (np.float32(-0.0).reshape(()),))
    yield Sample("empty", (np.zeros((2, 0, 3), np.float32),))
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32)
    yield Sample("special values", (special,))
    for name in (*BLOCKS, *PACKED):
        width = 2 * dtype(name).block_elements
        yield Sample(f"blocks {name}", (random_blocks(rng, name, (3, width)),))


SPEC = OpSpec(
    id=1,
    name="copy",
    since="0.1",
    summary="out = x, element by element; transposes, views and broadcasts become dense.",
    inputs=(Arg("x", "[...]"),),
    output=Arg("out", "[...]"),
    attrs=(),
    dtypes={name: name for name in MOVED},
    special="bits are kept: NaN stays NaN, the sign of zero stays, denormals stay",
    aliasing="none",
    bound="exact",
    source="array API 2024.12 asarray(copy=True)",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
)
