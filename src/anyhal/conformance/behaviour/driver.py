"""An instance of the backend beside the core's own: its slots called one by one, from outside.
SPDX-License-Identifier: Apache-2.0

The core would put right, hold back or hide much of what a backend may do wrong.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.conformance.behaviour import records as r
from anyhal.conformance.behaviour.registry import (
    Bench,
    NotApplicableError,
    NotDeclaredError,
    WrongError,
)
from anyhal.conformance.behaviour.services import Host
from anyhal.dtypes import ALL as DTYPES
from anyhal.ops import BY_ID

_P, _U32, _U64, _REF = r.P, r.U32, r.U64, r.Ref
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "device_list": (_P, _P, _U32, _P),
    "device_open": (_P, _U64, _P, _U32, _P, _P),
    "memory_alloc": (_P, _P, _P),
    "op_query": (_P, _P, _P),
    "op_prepare": (_P, _P, _P, _P),
    "op_enqueue": (_P, _P, _P),
    "release": (_P, _U32, _U64, _U32),
    "queue_create": (_P, _P, _P),
    "queue_signal": (_P, _U64),
    "queue_wait": (_P, _P, _U64),
    "host_wait": (_P, _U64, _U64, _P),
    "queue_copy": (_P, _P, _U32),
    "device_query": (_P, _U32, _U64, _P, _P),
    "memory_map": (_P, _REF, _U64, _U32, _P),
    "queue_fill": (_P, _REF, _U64, _P, _U32),
    "queue_notify": (_P, _U64, r.NotifyFn, _P),
    "notify": (_P, _U32, _U64, _P),
    "extension": (_P, c.c_char_p, _U32, _P),
}
_DTYPE = {d.short: d for d in DTYPES}


NO_SUCH_OP = 9999


def op_name(op: int) -> str:
    """As messages write it; an op number that does not exist is said to be one."""
    return BY_ID[op].name if op in BY_ID else f"op {op} (a number that no op has)"


def reason_name(reason: int) -> str:
    return r.REASONS[reason] if 0 <= reason < len(r.REASONS) else f"unknown reason {reason}"


def support_name(support: int) -> str:
    return r.SUPPORT[support] if 0 <= support < len(r.SUPPORT) else f"unknown support {support}"


class RefusedError(Exception):
    """A slot answered something else than OK."""

    def __init__(self, slot: str, status: int, error: Any) -> None:
        word = r.STATUSES[status] if 0 <= status < len(r.STATUSES) else f"status {status}"
        super().__init__(f"{slot} answered {word}: {error.text.decode('utf-8', 'replace')}")
        self.slot, self.status, self.reason, self.word = slot, status, error.reason, word
        self.text = error.text.decode("utf-8", "replace")


class Instance:
    """One instance, made as the core makes it."""

    def __init__(self, library: str, settings: Mapping[str, str], **hello: Any) -> None:
        self.host = Host(settings)
        entry = c.CDLL(library).anyhal_backend_main
        entry.restype, entry.argtypes = r.I32, (_P, _P, _P)
        self._given = self.host.given()
        self._hello = r.sized(
            r.Hello, abi_min=r.ABI_VERSION, abi_max=r.ABI_VERSION,
            services=c.addressof(self.host.record), instance_name=b"conformance",
            settings=self._given, setting_count=self.host.setting_count,
        )  # fmt: skip
        for name, value in hello.items():
            setattr(self._hello, name, value)
        self.reply, error = r.sized(r.Reply), r.sized(r.Error)
        status = entry(c.byref(self._hello), c.byref(self.reply), c.byref(error))
        if status != r.OK:
            raise RefusedError("anyhal_backend_main", status, error)
        table = self.reply.table.contents
        self.self = _P(self.reply.self)
        self.synchronous = bool(self.reply.flags & r.SYNCHRONOUS)
        self._slots = {
            name: c.CFUNCTYPE(r.I32, *kinds, _P)(getattr(table, name))
            for name, kinds in _ARGUMENTS.items()
            if getattr(table, name)
        }

    def has(self, slot: str) -> bool:
        return slot in self._slots

    def attempt(self, slot: str, *arguments: Any) -> tuple[int, Any]:
        """Status and error record."""
        if slot not in self._slots:
            raise NotApplicableError(f"the backend has no {slot}")
        error = r.sized(r.Error)
        return self._slots[slot](*arguments, c.cast(c.byref(error), _P)), error

    def call(self, slot: str, *arguments: Any) -> None:
        status, error = self.attempt(slot, *arguments)
        if status != r.OK:
            raise RefusedError(slot, status, error)

    def infos(self) -> list[Any]:
        rows = (r.Info * 64)(*(r.sized(r.Info) for _ in range(64)))
        total = _U32()
        self.call("device_list", self.self, c.cast(rows, _P), 64, r.pointer(total))
        return list(rows[: total.value])

    def release(self, kind: int, handle: int, flags: int = 0) -> None:
        self.call("release", self.self, kind, handle, flags)


class RawDevice:
    """An opened device. Values go to it and come back as the core would move them."""

    def __init__(self, instance: Instance, device_id: int) -> None:
        self.instance, self.id = instance, device_id
        infos = [i for i in instance.infos() if i.id == device_id]
        if not infos:
            raise NotApplicableError(f"a second instance lists no device with id {device_id}")
        self.info = infos[0]
        self.kinds = [self.info.kinds[i] for i in range(self.info.kind_count)]
        self.compute = self._first(r.DEVICE_LOCAL) or 0
        linear = [i for i, k in enumerate(self.kinds) if not k.flags & r.CELL]
        visible = [i for i in linear if self.kinds[i].flags & r.HOST_VISIBLE]
        self.staging = visible[0] if visible else self.compute
        self.cells = bool(self.kinds[self.compute].flags & r.CELL)
        addressed = r.HOST_VISIBLE | r.COHERENT | r.STABLE_ADDRESS
        self.host_memory = (
            not self.cells and self.kinds[self.compute].flags & addressed == addressed
        )
        handle, self.address_block = _P(), _U64()
        instance.call(
            "device_open", instance.self, device_id, None, 0, r.pointer(handle),
            r.pointer(self.address_block),
        )  # fmt: skip
        self.handle = handle
        self.tag = 0
        self.rows: list[dict[str, Any]] | None = None  # what is declared, where that is known
        self.lines: list[Line] = []
        self.plans: list[RawPlan] = []
        self.blocks: dict[int, Any] = {}  # by handle

    def tidy(self) -> None:
        """Releases what a case has left."""
        for line in self.lines:
            line.end()
        for plan in self.plans:
            self.instance.release(r.PLAN, plan.handle.value or 0)
        self.free(*list(self.blocks.values()))
        self.lines, self.plans = [], []

    def host_of(self, ref: Any) -> int:
        return int(self.blocks[ref.memory].host_address + ref.offset)

    def _first(self, flags: int) -> int | None:
        return next((i for i, k in enumerate(self.kinds) if k.flags & flags == flags), None)

    def alloc(self, size: int, kind: int | None = None, purpose: int = 0) -> Any:
        kind = self.compute if kind is None else kind
        grain = max(self.kinds[kind].granularity, 1)
        alignment = max(256, self.kinds[kind].base_alignment)
        request = r.sized(
            r.Request, kind=kind, purpose=purpose, bytes=-(-size // grain) * grain,
            alignment=alignment,
        )  # fmt: skip
        block = r.sized(r.Block)
        self.instance.call("memory_alloc", self.handle, r.pointer(request), r.pointer(block))
        self.blocks[block.memory] = block
        return block

    def free(self, *blocks: Any) -> None:
        for block in blocks:
            self.blocks.pop(block.memory, None)
            self.instance.release(r.MEMORY, block.memory)

    def line(self, flags: int = 0) -> Line:
        self.lines.append(Line(self, flags))
        return self.lines[-1]

    def queues(self) -> None:
        """NotApplicableError where there are none."""
        if self.instance.synchronous:
            raise NotApplicableError("the backend is synchronous: it has no queues")

    def query(self, key: int, argument: int = 0, room: int = 1 << 16) -> bytes | None:
        """The answer; None where the backend does not know the key."""
        into, size = c.create_string_buffer(room), _U64(room)
        status, error = self.instance.attempt(
            "device_query", self.handle, key, argument, c.cast(into, _P), r.pointer(size)
        )
        if status in (r.NOT_FOUND, r.UNSUPPORTED):
            return None
        if status != r.OK:
            raise RefusedError("device_query", status, error)
        return into.raw[: size.value]


class Line:
    """A queue and the values signalled on it; work is done on return where there are no queues."""

    def __init__(self, device: RawDevice, flags: int = 0) -> None:
        self.device, self.instance = device, device.instance
        self.handle, self.signalled, self.dead, self.in_flight = _P(), 0, False, 0
        if not self.instance.synchronous:
            options = r.sized(r.QueueOptions, flags=flags)
            self.instance.call(
                "queue_create", device.handle, r.pointer(options), r.pointer(self.handle)
            )

    def run(self, plan: RawPlan, *refs: Any) -> None:
        depth = self.device.info.queue_depth
        if depth and self.in_flight >= depth:  # no more than that: the core keeps to it, too
            self.wait()
        self.in_flight += 1
        plan.enqueue(self, refs)

    def copy(self, to: Any, source: Any, size: int) -> None:
        region = r.Region(to, source, size)
        self.instance.call("queue_copy", self.handle, r.pointer(region), 1)

    def signal(self, step: int = 1) -> int:
        self.signalled += step
        if not self.instance.synchronous:
            self.instance.call("queue_signal", self.handle, self.signalled)
        return self.signalled

    def attempt_wait(self, value: int, limit: int = r.NO_LIMIT) -> tuple[int, Any, Any]:
        """Status, state and error."""
        state = r.sized(r.State)
        if self.instance.synchronous:
            return r.OK, state, r.sized(r.Error)
        status, error = self.instance.attempt(
            "host_wait", self.handle, value, limit, r.pointer(state)
        )
        return status, state, error

    def wait(self, value: int | None = None, limit: int = r.NO_LIMIT) -> Any:
        if value is None:
            value = self.signal()
        status, state, error = self.attempt_wait(value, limit)
        if status != r.OK:
            raise RefusedError("host_wait", status, error)
        if value == self.signalled:
            self.in_flight = 0
        return state

    def after(self, source: Line, value: int) -> None:
        """Later calls here come after a value of another queue."""
        if not self.instance.has("queue_wait"):
            source.wait(value)
        else:
            self.instance.call("queue_wait", self.handle, source.handle, value)

    def put(self, values: np.ndarray) -> Any:
        """A new block with these values; the ref."""
        block = self.device.alloc(values.nbytes)
        self.write(r.Ref(block.memory, 0), values, block)
        return r.Ref(block.memory, 0)

    def write(self, ref: Any, values: np.ndarray, block: Any = None) -> None:
        """Waits until they are there."""
        if self.device.host_memory and block is not None and block.host_address:
            self.wait()
            c.memmove(block.host_address, values.ctypes.data, values.nbytes)
            return
        staging = self.on_host(values)
        self.copy(ref, staging, values.nbytes)
        self.wait()
        self.device.free(self.device.blocks[staging.memory])

    def on_host(self, values: np.ndarray) -> Any:
        """A new block that copies may read, with these values; the ref."""
        kind = self.device.compute if self.device.host_memory else self.device.staging
        block = self.device.alloc(values.nbytes, kind)
        c.memmove(block.host_address, values.ctypes.data, values.nbytes)
        return r.Ref(block.memory, 0)

    def fresh(self, size: int) -> Any:
        """A new block, its content undefined; the ref."""
        return r.Ref(self.device.alloc(size).memory, 0)

    def read(self, ref: Any, like: np.ndarray) -> np.ndarray:
        """Queued behind what is there, and waited for."""
        reader = Reader(self, ref, like)
        self.wait()
        return reader.values()

    def end(self) -> None:
        if not self.instance.synchronous:
            if not self.dead:
                self.wait()
            self.instance.release(r.QUEUE, self.handle.value or 0)


class Reader:
    """A copy to the host: queued now, looked at later."""

    def __init__(self, line: Line, ref: Any, like: np.ndarray) -> None:
        self.like, self.device = like, line.device
        kind = line.device.compute if line.device.host_memory else line.device.staging
        self.block = line.device.alloc(like.nbytes, kind)
        if line.instance.has("queue_copy"):
            line.copy(r.Ref(self.block.memory, 0), ref, like.nbytes)
        else:  # host memory: a block's handle and its address are told apart by the owner
            source = line.device.host_of(ref)
            c.memmove(self.block.host_address, source, like.nbytes)

    def values(self) -> np.ndarray:
        result = np.empty_like(self.like)
        c.memmove(result.ctypes.data, self.block.host_address, result.nbytes)
        return result


class RawPlan:
    """A prepared operation on dense operands: (dtype, shape) each, the inputs first."""

    def __init__(
        self,
        device: RawDevice,
        op: int,
        operands: Sequence[tuple[str, tuple[int, ...]]],
        attributes: bytes = b"",
        **desc: Any,
    ) -> None:
        self.device = device
        self.workspace: Any = None
        self.description = Description(device, op, operands, attributes, **desc)
        self.verdict = self.description.query()
        if self.verdict.support == r.NO:
            raise self._refusal(op_name(op), operands[0][0])
        self.handle, self.prepared = self.description.prepare()
        device.plans.append(self)

    def _refusal(self, op: str, dtype: str) -> Exception:
        """What "no" means: only what the backend declares must it run."""
        why = reason_name(self.verdict.reason)
        rows = self.device.rows
        if rows is not None and not any(x["op"] == op and dtype in x["dtypes"] for x in rows):
            return NotDeclaredError(f"it needs {op} of {dtype}, which the backend does not declare")
        if rows is not None and self.verdict.reason in (r.REASON_OP, r.REASON_DTYPE):
            said = f"{op} of {dtype} is declared, and op_query refuses it for its {why}"
            return WrongError("lie", said)
        return NotApplicableError(f"the device does not run this call of {op} of {dtype} ({why})")

    def enqueue(self, line: Line, refs: Sequence[Any], workspace: Any = None) -> None:
        if workspace is None and self.prepared.workspace_bytes:
            if self.workspace is None:
                self.workspace = self.device.alloc(self.prepared.workspace_bytes, purpose=3)
            workspace = r.Ref(self.workspace.memory, 0)
        array = (r.Ref * len(refs))(*refs)
        self.device.tag += 1
        call = r.sized(
            r.Call, tag=self.device.tag, operands=array, operand_count=len(refs),
            workspace=workspace or r.Ref(),
        )  # fmt: skip
        arguments = "op_enqueue", line.handle, self.handle, r.pointer(call)
        for _ in range(3):
            status, error = self.device.instance.attempt(*arguments)
            if status != r.OUT_OF_MEMORY:  # not accepted: the core would trim and try again
                break
        if status != r.OK:
            raise RefusedError("op_enqueue", status, error)
        c.memset(array, 0xA5, c.sizeof(array))  # its arrays may be reused at once, and are
        c.memset(c.byref(call), 0xA5, c.sizeof(call))

    def release(self) -> None:
        self.device.plans.remove(self)
        self.device.instance.release(r.PLAN, self.handle.value or 0)


class Description:
    """anyhal_op_desc of dense operands."""

    def __init__(
        self,
        device: RawDevice,
        op: int,
        operands: Sequence[tuple[str, tuple[int, ...]]],
        attributes: bytes = b"",
        **fields: Any,
    ) -> None:
        self.device = device
        self.tensors = (r.Tensor * len(operands))()
        self.keep: list[Any] = []
        for tensor, (dtype, shape) in zip(self.tensors, operands, strict=True):
            steps = [int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape))]
            dims, strides = ((r.I64 * max(len(shape), 1))(*row) for row in (shape, steps))
            self.keep += [dims, strides]
            tensor.size, tensor.dtype, tensor.rank = (
                c.sizeof(tensor), _DTYPE[dtype].value, len(shape),
            )  # fmt: skip
            tensor.dims, tensor.strides = c.cast(dims, _P), c.cast(strides, _P)
            tensor.alignment, tensor.memory_kind = 64, device.compute
            width = _DTYPE[dtype].block_bytes
            if device.cells:
                tensor.block_bytes = int(np.prod(shape, dtype=np.int64)) * width
        self.attributes = c.create_string_buffer(attributes, max(len(attributes), 1))
        self.record = r.sized(
            r.OpDesc, op=op, op_version=1, input_count=len(operands) - 1,
            operand_count=len(operands), operands=self.tensors,
            attributes=c.cast(self.attributes, _P) if attributes else None,
            attributes_size=len(attributes),
        )  # fmt: skip
        for name, value in fields.items():
            setattr(self.record, name, value)

    def query(self) -> Any:
        verdict = r.sized(r.Verdict)
        self.device.instance.call(
            "op_query", self.device.handle, r.pointer(self.record), r.pointer(verdict)
        )
        return verdict

    def attempt_prepare(self) -> tuple[int, Any, Any, Any]:
        """Status, plan, what was found, error."""
        plan, prepared = _P(), c.POINTER(r.Prepared)()
        status, error = self.device.instance.attempt(
            "op_prepare", self.device.handle, r.pointer(self.record), r.pointer(plan),
            r.pointer(prepared),
        )  # fmt: skip
        return status, plan, prepared, error

    def prepare(self) -> tuple[Any, Any]:
        status, plan, prepared, error = self.attempt_prepare()
        if status != r.OK:
            raise RefusedError("op_prepare", status, error)
        self.scribble()
        return plan, prepared.contents

    def scribble(self) -> None:
        """Nothing of a description may be kept: what it points to is overwritten."""
        for array in (*self.keep, self.tensors, self.attributes):
            c.memset(array, 0xA5, c.sizeof(array))


_opened: dict[tuple[str, str], RawDevice] = {}


def instance_of(bench: Bench, **hello: Any) -> Instance:
    """A new instance of the backend, with the settings that the core gave."""
    core = bench.device.native.instance
    if not core.path.endswith(".so"):
        raise NotApplicableError("a chip in Python has no table of its own")
    return Instance(core.path, dict(core.settings), **hello)


def opened(bench: Bench) -> RawDevice:
    """The device through an instance of its own, made once per process."""
    key = bench.device.native.instance.path, bench.device_name
    if key not in _opened:
        _opened[key] = RawDevice(instance_of(bench), bench.device._id)
        _opened[key].rows = bench.capabilities
    return _opened[key]


def tidy() -> None:
    """After a case."""
    for device in _opened.values():
        device.tidy()


def forget() -> None:
    """After a case that failed: the next one begins with a new instance."""
    _opened.clear()
