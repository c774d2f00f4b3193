"""Which threads run code of a Python backend: there an op would wait for its own end.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from anyhal import _core
from anyhal.errors import InternalError

_inside = ContextVar("anyhal kernel thread", default=False)  # each thread has a context of its own


def enter_kernel() -> None:
    """This thread runs kernels of a Python backend, now and for good."""
    _inside.set(True)


@contextmanager
def in_backend() -> Iterator[None]:
    """This thread asks a Python backend, with locks of ours that an op would wait for."""
    refuse_in_kernel()
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


def refuse_in_kernel() -> None:
    """Whoever holds a lock of ours may wait for the kernel that asks for it here."""
    _core.require_outside_call()  # a user's kernel
    if _inside.get():
        raise InternalError(
            "code of a Python backend calls an op of anyhal, which may wait for that code; compute"
            " with NumPy there"
        )
