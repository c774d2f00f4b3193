"""Calls that do not fit a signature: typed, with public names, the near name suggested.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import anyhal as hal
from anyhal import training
from anyhal.runtime.queue import Queue

PUBLIC = [
    *(getattr(hal, n) for n in hal.__all__ if n not in ("Array", "Device") and "Error" not in n),
    *(getattr(training, n) for n in training.__all__),
]


@pytest.mark.parametrize("public", PUBLIC, ids=lambda f: f.__name__)
def test_an_unknown_name_is_a_typed_error(public: Any) -> None:
    with pytest.raises(hal.InvalidTypeError) as why:
        public(nonsense=1)
    assert not re.search(r"\b_\w|__", str(why.value)), "private names are nobody's business"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: hal.use(foo=1), "use: it has no argument 'foo'; leave it out (it takes device,"),
        (lambda: hal.use(numeric="bf16"), "use: it has no argument 'numeric'; did you mean 'numer"),
        (lambda: hal.zeros((2,), dtyp="int8"), "zeros: it has no argument 'dtyp'; did you mean 'd"),
        (lambda: hal.zeros((2,)).astype(), "astype: missing 1 required"),
        (lambda: hal.zeros((2,)).set(), "set: missing 1 required"),
        (lambda: Queue("cpu:0").wait(timeout=3), "Queue.wait: it has no argument 'timeout'; did y"),
        (lambda: hal.graph(foo=1), "graph: it has no argument 'foo'; leave it out (it takes on)"),
        (training.Tape, "Tape: missing 1 required positional argument: 'watched'; correct"),
        (lambda: hal.devices(1), "devices: takes 0 positional arguments but 1 was given"),
    ],
    ids=range(9),
)  # fmt: skip
def test_what_a_wrong_call_says(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(hal.InvalidTypeError) as why:
        call()
    assert str(why.value).startswith(said)
    assert "_" not in str(why.value).replace("allow_uncertified", "").replace("timeout_s", "")


def test_a_type_error_inside_a_call_stays_what_it_is() -> None:
    class Broken:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return len(5)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len") as why:
        hal.asarray(Broken())
    assert not isinstance(why.value, hal.HalError)
    assert str(inspect.signature(hal.zeros)).startswith("(shape")
