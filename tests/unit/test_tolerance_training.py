"""The bounds of losses, gradients and optimiser steps: honest results pass, broken ones do not.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from anyhal import ops
from anyhal.conformance.gradients import BOUNDS_OF_TRAINING
from anyhal.conformance.tolerance import bound, mismatch
from anyhal.dtypes import dtype
from anyhal.ops._checks import FLOATS

OPS = [s for s in ops.BY_NAME.values() if s.bound in BOUNDS_OF_TRAINING]
OUTPUTS = [(spec, i) for spec in OPS for i in range(len(spec.outputs))]


def sample(name: str) -> Any:
    """The first sample in f32 that has every output."""
    spec = ops.lookup(name)
    for case in spec.samples(np.random.default_rng(3)):
        main = case.inputs[0]
        if main.dtype != np.float32 or main.size < 20:
            continue
        found = spec.reference_outs(*case.inputs, **case.attrs)
        if all(x is not None and np.isfinite(x).all() and x.size for x in found):
            return case, found
    raise AssertionError(f"{name} has no plain sample")


def judge(spec: Any, i: int, case: Any, want: Any, actual: Any) -> str | None:
    allowed = bound(spec.bound_of(i), spec, case.inputs, case.attrs, want, dtype("f32"))
    return mismatch(actual, want, allowed, dtype("f32"))


@pytest.mark.parametrize(("spec", "i"), OUTPUTS, ids=lambda v: getattr(v, "name", v))
def test_each_bound_tells_f32_from_shorter_floats(spec: Any, i: int) -> None:
    case, found = sample(spec.name)
    want = np.asarray(found[i])
    assert judge(spec, i, case, want, want.astype(np.float32)) is None
    for short in (np.float16, ml_dtypes.bfloat16):
        assert judge(spec, i, case, want, want.astype(short).astype(np.float32)) is not None
    assert judge(spec, i, case, want, np.zeros(want.shape, np.float32)) is not None
    bad = want.astype(np.float32)
    bad.reshape(-1)[np.argmax(np.abs(want))] *= np.float32(1.001)
    assert judge(spec, i, case, want, bad) is not None


def test_every_bound_here_is_used() -> None:
    assert {spec.bound_of(i) for spec, i in OUTPUTS} == set(BOUNDS_OF_TRAINING)
    assert set(FLOATS) == set(ops.lookup("cross_entropy").dtypes)


def test_a_loss_from_the_whole_logarithm_is_caught() -> None:
    """lse - x loses the loss where logits are large; the bound allows what max - x gives."""
    spec = ops.lookup("cross_entropy")
    x = (1e5 + np.random.default_rng(0).standard_normal((4, 8))).astype(np.float32)
    targets, attrs = np.zeros(4, np.int64), {"reduction": "none"}
    want, _ = spec.reference(x, targets, **attrs)
    allowed = bound("cross_entropy", spec, (x, targets), attrs, want, dtype("f32"))
    assert mismatch(want.astype(np.float32), want, allowed, dtype("f32")) is None
    wide = x.astype(np.float64)
    lse = np.log(np.exp(wide - 1e5).sum(axis=1)) + 1e5
    lossy = lse.astype(np.float32) - x[:, 0]
    assert mismatch(lossy, want, allowed, dtype("f32")) is not None


def test_a_device_that_flushes_may_lose_what_a_large_loss_brings_back() -> None:
    """A probability below the smallest normal number is flushed, then multiplied by dloss."""
    spec = ops.lookup("cross_entropy_backward")
    x = np.array([[-87.5, 0]], np.float32)
    inputs = (x, np.array([1]), np.array([16], np.float32), None)
    attrs = {"reduction": "none", "ignore_index": -100, "label_smoothing": 0.0}
    want = spec.reference(*inputs, **attrs)
    flushed = want.astype(np.float32)
    assert flushed[0, 0] > 2.0**-126, "no denormal itself"
    flushed[0, 0] = 0
    given = ("cross_entropy_backward", spec, inputs, attrs, want, dtype("f32"))
    found = [
        mismatch(flushed, want, bound(*given, flushes=declared), dtype("f32"), flushes=declared)
        for declared in (True, False)
    ]
    assert found[0] is None and found[1] is not None
    flushed[0, 0] = 1e-34  # far more than flushing explains
    allowed = bound(*given, flushes=True)
    assert mismatch(flushed, want, allowed, dtype("f32"), flushes=True) is not None


def test_a_bias_correction_by_power_is_caught() -> None:
    spec = ops.lookup("adamw_step")
    one, zero = np.ones(4, np.float32), np.zeros(4, np.float32)
    lr, step = np.array(1.0, np.float32), np.array(2)
    inputs = (zero, zero, zero, one, lr, step)
    attrs = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
    want = spec.reference(*inputs, **attrs)[0]
    allowed = bound("adamw_step", spec, inputs, attrs, want, dtype("f32"))
    b1, b2 = np.float32(0.9), np.float32(0.999)
    v = np.float32(1) - b2
    second = np.float32(1) - np.float32(0.998001)  # 0.999^2, rounded
    m = np.float32(1) - b1
    first = np.float32(1) - b1 * b1
    power = -(m / first) / np.sqrt(v / second) * one
    assert mismatch(want.astype(np.float32), want, allowed, dtype("f32")) is None
    assert mismatch(power, want, allowed, dtype("f32")) is not None
