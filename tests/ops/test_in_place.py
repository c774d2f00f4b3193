"""Ops whose output may be their first operand: written in place, in both forms and with gaps.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest

from anyhal.conformance.cases import random_case
from anyhal.conformance.tolerance import bound, mismatch
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from device_runs import call, devices, modes, place

FIRST = [spec.name for spec in BY_NAME.values() if spec.aliasing == "first"]


@pytest.mark.parametrize("op", FIRST)
@pytest.mark.parametrize("device", devices())
def test_the_first_operand_is_the_output(device: str, op: str) -> None:
    spec = BY_NAME[op]
    for seed in range(12):
        sample = random_case(op, seed)
        first, *rest = sample.inputs
        if any(s == 0 and n > 1 for n, s in zip(first.shape, first.strides, strict=True)):
            continue  # an output cannot repeat its elements
        want, d = spec.reference(*sample.inputs, **sample.attrs), dtype(first.dtype)
        allowed = bound(spec.bound, spec, sample.inputs, sample.attrs, want, d)
        for mode in modes(spec):
            for layout in ("dense", "gaps"):
                target = place(first, layout, device)
                others = [None if x is None else place(x, "dense", device) for x in rest]
                call(spec, [target, *others], dict(sample.attrs), target, mode)
                wrong = mismatch(target.numpy(), want, allowed, d)
                assert wrong is None, f"{sample.label} {mode} {layout}: {wrong}"
