"""fill(value): every element of the caller's output is `value`.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops._checks import FP8, PLAIN
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Lowered, OpSpec, Sample, TensorSpec, describe


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (value,) = inputs
    raise InvalidArgumentError(
        f"fill: {describe(value)} says no output shape; pass out=, or use full()"
    )


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    (value,) = inputs
    assert value is not None
    if value.rank != 0 or value.dtype != out.dtype:
        raise InvalidArgumentError(
            f"fill: value {describe(value)} must be one number of out's dtype, {out.dtype.short}[]"
            "; cast or reshape it"
        )
    return [value], {}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 0.0, float(out.nbytes)


def reference(value: Any) -> Any:
    """The one value; the caller stretches it to the output's shape."""
    return wide(value)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for name in (*PLAIN, *FP8):
        value = np.array(3.5 if name != "bool" else True).astype(dtype(name).numpy)
        yield Sample(f"[3,5] {name}", (value,), out_shape=(3, 5))
    yield Sample("0-d", (np.array(-0.0, np.float32),), out_shape=())
    yield Sample("empty", (np.array(1.0, np.float32),), out_shape=(0, 4))
    yield Sample("NaN", (np.array(np.nan, np.float32),), out_shape=(7,))


SPEC = OpSpec(
    id=2,
    name="fill",
    since="0.1",
    summary="out = value everywhere.",
    inputs=(Arg("value", "[]"),),
    output=Arg("out", "[...]"),
    attrs=(),
    dtypes={name: name for name in (*PLAIN, *FP8)},
    special="bits are kept; the old content of out is never read",
    aliasing="none",
    bound="exact",
    source="array API 2024.12 full",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    public=False,
    shape_from_out=True,
)
