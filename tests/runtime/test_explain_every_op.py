"""`explain` finds a route for every op of the registry on every device of this build.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._spec import Blocks, OpSpec, Sample, TensorSpec, describe

HOST = ("cpu", "cpu_ref", "dayone")


def operand(x: Any) -> str:
    if x is None:
        return "none"
    kind = x.dtype if isinstance(x, Blocks) else dtype(x.dtype)
    return describe(TensorSpec.dense(kind, x.shape))


def attribute(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def call(spec: OpSpec, sample: Sample) -> str:
    """The sample as a person would write it for `anyhal explain`."""
    words = [spec.name, *(operand(x) for x in sample.inputs)]
    words += [f"{k}={attribute(v)}" for k, v in sample.attrs.items() if v is not None]
    if sample.out_shape is not None:
        words.append(f"out={operand(np.empty(sample.out_shape, sample.inputs[0].dtype))}")
    return " ".join(words)


@pytest.mark.parametrize("text", ["fill f32[]", "fill f32[] out=none"])
def test_an_output_that_the_caller_gives_must_be_given(text: str) -> None:
    with pytest.raises(hal.InvalidArgumentError, match="add out="):
        hal.explain(text)


@pytest.mark.parametrize("device", HOST)
@pytest.mark.parametrize("op", BY_NAME)
def test_every_op_has_a_route(device: str, op: str) -> None:
    spec = BY_NAME[op]
    samples = [
        s
        for s in spec.samples(np.random.default_rng(3))
        if all(x is None or 0 < np.prod(x.shape) for x in s.inputs)
    ]
    with hal.use(device=device):
        decision = hal.explain(call(spec, samples[0]))
    assert decision.choice == f"{device}:0", decision.sentence
    assert decision.kernels and all(k.kernel for k in decision.kernels)
