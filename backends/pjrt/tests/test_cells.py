"""Cells: views, parts, what was never written, sharing, and what is left over.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import anyhal as hal

LIVE_BUFFERS, LIVE_PROGRAMS = 0, 1
BASE = np.arange(7 * 11 * 4, dtype=np.float32).reshape(7, 11, 4)


def views() -> Iterator[tuple[str, Any]]:
    yield "rows", lambda x: x[2:5]
    yield "columns", lambda x: x[:, 3:8]
    yield "steps", lambda x: x[1::2, ::3]
    yield "one", lambda x: x[3, 2]
    yield "transposed", lambda x: x.transpose(2, 0, 1)
    yield "part, transposed", lambda x: x[1:6, 2:9].transpose(1, 2, 0)
    yield "last", lambda x: x[6:, 10:, 1:4:2]


@pytest.mark.parametrize("name, view", list(views()), ids=[n for n, _ in views()])
def test_a_view_is_read_and_written_where_it_lies(device: Any, name: str, view: Any) -> None:
    x = hal.asarray(BASE, device=device)
    want = view(BASE)
    np.testing.assert_array_equal(hal.add(view(x), view(x)).numpy(), want + want)
    target = BASE.copy()
    hal.negative(view(x), out=view(x))
    view(target)[...] *= -1
    np.testing.assert_array_equal(x.numpy(), target)


def test_windows_that_overlap_are_gathered(device: Any) -> None:
    x = hal.asarray(np.arange(10, dtype=np.int32), device=device)
    rows = hal.broadcast_to(x[2:5], (4, 3))
    assert hal.add(rows, rows).numpy().tolist() == [[4, 6, 8]] * 4


def test_one_block_read_and_written_in_one_call(device: Any) -> None:
    """The program may overwrite the block, and reads another part of it: both must be right."""
    x = hal.asarray(np.arange(12, dtype=np.float32).reshape(3, 4), device=device)
    hal.add(x[0], x[1], out=x[2])
    assert x.numpy()[2].tolist() == [4, 6, 8, 10]
    assert x.numpy()[:2].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_what_was_never_written_can_be_read(device: Any) -> None:
    x = hal.empty((5,), device=device)
    assert hal.add(x, x).numpy().shape == (5,)
    assert hal.empty((5,), device=device).numpy().shape == (5,)


def test_in_place_over_many_steps(device: Any) -> None:
    x = hal.asarray(np.zeros(1000, np.float32), device=device)
    one = hal.asarray(np.ones(1000, np.float32), device=device)
    for _ in range(200):
        hal.add(x, one, out=x)
    assert (x.numpy() == 200).all() and (one.numpy() == 1).all()


def test_a_cache_grows_row_by_row(device: Any) -> None:
    cache = hal.zeros((1, 2, 16, 4), device=device)
    want = np.zeros((1, 2, 16, 4), np.float32)
    for k in range(16):
        row = np.full((1, 2, 1, 4), k + 1, np.float32)
        at = hal.asarray(np.array([k], np.int32), device=device)
        hal.cache_append(cache, hal.asarray(row, device=device), at)
        want[:, :, k] = k + 1
    np.testing.assert_array_equal(cache.numpy(), want)


def test_more_calls_than_the_plugin_takes_at_once(device: Any) -> None:
    x = hal.asarray(np.full((64, 64), 0.01, np.float32), device=device)
    y = x
    for _ in range(150):
        y = hal.matmul(y, x)
        y = y / hal.max(y)
    assert np.isfinite(y.numpy()).all()


def test_nothing_is_left_over(device: Any) -> None:
    def work() -> None:
        x = hal.asarray(BASE, device=device)
        for _ in range(10):
            x = hal.add(x[1:], x[:1]) if x.shape[0] > 1 else x
            hal.add(x, x, out=x)
        with hal.graph(device) as graph:
            y = hal.exp(x) + x
        graph.launch()
        y.numpy()

    def settled() -> tuple[int, int]:
        gc.collect()
        device.synchronize()
        device.native.trim()
        return device.counter(LIVE_BUFFERS), device.counter(LIVE_PROGRAMS)

    work()
    before = settled()
    for _ in range(3):
        work()
    after = settled()
    assert after[0] <= before[0] + 1, "device buffers stayed"
    assert after[1] <= before[1] + 1, "programs stayed"


def test_two_queues_share_blocks_in_program_order(device: Any) -> None:
    first, second = hal.Queue(device), hal.Queue(device)
    x = hal.asarray(np.ones(512, np.float32), device=device)
    for _ in range(50):
        with hal.use(queue=first):
            hal.add(x, x, out=x)
        with hal.use(queue=second):
            hal.multiply(x, hal.asarray(np.full(512, 0.5, np.float32), device=device), out=x)
    assert (x.numpy() == 1).all()
