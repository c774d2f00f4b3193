"""A recorded step on each device: compiled, in the driver's graph, or replayed by the core.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import numpy as np
import pytest
from everywhere import DEVICES, SEED, random_values

import anyhal as hal

pytestmark = pytest.mark.foreign

SIZE = 16


def test_a_recorded_step_sees_changed_inputs_and_keeps_state(device: str) -> None:
    rng = np.random.default_rng(SEED)
    weight, start = random_values(rng, SIZE, SIZE), random_values(rng, 4, SIZE)
    w = hal.asarray(weight, device=device, constant=True)
    x = hal.zeros((4, SIZE), device=device)
    state = hal.asarray(start, device=device)
    with hal.graph(device) as graph:
        hidden = hal.multiply(hal.matmul(x, w), 0.25)
        hal.add(state, hidden, out=state)
        out = hal.softmax(state, axis=-1)
    del hidden
    assert graph.form == DEVICES[device]
    wanted = start.astype(np.float64)
    for _ in range(3):
        values = random_values(rng, 4, SIZE)
        x.set(values)
        graph.launch()
        wanted += values.astype(np.float64) @ weight * 0.25
        np.testing.assert_allclose(state.numpy(), wanted, rtol=1e-5, atol=1e-5)
        e = np.exp(wanted - wanted.max(-1, keepdims=True))
        np.testing.assert_allclose(out.numpy(), e / e.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_two_launches_without_a_wait_between_them(device: str) -> None:
    x = hal.zeros((64,), device=device)
    with hal.graph(device) as graph:
        hal.add(x, 1.0, out=x)
    for _ in range(20):
        graph.launch()
    assert (x.numpy() == 20).all()
