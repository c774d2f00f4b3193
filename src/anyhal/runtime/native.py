"""The vendor's own means: handles, work among a queue's calls, named extensions.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anyhal import _core
from anyhal.dtypes import of_value
from anyhal.errors import (
    ExecutionFailedError,
    HalError,
    InvalidArgumentError,
    InvalidTypeError,
    UnsupportedError,
    typed_call,
)
from anyhal.runtime.device import Device, device, of_native
from anyhal.runtime.queue import Queue, queue_of

# By anyhal_native_type.
_TYPES = {1: "host", 2: "cuda_stream", 3: "hip_stream", 4: "cl_queue", 5: "vk_command_buffer"}
_APIS = {1: "host", 2: "CUDA", 3: "HIP", 4: "OpenCL", 5: "Vulkan"}
_CL_QUEUE, _EXECUTION_FAILED = 4, 9
_READ, _WRITE = 1, 2


@dataclass(frozen=True)
class NativeHandle:
    """What of a vendor stands behind a device, queue or array.

    `api`: whose it is ("CUDA", "OpenCL", "host" for an address of this process, else the backend's
    own number); `kind`: "device" (its context), "queue" or "memory"; `handle`: the number that the
    vendor's functions take; `offset_bytes`: of an array, where it begins in that memory. `owned`:
    True: the caller ends it by the vendor's means; False: it lives as long as `of`, which this
    record keeps. It orders nothing: `enqueue_native` does.
    """

    api: str
    kind: str
    handle: int
    offset_bytes: int
    owned: bool
    of: Any = field(repr=False)


@typed_call("native_handle")
def native_handle(of: Device | Queue | _core.Array) -> NativeHandle:
    """The vendor's handle behind a device, a queue or an array.

    Raises UnsupportedError where nothing stands behind it (a queue of a synchronous device is the
    calling thread). A queue that failed has another handle afterwards: ask again.
    """
    if isinstance(of, Device):
        kind, found = "device", _core.native_handle_of_device(of.native)
    elif isinstance(of, Queue):
        kind, found = "queue", _core.native_handle_of_queue(of._native)
    elif isinstance(of, _core.Array):
        kind, found = "memory", _core.native_handle_of_array(of)
    else:
        raise InvalidTypeError(
            f"asking for a vendor's handle: a {type(of).__name__} has none; pass a Device, a Queue"
            " or an Array"
        )
    number, handle, offset, owned = found
    return NativeHandle(_APIS.get(number, str(number)), kind, handle, offset, owned, of)


@dataclass(frozen=True)
class NativeOperand:
    """An array as native work sees it: a handle of the vendor, or an address, and an offset."""

    handle: int
    offset_bytes: int  # to be added where handles are no addresses (cl_mem)
    array: _core.Array
    writable: bool
    host: bool

    def numpy(self) -> np.ndarray[Any, Any]:
        """The memory itself as a NumPy array, on a device that computes in host memory: good until
        the callback returns, read-only unless declared in `writes`."""
        a = self.array
        if not self.host:
            raise UnsupportedError(
                f"viewing an operand on {a.device.name} as a NumPy array: it is not host memory;"
                " use its handle with the vendor's functions",
                reason="memory_kind",
            )
        kind = of_value(a._dtype_value).numpy
        if kind is None:
            raise UnsupportedError(
                f"viewing an operand of dtype {a.dtype} as a NumPy array: NumPy has no such dtype;"
                " use its handle",
                reason="dtype",
            )
        span = (ctypes.c_char * a._span_bytes).from_address(self.handle)
        strides = tuple(s * kind.itemsize for s in a.strides)
        view: np.ndarray[Any, Any]
        view = np.ndarray(a.shape, kind, memoryview(span).cast("B"), strides=strides)
        view.flags.writeable = self.writable
        return view


@dataclass(frozen=True)
class NativeWork:
    """What the callback of `enqueue_native` gets.

    `type`: "host" (the callback is the work itself), "cuda_stream", "hip_stream", "cl_queue" or
    "vk_command_buffer"; `handle`: of that queue; `operands`: those of `reads`, then those of
    `writes`.
    """

    type: str
    handle: int
    operands: tuple[NativeOperand, ...]


@typed_call("enqueue_native")
def enqueue_native(
    callback: Callable[[NativeWork], None],
    *,
    reads: Sequence[_core.Array] = (),
    writes: Sequence[_core.Array] = (),
    queue: Queue | None = None,
) -> None:
    """Puts work of the vendor's own among a queue's calls, in order.

    `callback(work)` runs once, before this returns: it queues what it likes on the queue that
    `work` shows and does not wait; on a synchronous device it is the work itself. `reads` and
    `writes` are all arrays that it touches (one that is changed in place stands in both): it comes
    behind the calls that made them, and later calls come behind it. They are all on one device;
    `queue` defaults to the scope's.

    Raises UnsupportedError where the device has no such queue, InvalidArgumentError for arrays of
    another device, constants written, or inside `hal.graph()`, ExecutionFailedError when something
    that it reads was lost, or when the callback raised (which is the cause).
    """
    arrays, native = _checked(callback, reads, writes, queue)
    on = of_native(native.device.name)
    written = [any(a is w for w in writes) for a in arrays]
    raised: list[BaseException] = []

    def call(number: int, handle: int, operands: list[int]) -> int:
        try:
            shown = [
                NativeOperand(at, _offset(number, a), a, is_written, number == 1)
                for at, a, is_written in zip(operands, arrays, written, strict=True)
            ]
            callback(NativeWork(_TYPES.get(number, str(number)), handle, tuple(shown)))
        except BaseException as why:
            raised.append(why)
            return _EXECUTION_FAILED
        return 0

    bits_read = sum(1 << i for i, a in enumerate(arrays) if any(a is r for r in reads))
    bits_written = sum(1 << i for i, is_written in enumerate(written) if is_written)
    try:
        _core.run_native(native, call, arrays, bits_read, bits_written)
    except HalError:
        if not raised:
            raise
        if isinstance(raised[0], HalError) or not isinstance(raised[0], Exception):
            raise raised[0] from None  # typed already, or an interrupt
        raise ExecutionFailedError(
            f"native work on {on.name}: the callback raised {type(raised[0]).__name__}"
            f" ({raised[0]}); what it wrote until then does not count, correct it and call again"
        ) from raised[0]


def _checked(
    callback: Any,
    reads: Sequence[_core.Array],
    writes: Sequence[_core.Array],
    queue: Queue | None,
) -> tuple[list[_core.Array], Any]:
    """The arrays of native work, each once, and its queue; raises what `enqueue_native` does."""
    if not callable(callback):
        raise InvalidTypeError(
            f"native work: the callback is a {type(callback).__name__}; pass a function"
        )
    arrays = _unique([*reads, *writes])
    on = _home("native work", arrays, queue)
    if any(a.constant for a in writes):
        raise InvalidArgumentError(
            f"native work on {on.name}: it writes a constant; write a copy of it"
        )
    if len(arrays) > 24:
        raise InvalidArgumentError(
            f"native work on {on.name}: {len(arrays)} arrays, and at most 24 are possible; split it"
        )
    native = queue._native if queue is not None else queue_of(on)
    if native.capturing:
        raise InvalidArgumentError(
            f"native work on {on.name}: a graph is being captured on this queue, and a callback"
            " cannot be replayed; end the graph first, or load a kernel"
        )
    return arrays, native


def _unique(arrays: Sequence[Any]) -> list[_core.Array]:
    """Each array once, in order of its first mention."""
    out: list[_core.Array] = []
    for a in arrays:
        if not isinstance(a, _core.Array):
            raise InvalidTypeError(
                f"native work: a {type(a).__name__} among reads and writes; pass anyhal Arrays"
            )
        if not any(a is b for b in out):
            out.append(a)
    return out


def _home(what: str, arrays: Sequence[_core.Array], queue: Queue | None) -> Device:
    """The one device of all arrays and the queue."""
    on = [queue.device] if queue is not None else []
    on += [of_native(a._device_name) for a in arrays]
    if not on:
        return device()
    other = next((d for d in on if d is not on[0]), None)
    if other is not None:
        raise InvalidArgumentError(
            f"{what}: its arrays or queue are on {on[0].name} and {other.name}; copy them to one"
            " device"
        )
    return on[0]


def _offset(number: int, array: _core.Array) -> int:
    """Where the array begins in what its handle names; addresses say so themselves."""
    return int(_core.array_address(array)) if number == _CL_QUEUE else 0


@dataclass(frozen=True)
class Extension:
    """A table of functions that a backend offers beyond the contract, for use with ctypes.

    `address`: of the table, which begins with its size in bytes and its version (32 bits each) and
    lives as long as the process; `device_handle`: what its functions take as their device.
    """

    name: str
    version: int
    address: int
    size: int
    device_handle: int


@typed_call("extension")
def extension(on: Device | str | None, name: str, *, since: int = 1) -> Extension:
    """The extension of that name on a device, in version `since` or later.

    Raises UnsupportedError, whose text lists what the device has, when there is none such.
    """
    if not isinstance(name, str) or "\0" in name:
        raise InvalidTypeError(f"asking for an extension: {name!r} is no name; pass a text")
    if isinstance(since, bool) or not isinstance(since, int) or not 0 < since < 1 << 32:
        raise InvalidArgumentError(
            f"asking for the extension {name!r}: since={since!r} is no version; pass an int from 1"
        )
    address, size, version, handle = _core.extension(device(on).native, name, since)
    return Extension(name, version, address, size, handle)


@dataclass(frozen=True)
class KernelLimits:
    """What the author of a kernel must know of a device: the extension `kernel_limits`.

    `units`: what runs side by side (threads, compute units); `group_items`, `group_bytes`: most
    items of a block, and bytes that it shares; `features`: instruction sets, language extensions.
    """

    units: int
    group_items: int
    group_bytes: int
    features: tuple[str, ...]


@typed_call("kernel_limits")
def kernel_limits(on: Device | str | None = None) -> KernelLimits:
    """The limits of kernels on a device; UnsupportedError where it does not tell."""
    found = _core.kernel_limits(device(on).native)
    features = tuple(str(found["features"]).split())
    return KernelLimits(found["units"], found["group_items"], found["group_bytes"], features)
