"""A small client of the contract in ctypes: runs ops of the cpu library without the core.
SPDX-License-Identifier: Apache-2.0

The core would choose plans, pools and threads; here every call is laid out by hand, so that odd
strides, poisoned outputs, guard bytes and the instruction set are under the test's control.
"""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import anyhal
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._record import pack
from anyhal.ops._spec import Blocks, TensorSpec, dense_strides

GUARD = 256  # bytes around every output
POISON = 0xFB  # as f32, f16 and bf16: large negative numbers, unlike any right answer
ABSENT, CONSTANT = 4, 1


class Ref(c.Structure):
    _fields_ = [("memory", c.c_uint64), ("offset", c.c_uint64)]


class Error(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("reason", c.c_int32),
        ("vendor_code", c.c_int64),
        ("text", c.c_char * 240),
    ]


Body = c.CFUNCTYPE(None, c.c_void_p, c.c_uint32)
ParallelFor = c.CFUNCTYPE(None, c.c_void_p, c.c_uint32, Body, c.c_void_p)
Log = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.c_char_p)
ThreadCount = c.CFUNCTYPE(c.c_uint32, c.c_void_p)


SettingOf = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_char_p)  # a text's address


class Services(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("flags", c.c_uint32),
        ("context", c.c_void_p),
        ("log", Log),
        ("error_text", c.c_void_p),
        ("host_alloc", c.c_void_p),
        ("host_free", c.c_void_p),
        ("parallel_for", ParallelFor),
        ("thread_count", ThreadCount),
        ("cache", c.c_void_p * 2),
        ("setting", SettingOf),
        ("rest", c.c_void_p * 2),
    ]


class Setting(c.Structure):
    _fields_ = [("name", c.c_char_p), ("value", c.c_char_p)]


class Hello(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("flags", c.c_uint32),
        ("abi_min", c.c_uint32),
        ("abi_max", c.c_uint32),
        ("services", c.POINTER(Services)),
        ("instance_name", c.c_char_p),
        ("settings", c.POINTER(Setting)),
        ("setting_count", c.c_uint32),
        ("reserved", c.c_uint32),
    ]


class Reply(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("flags", c.c_uint32),
        ("chosen", c.c_uint32),
        ("abi_min", c.c_uint32),
        ("abi_max", c.c_uint32),
        ("registry_version", c.c_uint32),
        ("table", c.c_void_p),
        ("self", c.c_void_p),
        ("build_id", c.c_char_p),
        ("fingerprints", c.c_void_p),
        ("fingerprint_count", c.c_uint32),
        ("reserved", c.c_uint32),
    ]


