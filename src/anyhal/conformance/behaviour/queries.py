"""Questions: the same answer each time, no byte too many, unknown words refused.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
import os
import threading
from typing import Any

import numpy as np

from anyhal.conformance.behaviour import records as r
from anyhal.conformance.behaviour import work
from anyhal.conformance.behaviour.driver import (
    NO_SUCH_OP,
    Description,
    RawDevice,
    op_name,
    opened,
    reason_name,
    support_name,
)
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotApplicableError,
    behaviour,
    require,
)

_COUNT = 64


def _words(record: Any, *skip: str) -> dict[str, Any]:
    """A record's plain fields; pointers and arrays of them are left out."""
    found = {}
    for name, kind in record._fields_:
        value = getattr(record, name)
        if isinstance(value, int | bytes) and kind is not r.P and name not in skip:
            found[name] = value
    return found


def _answers(device: RawDevice) -> dict[str, Any]:
    """What a device says of itself and of a few operations."""
    found: dict[str, Any] = {"capabilities": device.query(r.CAPABILITIES)}
    found["devices"] = [_words(i) for i in device.instance.infos()]
    found["kinds"] = [
        [_words(i.kinds[k]) for k in range(i.kind_count)] for i in device.instance.infos()
    ]
    for op, attributes, shapes in (
        (work.MATMUL, b"", [("f32", (8, 8))] * 3),
        (work.BINARY, work.attributes(work.ADD), [("f32", (8,))] * 3),
        (work.BINARY, work.attributes(work.ADD), [("i8", (8,))] * 3),
        (NO_SUCH_OP, b"", [("f32", (8,))] * 2),
    ):
        verdict = Description(device, op, shapes, attributes).query()
        found[f"{op_name(op)} of {shapes[0][0]}"] = _words(verdict, "cost_ns")
    return found


@behaviour("queries/stable", 28, tier="smoke")
def stable(bench: Bench) -> Measured:
    """Devices, memory kinds, capabilities and verdicts are the same when asked again: after work,
    from another thread, with another environment."""
    device = opened(bench)
    first = _answers(device)

    def same(when: str) -> None:
        now = _answers(device)
        changed = [k for k in first if first[k] != now[k]]
        require(not changed, "unstable", f"{when} the answer changed of: {', '.join(changed)}")

    same("asked again at once,")
    line, values = device.line(), np.ones(64, np.float32)
    x, y = line.put(values), line.fresh(values.nbytes)
    plan = work.add(device, 64)
    for _ in range(3):
        line.run(plan, x, x, y)
    line.wait()
    same("after three calls")
    raised: list[BaseException] = []

    def body() -> None:
        try:
            same("from another thread")
        except BaseException as why:  # told to the caller
            raised.append(why)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    os.environ["CONFORMANCE_CHANGE"] = "1"
    try:
        same("with another environment")
    finally:
        del os.environ["CONFORMANCE_CHANGE"]
    return None


@behaviour("queries/sizes", 22, tier="smoke")
def sizes(bench: Bench) -> Measured:
    """A question with too little room is `invalid_argument` with the size it takes and writes no
    byte more than the room; an unknown key is `not_found`."""
    device = opened(bench)
    if not device.instance.has("device_query"):
        raise NotApplicableError("the backend has no device_query")

    def asked(key: int, argument: int, room: int) -> tuple[int, int, bytes]:
        into = c.create_string_buffer(b"\xa5" * 4096, 4096)
        size = r.U64(room)
        at = c.cast(into, r.P) if room else None
        status, _ = device.instance.attempt(
            "device_query", device.handle, key, argument, at, r.pointer(size)
        )
        return status, size.value, into.raw

    for key in (r.FREE_BYTES, r.CAPABILITIES, 6):
        status, whole, _ = asked(key, 0, 0)
        if status in (r.NOT_FOUND, r.UNSUPPORTED) or not whole:
            continue
        require(status in (r.OK, r.INVALID_ARGUMENT), "status", f"size of key {key}: {status}")
        status, size, into = asked(key, 0, 1)
        if whole > 1:
            require(
                status == r.INVALID_ARGUMENT and size == whole,
                "status",
                f"key {key} with 1 byte of room: {r.STATUSES[status]}, size {size}; it takes"
                f" {whole}",
            )
        require(into[1:] == b"\xa5" * 4095, "outside_written", f"key {key} with 1 byte of room")
    status, _, _ = asked(4711, 0, 8)
    require(status in (r.NOT_FOUND, r.UNSUPPORTED), "status", f"key 4711: {r.STATUSES[status]}")
    return None


