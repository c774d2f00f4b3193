"""What a behaviour is: a case, the rows of the catalogue it answers, and how it is found out.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from anyhal.conformance.suite import Case
from anyhal.records import record
from anyhal.routing.facts import DeviceFact
from anyhal.runtime.device import Device


class Bench(Protocol):
    """What a case runs on; the worker has it."""

    device: Device
    seed: int

    @property
    def device_name(self) -> str: ...
    @property
    def facts(self) -> DeviceFact: ...
    @property
    def capabilities(self) -> list[dict[str, Any]]: ...
    def rng(self, tensor: str = "") -> np.random.Generator: ...


class WrongError(Exception):
    """The backend broke the behaviour."""

    def __init__(self, code: str, reason: str, **measured: Any) -> None:
        super().__init__(reason)
        self.code, self.measured = code, measured


class NotApplicableError(Exception):
    """The device cannot have this behaviour, and says so itself: no queues, no such memory."""


Measured = Mapping[str, Any] | None


@record
class Behaviour:
    """`rows` are those of the catalogue in docs/explanation/what-behaviour-is-checked.md."""

    case: Case
    rows: tuple[int, ...]
    what: str
    check: Callable[..., Measured]


ALL: dict[str, Behaviour] = {}


def behaviour(
    name: str, /, *rows: int, tier: str = "quick", seconds: float = 60.0, **given: Any
) -> Callable[[Callable[..., Measured]], Callable[..., Measured]]:
    """Registers a check under an id; its docstring's first sentence is what the docs say of it."""

    def register(check: Callable[..., Measured]) -> Callable[..., Measured]:
        case = Case(f"behaviour/{name}", "behaviour", tier=tier, seconds=seconds, given=dict(given))
        text = inspect.getdoc(check) or ""
        what = " ".join(text.partition("\n\n")[0].split()).format(**given)
        assert case.id not in ALL, case.id
        ALL[case.id] = Behaviour(case, rows, what, check)
        return check

    return register


def require(holds: bool, code: str, reason: str, **measured: Any) -> None:
    if not holds:
        raise WrongError(code, reason, **measured)


def require_equal(found: np.ndarray, right: np.ndarray, code: str, what: str) -> None:
    """Bit by bit."""
    if found.tobytes() == right.tobytes():
        return
    wrong = np.flatnonzero(found.ravel() != right.ravel())
    at = int(wrong[0]) if wrong.size else 0
    raise WrongError(
        code,
        f"{what}: element {at} is {found.ravel()[at]!r}, right is {right.ravel()[at]!r}"
        f" ({wrong.size} of {found.size} differ)",
    )
