"""What goes wrong: positions outside, memory that runs out, sizes that would end the process.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyhal as hal


def on(device: Any, x: Any) -> Any:
    return hal.asarray(np.asarray(x), device=device)


@pytest.mark.parametrize("bad", [7, -1, 2**31 - 1, 5])
def test_an_index_outside_is_refused_and_nothing_is_written(device: Any, bad: int) -> None:
    x = on(device, np.arange(5, dtype=np.float32))
    out = on(device, np.full(3, 9, np.float32))
    with pytest.raises(hal.InvalidArgumentError, match=rf"index {bad} is outside \[0, 5\)"):
        hal.take(x, on(device, np.array([0, bad, 1])), axis=0, out=out)
    assert out.numpy().tolist() == [9, 9, 9]
    assert hal.take(x, on(device, np.array([4, 0])), axis=0).numpy().tolist() == [4, 0]


def test_a_scatter_outside_adds_nothing(device: Any) -> None:
    x = on(device, np.zeros(4, np.float32))
    with pytest.raises(hal.InvalidArgumentError, match="outside"):
        hal.scatter_add(
            x, on(device, np.array([0, 4])), on(device, np.ones(2, np.float32)), axis=0, out=x
        )
    assert x.numpy().tolist() == [0] * 4


def test_a_full_cache_is_refused_and_keeps_its_rows(device: Any) -> None:
    cache = on(device, np.ones((1, 1, 4, 2), np.float32))
    row = on(device, np.zeros((1, 1, 1, 2), np.float32))
    with pytest.raises(hal.InvalidArgumentError, match="outside"):
        hal.cache_append(cache, row, on(device, np.array([4], np.int32)))
    assert (cache.numpy() == 1).all()


def test_positions_that_the_device_computes_are_looked_at_too(device: Any) -> None:
    x = on(device, np.arange(6, dtype=np.float32))
    at = hal.add(on(device, np.array([3])), on(device, np.array([3])))
    with pytest.raises(hal.InvalidArgumentError, match="index 6"):
        hal.take(x, at, axis=0)


def test_memory_that_is_not_there_is_said_and_others_go_on(device: Any, plugins: list[Any]) -> None:
    """The core promises no more than the device has; what runs out later is in test_device_loss."""
    one = on(device, np.ones(4, np.float32))
    with pytest.raises((hal.OutOfMemoryError, hal.ExecutionFailedError)) as caught:
        huge = hal.add(
            hal.broadcast_to(one[:1], (1 << 38,)), hal.broadcast_to(one[1:2], (1 << 38,))
        )
        hal.sum(huge).numpy()
    assert "memory" in str(caught.value).lower()
    del caught
    assert hal.add(one, one).numpy().tolist() == [2] * 4
    other = next(d for d in plugins if d is not device)
    assert hal.add(on(other, [1.0]), on(other, [1.0])).numpy().tolist() == [2]


def test_an_in_place_operand_of_a_failed_run_is_lost_by_name(device: Any) -> None:
    rows = 1 << 20
    x = on(device, np.zeros(4, np.float32))
    kept = on(device, np.ones(4, np.float32))
    try:
        wide = hal.broadcast_to(kept, (rows, rows, 4))
        hal.add(x, hal.sum(hal.add(wide, wide), axis=(0, 1)), out=x)
        x.numpy()
    except (hal.OutOfMemoryError, hal.ExecutionFailedError) as why:
        assert "memory" in str(why).lower()
    assert kept.numpy().tolist() == [1] * 4, "plain inputs survive"
    x.set(np.full(4, 3, np.float32))
    assert x.numpy().tolist() == [3] * 4, "a whole write makes the cell good again"


@pytest.mark.parametrize("shape", [(1 << 50,), (1 << 30, 1 << 30), (1 << 45, 8)])
def test_sizes_that_end_the_process_never_reach_the_plugin(
    device: Any, shape: tuple[int, ...]
) -> None:
    with pytest.raises((hal.OutOfMemoryError, hal.UnsupportedError, hal.InvalidArgumentError)):
        hal.zeros(shape, device=device)
    one = on(device, np.ones(1, np.float32))
    with pytest.raises((hal.OutOfMemoryError, hal.UnsupportedError, hal.InvalidArgumentError)):
        hal.add(hal.broadcast_to(one, shape), one)
    assert hal.add(one, one).numpy().tolist() == [2]
