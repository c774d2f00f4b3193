"""Recorded graphs as one program: state, inputs, constants, positions.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyhal as hal

RUNS = 2  # counter


def on(device: Any, x: Any, **kind: Any) -> Any:
    return hal.asarray(np.asarray(x), device=device, **kind)


def test_a_region_sees_changed_inputs_and_keeps_state(device: Any) -> None:
    x, state = on(device, np.ones(6, np.float32)), on(device, np.zeros(6, np.float32))
    with hal.graph(device) as graph:
        hidden = hal.multiply(x, x)
        hal.add(state, hidden, out=state)
        total = hal.softmax(state, axis=-1)
    del hidden
    assert graph.form == "compiled"
    want = np.zeros(6, np.float32)
    for k in range(3):
        values = np.arange(6, dtype=np.float32) * (k + 1) * 0.1
        x.set(values)
        before = device.counter(RUNS)
        graph.launch()
        assert device.counter(RUNS) == before + 1, "a launch is one run"
        want += values * values
        np.testing.assert_allclose(state.numpy(), want, rtol=1e-6)
        e = np.exp(want - want.max())
        np.testing.assert_allclose(total.numpy(), e / e.sum(), rtol=1e-5)


def test_parts_of_blocks_inside_a_region(device: Any) -> None:
    x = on(device, np.arange(12, dtype=np.float32).reshape(3, 4))
    out = on(device, np.zeros((5, 4), np.float32))
    with hal.graph(device) as graph:
        hal.negative(x[1:], out=out[2:4])
        hal.add(out[2], x[0], out=out[0])
    graph.launch()
    want = np.zeros((5, 4), np.float32)
    want[2:4] = -x.numpy()[1:]
    want[0] = want[2] + x.numpy()[0]
    np.testing.assert_array_equal(out.numpy(), want)


def test_what_is_constant_is_computed_once(device: Any) -> None:
    """Block weights are decoded at prepare: the values are those of the single ops."""
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 256, (8, 2, 20), dtype=np.uint8)
    raw[..., :4] = rng.uniform(-1, 1, (8, 2, 2)).astype(np.float16).view(np.uint8)
    weight = hal.frombuffer(raw.reshape(-1), "q4_1", (8, 64), device=device, constant=True)
    x = on(device, rng.standard_normal((1, 64)).astype(np.float32))
    single = hal.quant_matmul(x, weight).numpy()
    with hal.graph(device) as graph:
        y = hal.quant_matmul(x, weight)
    assert graph.form == "compiled"
    graph.launch()
    np.testing.assert_allclose(y.numpy(), single, rtol=1e-5, atol=1e-5)


def test_positions_from_outside_are_looked_at_before_the_launch(device: Any) -> None:
    x, at = on(device, np.arange(5, dtype=np.float32)), on(device, np.array([1, 2]))
    with hal.graph(device) as graph:
        y = hal.take(x, at, axis=0)
    graph.launch()
    assert y.numpy().tolist() == [1, 2]
    at.set(np.array([1, 9]))
    with pytest.raises(hal.InvalidArgumentError, match="index 9"):
        graph.launch()
    assert y.numpy().tolist() == [1, 2], "nothing ran"
    at.set(np.array([0, 4]))
    graph.launch()
    assert y.numpy().tolist() == [0, 4]


def test_positions_computed_inside_fail_the_run(device: Any) -> None:
    x, at = on(device, np.arange(5, dtype=np.float32)), on(device, np.array([1, 2]))
    with hal.graph(device) as graph:
        y = hal.take(x, hal.add(at, at), axis=0)
    graph.launch()
    assert y.numpy().tolist() == [2, 4]
    at.set(np.array([1, 3]))
    graph.launch()
    with pytest.raises(hal.ExecutionFailedError, match="outside its axis"):
        y.numpy()
    at.set(np.array([0, 1]))
    graph.launch()
    assert y.numpy().tolist() == [0, 2], "the device goes on"


def test_a_graph_that_only_touches_its_own_is_still_right(device: Any) -> None:
    x = on(device, np.ones(3, np.float32), constant=True)
    with hal.graph(device) as graph:
        y = hal.add(x, x)
    graph.launch()
    assert y.numpy().tolist() == [2] * 3
