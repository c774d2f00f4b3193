"""The native instance of a backend that discovery trusted: a library's, or a chip's in Python.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import threading
from typing import Any

from anyhal import _core
from anyhal.errors import InternalError
from anyhal.runtime.discovery import BackendRecord


def load_native(record: BackendRecord, instance: str, settings: list[tuple[str, str]]) -> Any:
    """Opens, negotiates, checks. Raises BackendLoadError with the stage that refused."""
    assert record.manifest is not None and record.library is not None
    if record.manifest.python:
        from anyhal.sdk.chip import load  # only those who have such a chip need it

        return load(record.library, record.sha256, instance, settings)
    return _core.load(str(record.library), instance, settings)


_kernels = threading.local()


def enter_kernel() -> None:
    """This thread runs kernels of a Python backend, now and for good."""
    _kernels.inside = True


def refuse_in_kernel() -> None:
    """Whoever holds a lock of ours may wait for the kernel that asks for it here."""
    if getattr(_kernels, "inside", False):
        raise InternalError(
            "a kernel of a Python backend calls an op of anyhal, which may wait for that kernel;"
            " compute with NumPy there"
        )
