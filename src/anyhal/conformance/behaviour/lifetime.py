"""How long things live: arguments of a call, blocks in flight, blocks given back.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour import process, work
from anyhal.conformance.behaviour import records as r
from anyhal.conformance.behaviour.driver import opened
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotApplicableError,
    behaviour,
    require,
    require_equal,
)

_N = 4096
_ROUNDS = 4  # in each of which a leak shows


@behaviour("lifetime/arguments", 13, 18, tier="smoke")
def arguments(bench: Bench) -> Measured:
    """What a call's pointers lead to is read before it returns: descriptions, attributes, operand
    arrays, copy regions and fill patterns are overwritten right after each call."""
    device = opened(bench)
    line, values = device.line(), work.ramp(_N)
    plan = work.add(device, _N)  # its description is overwritten after op_prepare, and its call too
    a, b, y = line.put(values), line.put(values), line.fresh(values.nbytes)
    if not line.instance.synchronous:
        work.gate(device).hold(line)
    line.run(plan, a, b, y)
    require_equal(
        line.read(y, values), 2 * values, "lifetime", "after description and call were reused"
    )
    if line.instance.has("queue_copy"):
        source, host = line.on_host(values), device.alloc(values.nbytes, device.staging)
        if not line.instance.synchronous:
            work.gate(device).hold(line)
        region = r.Region(r.Ref(y.memory, 0), source, values.nbytes)
        line.instance.call("queue_copy", line.handle, r.pointer(region), 1)
        c.memset(c.byref(region), 0xA5, c.sizeof(region))
        back = r.Region(r.Ref(host.memory, 0), y, values.nbytes)
        line.instance.call("queue_copy", line.handle, r.pointer(back), 1)
        c.memset(c.byref(back), 0xA5, c.sizeof(back))
        line.wait()
        found = np.empty_like(values)
        c.memmove(found.ctypes.data, host.host_address, values.nbytes)
        require_equal(found, values, "lifetime", "copied, and the regions reused")
    if line.instance.has("queue_fill") and not device.cells:
        if not line.instance.synchronous:
            work.gate(device).hold(line)
        pattern = c.create_string_buffer(np.float32(3).tobytes(), 4)
        status, _ = line.instance.attempt(
            "queue_fill", line.handle, y, values.nbytes, c.cast(pattern, r.P), 4
        )
        c.memset(pattern, 0xA5, 4)
        if status == r.OK:
            right = np.full(_N, 3, np.float32)
            require_equal(line.read(y, right), right, "lifetime", "filled, and the pattern reused")
    return None


@behaviour("lifetime/mapping", 10)
def mapping(bench: Bench) -> Measured:
    """What the host writes while a range is mapped is there after the end of the access, for copies
    and for the next mapping."""
    device = opened(bench)
    if not device.instance.has("memory_map") or not device.instance.has("queue_copy"):
        raise NotApplicableError("the backend has no memory_map")
    line, values = device.line(), work.ramp(_N)
    ref = r.Ref(device.alloc(values.nbytes, device.staging).memory, 0)
    read, write, end = 1, 2, 4

    def mapped(flags: int) -> Any:
        at = r.P()
        status, _ = device.instance.attempt(
            "memory_map", device.handle, ref, values.nbytes, flags, r.pointer(at)
        )
        if status == r.UNSUPPORTED:
            raise NotApplicableError("the backend does not map this memory")
        require(status == r.OK, "status", f"memory_map answered {r.STATUSES[status]}")
        return at.value

    c.memmove(mapped(write), values.ctypes.data, values.nbytes)
    mapped(write | end)
    copied = line.fresh(values.nbytes)
    line.copy(copied, ref, values.nbytes)
    require_equal(line.read(copied, values), values, "lifetime", "copied after the access")
    found = np.empty_like(values)
    c.memmove(found.ctypes.data, mapped(read), values.nbytes)
    mapped(read | end)
    require_equal(found, values, "lifetime", "mapped again")
    return None


@behaviour("lifetime/source-overwritten", 18, tier="smoke")
def source_overwritten(bench: Bench) -> Measured:
    """Through the core: a program's own array may change as soon as `asarray` or `set` returns."""
    values = work.ramp(_N)
    right = values.copy()
    there = hal.asarray(values, device=bench.device)
    y = hal.add(there, 1.0)
    values[:] = np.nan
    require_equal(there.numpy(), right, "lifetime", "an array whose source changed after asarray")
    values = work.ramp(_N, 5)
    there.set(values)
    z = hal.add(there, 1.0)
    values[:] = np.nan
    require_equal(z.numpy(), right + 6, "lifetime", "an array whose source changed after set")
    require_equal(y.numpy(), right + 1, "lifetime", "what was computed before set")
    return None