@behaviour("queries/prefix", 22, tier="smoke")
def prefix(bench: Bench) -> Measured:
    """Of a record that is longer than the backend's own, as those of a core to come, no byte is
    written behind what the backend knows; of a shorter record of a device none behind it."""
    device = opened(bench)
    instance = device.instance

    def filled(kind: Any, size: int) -> Any:
        room = c.create_string_buffer(b"\xa5" * 1024, 1024)
        record = kind.from_buffer(room)
        c.memset(c.byref(record), 0, min(size, c.sizeof(kind)))
        record.size = size
        return room, record

    def untouched(room: Any, first: int, what: str) -> None:
        changed = [i for i in range(first, 1024) if room.raw[i] != 0xA5]
        require(not changed, "outside_written", f"{what}: byte {changed[:1]} behind it was written")

    description = Description(device, work.BINARY, [("f32", (64,))] * 3, work.attributes(work.ADD))
    request = r.sized(r.Request, kind=device.compute, bytes=4096, alignment=256)
    total = r.U32()
    for name, kind, short in (
        ("device_list", r.Info, r.Info.driver.offset),
        ("op_query", r.Verdict, c.sizeof(r.Verdict)),  # none was ever shorter
        ("memory_alloc", r.Block, c.sizeof(r.Block)),
    ):
        for size in (short, c.sizeof(kind), c.sizeof(kind) + 64):
            room, record = filled(kind, size)
            at = c.cast(room, r.P)
            if name == "device_list":
                instance.call(name, instance.self, at, 1, r.pointer(total))
            elif name == "op_query":
                instance.call(name, device.handle, r.pointer(description.record), at)
            else:
                instance.call(name, device.handle, r.pointer(request), at)
                instance.release(r.MEMORY, record.memory)
            untouched(room, min(size, c.sizeof(kind)), f"{name}, a record of {size} bytes")
    return None


@behaviour("queries/unknown-words", 1, 22, tier="smoke")
def unknown_words(bench: Bench) -> Measured:
    """An unknown op is refused with reason `op`; unknown flags and reserved words of a description
    are refused, by the question and by the prepare."""
    device = opened(bench)

    def described(**fields: Any) -> Description:
        op = fields.pop("op", work.BINARY)
        return Description(device, op, [("f32", (64,))] * 3, work.attributes(work.ADD), **fields)

    unknown = described(op=NO_SUCH_OP)
    verdict = unknown.query()
    require(
        verdict.support == r.NO and verdict.reason == r.REASON_OP,
        "accepted",
        f"{op_name(NO_SUCH_OP)}: op_query says {support_name(verdict.support)} with reason"
        f" {reason_name(verdict.reason)}; it must say no with reason op",
    )
    trials = {
        "a flag of the op": described(flags=1 << 30),
        "a reserved word of the op": described(reserved32=7),
        "an op": unknown,
    }
    for name, place in (("a flag of an operand", "flags"), ("a dtype", "dtype")):
        trials[name] = described()
        setattr(trials[name].tensors[1], place, 1 << 30)
    trials["a reserved word of an operand"] = described()
    trials["a reserved word of an operand"].tensors[0].reserved[1] = 7
    for name, description in trials.items():
        verdict = r.sized(r.Verdict)
        status, _ = device.instance.attempt(
            "op_query", device.handle, r.pointer(description.record), r.pointer(verdict)
        )
        refused = status == r.INVALID_ARGUMENT or (status == r.OK and verdict.support == r.NO)
        require(refused, "accepted", f"{name} that is unknown: op_query says yes")
        status, plan, _, error = description.attempt_prepare()
        require(
            status in (r.INVALID_ARGUMENT, r.UNSUPPORTED),
            "accepted",
            f"{name} that is unknown: op_prepare answers {r.STATUSES[status]}",
        )
        require(bool(error.text), "untyped", f"{name}: refused without a text")
        require(not plan.value, "lie", f"{name}: refused, and a plan was given")
    return None


@behaviour("queries/unknown-extension", 22)
def unknown_extension(bench: Bench) -> Measured:
    """An extension that nobody knows is `not_found`, and no table is given."""
    device = opened(bench)
    table = r.P()
    status, _ = device.instance.attempt(
        "extension", device.instance.self, b"anyhal.no_such_extension", 1, r.pointer(table)
    )
    require(status in (r.NOT_FOUND, r.UNSUPPORTED), "accepted", f"it answers {r.STATUSES[status]}")
    require(not table.value, "accepted", "it gives a table")
    return None
