"""Calls over two devices: who runs them, what is copied, how it is shown.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.routing import replay
from anyhal.routing.policy import Contract

HERE, THERE = "cpu_ref:0", "dayone:0"
X = np.arange(12, dtype=np.float32).reshape(3, 4)
WEIGHTS = np.ones((4, 2), np.float32)


def made() -> dict[tuple[str, str], tuple[int, int]]:
    return {(r["source"], r["target"]): (r["count"], r["bytes"]) for r in hal.copies()}


def counted(before: dict[Any, Any], source: str, target: str) -> tuple[int, int]:
    then, now = before.get((source, target), (0, 0)), made().get((source, target), (0, 0))
    return now[0] - then[0], now[1] - then[1]


@pytest.fixture
def pair() -> Iterator[tuple[Any, Any]]:
    yield hal.asarray(X, device=THERE), hal.asarray(WEIGHTS, device=HERE)


def test_the_result_is_where_the_call_belongs(pair: tuple[Any, Any]) -> None:
    x, w = pair
    for scope, home in ((HERE, HERE), (THERE, THERE), ("cpu:0", THERE)):  # x has the most bytes
        with hal.use(device=scope, fallback="any"):
            result = hal.matmul(x, w)
        assert result.device.name == home
        np.testing.assert_array_equal(result.numpy(), X @ WEIGHTS)


def test_a_given_output_stays_where_it_is(pair: tuple[Any, Any]) -> None:
    x, w = pair
    out = hal.zeros((3, 2), device="cpu:0")
    before = made()
    with hal.use(device=HERE, fallback="any"):
        assert hal.matmul(x, w, out=out) is out
    np.testing.assert_array_equal(out.numpy(), X @ WEIGHTS)
    assert counted(before, THERE, HERE) == (1, X.nbytes)
    assert counted(before, HERE, "cpu:0") == (1, 24)


def test_every_copy_is_counted(pair: tuple[Any, Any]) -> None:
    x, w = pair
    before = made()
    hal.asarray(x, device=HERE)
    hal.asarray(x)  # its own device
    with hal.use(device=HERE, fallback="any"):
        hal.matmul(x, w)
    assert counted(before, THERE, HERE) == (2, 2 * X.nbytes)
    assert counted(before, HERE, THERE) == (0, 0)


def test_packed_weights_are_copied_as_they_are() -> None:
    block = np.arange(18, dtype=np.uint8)
    w = hal.frombuffer(block, "q4_0", (1, 32), device=THERE)
    before = made()
    moved = hal.asarray(w, device=HERE, constant=True)
    assert moved.numpy().tobytes() == block.tobytes() and moved.device.name == HERE
    assert counted(before, THERE, HERE) == (1, 18)


def test_an_explanation_shows_the_copies() -> None:
    text = f"matmul f32[3,4]@{THERE} f32[4,2]@{HERE}"
    with hal.use(device=HERE, fallback="any"):
        decision = hal.explain(text)
    assert decision.choice == HERE
    (copy,) = decision.copies
    assert (copy.operand, copy.source, copy.target, copy.nbytes) == (0, THERE, HERE, 48)
    assert "1 operand copied (48 bytes)" in decision.sentence
    with hal.use(device=HERE), pytest.raises(hal.InvalidArgumentError, match="different devices"):
        hal.explain(text)


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("add f32[2]@nobody:0 f32[2]", hal.NotFoundError, "nobody:0"),
        ("add f32[2]@ f32[2]", hal.InvalidArgumentError, "cannot read 'f32\\[2\\]@'"),
        ("add f32[2]cpu:0 f32[2]", hal.InvalidArgumentError, "cannot read"),
    ],
)
def test_a_place_that_cannot_be(text: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        hal.explain(text)


def test_a_recorded_call_keeps_its_places(tmp_path: Any) -> None:
    mixed, plain = f"add f32[5]@{THERE} f32[5]@{HERE}", "add f32[5] f32[5]"
    with hal.use(device=HERE, fallback="any"):
        data = hal.facts(calls=[mixed, plain])
    again = replay.from_data(data, "here")
    free = Contract(fallback="any")
    assert [c.source for c in replay.decide_again(again, mixed, contract=free).copies] == [THERE]
    assert not replay.decide_again(again, plain, contract=free).copies
    both = f"add f32[5]@{THERE} f32[5]@{THERE}"
    assert replay.decide_again(again, both, contract=free).choice == THERE
