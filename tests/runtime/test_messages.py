"""Sentences that a newcomer misread, as they are now.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import anyhal as hal


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: hal.max(hal.zeros((0,))), "max: f32[0] has no elements, and the max of none"),
        (lambda: hal.max(hal.zeros((0, 2)), axis=0), "no elements along axis 0, and"),
        (lambda: hal.argmax(hal.zeros((0,)), axis=0), "no elements along axis 0, and"),
        (lambda: hal.zeros((4,)).reshape(-1, -1), "-1 is there 2 times, and only one size"),
        (lambda: hal.asarray(-(2**63) - 1), "is below what int64 holds"),
        (lambda: hal.asarray(2**64), "is above what uint64 holds"),
        (lambda: hal.sum(hal.zeros((2,)), axis=0.0), "sum: axis=0.0 is not an integer"),
    ],
    ids=range(7),
)  # fmt: skip
def test_what_a_refusal_says(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(hal.InvalidArgumentError) as why:
        call()
    assert said in str(why.value)


@pytest.mark.parametrize("call", [lambda: hal.device(0), lambda: hal.zeros((2,), device=0)])
def test_a_device_that_is_no_text_is_a_wrong_type(call: Callable[[], Any]) -> None:
    with pytest.raises(hal.InvalidTypeError, match="0 is of type int"):
        call()
    with pytest.raises(hal.InvalidTypeError, match="0 is of type int"):
        hal.select_backend(0)  # type: ignore[arg-type]


def test_an_explanation_leaves_out_the_operands_that_are_not_there() -> None:
    said = str(hal.explain("matmul_epilogue f32[2,3] f32[3,2]"))
    assert said.startswith("matmul_epilogue f32[2,3] f32[3,2] activation=none")
    assert "f32[3,2] absent f32[2,2]" in str(
        hal.explain("matmul_epilogue f32[2,3] f32[3,2] absent f32[2,2]")
    )
