"""What a thread or task has chosen: device, fallback, numerics, queue. Scopes nest.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

from anyhal import _core
from anyhal.errors import InvalidArgumentError, typed_calls
from anyhal.printable import get_close_matches
from anyhal.records import record, replace
from anyhal.routing.facts import DETERMINISM, FALLBACKS, NUMERICS, Contract
from anyhal.routing.policy import DEFAULT, Policy

if TYPE_CHECKING:
    from anyhal.runtime.device import Device
    from anyhal.runtime.queue import Queue


@record
class Choice:
    """All that a scope says; `None` for the device means the best one found."""

    device: Device | None = None
    contract: Contract = Contract()
    policy: Policy = DEFAULT
    queue: Queue | None = None

    def __repr__(self) -> str:
        """What differs from the default; all of it would be a page."""
        said = [repr(self.device.name) if self.device is not None else "the best device"]
        said += [
            f"{name}={getattr(self.contract, name)!r}"
            for name in ("fallback", "numerics", "allow_uncertified")
            if getattr(self.contract, name) != getattr(Contract(), name)
        ]
        said += [f"policy={self.policy!r}"] if self.policy != DEFAULT else []
        said += [f"queue={self.queue!r}"] if self.queue is not None else []
        return f"Choice({', '.join(said)})"


class _Scope(_core.Scope):
    """The native scope (contract number, queue) with what Python needs beside it."""

    def __init__(self, choice: Choice, opening: _Opening) -> None:
        super().__init__(_contract_number(choice), choice.queue._native if choice.queue else None)
        self.choice = choice
        self.opening = opening  # which `with` it belongs to, even after its device was changed


class _Opening:
    """One entry of a `with`: how to take it back, and whether it was closed already."""

    def __init__(self, receipts: bool | None) -> None:
        self.receipts = receipts  # as they were outside; None: this scope says nothing of them
        self.closed = False
        self.place: Token[_Opening] = _place.set(self)
        self.scope: Token[_Scope] | None = None


_numbers: dict[tuple[Contract, Policy], int] = {}
_process_wide = Choice()
_variable: ContextVar[_Scope] = ContextVar("anyhal_scope")
# Its tokens say whether a scope is closed in the thread or task that opened it, and nothing else.
_place: ContextVar[_Opening] = ContextVar("anyhal_scope_place")
_core.set_scope_variable(_variable)


def _contract_number(choice: Choice) -> int:
    """Interned: equal contracts share plans. Number 0 is the default of the process."""
    _numbers.setdefault((Contract(), DEFAULT), 0)
    number = _numbers.setdefault((choice.contract, choice.policy), len(_numbers))
    if number >= 1 << 16:
        raise InvalidArgumentError(
            "opening a scope: more than 65535 different contracts were used; reuse policy objects"
        )
    return number


def current() -> Choice:
    scope = _variable.get(None)
    return _process_wide if scope is None else scope.choice


def set_default_device(device: Device) -> None:
    """The device of creation functions where no scope names one."""
    global _process_wide
    scope = _variable.get(None)
    if scope is None:
        _process_wide = replace(_process_wide, device=device)
    else:
        _variable.set(_Scope(replace(scope.choice, device=device), scope.opening))


def _checked(kind: str, value: str, known: tuple[str, ...]) -> str:
    if isinstance(value, str) and value in known:
        return value
    near = get_close_matches(str(value), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "use " + ", ".join(map(repr, known))
    raise InvalidArgumentError(f"opening a scope: {kind} {value!r} is not known; {hint}")


@typed_calls
class use:  # noqa: N801 (reads as a statement: with hal.use(...):)
    """A scope: `with hal.use(device="cpu:0", fallback="never"): ...`.

    device: where arrays are made (a Device or its name); ops run where their operands are.
    fallback: "never" (fused or nothing), "decompose" (default: the same device through core ops),
    "any" (another device, with copies). queue: for ops on its device.
    numerics: the least that products may be computed with: "strict" (default), "tf32", "bf16",
    "int8" (activations, where weights are quantised). It is a permission: a device without such
    products computes strictly, and `routes()` says which it was.
    determinism: a demand, refused with reason numerics where it cannot be met: "run_to_run"
    (default: same call, same bits), "none", "batch_invariant" (a row's bits do not depend on the
    others), "cross_device" (the bits of the op's reference, on every device).
    allow_uncertified: devices or backends that may be chosen although nobody vouches for them.
    receipts: record every call with its time while the scope is open.
    What is not given stays as outside. Raises InvalidArgumentError, NotFoundError (device).

    Scopes close in the reverse order of opening. Closing one before those inside it raises
    InvalidArgumentError; the inner ones stay in effect, and when they are closed nothing of the
    outer one comes back. Closing in another thread or task raises it too and changes nothing.
    """

    def __init__(
        self,
        *,
        device: Device | str | None = None,
        fallback: str | None = None,
        numerics: str | None = None,
        determinism: str | None = None,
        queue: Queue | None = None,
        allow_uncertified: tuple[str, ...] | None = None,
        receipts: bool | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._changes: dict[str, Any] = {}
        self._contract: dict[str, Any] = {}
        if device is not None:
            from anyhal.runtime.device import device as find

            self._changes["device"] = find(device)
        self._check_kinds(queue=queue, policy=policy, receipts=receipts)
        if queue is not None:
            self._changes["queue"] = queue
        if policy is not None:
            self._changes["policy"] = policy
        if fallback is not None:
            self._contract["fallback"] = _checked("fallback", fallback, FALLBACKS)
        if numerics is not None:
            _checked("numerics", numerics, tuple(NUMERICS))
            self._contract["numerics"] = numerics
        if determinism is not None:
            _checked("determinism", determinism, tuple(DETERMINISM))
            self._contract["determinism"] = determinism
        if allow_uncertified is not None:
            if not isinstance(allow_uncertified, list | tuple | set | frozenset) or not all(
                isinstance(name, str) for name in allow_uncertified
            ):
                raise InvalidArgumentError(
                    f"opening a scope: allow_uncertified={allow_uncertified!r} is no list of names;"
                    ' pass a tuple, such as ("chip",)'
                )
            self._contract["allow_uncertified"] = tuple(allow_uncertified)
        self._receipts = receipts
        self._given = {
            name: value
            for name, value in (
                ("device", self._changes["device"].name if device is not None else None),
                *(("fallback", fallback), ("numerics", numerics), ("queue", queue)),
                *(("allow_uncertified", allow_uncertified), ("receipts", receipts)),
                ("policy", policy),
            )
            if value is not None
        }
        self._openings: list[_Opening] = []

    def __repr__(self) -> str:
        return f"use({', '.join(f'{k}={v!r}' for k, v in self._given.items())})"

    @staticmethod
    def _check_kinds(**given: object) -> None:
        from anyhal.runtime.queue import Queue

        for name, kind in (("queue", Queue), ("policy", Policy), ("receipts", bool)):
            if given[name] is not None and not isinstance(given[name], kind):
                raise InvalidArgumentError(
                    f"opening a scope: {name} is a {type(given[name]).__name__}; pass a"
                    f" {kind.__name__}"
                )

    def __enter__(self) -> use:
        outer = current()
        changes = dict(self._changes)
        if self._contract:
            changes["contract"] = replace(outer.contract, **self._contract)
        if self._changes.get("device") and "queue" not in changes and outer.queue is not None:
            changes["queue"] = None if outer.queue.device is not changes["device"] else outer.queue
        _core.use_scopes()
        opening = _Opening(None if self._receipts is None else _core.receipts_on())
        opening.scope = _variable.set(_Scope(replace(outer, **changes), opening))
        self._openings.append(opening)
        if self._receipts is not None:
            _core.set_receipts(self._receipts)
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        if not self._openings:
            raise InvalidArgumentError(
                "closing a scope: it is not open; use it in a with statement"
            )
        opening = self._openings.pop()
        innermost = _variable.get(None)
        in_order = innermost is not None and innermost.opening is opening
        try:
            _place.reset(opening.place)
        except ValueError:  # another thread or task: its scopes are not ours to change
            in_order = False
            if opening.receipts is not None:  # but receipts are the process's
                _core.set_receipts(opening.receipts)
        else:
            opening.closed = True
            _take_back_closed()
        if not in_order and kind is None:  # the body's own exception matters more
            raise InvalidArgumentError(
                "closing a scope: it is not the innermost one of this thread or task; close scopes"
                " in the reverse order of opening them, where they were opened"
            )


def _take_back_closed() -> None:
    """Leaves the scopes, from the innermost out, up to the first one that is still open."""
    while (scope := _variable.get(None)) is not None and scope.opening.closed:
        assert scope.opening.scope is not None
        try:
            _variable.reset(scope.opening.scope)
        except ValueError:
            return  # inherited from the task that opened it: here it stays as it was then
        if scope.opening.receipts is not None:
            _core.set_receipts(scope.opening.receipts)


def queue_of(on: Device) -> Any:
    """The native queue that calls on the device go to: the scope's, or the device's own."""
    chosen = current().queue
    return chosen._native if chosen is not None and chosen.device is on else on.native.queue
