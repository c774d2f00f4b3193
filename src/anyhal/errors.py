"""The exceptions of anyhal.
SPDX-License-Identifier: Apache-2.0

HalError
├── InvalidArgumentError (ValueError)      the call itself is wrong; nothing ran
│   └── InvalidTypeError (TypeError)       it does not fit the signature: count, name or type
├── UnsupportedError (NotImplementedError) nothing here can run it; `reason` says why
├── OutOfMemoryError (MemoryError)         `ledger` holds the numbers, never a buffer
├── DeviceLostError (RuntimeError)         sticky on that device alone
├── ExecutionFailedError (RuntimeError)    accepted work failed later
├── HalTimeoutError (TimeoutError)         a wait reached its limit
├── NotFoundError (LookupError)            no such device, model, file or setting
├── CancelledError (RuntimeError)          stopped because it was asked to
├── BackendLoadError (ImportError)         a backend library could not be taken; `stage` says where
└── InternalError (RuntimeError)           a defect of the core or of a backend

Every message is one sentence in four parts: what failed, where, why, what to do.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from anyhal.printable import get_close_matches

__all__ = [
    "BackendLoadError",
    "CancelledError",
    "DeviceLostError",
    "ExecutionFailedError",
    "HalError",
    "HalTimeoutError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidTypeError",
    "NotFoundError",
    "OutOfMemoryError",
    "UnsupportedError",
]


class HalError(Exception):
    """Base of all errors that anyhal raises. `code` is the contract's status name."""

    code = "error"


class InvalidArgumentError(HalError, ValueError):
    """The call is wrong (shape, dtype, device, aliasing, value); nothing was queued or written."""

    code = "invalid_argument"


class InvalidTypeError(InvalidArgumentError, TypeError):
    """The call does not fit the signature: too many operands, an unknown name, a wrong type.

    Also a TypeError, which is what Python's own protocols (len, iter, index) look for.
    """


class UnsupportedError(HalError, NotImplementedError):
    """No route can run the operation.

    `reason` is one typed word (op, dtype, layout, numerics, policy, ...); `refusals` lists what
    each candidate answered; `call` is the op with its operands and attributes, where an op was
    refused.
    """

    code = "unsupported"

    def __init__(
        self, message: str, reason: str = "op", refusals: tuple[Any, ...] = (), call: Any = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.refusals = refusals
        self.call = call


class OutOfMemoryError(HalError, MemoryError):
    """Memory ran out before anything happened; a retry after freeing is safe.

    `ledger` maps pool names to byte counts at the time of the failure.
    """

    code = "out_of_memory"

    def __init__(self, message: str, ledger: dict[str, int] | None = None) -> None:
        super().__init__(message)
        self.ledger = ledger or {}


class DeviceLostError(HalError, RuntimeError):
    """The device is gone for this process; other devices go on."""

    code = "device_lost"


class ExecutionFailedError(HalError, RuntimeError):
    """Work that had been accepted failed; in-place operands of the failed call are lost."""

    code = "execution_failed"


class HalTimeoutError(HalError, TimeoutError):
    """A wait reached its limit; the work itself goes on."""

    code = "timeout"


class NotFoundError(HalError, LookupError):
    """No device, model, file or setting of that name; the nearest known name is suggested.

    `stages` holds the stage that stopped each backend, where a device was looked for.
    """

    code = "not_found"
    stages: tuple[Any, ...] = ()


class CancelledError(HalError, RuntimeError):
    """A long preparation stopped because it was asked to."""

    code = "cancelled"


class BackendLoadError(HalError, ImportError):
    """A backend could not be loaded. `stage` is the loader stage that refused, `path` its file,
    `reason` a code of runtime/stages.py (`code` says it too), `hint` what to do; `stages` are all
    twelve."""

    status = "abi_mismatch"  # what the backend itself answered, where it got as far

    def __init__(
        self, message: str, stage: str = "open", path: str = "", reason: str = "", hint: str = ""
    ) -> None:
        super().__init__(message)
        self.stage = stage
        self.path = path
        self.reason = reason
        self.hint = hint
        self.stages: tuple[Any, ...] = ()

    @property
    def code(self) -> str:  # type: ignore[override]
        return self.reason or self.status


class InternalError(HalError, RuntimeError):
    """A defect in the core or in a backend; please report it with the message."""

    code = "internal"


# ------------------------------------------------------------------------------------ wrong calls

_Called = TypeVar("_Called", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)


def typed_call(name: str) -> Callable[[_Called], _Called]:
    """A decorator: arguments that do not fit the signature raise InvalidTypeError, which calls the
    function by its public name. Calls that fit cost one more frame."""

    def make(function: _Called) -> _Called:
        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            try:
                return function(*args, **named)
            except TypeError as why:
                trace = why.__traceback__
                if trace is None or trace.tb_next is not None:  # raised inside: not the call's
                    raise
                said = _misfit(name, function, str(why), named)
            raise InvalidTypeError(said)

        return cast("_Called", call)

    return make


def typed_calls(made: _Class) -> _Class:
    """`typed_call` for a class: making one, and its public methods."""
    for name, value in list(vars(made).items()):
        if inspect.isfunction(value) and (name == "__init__" or name[0] != "_"):
            public = made.__name__ if name == "__init__" else f"{made.__name__}.{name}"
            setattr(made, name, typed_call(public)(value))
    return made


def _misfit(name: str, function: Any, said: str, named: dict[str, Any]) -> str:
    takes = [p for p in inspect.signature(function).parameters if p[0] != "_" and p != "self"]
    unknown = [k for k in named if k not in takes]
    if unknown:
        near = get_close_matches(unknown[0], takes, n=1)
        why = f"it has no argument {unknown[0]!r}"
        hint = f"did you mean {near[0]!r}?" if near else "leave it out"
    else:
        why = said.partition("() ")[2] or said
        hint = "correct the call"
    listed = f"it takes {', '.join(takes)}" if takes else "it takes none"
    return f"{name}: {why}; {hint} ({listed})"
