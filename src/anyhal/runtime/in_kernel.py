"""Which threads run kernels of a Python backend: there an op would wait for its own end.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import threading

from anyhal.errors import InternalError

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
