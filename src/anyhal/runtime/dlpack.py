"""DLPack both ways: memory shared with other libraries of the process.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import operator
from typing import Any, cast

import numpy as np

from anyhal import _core
from anyhal.errors import InvalidArgumentError, InvalidTypeError, typed_call
from anyhal.ops._spec import describe
from anyhal.runtime import device as devices
from anyhal.runtime import foreign
from anyhal.runtime.array import OPS, Array, asarray, numpy, spec_of
from anyhal.runtime.context import queue_of
from anyhal.runtime.device import Device
from anyhal.runtime.foreign import HOST

_NO_WAIT, _HOST_WAITS, _STREAM_WAITS = 0, 1, 2  # as core/bindings/dlpack.cc
_CUDA, _ROCM = 2, 10
# By DLPack device type: the stream that None stands for, and the numbers that are none.
_STREAMS = {_CUDA: (1, {0}), _ROCM: (0, {1, 2})}


@typed_call("from_dlpack")
def from_dlpack(x: Any, *, device: Device | str | None = None, copy: bool | None = None) -> Array:
    """A tensor of another library as an array that shares its memory, or as a copy.

    device: default the one that uses x's memory in place: the scope's if it does, else the best.
    copy: False never copies, True always does; by default a copy is made only where `device` names
    a device that cannot use the memory in place. BufferError where the memory cannot be shared and
    a copy was not asked for: negative strides, data that is not aligned to its type.

    Writes through either side are seen by the other. Read-only data becomes a constant array. The
    memory is kept until the last queued use of it is done.
    """
    if not hasattr(x, "__dlpack__"):
        raise InvalidArgumentError(
            f"importing a DLPack tensor: {type(x).__name__} has no __dlpack__; use asarray"
        )
    copy = _asked("from_dlpack", copy)
    where = foreign.place(x)
    on = _home(where) if device is None else devices.device(device)
    here = _core.shares_dlpack(on.native, *where)
    if here and not copy:
        return _shared(x, on)
    if copy is False:
        raise BufferError(
            f"importing a DLPack tensor of device {where}: {on.name} cannot use that memory in"
            " place; leave out copy=False"
        )
    if here and where[0] != HOST[0]:
        return cast("Array", OPS["copy"](_shared(x, on)))
    return asarray(foreign.host_values(x), device=on)


def _asked(function: str, copy: Any) -> bool | None:
    if copy is not None and not isinstance(copy, bool | np.bool_):
        raise InvalidTypeError(
            f"{function}: copy is a {type(copy).__name__}; pass True, False or None"
        )
    return None if copy is None else bool(copy)


def _home(where: tuple[int, int]) -> Device:
    """The device that uses the memory of a DLPack device in place."""
    on = devices.device(None)
    if _core.shares_dlpack(on.native, *where):
        return on
    host = where[0] == HOST[0]
    for other in devices.devices():
        # What a device says of its memory tells, before it is opened, whether to ask it.
        likely = ("host_visible" in other.fact.memory_kinds[0]) == host and not other.fact.why_not
        if likely and _core.shares_dlpack(other.native, *where):
            return other
    raise BufferError(
        f"importing a DLPack tensor of device {where}: no device here uses that memory in place;"
        f" pass device={on.name!r} for a copy"
    )


def _shared(x: Any, on: Device) -> Array:
    # The capsule has a name, so that it does not end while a refusal is on its way: a destructor
    # that runs Python would meet it.
    if on.native.host_memory:
        taken = foreign.capsule(x)
        return _core.import_dlpack(taken, on.native)
    queue = queue_of(on)
    if queue.capturing:  # the producer is about to make the queue wait, which a graph cannot hold
        raise BufferError(
            f"importing a DLPack tensor: a graph is being recorded on {on.name}; import it before"
        )
    taken = foreign.capsule(x, stream=_core.foreign_stream(queue))
    return _core.import_dlpack(taken, on.native)


@typed_call("__dlpack__")
def export_dlpack(
    a: Any,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """The array as a DLPack capsule. What the consumer puts on `stream` runs after the array's own
    work: by an event where the device has such streams, else the host waits; -1 asks for neither.
    dl_device=(1, 0) gives any array as host memory, copied where it lies elsewhere."""
    versioned = max_version is not None and _major(max_version) >= 1
    if copy is not None:
        copy = _asked("__dlpack__", copy)
    where: tuple[int, int] = _core.dlpack_place(a)
    if dl_device is not None and _pair(dl_device) != where:
        return _elsewhere(a, _pair(dl_device), stream, versioned, copy)
    order, handle = _order(where[0], stream)
    if copy:
        a = OPS["copy"](a)
    return _core.export_dlpack(a, versioned, bool(copy), order, handle)


def _elsewhere(
    a: Any, want: tuple[int, int], stream: Any, versioned: bool, copy: bool | None
) -> Any:
    spec = spec_of(a)
    what = f"exporting {describe(spec)} of {a._device_name} with DLPack to device {want}"
    if want != HOST:
        raise BufferError(f"{what}: only its own device and the host, (1, 0), are offered")
    if copy is False:
        raise BufferError(f"{what}: its memory is not the host's; leave out copy=False")
    if spec.dtype.is_block:
        raise BufferError(f"{what}: DLPack has no block formats; dequantize it")
    _order(HOST[0], stream)
    values = numpy(a)
    strides = [step // spec.dtype.block_bytes for step in values.strides]
    return _core.export_dlpack_host(
        *(values.ctypes.data, a._dtype_value, list(values.shape), strides, values, versioned)
    )


def _major(version: Any) -> int:
    try:
        major, minor = version
        return operator.index(major) + 0 * operator.index(minor)
    except (TypeError, ValueError):
        raise InvalidTypeError(
            f"exporting with DLPack: max_version={version!r} is no pair of numbers; pass"
            " (major, minor)"
        ) from None


def _pair(device: Any) -> tuple[int, int]:
    try:
        kind, number = device
        return int(kind), operator.index(number)
    except (TypeError, ValueError):
        raise InvalidTypeError(
            f"exporting with DLPack: dl_device={device!r} is no device type and number; pass a"
            " pair such as __dlpack_device__ gives"
        ) from None


def _order(kind: int, stream: Any) -> tuple[int, int]:
    """Who waits for the array's work, and on which stream, by the rules of the array API."""
    if stream is None:
        return (_STREAM_WAITS, _STREAMS[kind][0]) if kind in _STREAMS else (_HOST_WAITS, 0)
    try:
        handle = -2 if isinstance(stream, bool | np.bool_) else operator.index(stream)
    except TypeError:
        handle = -2
    if handle == -1:
        return _NO_WAIT, 0
    if kind not in _STREAMS:
        raise InvalidTypeError(
            f"exporting with DLPack: stream={stream!r}, but DLPack device type {kind} has no"
            " streams here; pass None, or -1 to wait for nothing"
        )
    if not 0 <= handle < 1 << 64 or handle in _STREAMS[kind][1]:
        named = ", ".join(str(n) for n in sorted(_STREAMS[kind][1]))
        raise InvalidTypeError(
            f"exporting with DLPack: stream={stream!r} names no stream of device type {kind}, where"
            f" {named} means nothing; pass None, -1 or the address of a stream"
        )
    return _STREAM_WAITS, handle


def dlpack_device(a: Any) -> tuple[int, int]:
    """The DLPack device type and number: the host's (1, 0), the driver's own, or (12, n), a device
    whose memory no other library addresses."""
    found: tuple[int, int] = _core.dlpack_place(a)
    return found
