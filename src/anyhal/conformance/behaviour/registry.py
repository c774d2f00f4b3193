"""What a behaviour is: a case, the rows of the catalogue it answers, and how it is found out.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from anyhal.conformance.suite import Case
from anyhal.errors import UnsupportedError
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


class NotDeclaredError(Exception):
    """The backend does not declare an op that the case needs."""


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


def not_declared(bench: Bench, why: UnsupportedError) -> NotDeclaredError | None:
    """What a refused call means where the backend never declared it; None where it did, so that the
    refusal is a failure. Rows name no functions: these are refused with reason `attribute`."""
    call = why.call
    if call is None:
        return None
    fn = call.attrs.get("fn", "")
    name = f"{call.op} {fn}".strip()
    dtypes = {d for row in bench.capabilities if row["op"] == call.op for d in row["dtypes"]}
    backend = bench.facts.backend
    if not dtypes:
        return NotDeclaredError(f"it needs {name}, which {backend} does not declare")
    operand = next((o.text for o in call.operands if o.text != "absent"), "")
    kind = operand.partition("[")[0]
    if kind and kind not in dtypes:
        return NotDeclaredError(f"it needs {name} of {kind}, which {backend} does not declare")
    if fn and why.reason == "attribute":
        return NotDeclaredError(f"it needs {name}, a function that {backend} does not have")
    return None


def if_declared(bench: Bench, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """What call(...) gives; None where the backend does not declare its op."""
    try:
        return call(*given, **named)
    except UnsupportedError as why:
        if not_declared(bench, why) is None:
            raise
        return None


def require(holds: bool, code: str, reason: str, **measured: Any) -> None:
    if not holds:
        raise WrongError(code, reason, **measured)


def plain(value: Any) -> str:
    """A number as sentences show it: 1.0001, with the digits that its dtype holds."""
    return str(value)


def require_equal(found: np.ndarray, right: np.ndarray, code: str, what: str) -> None:
    """Bit by bit."""
    if found.tobytes() == right.tobytes():
        return
    wrong = np.flatnonzero(found.ravel() != right.ravel())
    at = int(wrong[0]) if wrong.size else 0
    raise WrongError(
        code,
        f"{what}: element {at} is {plain(found.ravel()[at])}, right is {plain(right.ravel()[at])}"
        f" ({wrong.size} of {found.size} differ)",
    )
