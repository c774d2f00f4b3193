"""The contract's records in ctypes, with the names of backend.h; a test compares the layouts.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
from typing import Any

U32, U64, I32, I64, P = c.c_uint32, c.c_uint64, c.c_int32, c.c_int64, c.c_void_p
OK, INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY, DEVICE_LOST, TIMEOUT, NOT_FOUND = range(7)
ABI_MISMATCH, CANCELLED, EXECUTION_FAILED, INTERNAL = range(7, 11)
STATUSES: tuple[str, ...]
STATUSES = (
    "ok",
    "invalid_argument",
    "unsupported",
    "out_of_memory",
    "device_lost",
    "timeout",
)
STATUSES += ("not_found", "abi_mismatch", "cancelled", "execution_failed", "internal")
REASONS: tuple[str, ...]
REASONS = ("none", "op", "dtype", "layout", "rank", "shape_limit", "alignment", "attribute")
REASONS += ("architecture", "driver", "missing_library", "missing_artefact", "workspace")
REASONS += ("numerics", "memory_kind", "capture", "policy")
DEVICE, MEMORY, QUEUE, PLAN, MODULE = range(1, 6)
NO, YES, PREPARE_KNOWS = range(3)
SUPPORT = ("no", "yes", "prepare_knows")
ABI_VERSION = 3  # 0.3
NO_LIMIT = 2**64 - 1
DEVICE_LOCAL, HOST_VISIBLE, COHERENT, CELL, STABLE_ADDRESS = 1, 2, 4, 8, 64
SYNCHRONOUS, HIDDEN_MEMORY = 1, 2  # of a reply
REASON_OP, REASON_DTYPE, REASON_WORKSPACE = 1, 2, 12
FREE_BYTES, COUNTER, CAPABILITIES = 1, 4, 5
EVENT_TRIM = 3
ABANDON = 1
PROFILED = 1

SLOTS: tuple[str, ...]
SLOTS = (
    "device_list",
    "device_open",
    "memory_alloc",
    "op_query",
    "op_prepare",
    "op_enqueue",
)
SLOTS += ("release", "queue_create", "queue_signal", "queue_wait", "host_wait", "queue_copy")
SLOTS += ("device_query", "memory_map", "memory_import", "constant_pack", "queue_fill")
SLOTS += ("queue_notify", "graph_prepare", "module_load", "kernel_prepare", "queue_native")
SLOTS += ("native_handle", "notify", "extension")


def _record(name: str, *fields: tuple[str, Any]) -> type[c.Structure]:
    return type(name, (c.Structure,), {"_fields_": list(fields)})


_S = (("size", U32), ("flags", U32))
Error = _record(
    "anyhal_error", ("size", U32), ("reason", I32), ("vendor_code", I64), ("text", c.c_char * 240)
)
Ref = _record("anyhal_ref", ("memory", U64), ("offset", U64))
Setting = _record("anyhal_setting", ("name", c.c_char_p), ("value", c.c_char_p))
LogFn = c.CFUNCTYPE(None, P, I32, P)
ErrorTextFn = c.CFUNCTYPE(I32, P, P, I32, I32, c.c_char_p)
AllocFn = c.CFUNCTYPE(P, P, U64, U64)
FreeFn = c.CFUNCTYPE(None, P, P)
PartFn = c.CFUNCTYPE(None, P, U32)
ParallelFn = c.CFUNCTYPE(None, P, U32, PartFn, P)
CountFn = c.CFUNCTYPE(U32, P)
CacheFn = c.CFUNCTYPE(I32, P, c.c_char_p, P, P)
CachePutFn = c.CFUNCTYPE(I32, P, c.c_char_p, P, U64)
SettingFn = c.CFUNCTYPE(P, P, c.c_char_p)
SpanFn = c.CFUNCTYPE(None, P, U64, U64, U64, U32)
NoteFn = c.CFUNCTYPE(None, P, c.c_char_p, I64)
NotifyFn = c.CFUNCTYPE(None, P, I32)
Services = _record(
    "anyhal_services", *_S, ("context", P), ("log", LogFn), ("error_text", ErrorTextFn),
    ("host_alloc", AllocFn), ("host_free", FreeFn), ("parallel_for", ParallelFn),
    ("thread_count", CountFn), ("cache_get", CacheFn), ("cache_put", CachePutFn),
    ("setting", SettingFn), ("span", SpanFn), ("ledger_note", NoteFn),
)  # fmt: skip
Hello = _record(
    "anyhal_hello", *_S, ("abi_min", U32), ("abi_max", U32), ("services", P),
    ("instance_name", c.c_char_p), ("settings", c.POINTER(Setting)), ("setting_count", U32),
    ("reserved", U32),
)  # fmt: skip
Table = _record("anyhal_table", *_S, *((slot, P) for slot in SLOTS))
Reply = _record(
    "anyhal_reply", *_S, ("chosen", U32), ("abi_min", U32), ("abi_max", U32),
    ("registry_version", U32), ("table", c.POINTER(Table)), ("self", P), ("build_id", c.c_char_p),
    ("fingerprints", P), ("fingerprint_count", U32), ("reserved", U32),
)  # fmt: skip
Kind = _record(
    "anyhal_memory_kind", *_S, ("heap", U32), ("offset_alignment", U32), ("base_alignment", U32),
    ("reserved", U32), ("granularity", U64), ("block_bytes_max", U64), ("heap_bytes", U64),
    ("blocks_max", U64),
)  # fmt: skip
Info = _record(
    "anyhal_device_info", *_S, ("id", U64), ("uuid", c.c_uint8 * 16), ("pci_domain", U32),
    ("pci_function", U32), ("name", c.c_char * 64), ("arch", c.c_char * 32),
    ("driver", c.c_char * 64), ("kinds", c.POINTER(Kind)), ("kind_count", U32),
    ("queue_count_max", U32), ("queue_depth", U32), ("preferred_alignment", U32),
    ("rank_max", U32), ("recovery", U32), ("own_threads", U32), ("reserved", U32),
    ("tensor_bytes_max", U64), ("timestamp_hz", U64),
)  # fmt: skip
Request = _record(
    "anyhal_memory_request", *_S, ("kind", U32), ("purpose", U32), ("bytes", U64),
    ("alignment", U64), ("reserved", U64 * 2),
)  # fmt: skip
Block = _record(
    "anyhal_memory_block", *_S, ("memory", U64), ("bytes", U64), ("device_address", U64),
    ("host_address", U64), ("reserved", U64 * 2),
)  # fmt: skip
Tensor = _record(
    "anyhal_tensor_desc", *_S, ("dtype", U32), ("rank", U32), ("dims", P), ("strides", P),
    ("dims_max", P), ("dynamic_mask", U32), ("alignment", U32), ("memory_kind", U32),
    ("alias_of", U32), ("block_bytes", U64), ("base_offset", U64), ("value_min", I64),
    ("value_max", I64), ("content_id", U64), ("content", Ref), ("reserved", U64 * 2),
)  # fmt: skip
OpDesc = _record(
    "anyhal_op_desc", *_S, ("op", U32), ("op_version", U32), ("input_count", U32),
    ("operand_count", U32), ("operands", c.POINTER(Tensor)), ("attributes", P),
    ("attributes_size", U32), ("numerics", U32 * 6), ("reserved32", U32),
    ("workspace_limit", U64), ("cancel", P), ("reserved", U64 * 2),
)  # fmt: skip
Verdict = _record(
    "anyhal_verdict", *_S, ("support", U32), ("reason", I32), ("reason_operand", I32),
    ("compile_ms", U32), ("workspace_bytes", U64), ("hidden_bytes", U64), ("baked_bytes", U64),
    ("cost_ns", U64), ("wants", P), ("want_count", U32), ("dynamic_operands", U32),
    ("reserved", U64 * 2),
)  # fmt: skip
Prepared = _record(
    "anyhal_prepared", *_S, ("workspace_bytes", U64), ("workspace_alignment", U32),
    ("pack_count", U32), ("packs", P), ("hidden_bytes", U64), ("baked_bytes", U64),
    ("kernel", c.c_char_p), ("library", c.c_char_p), ("reserved", U64 * 2),
)  # fmt: skip
Call = _record(
    "anyhal_call", *_S, ("tag", U64), ("operands", c.POINTER(Ref)), ("extents", P),
    ("operand_count", U32), ("extent_count", U32), ("workspace", Ref), ("reserved", U64),
)  # fmt: skip
QueueOptions = _record("anyhal_queue_options", *_S, ("priority", I32), ("reserved", U32))
State = _record(
    "anyhal_queue_state", *_S, ("status", U32), ("reserved", U32), ("completed", U64),
    ("failed_value", U64), ("failed_tag", U64),
)  # fmt: skip
Region = _record(
    "anyhal_copy_region", ("destination", Ref), ("source", Ref), ("bytes", U64)
)  # fmt: skip

ALL: tuple[type[c.Structure], ...]
ALL = (
    Error,
    Ref,
    Setting,
    Services,
    Hello,
    Table,
    Reply,
    Kind,
    Info,
    Request,
    Block,
    Tensor,
)
ALL += (OpDesc, Verdict, Prepared, Call, QueueOptions, State, Region)


def sized(kind: type[c.Structure], /, **fields: Any) -> Any:
    return kind(size=c.sizeof(kind), **fields)


def pointer(value: Any) -> Any:
    return c.cast(c.byref(value), P)
