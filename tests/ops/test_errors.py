"""Values that only the device sees: refused alike by every device, fused and decomposed.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.errors import InvalidArgumentError
from device_runs import devices, forced, run
from positions import OUTSIDE, positions_outside

MODES = pytest.mark.parametrize("mode", ["chosen", "decomposed"])
ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}


@MODES
@pytest.mark.parametrize("length", [6, -1, 2**31])
@pytest.mark.parametrize("queries", [1, 3, 40])
@pytest.mark.parametrize("device", devices())
def test_a_length_that_is_no_number_of_keys(
    device: str, queries: int, length: int, mode: str
) -> None:
    rng = np.random.default_rng(0)
    q = rng.standard_normal((2, 2, queries, 8)).astype(np.float32)
    k, v = rng.standard_normal((2, 2, 1, 5, 8)).astype(np.float32)
    for bad in (np.array(length), np.array([3, length])):
        with pytest.raises(InvalidArgumentError):
            run("attention", q, k, v, bad, device=device, mode=mode, scale=0.3, causal="none")
            hal.synchronize()
    right = np.array([5, 0])
    out = run("attention", q, k, v, right, device=device, mode=mode, scale=0.3, causal="none")
    assert np.isfinite(out).all() and (out[1] == 0).all()  # the device stays usable


@MODES
@pytest.mark.parametrize(("rows", "width"), [(0, 2), (4, 0), (0, 0), (4, 2)])
@pytest.mark.parametrize("device", devices())
def test_an_id_outside_a_table_without_elements(
    device: str, rows: int, width: int, mode: str
) -> None:
    dout = np.ones((3, width), np.float32)
    for bad in ([0, 1, 4], [0, -1, 2]):
        with pytest.raises(InvalidArgumentError, match="outside"):
            run("embedding_backward", dout, np.array(bad), device=device, mode=mode, rows=rows)
            hal.synchronize()
    nothing = np.zeros(0, np.int64)
    out = run("embedding_backward", dout[:0], nothing, device=device, mode=mode, rows=rows)
    assert out.shape == (rows, width) and (out == 0).all()


@pytest.mark.parametrize(("shape", "at"), OUTSIDE)
@pytest.mark.parametrize("op", ["take", "scatter_add"])
@pytest.mark.parametrize("device", devices())
def test_a_position_outside_where_there_is_nothing_to_read(
    device: str, op: str, shape: tuple[int, int], at: int
) -> None:
    positions_outside(device, op, shape, at)


def still_ones(a: Any) -> None:
    """As it was, or known to be lost with the calls that followed the failed one on its queue."""
    try:
        assert (a.numpy() == 1).all()
    except InvalidArgumentError as why:
        assert "never computed" in str(why)
        a.set(np.ones(a.shape, np.float32))


@MODES
@pytest.mark.parametrize("size", [3, 0])
@pytest.mark.parametrize("step", [0, -1, -(2**31), np.array(0, np.int32)])
@pytest.mark.parametrize("device", devices())
def test_a_step_of_adam_below_one_changes_nothing(
    device: str, step: Any, size: int, mode: str
) -> None:
    with hal.use(device=device), forced(mode):
        states = [hal.ones((size,)) for _ in range(4)]
        number = hal.asarray(step)
        with pytest.raises(InvalidArgumentError):
            hal.adamw_step(*states, 0.1, number, **ADAM)
            hal.synchronize()
        for state in states:
            still_ones(state)
        hal.adamw_step(*states, 0.1, 1, **ADAM)
        assert np.isfinite(states[0].numpy()).all() and (states[0].numpy() < 1).all()