@behaviour("lifetime/freed-in-flight", 7, tier="smoke")
def freed_in_flight(bench: Bench) -> Measured:
    """Through the core: an array that is let go while calls that read it are queued stays whole for
    them, though its memory is handed out again at once."""
    total = np.zeros(_N, np.float32)
    sums = hal.asarray(total, device=bench.device)
    for step in range(24):
        values = work.ramp(_N, step)
        x = hal.asarray(values, device=bench.device)
        sums = hal.add(sums, hal.multiply(x, 2.0))
        del x  # the next one takes its place
        total += 2 * values
    require_equal(sums.numpy(), total, "lifetime", "24 sums of arrays let go at once")
    return None


@behaviour("lifetime/freed-across-queues", 7, 8)
def freed_across_queues(bench: Bench) -> Measured:
    """Through the core: an array used last on a second queue is not handed out to the first one
    before that use is done."""
    device = bench.device
    side = hal.Queue(device)
    n = 64 * 64
    ones = np.ones((64, 64), np.float32)
    heavy = hal.asarray(ones, device=device)
    results = []
    for step in range(12):
        x = hal.asarray(work.ramp(n, step), device=device)
        with hal.use(queue=side):
            for _ in range(4):
                hal.matmul(heavy, heavy)
            results.append((step, hal.add(x, 1.0)))
        del x
        hal.asarray(np.full(n, np.nan, np.float32), device=device)
    for step, y in results:
        right = work.ramp(n, step) + 1
        require_equal(y.numpy(), right, "lifetime", f"array {step}, used last on a second queue")
    return None


@behaviour("lifetime/given-back", 7, 10)
def given_back(bench: Bench) -> Measured:
    """A block that is released is given back: 40 blocks of 8 MiB, one after another, leave what is
    free and the size of the process as they were. An allocator may keep some, once: what is lost
    is lost each time."""
    device = opened(bench)
    size, count = 8 << 20, 40
    line = device.line()
    heap = device.kinds[device.compute].heap

    def once() -> None:
        block = device.alloc(size)
        if device.host_memory:
            c.memset(block.host_address, 1, size)
        elif not device.cells:
            staging = device.alloc(size, device.staging)
            line.copy(r.Ref(block.memory, 0), r.Ref(staging.memory, 0), size)
            line.wait()
            device.free(staging)
        device.free(block)

    for _ in range(4):
        once()
    free = device.query(r.FREE_BYTES, heap)
    for _ in range(_ROUNDS):
        before = process.resident()
        for _ in range(count):
            once()
        grown = process.resident() - before
        if grown < size * count // 4:
            break
    left = device.query(r.FREE_BYTES, heap)
    require(
        grown < size * count // 4,
        "leak",
        f"{_ROUNDS} times {count} blocks of {size >> 20} MiB made and released: the process grew"
        f" each time, at last by {grown >> 20} MiB",
    )
    if free is not None and left is not None and not device.info.flags & 1:
        lost = int.from_bytes(free[:8], "little") - int.from_bytes(left[:8], "little")
        require(
            lost < size * count // 4, "leak", f"after {count} released blocks, {lost} bytes less"
        )
    return {"grown_bytes": max(grown, 0)}
