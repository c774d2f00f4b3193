"""Which exception each status of the contract becomes.
SPDX-License-Identifier: Apache-2.0
"""

from anyhal import _core
from anyhal.errors import (
    BackendLoadError,
    CancelledError,
    DeviceLostError,
    ExecutionFailedError,
    HalError,
    HalTimeoutError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfMemoryError,
    UnsupportedError,
)

# By number of anyhal_status; the last is for errors of the loader, whatever their status.
BY_STATUS: tuple[type[HalError], ...] = (
    HalError,
    InvalidArgumentError,
    UnsupportedError,
    OutOfMemoryError,
    DeviceLostError,
    HalTimeoutError,
    NotFoundError,
    BackendLoadError,
    CancelledError,
    ExecutionFailedError,
    InternalError,
    BackendLoadError,
)
_core.set_error_types(BY_STATUS)
