"""The opencl library driven through its table, without the core, and OpenCL itself beside it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
from pathlib import Path

import contract
from contract import I32, U32, U64, P, ptr, record, sized

import anyhal

Services = record(
    "Services", ("size", U32), ("flags", U32), ("context", P), ("log", P), ("error_text", P),
    ("host_alloc", P), ("host_free", P), ("parallel_for", P), ("thread_count", P),
    ("cache_get", P), ("cache_put", P), ("setting", P), ("span", P), ("ledger_note", P),
)  # fmt: skip
Log = c.CFUNCTYPE(None, P, I32, c.c_char_p)
SettingOf = c.CFUNCTYPE(P, P, c.c_char_p)
CacheGet = c.CFUNCTYPE(I32, P, c.c_char_p, P, c.POINTER(U64))
CachePut = c.CFUNCTYPE(I32, P, c.c_char_p, P, U64)
Notify = c.CFUNCTYPE(None, P, I32)
NativeQueue = record(
    "NativeQueue", ("size", U32), ("type", U32), ("handle", U64), ("operands", P),
    ("operand_count", U32), ("reserved", U32),
)  # fmt: skip
Native = c.CFUNCTYPE(I32, P, c.POINTER(NativeQueue))
CL_QUEUE, STAGING = 4, 1
BLOCKS, PLANS, EVENTS = 0, 1, 2  # counters of the backend


def library() -> Path:
    return Path(anyhal.__file__).parent / "backends/opencl/libanyhal_opencl.so"


class OpenCL(contract.Instance):
    """One instance, with its settings; `cache` keeps programs, by key."""

    def __init__(self, cache: dict[bytes, bytes] | None = None, **settings: str) -> None:
        self.cache = cache
        self._values = {k.encode(): c.create_string_buffer(v.encode()) for k, v in settings.items()}
        self._log = Log(lambda context, level, text: None)
        self._setting = SettingOf(self._find)
        self._services = sized(Services, log=c.cast(self._log, P), setting=c.cast(self._setting, P))
        if cache is not None:
            self._cache = (CacheGet(self._get), CachePut(self._put))
            self._services.cache_get, self._services.cache_put = (c.cast(f, P) for f in self._cache)
        entry = c.CDLL(str(library())).anyhal_backend_main
        hello = sized(
            contract.Hello, abi_min=contract.ABI, abi_max=contract.ABI, instance=b"t",
            services=ptr(self._services),
        )  # fmt: skip
        self.reply, error = sized(contract.Reply), sized(contract.Error)
        status = entry(c.byref(hello), c.byref(self.reply), c.byref(error))
        if status != contract.OK:
            raise contract.Refused(status, error)
        self.table = self.reply.table.contents
        self.synchronous = bool(self.reply.flags & 1)

    def _get(self, context: object, key: bytes, data: int | None, size: object) -> int:
        entry = (self.cache or {}).get(key)
        if entry is None:
            return contract.NOT_FOUND
        room = size.contents  # type: ignore[attr-defined]
        if data:
            c.memmove(data, entry, min(room.value, len(entry)))
        room.value = len(entry)
        return contract.OK

    def _put(self, context: object, key: bytes, data: int, size: int) -> int:
        assert self.cache is not None
        self.cache[key] = c.string_at(data, size)
        return contract.OK

    def _find(self, context: object, name: bytes) -> int | None:
        found = self._values.get(name)
        return None if found is None else c.addressof(found)


def loader() -> c.CDLL:
    """The loader that the backend has opened; same file, same library."""
    cl = c.CDLL("libOpenCL.so.1")
    for name in ("clCreateUserEvent",):
        getattr(cl, name).restype = P
    return cl


class Blocked:
    """A queue whose later work waits for an event of the test's own, which may fail."""

    def __init__(self, device: contract.Device, queue: c.c_void_p, operand: contract.Ref) -> None:
        self.cl, context, kind, owned = loader(), U64(), U32(), U32()
        instance = device.instance
        instance.call(
            "native_handle", P(instance.reply.self), U32(contract.DEVICE), U64(device.handle.value),
            ptr(context), ptr(kind), ptr(owned),
        )  # fmt: skip
        code = I32()
        self.event = P(self.cl.clCreateUserEvent(P(context.value), c.byref(code)))
        assert code.value == 0 and kind.value == CL_QUEUE

        def enqueue(argument: object, native: object) -> int:
            handle = P(native.contents.handle)  # type: ignore[attr-defined]
            return int(
                self.cl.clEnqueueBarrierWithWaitList(handle, U32(1), c.byref(self.event), None)
            )

        operands = (NativeOperand * 1)(NativeOperand(operand, 3, 0))
        instance.call(
            "queue_native", queue, c.cast(Native(enqueue), P), P(), c.cast(operands, P), U32(1)
        )

    def finish(self, status: int = 0) -> None:
        assert self.cl.clSetUserEventStatus(self.event, I32(status)) == 0


NativeOperand = record("NativeOperand", ("ref", contract.Ref), ("access", U32), ("reserved", U32))
