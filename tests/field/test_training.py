"""Field cases that touch losses, gradients and optimiser steps, on every device, in both forms.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.dtypes import dtype
from anyhal.errors import HalError, InvalidArgumentError
from anyhal.ops import BY_NAME
from anyhal.training import Tape
from device_runs import Output, call, devices, place, run

Run = Callable[..., Any]
F32 = np.float32
NAN, INF = np.nan, np.inf


@pytest.fixture(params=devices())
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["chosen", "decomposed"])
def on(request: pytest.FixtureRequest, device: str) -> Run:
    """Runs an op on NumPy values, as a tuple of NumPy values."""

    def run_here(op: str, *inputs: Any, **attrs: Any) -> tuple[Any, ...]:
        arrays = [None if x is None else place(np.asarray(x), "dense", device) for x in inputs]
        made = call(BY_NAME[op], arrays, attrs, mode=request.param)
        return tuple(a.numpy() for a in (made if isinstance(made, tuple) else (made,)))

    return run_here


def normal(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(F32)


def test_num_03_a_row_that_sees_nothing_has_no_gradient(on: Run) -> None:
    d, q, k, v = normal(4, 1, 1, 3, 4)
    seen = np.array([[True] * 3, [False] * 3, [True, False, False]])
    dq, dk, dv = on("attention_backward", d, q, k, v, None, seen, scale=0.5, causal="none")
    assert (dq[0, 0, 1] == 0).all()
    one = on("attention_backward", 9 * d, q, k, v, None, seen & False, scale=0.5, causal="none")
    assert all((x == 0).all() for x in one)
    assert np.isfinite(dk).all() and np.isfinite(dv).all()


@pytest.mark.parametrize("hidden", ["mask", "length", "causal"])
def test_num_04_a_hidden_key_has_no_part_in_gradients(on: Run, hidden: str) -> None:
    d, q, k, v = normal(4, 1, 2, 2, 4)
    k, v = (np.concatenate([x, x], axis=2) for x in (k, v))
    length = np.array(2) if hidden == "length" else None
    mask = np.arange(4) < 2 if hidden == "mask" else None
    causal = "first_key" if hidden == "causal" else "none"
    wanted = on("attention_backward", d, q, k, v, length, mask, scale=0.5, causal=causal)
    k[:, :, 2:], v[:, :, 2:] = NAN, INF
    found = on("attention_backward", d, q, k, v, length, mask, scale=0.5, causal=causal)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_num_06_num_07_rows_of_infinities(on: Run) -> None:
    rows = np.array([[-INF] * 5, [INF, 0, 1, 2, 3], [0, 1, 2, 3, -INF]], F32)
    (loss,) = on("cross_entropy", rows, [0, 0, 1], reduction="none")
    assert np.isnan(loss[:2]).all() and np.isfinite(loss[2])
    (dx,) = on("cross_entropy_backward", rows, [0, 0, 1], F32([1, 1, 1]), reduction="none")
    assert np.isnan(dx[:2]).all() and np.isfinite(dx[2]).all() and dx[2, 4] == 0


@pytest.mark.parametrize("offset", [0, 1e4, 1e6])
def test_num_08_a_large_offset_costs_no_digits(on: Run, offset: float) -> None:
    x = F32(offset) + np.arange(8, dtype=F32)[None]
    want = np.log(np.exp(np.arange(8.0) - 7).sum())
    (loss,) = on("cross_entropy", x, [7], reduction="mean")
    np.testing.assert_allclose(loss, want, rtol=1e-6)


@pytest.mark.parametrize("mean", [0, 100, 1000, 10000])
def test_num_15_gradients_of_rows_with_a_large_mean(on: Run, mean: float) -> None:
    x = (mean + np.arange(16) * 1e-3).astype(F32)[None]
    d = normal(1, 16)
    want, _, _ = BY_NAME["layer_norm_backward"].reference(d, x, None, eps=1e-5)
    dx, _ = on("layer_norm_backward", d, x, None, eps=1e-5)
    np.testing.assert_allclose(dx, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("op", ["layer_norm_backward", "rms_norm_backward"])
@pytest.mark.parametrize("size", [1e30, 1e-30, 3e38])
def test_num_16_gradients_of_norms_at_the_ends_of_the_range(on: Run, op: str, size: float) -> None:
    x = (size / 4 * np.array([[1, 2, 3, 4]])).astype(F32)
    d = normal(1, 4)
    eps = 1e-5 if size > 1 else 0.0
    found = on(op, d, x, np.ones(4, F32), eps=eps)
    wanted = BY_NAME[op].reference(d, x, np.ones(4, F32), eps=eps)
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())


def test_num_22_a_step_writes_its_three_arrays_and_nothing_else(device: str) -> None:
    rng = np.random.default_rng(0)
    frame = hal.asarray(rng.standard_normal((5, 9)).astype(F32), device=device)
    before = frame.numpy()
    grad = hal.asarray(normal(3, 4), device=device)
    p, m, v = (
        frame[1:4, 1:9:2],
        hal.zeros((3, 4), device=device),
        hal.zeros((3, 4), device=device),
    )
    attrs = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.0}
    made = hal.adamw_step(p, m, v, grad, 0.1, 1, **attrs)
    assert [a is b for a, b in zip(made, (p, m, v), strict=True)] == [True] * 3
    after = frame.numpy()
    assert (after[1:4, 1:9:2] != before[1:4, 1:9:2]).all()
    after[1:4, 1:9:2] = before[1:4, 1:9:2]
    assert after.tobytes() == before.tobytes()
    assert grad.numpy().tobytes() == normal(3, 4).tobytes()
    with pytest.raises(InvalidArgumentError):
        hal.adamw_step(p, p, v, grad, 0.1, 1, **attrs)


@pytest.mark.parametrize("bad", [-1, 3, 2**31 - 1])
def test_num_23_num_42_an_index_outside_is_refused(on: Run, device: str, bad: int) -> None:
    with pytest.raises(HalError):
        on("embedding_backward", normal(2, 4), np.array([0, bad]), rows=3)
    with pytest.raises(HalError):
        on("cross_entropy", normal(2, 3), np.array([0, bad]), reduction="none")
    with pytest.raises(HalError):
        one = np.ones((), F32)
        on("cross_entropy_backward", normal(2, 3), np.array([0, bad]), one, reduction="sum")
    out = Output((3, 4), dtype("f32"), "gaps", device)
    arrays = [hal.asarray(x, device=device) for x in (normal(2, 4), np.array([0, bad]))]
    with pytest.raises(HalError):
        call(BY_NAME["embedding_backward"], arrays, {"rows": 3}, out.view)
        hal.synchronize()
    assert out.untouched()


def test_num_27_a_gradient_turns_back_what_rope_turned(device: str) -> None:
    x, positions = normal(2, 4, 8), np.array([0, 2048, 2049, 40000])
    attrs = {"pairing": "interleaved", "base": 10000.0}
    array = hal.asarray(x, device=device)
    tape = Tape([array])
    turned = tape.rope(array, hal.asarray(positions, device=device), **attrs)
    loss = tape.sum(tape.multiply(turned, turned))
    (dx,) = tape.gradients(loss)
    np.testing.assert_allclose(dx.numpy(), 2 * x, rtol=1e-5, atol=1e-5)


OPS = [s for s in BY_NAME.values() if 80 <= s.id <= 91]


@pytest.mark.parametrize("spec", OPS, ids=lambda s: s.name)
def test_det_03_every_training_op_repeats_its_bits(on: Run, spec: Any) -> None:
    for sample in list(spec.samples(np.random.default_rng(2)))[:6]:
        first, second = (on(spec.name, *sample.inputs, **sample.attrs) for _ in range(2))
        for a, b in zip(first, second, strict=True):
            assert a.tobytes() == b.tobytes(), sample.label


@pytest.mark.parametrize("device", devices())
def test_the_gradient_of_an_outliers_row_rounds_its_difference_once(device: str) -> None:
    """exp(x - max - log) rounds two differences of 70, and so is up to 128 units off."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((512, 8))
    x[:, 0] = 67 + rng.random(512)
    x[:, 1] = x[:, 0] - 0.3  # so that the sum is not 1
    targets = np.zeros(512, np.int64)
    found = run(
        "cross_entropy_backward", x, targets, np.float64(1.0), device=device, reduction="sum"
    )
    wide = x.astype(np.longdouble)
    e = np.exp(wide - wide.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    worst = np.max(np.abs(found[:, 2:] - p[:, 2:]) / p[:, 2:])
    depth = wide.max() - wide.min()
    assert worst <= (depth + 3 + 2 * 6 + 5) * 2.0**-53
