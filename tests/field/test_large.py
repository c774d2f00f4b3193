"""Arrays of more than 2^31 elements: every element is written, no index wraps.
SPDX-License-Identifier: Apache-2.0

Only when asked for (`pytest -n 0 -m large`): each test fills several gigabytes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anyhal as hal

pytestmark = pytest.mark.large

LIMIT = 2**31
GIB = 2**30
COLUMNS = 50_259  # a vocabulary, as in NUM-09
ROWS = LIMIT // COLUMNS + 7


def available() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


AVAILABLE = available()  # before the first test: what one frees, the pools keep for the next


@pytest.fixture(params=["cpu", "cpu_ref"])
def device(request: pytest.FixtureRequest) -> str:
    if AVAILABLE < 10 * GIB:
        pytest.skip(f"needs 10 GiB of memory, {AVAILABLE / GIB:.1f} were available")
    name = f"{request.param}:0"
    if name not in [d.name for d in hal.devices()]:
        pytest.skip(f"{name} is not here")
    return name


def rows_of(result: hal.Array, count: int) -> np.ndarray:
    """The first, last and some middle rows, those around element 2^31 among them."""
    edge = LIMIT // result.shape[1]
    wanted = sorted({0, 1, count // 2, edge - 1, edge, edge + 1, count - 2, count - 1})
    return np.stack([np.asarray(result[row]) for row in wanted])


def test_NUM_09_softmax_of_more_than_2_31_elements(device: str) -> None:
    row = np.random.default_rng(9).standard_normal(COLUMNS).astype(np.float16)
    with hal.use(device=device):
        x = hal.broadcast_to(hal.asarray(row, device=device), (ROWS, COLUMNS))
        alone = np.asarray(hal.softmax(hal.asarray(row, device=device), axis=-1))
        result = rows_of(hal.softmax(x, axis=-1), ROWS)
    assert np.all(result == alone)
    assert np.allclose(result[-5:].astype(np.float64).sum(axis=1), 1, atol=1e-2)


@pytest.mark.parametrize("op", ["copy", "unary", "binary", "where", "cast"])
def test_NUM_09_elementwise_writes_the_tail(device: str, op: str) -> None:
    row = np.arange(COLUMNS, dtype=np.int64).astype(np.int8)
    with hal.use(device=device):
        x = hal.broadcast_to(hal.asarray(row, device=device), (ROWS, COLUMNS))
        run = {
            "copy": lambda: hal.copy(x),
            "unary": lambda: hal.bitwise_invert(x),
            "binary": lambda: hal.add(x, x),
            "where": lambda: hal.where(hal.less(x, 3), x, hal.bitwise_invert(x)),
            "cast": lambda: hal.astype(x, dtype="u8"),
        }[op]
        result = rows_of(run(), ROWS)
    with np.errstate(over="ignore"):
        right = {
            "copy": row,
            "unary": ~row,
            "binary": row + row,
            "where": np.where(row < 3, row, ~row),
            "cast": row.astype(np.uint8),
        }[op]
    assert np.all(result == right)


def test_NUM_09_reductions_see_every_element(device: str) -> None:
    with hal.use(device=device):
        ones = hal.broadcast_to(hal.ones((1, 1), dtype="i8", device=device), (ROWS, COLUMNS))
        assert int(hal.sum(ones, dtype="i64")) == ROWS * COLUMNS
        flat = hal.full((LIMIT + 5,), 1, dtype="i8", device=device)
        flat[LIMIT + 3].set(7)
        assert int(hal.argmax(flat, axis=0)) == LIMIT + 3
        assert int(hal.max(flat)) == 7


def test_NUM_10_strides_beyond_2_31_bytes(device: str) -> None:
    with hal.use(device=device):
        base = hal.zeros((3, LIMIT // 2 + 64), dtype="i8", device=device)
        base[2, -1].set(5)
        column = base[:, -1]  # two steps of more than 2^30 bytes
        assert np.asarray(hal.copy(column)).tolist() == [0, 0, 5]
        assert int(hal.sum(hal.astype(column, dtype="i32"))) == 5
        taken = hal.take(base, hal.asarray(np.array([2]), device=device), axis=0)
        assert int(taken[0, -1]) == 5
