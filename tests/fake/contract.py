"""Drives a backend's table directly, without the core: the contract in ctypes, as far as needed.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

U32, U64, I32, I64, P = c.c_uint32, c.c_uint64, c.c_int32, c.c_int64, c.c_void_p
OK, INVALID, UNSUPPORTED, OUT_OF_MEMORY, LOST, TIMEOUT, NOT_FOUND = range(7)
ABI_MISMATCH, CANCELLED, EXECUTION_FAILED = 7, 8, 9
COPY, FILL, CAST, UNARY, BINARY, WHERE, REDUCE, MATMUL, GATHER, SCATTER_ADD = range(1, 11)
ADD, MULTIPLY = 1, 3
DEVICE, MEMORY, QUEUE, PLAN = 1, 2, 3, 4
DTYPES = {"float32": 1, "float64": 4, "int64": 5, "int32": 6, "bool": 13}
NO_LIMIT = 2**64 - 1
ABI = 3  # 0.3

SLOTS = ["device_list", "device_open", "memory_alloc", "op_query", "op_prepare", "op_enqueue"]
SLOTS += ["release", "queue_create", "queue_signal", "queue_wait", "host_wait", "queue_copy"]
SLOTS += ["device_query", "memory_map", "memory_import", "constant_pack", "queue_fill"]
SLOTS += ["queue_notify", "graph_prepare", "module_load", "kernel_prepare", "queue_native"]
SLOTS += ["native_handle", "notify", "extension"]


def record(name: str, *fields: tuple[str, type]) -> type[c.Structure]:
    return type(name, (c.Structure,), {"_fields_": list(fields)})


S = (("size", U32), ("flags", U32))
Error = record("Error", ("size", U32), ("reason", I32), ("code", I64), ("text", c.c_char * 240))
Ref = record("Ref", ("memory", U64), ("offset", U64))
Setting = record("Setting", ("name", c.c_char_p), ("value", c.c_char_p))
Hello = record(
    "Hello", *S, ("abi_min", U32), ("abi_max", U32), ("services", P), ("instance", c.c_char_p),
    ("settings", c.POINTER(Setting)), ("setting_count", U32), ("reserved", U32),
)  # fmt: skip
SettingOf = c.CFUNCTYPE(P, P, c.c_char_p)  # a text's address
Log = c.CFUNCTYPE(None, P, c.c_int32, c.c_char_p)
Span = c.CFUNCTYPE(None, P, U64, U64, U64, U32)
Services = record(
    "Services", *S, ("context", P), ("log", Log), ("others", P * 7), ("setting", SettingOf),
    ("span", Span), ("ledger_note", P),
)  # fmt: skip
Table = record("Table", *S, *((slot, P) for slot in SLOTS))
Reply = record(
    "Reply", *S, ("chosen", U32), ("abi_min", U32), ("abi_max", U32), ("registry", U32),
    ("table", c.POINTER(Table)), ("self", P), ("build_id", c.c_char_p), ("prints", P),
    ("print_count", U32), ("reserved", U32),
)  # fmt: skip
Kind = record(
    "Kind", *S, ("heap", U32), ("offset_alignment", U32), ("base_alignment", U32),
    ("reserved", U32), ("granularity", U64), ("block_max", U64), ("heap_bytes", U64),
    ("blocks_max", U64),
)  # fmt: skip
Info = record(
    "Info", *S, ("id", U64), ("uuid", c.c_uint8 * 16), ("pci_domain", U32), ("pci_function", U32),
    ("name", c.c_char * 64), ("arch", c.c_char * 32), ("driver", c.c_char * 64),
    ("kinds", c.POINTER(Kind)), ("kind_count", U32), ("queue_count_max", U32),
    ("queue_depth", U32), ("alignment", U32), ("rank_max", U32), ("recovery", U32),
    ("own_threads", U32), ("reserved", U32), ("tensor_max", U64), ("timestamp_hz", U64),
)  # fmt: skip
Request = record(
    "Request", *S, ("kind", U32), ("purpose", U32), ("bytes", U64), ("alignment", U64),
    ("reserved", U64 * 2),
)  # fmt: skip
BlockRecord = record(
    "BlockRecord", *S, ("memory", U64), ("bytes", U64), ("device_address", U64),
    ("host_address", U64), ("reserved", U64 * 2),
)  # fmt: skip
Tensor = record(
    "Tensor", *S, ("dtype", U32), ("rank", U32), ("dims", P), ("strides", P), ("dims_max", P),
    ("dynamic_mask", U32), ("alignment", U32), ("memory_kind", U32), ("alias_of", U32),
    ("block_bytes", U64), ("base_offset", U64), ("value_min", I64), ("value_max", I64),
    ("content_id", U64), ("content", Ref), ("reserved", U64 * 2),
)  # fmt: skip
OpDesc = record(
    "OpDesc", *S, ("op", U32), ("op_version", U32), ("input_count", U32), ("operand_count", U32),
    ("operands", c.POINTER(Tensor)), ("attributes", P), ("attributes_size", U32),
    ("numerics", U32 * 6), ("reserved32", U32), ("workspace_limit", U64), ("cancel", P),
    ("reserved", U64 * 2),
)  # fmt: skip
Verdict = record(
    "Verdict", *S, ("support", U32), ("reason", I32), ("operand", I32), ("compile_ms", U32),
    ("workspace", U64), ("hidden", U64), ("baked", U64), ("cost_ns", U64), ("wants", P),
    ("want_count", U32), ("dynamic", U32), ("reserved", U64 * 2),
)  # fmt: skip
Pack = record(
    "Pack", ("operand", U32), ("kind", U32), ("alignment", U32), ("key_size", U32), ("bytes", U64),
    ("key", P),
)  # fmt: skip
Prepared = record(
    "Prepared", *S, ("workspace", U64), ("workspace_alignment", U32), ("pack_count", U32),
    ("packs", c.POINTER(Pack)), ("hidden", U64), ("baked", U64), ("kernel", c.c_char_p),
    ("library", c.c_char_p), ("reserved", U64 * 2),
)  # fmt: skip
Call = record(
    "Call", *S, ("tag", U64), ("operands", c.POINTER(Ref)), ("extents", P), ("operand_count", U32),
    ("extent_count", U32), ("workspace", Ref), ("reserved", U64),
)  # fmt: skip
State = record(
    "State", *S, ("status", U32), ("reserved", U32), ("completed", U64), ("failed_value", U64),
    ("failed_tag", U64),
)  # fmt: skip
Region = record("Region", ("destination", Ref), ("source", Ref), ("bytes", U64))


def sized(kind: type[c.Structure], /, **fields: object) -> c.Structure:
    return kind(size=c.sizeof(kind), **fields)


def library_path() -> Path:
    """The fake backend of the installed package; the test is skipped where there is none."""
    spec = importlib.util.find_spec("anyhal")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        library = Path(folder) / "backends/fake/libanyhal_fake.so"
        if library.is_file():
            return library
    pytest.skip("anyhal is not installed with its backends: run pip install .")


class Refused(Exception):
    """A slot answered something else than OK."""

    def __init__(self, status: int, error: c.Structure) -> None:
        super().__init__(error.text.decode())
        self.status, self.reason = status, error.reason


class Instance:
    """One instance of the backend, made with a script."""

    def __init__(self, script: str, *, abi: tuple[int, int] = (ABI, ABI)) -> None:
        entry = c.CDLL(str(library_path())).anyhal_backend_main
        text = c.create_string_buffer(script.encode())
        services = sized(Services)
        services.setting = SettingOf(lambda _, name: c.addressof(text))
        services.log, services.span = Log(lambda *_: None), Span(lambda *_: None)
        settings = (Setting * 1)(Setting(b"script", text.value))
        self._keep = (text, services, settings)
        hello = sized(
            Hello, abi_min=abi[0], abi_max=abi[1], instance=b"t", settings=settings,
            setting_count=1, services=c.addressof(services),
        )  # fmt: skip
        self.reply, error = sized(Reply), sized(Error)
        status = entry(c.byref(hello), c.byref(self.reply), c.byref(error))
        if status != OK:
            raise Refused(status, error)
        self.table = self.reply.table.contents
        self.synchronous = bool(self.reply.flags & 1)

    def call(self, slot: str, *arguments: object) -> None:
        error = sized(Error)
        types = [type(a) if isinstance(a, c._SimpleCData) else P for a in arguments]
        types = [
            type(a) if isinstance(a, Ref) else t for a, t in zip(arguments, types, strict=True)
        ]
        function = c.CFUNCTYPE(I32, *types, P)(getattr(self.table, slot))
        status = function(*arguments, c.cast(c.byref(error), P))
        if status != OK:
            raise Refused(status, error)

    def devices(self) -> list[c.Structure]:
        infos = (Info * 8)(*(sized(Info) for _ in range(8)))
        total = U32()
        self.call("device_list", P(self.reply.self), c.cast(infos, P), U32(8), ptr(total))
        return list(infos[: total.value])

    def open(self, device_id: int = 1) -> Device:
        return Device(self, device_id)

    def release(self, kind: int, handle: int, *, abandon: bool = False) -> None:
        self.call("release", P(self.reply.self), U32(kind), U64(handle), U32(abandon))


def ptr(value: object) -> c.c_void_p:
    return c.cast(c.byref(value), P)  # type: ignore[arg-type]


class Device:
    """An opened device; arrays go to it and come back through queue_copy where they must."""

    def __init__(self, instance: Instance, device_id: int) -> None:
        self.instance, handle, self.address_block = instance, P(), U64()
        instance.call(
            "device_open", P(instance.reply.self), U64(device_id), P(), U32(0), ptr(handle),
            ptr(self.address_block),
        )  # fmt: skip
        self.handle = handle
        self.tag = 0

    def alloc(self, size: int, kind: int = 0) -> c.Structure:
        block = sized(BlockRecord)
        request = sized(Request, kind=kind, bytes=size, alignment=64)
        self.instance.call("memory_alloc", self.handle, ptr(request), ptr(block))
        return block

    def queue(self) -> c.c_void_p:
        queue = P()
        if not self.instance.synchronous:
            self.instance.call("queue_create", self.handle, P(), ptr(queue))
        return queue

    def counter(self, number: int) -> int:
        value, size = U64(), U64(8)
        self.instance.call("device_query", self.handle, U32(4), U64(number), ptr(value), ptr(size))
        return value.value

    def copy(self, queue: c.c_void_p, to: Ref, source: Ref, size: int) -> None:
        region = Region(to, source, size)
        self.instance.call("queue_copy", queue, ptr(region), U32(1))

    def signal(self, queue: c.c_void_p, value: int) -> None:
        self.instance.call("queue_signal", queue, U64(value))

    def wait(self, queue: c.c_void_p, value: int, limit: int = NO_LIMIT) -> c.Structure:
        state = sized(State)
        self.last_state = state
        self.instance.call("host_wait", queue, U64(value), U64(limit), ptr(state))
        return state

    def prepare(
        self, op: int, shapes: Sequence[tuple[str, tuple[int, ...]]], inputs: int, **options: object
    ) -> Plan:
        return Plan(self, op, shapes, inputs, **options)  # type: ignore[arg-type]


class Plan:
    """A prepared operation on dense operands."""

    def __init__(
        self,
        device: Device,
        op: int,
        shapes: Sequence[tuple[str, tuple[int, ...]]],
        inputs: int,
        fn: int = 0,
        alias: int = 0,
        cell: bool = False,
        axes: int = 0,
    ) -> None:
        self.device, self._keep = device, []
        operands = (Tensor * len(shapes))()
        for tensor, (dtype, dims) in zip(operands, shapes, strict=True):
            empty = np.empty(dims, dtype)
            strides = [s // empty.itemsize for s in empty.strides]
            arrays = [(I64 * len(dims))(*dims), (I64 * len(dims))(*strides)]
            self._keep += arrays
            tensor.size, tensor.dtype, tensor.rank = c.sizeof(Tensor), DTYPES[dtype], len(dims)
            tensor.dims, tensor.strides = (c.cast(a, P) for a in arrays)
            tensor.alignment = 64
            tensor.block_bytes = empty.nbytes if cell else 0
        operands[len(shapes) - 1].alias_of = alias
        attributes = (U32 * 6)(24, 0, fn, 0, axes, 0) if axes else (U32 * 4)(16, 0, fn, 0)
        self.desc = sized(
            OpDesc, op=op, op_version=1, input_count=inputs, operand_count=len(shapes),
            operands=operands, attributes=c.cast(attributes, P),
            attributes_size=c.sizeof(attributes),
        )  # fmt: skip
        self._keep += [operands, attributes]
        plan, prepared = P(), c.POINTER(Prepared)()
        device.instance.call("op_prepare", device.handle, ptr(self.desc), ptr(plan), ptr(prepared))
        self.handle, self.prepared = plan, prepared.contents

    def run(self, queue: c.c_void_p, *refs: Ref, workspace: Ref | None = None) -> None:
        array = (Ref * len(refs))(*refs)
        self.device.tag += 1
        call = sized(
            Call, tag=self.device.tag, operands=array, operand_count=len(refs),
            workspace=workspace or Ref(),
        )  # fmt: skip
        self.device.instance.call("op_enqueue", queue, self.handle, ptr(call))


def query(device: Device, desc: c.Structure) -> c.Structure:
    verdict = sized(Verdict)
    device.instance.call("op_query", device.handle, ptr(desc), ptr(verdict))
    return verdict


def put(device: Device, queue: c.c_void_p, values: np.ndarray) -> Ref:
    """A new block with these values, through the staging kind where there is one."""
    if device.address_block.value:
        block = device.alloc(values.nbytes)
        c.memmove(block.host_address, values.ctypes.data, values.nbytes)
        return Ref(block.memory, 0)
    staging, block = device.alloc(values.nbytes, 1), device.alloc(values.nbytes)
    c.memmove(staging.host_address, values.ctypes.data, values.nbytes)
    device.copy(queue, Ref(block.memory, 0), Ref(staging.memory, 0), values.nbytes)
    return Ref(block.memory, 0)


class Reader:
    """Takes a block's bytes to the host: queued now, looked at later."""

    def __init__(self, device: Device, queue: c.c_void_p, ref: Ref, like: np.ndarray) -> None:
        self.like = like
        if device.address_block.value:
            self.host = ref.memory  # not used: synchronous memory is read through its block
        self.staging = device.alloc(like.nbytes, 0 if device.address_block.value else 1)
        device.copy(queue, Ref(self.staging.memory, 0), ref, like.nbytes)

    def values(self) -> np.ndarray:
        result = np.empty_like(self.like)
        c.memmove(result.ctypes.data, self.staging.host_address, result.nbytes)
        return result
