"""Application programs over any accelerator: arrays, ops, devices, graphs.
SPDX-License-Identifier: Apache-2.0
"""

from anyhal import _core
from anyhal import errors as _errors

_core.set_error_types(
    (
        _errors.HalError,
        _errors.InvalidArgumentError,
        _errors.UnsupportedError,
        _errors.OutOfMemoryError,
        _errors.DeviceLostError,
        _errors.HalTimeoutError,
        _errors.NotFoundError,
        _errors.BackendLoadError,
        _errors.CancelledError,
        _errors.ExecutionFailedError,
        _errors.InternalError,
        _errors.BackendLoadError,  # errors of the loader, whatever their status
    )
)

from anyhal._core import Array
from anyhal.dispatch import explain
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
from anyhal.functions import *  # noqa: F403
from anyhal.functions import __all__ as _function_names
from anyhal.runtime.array import (
    arange,
    asarray,
    broadcast_to,
    empty,
    frombuffer,
    full,
    ones,
    reshape,
    zeros,
)
from anyhal.runtime.array import transpose as permute_dims
from anyhal.runtime.context import use
from anyhal.runtime.device import (
    Device,
    counters,
    device,
    devices,
    facts,
    ledger,
    load_backend,
    receipts,
    routes,
    select_backend,
    synchronize,
)
from anyhal.runtime.queue import Event, Graph, Queue, graph

__all__ = sorted(
    [
        *_function_names,
        "Array",
        "BackendLoadError",
        "CancelledError",
        "Device",
        "DeviceLostError",
        "Event",
        "ExecutionFailedError",
        "Graph",
        "HalError",
        "HalTimeoutError",
        "InternalError",
        "InvalidArgumentError",
        "NotFoundError",
        "OutOfMemoryError",
        "Queue",
        "UnsupportedError",
        "arange",
        "asarray",
        "broadcast_to",
        "counters",
        "device",
        "devices",
        "empty",
        "explain",
        "facts",
        "frombuffer",
        "full",
        "graph",
        "ledger",
        "load_backend",
        "ones",
        "permute_dims",
        "receipts",
        "reshape",
        "routes",
        "select_backend",
        "synchronize",
        "use",
        "zeros",
    ]
)
