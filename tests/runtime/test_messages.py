"""What a failure of a backend reads like: one beginning, the function that was called, a device.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal import _core

X = np.ones((3, 4), np.float32)
BAD = np.array([7], np.int32)
HOST = ("cpu", "cpu_ref", "dayone")

# function -> (call, the name of the op where it differs); each fails by its values alone
FAILS: dict[str, tuple[Callable[[], Any], str]] = {
    "take": (lambda: hal.take(hal.asarray(X), hal.asarray(BAD), axis=0), "gather"),
    "embedding": (lambda: hal.embedding(hal.asarray(X), hal.asarray(BAD)), ""),
    "scatter_add": (
        lambda: hal.scatter_add(hal.asarray(X), hal.asarray(BAD), hal.asarray(X[:1]), axis=0),
        "",
    ),
}


@pytest.mark.parametrize("backend", HOST)
@pytest.mark.parametrize("function", FAILS)
def test_a_failed_call_is_named_once(backend: str, function: str) -> None:
    call, op = FAILS[function]
    with hal.use(device=backend, allow_uncertified=HOST):
        where = hal.device(backend).name
        with pytest.raises(hal.InvalidArgumentError) as refused:
            call()
    text = str(refused.value)
    name = f"{function} ({op})" if op else function
    if backend == "dayone" and function == "embedding":  # decomposed there
        name = "embedding, its part take (gather)"
    assert text.startswith(f"{name} on {where}: index 7 "), text
    assert text.count(" on ") == 1 and text.count(backend) == 1 and "; " in text, text


@pytest.mark.parametrize("spec", ["matmul f64[2,2] f64[2,2]", "add f32[2] f32[2]"])
@pytest.mark.parametrize("backend", HOST)
def test_no_verdict_names_a_device_of_its_own(backend: str, spec: str) -> None:
    """Verdict texts come after the routing's own beginning."""
    with hal.use(device=backend, allow_uncertified=HOST):
        for refusal in (r for r in hal.explain(spec).refusals if r.reason != "policy"):
            assert not re.search(r"\bon (cpu|cpu_ref|dayone)\b", refusal.sentence), refusal


def operand(dtype: int, dims: list[int], alias_of: int = 0, stride: int = 1) -> tuple[Any, ...]:
    return (dtype, dims, [stride] * len(dims), 64, 0, alias_of, 0, 0, 0)


F32 = 1
COPY, SOFTMAX = (hal.ops.BY_NAME[name].id for name in ("copy", "softmax"))
# what is asked of dayone -> its reason, the operand, the hint that helps
DAYONE = {
    "op": (SOFTMAX, [operand(F32, [2]), operand(F32, [2])], -1, "fallback='decompose'"),
    "dtype": (COPY, [operand(99, [2]), operand(99, [2])], 0, "cast"),
    "rank": (COPY, [operand(F32, [1] * 9), operand(F32, [1] * 9)], 0, "reshape"),
    "layout": (COPY, [operand(F32, [2]), operand(F32, [2], 1, 3)], -1, "dense copy"),
}


@pytest.mark.parametrize("reason", DAYONE)
def test_a_day_one_refusal_says_what_helps(reason: str) -> None:
    op, operands, at, hint = DAYONE[reason]
    with hal.use(device="dayone", allow_uncertified=HOST):
        native = hal.device("dayone").native
    verdict = _core.query(native, op, len(operands) - 1, operands, b"", [])
    assert (verdict["support"], verdict["reason"], verdict["operand"]) == (0, reason, at)
    assert hint in verdict["text"] and "dayone" not in verdict["text"]
    assert (reason == "dtype") == ("cast" in verdict["text"])