class TensorDesc(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("flags", c.c_uint32),
        ("dtype", c.c_uint32),
        ("rank", c.c_uint32),
        ("dims", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("dims_max", c.c_void_p),
        ("dynamic_mask", c.c_uint32),
        ("alignment", c.c_uint32),
        ("memory_kind", c.c_uint32),
        ("alias_of", c.c_uint32),
        ("block_bytes", c.c_uint64),
        ("base_offset", c.c_uint64),
        ("value_min", c.c_int64),
        ("value_max", c.c_int64),
        ("content_id", c.c_uint64),
        ("content", Ref),
        ("reserved", c.c_uint64 * 2),
    ]


class OpDesc(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("flags", c.c_uint32),
        ("op", c.c_uint32),
        ("op_version", c.c_uint32),
        ("input_count", c.c_uint32),
        ("operand_count", c.c_uint32),
        ("operands", c.POINTER(TensorDesc)),
        ("attributes", c.c_char_p),
        ("attributes_size", c.c_uint32),
        ("numerics", c.c_uint32 * 6),
        ("reserved32", c.c_uint32),
        ("workspace_limit", c.c_uint64),
        ("cancel", c.c_void_p),
        ("reserved", c.c_uint64 * 2),
    ]


class Verdict(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("flags", c.c_uint32),
        ("support", c.c_uint32),
        ("reason", c.c_int32),
        ("reason_operand", c.c_int32),
        ("compile_ms", c.c_uint32),
        ("numbers", c.c_uint64 * 4),
        ("wants", c.c_void_p),
        ("want_count", c.c_uint32),
        ("dynamic_operands", c.c_uint32),
        ("reserved", c.c_uint64 * 2),
    ]


class Pack(c.Structure):
    _fields_ = [
        ("operand", c.c_uint32),
        ("kind", c.c_uint32),
        ("alignment", c.c_uint32),
        ("key_size", c.c_uint32),
        ("bytes", c.c_uint64),
        ("key", c.c_void_p),
    ]


class Prepared(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("flags", c.c_uint32),
        ("workspace_bytes", c.c_uint64),
        ("workspace_alignment", c.c_uint32),
        ("pack_count", c.c_uint32),
        ("packs", c.POINTER(Pack)),
        ("hidden_bytes", c.c_uint64),
        ("baked_bytes", c.c_uint64),
        ("kernel", c.c_char_p),
        ("library", c.c_char_p),
        ("reserved", c.c_uint64 * 2),
    ]


class Call(c.Structure):
    _fields_ = [
        ("size", c.c_uint32),
        ("flags", c.c_uint32),
        ("tag", c.c_uint64),
        ("operands", c.POINTER(Ref)),
        ("extents", c.c_void_p),
        ("operand_count", c.c_uint32),
        ("extent_count", c.c_uint32),
        ("workspace", Ref),
        ("reserved", c.c_uint64),
    ]


# Slots by number, as in backend.h; the table begins with two words.
SLOTS = {"device_open": 2, "op_query": 4, "op_prepare": 5, "op_enqueue": 6, "release": 7}
SLOTS |= {"device_query": 13, "constant_pack": 16}


class Refused(Exception):
    """A status other than ok; `status` and `reason` are the contract's numbers."""

    def __init__(self, status: int, error: Error) -> None:
        super().__init__(error.text.decode())
        self.status, self.reason = status, error.reason


def library_path() -> Path:
    """The installed library, or the one under test before it is installed."""
    given = os.environ.get("ANYHAL_TEST_CPU_LIBRARY")
    installed = Path(anyhal.__file__).parent / "backends" / "cpu" / "libanyhal_cpu.so"
    return Path(given) if given else installed


def onednn_path() -> str:
    """Where the installed oneDNN lies; empty when it is not installed."""
    try:
        files = metadata.files("onednn-cpu-gomp") or []
    except metadata.PackageNotFoundError:
        return ""
    return next((str(f.locate().resolve()) for f in files if f.name == "libdnnl.so.3"), "")


class Operand:
    """An array as the contract sees it: address, dtype, dims, strides."""

    def __init__(self, array: Any, spec: TensorSpec) -> None:
        self.array, self.spec = np.asarray(array), spec
        self.dims = (c.c_int64 * max(spec.rank, 1))(*spec.shape)
        self.strides = (c.c_int64 * max(spec.rank, 1))(*spec.strides)

    def describe(self, to: TensorDesc, flags: int) -> None:
        to.flags, to.dtype, to.rank = flags, self.spec.dtype.value, self.spec.rank
        to.dims, to.strides = self.dims, self.strides
        to.alignment = 1


def spec_of(x: Any) -> TensorSpec:
    """Dims and strides of an array, in the contract's units."""
    if isinstance(x, Blocks):
        return TensorSpec(x.dtype, x.shape, dense_strides(x.shape, x.dtype))
    size = x.dtype.itemsize
    return TensorSpec(dtype(x.dtype), x.shape, tuple(s // size for s in x.strides))


class Cpu:
    """One instance of the library at one instruction set."""

    def __init__(self, isa: str = "", onednn: str = "", threads: int = 3) -> None:
        self._keep: list[Any] = []
        library = c.CDLL(str(library_path()))
        self.logged: list[tuple[int, str]] = []
        services = Services(size=c.sizeof(Services))
        services.log = Log(lambda _, level, text: self.logged.append((level, text.decode())))
        services.parallel_for = ParallelFor(self._parallel_for)
        services.thread_count = ThreadCount(lambda _: threads)
        texts = {b"isa": isa, b"onednn_library": onednn}
        values = {name: c.create_string_buffer(text.encode()) for name, text in texts.items()}
        services.setting = SettingOf(lambda _, name: c.addressof(values[name]))
        settings = (Setting * 2)(*((name, v.value) for name, v in values.items()))
        version = 3  # draft 0.3
        hello = Hello(
            c.sizeof(Hello), 0, version, version, c.pointer(services), b"cpu", settings, 2
        )
        reply, error = Reply(size=c.sizeof(Reply)), Error(size=c.sizeof(Error))
        self._keep += [services, settings, hello, values]
        self._check(
            library.anyhal_backend_main(c.byref(hello), c.byref(reply), c.byref(error)), error
        )
        self._self = c.c_void_p(reply.self)
        slots = c.cast(reply.table + 8, c.POINTER(c.c_void_p))
        prototype = c.CFUNCTYPE(c.c_int)
        self._slots = {n: c.cast(slots[i - 1], prototype) for n, i in SLOTS.items()}
        device, block = c.c_void_p(), c.c_uint64()
        self._call(
            "device_open",
            self._self,
            c.c_uint64(0),
            None,
            c.c_uint32(0),
            c.byref(device),
            c.byref(block),
        )
        self.device, self.block = device, block.value
        self.kernel = self.library = ""  # of the last plan, as receipts name them

    @staticmethod
    def _parallel_for(_: Any, count: int, fn: Any, argument: Any) -> None:
        for i in reversed(range(count)):  # an order that no kernel may rely on
            fn(argument, i)

    @staticmethod
    def _check(status: int, error: Error) -> None:
        if status:
            raise Refused(status, error)

    def _call(self, slot: str, *arguments: Any) -> None:
        error = Error(size=c.sizeof(Error))
        self._check(self._slots[slot](*arguments, c.byref(error)), error)

    def notes(self) -> str:
        text, size = c.create_string_buffer(600), c.c_uint64(600)
        self._call("device_query", self.device, c.c_uint32(6), c.c_uint64(0), text, c.byref(size))
        return text.value.decode()

    def run(
        self,
        op: str,
        inputs: Sequence[Any],
        attrs: Mapping[str, Any] | None = None,
        *,
        out: Any = None,
        alias_of: int = 0,
        constant: Sequence[int] = (),
    ) -> Any:
        """Runs one op as the core would: lowered operands, packed constants, poisoned outputs. A
        tuple for an op with several outputs. `out` is state, a tuple where several outputs are;
        the first of them is input `alias_of`, counted from 1, the others those after it."""
        spec = BY_NAME[op]
        full = {a.name: (attrs or {}).get(a.name, a.default) for a in spec.attrs}
        specs = [None if x is None else spec_of(x) for x in inputs]
        frames: list[Any] = []
        if out is None:
            wanted = spec.infer_outs(specs, full)
            frames = [None if w is None else poisoned(w) for w in wanted]
            outs = [None if f is None else f[1] for f in frames]
        else:
            given = list(out) if isinstance(out, tuple) else [out]
            outs = given + [None] * (1 + len(spec.more_outputs) - len(given))
            wanted = tuple(None if o is None else spec_of(o) for o in outs)
        lowered, record, wanted = spec.lower_outs(specs, full, wanted)
        arrays = [x.data if isinstance(x, Blocks) else x for x in inputs]
        operands = [
            None if s is None else Operand(a, s) for a, s in zip(arrays, lowered, strict=True)
        ]
        operands += [
            None if s is None else Operand(o, s) for o, s in zip(outs, wanted, strict=True)
        ]
        record_bytes = pack(spec, record)
        self._execute(spec.id, operands, len(inputs), record_bytes, alias_of, constant)
        for made in frames:
            if made is not None:
                check_guards(*made)
        return tuple(outs) if spec.more_outputs else outs[0]

    def plan(self, op: str, inputs: Sequence[np.ndarray[Any, Any]]) -> Any:
        """A prepared plan as a function of arrays like `inputs`; may be called from any thread."""
        spec = BY_NAME[op]
        full = {a.name: a.default for a in spec.attrs}
        out_spec = spec.infer([spec_of(x) for x in inputs], full)
        lowered, record, out_spec = spec.lower([spec_of(x) for x in inputs], full, out_spec)
        pattern = [*inputs, np.empty(out_spec.shape, out_spec.dtype.numpy)]
        specs = [*lowered, out_spec]
        operands = [Operand(x, s) for x, s in zip(pattern, specs, strict=True)]
        plan, prepared, refs = self._prepare(
            spec.id, operands, len(inputs), pack(spec, record), 0, ()
        )

        def call(*arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            result = np.empty(out_spec.shape, out_spec.dtype.numpy)
            own = (Ref * len(refs))()
            for i, x in enumerate([*arrays, result]):
                own[i] = Ref(self.block, x.ctypes.data)
            self._enqueue(plan, prepared, own, len(own))
            return result

        return call

    def _execute(
        self,
        op: int,
        operands: list[Any],
        input_count: int,
        record: bytes,
        alias_of: int,
        constant: Sequence[int],
    ) -> None:
        plan, prepared, refs = self._prepare(op, operands, input_count, record, alias_of, constant)
        try:
            packed = self._pack(plan, prepared, refs)
            self._enqueue(plan, prepared, refs, len(refs))
            del packed
        finally:
            self._call("release", self._self, c.c_uint32(4), c.c_uint64(plan.value), c.c_uint32(0))

    def _prepare(
        self,
        op: int,
        operands: list[Any],
        input_count: int,
        record: bytes,
        alias_of: int,
        constant: Sequence[int],
    ) -> tuple[Any, Prepared, Any]:
        count = len(operands)
        descs = (TensorDesc * count)()
        refs = (Ref * count)()
        for i, x in enumerate(operands):
            descs[i].size = c.sizeof(TensorDesc)
            if x is None:
                descs[i].flags = ABSENT
                continue
            x.describe(descs[i], CONSTANT if i in constant else 0)
            refs[i] = Ref(self.block, x.array.ctypes.data)
        for i in range(input_count, count):
            if alias_of and operands[i] is not None:
                descs[i].alias_of = alias_of + i - input_count
        desc = OpDesc(c.sizeof(OpDesc), 0, op, 1, input_count, count, descs)
        desc.attributes, desc.attributes_size = record, len(record)
        verdict = Verdict(size=c.sizeof(Verdict))
        self._call("op_query", self.device, c.byref(desc), c.byref(verdict))
        plan, prepared = c.c_void_p(), c.POINTER(Prepared)()
        try:
            self._call("op_prepare", self.device, c.byref(desc), c.byref(plan), c.byref(prepared))
        except Refused as refused:
            assert refused.status != 2 or verdict.support == 0, "query said yes, prepare says no"
            raise
        assert verdict.support == 1, "query said no, prepare says yes"
        self.kernel = prepared.contents.kernel.decode()
        self.library = prepared.contents.library.decode()
        return plan, prepared.contents, refs

    def _pack(self, plan: Any, prepared: Prepared, refs: Any) -> list[np.ndarray[Any, Any]]:
        """Packs what the plan asks for, into blocks that the refs then name."""
        blocks = []
        for i in range(prepared.pack_count):
            want = prepared.packs[i]
            blocks.append(aligned(want.bytes))
            to = Ref(self.block, blocks[-1].ctypes.data)
            operand = c.c_uint32(want.operand)
            self._call("constant_pack", None, plan, operand, refs[want.operand], to)
            check_behind(blocks[-1])
            refs[want.operand] = to
        return blocks

    def _enqueue(self, plan: Any, prepared: Prepared, refs: Any, count: int) -> None:
        workspace = aligned(prepared.workspace_bytes)
        call = Call(c.sizeof(Call), 0, 1, refs, None, count, 0)
        call.workspace = Ref(self.block, workspace.ctypes.data)
        self._call("op_enqueue", None, plan, c.byref(call))
        check_behind(workspace)


def aligned(count: int) -> np.ndarray[Any, Any]:
    """Poisoned bytes at a multiple of 64, with a guard behind them."""
    base = np.full(count + 64 + GUARD, POISON, np.uint8)
    start = -base.ctypes.data % 64
    return base[start : start + count]


def check_behind(block: np.ndarray[Any, Any]) -> None:
    base = block.base
    assert base is not None
    end = block.ctypes.data - base.ctypes.data + block.size
    assert (base[end : end + GUARD] == POISON).all(), "written behind a block"


def poisoned(spec: TensorSpec) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """An output array inside guard bytes, and the frame that holds both."""
    size = spec.nbytes
    frame = np.full(size + 2 * GUARD, POISON, np.uint8)
    inner = frame[GUARD : GUARD + size]
    if spec.dtype.is_block:
        return frame, inner
    return frame, inner.view(spec.dtype.numpy).reshape(spec.shape)


def check_guards(frame: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
    assert (frame[:GUARD] == POISON).all(), "written before the output"
    assert (frame[GUARD + out.nbytes :] == POISON).all(), "written behind the output"
