"""Blocks of memory: apart from each other, as asked for, and what happens when there are no more.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour import records as r
from anyhal.conformance.behaviour import work
from anyhal.conformance.behaviour.driver import RawDevice, RefusedError, opened
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotApplicableError,
    behaviour,
    require,
    require_equal,
)

_PURPOSES = 6


@behaviour("pools/apart", 10, tier="smoke")
def apart(bench: Bench) -> Measured:
    """Blocks of every kind and purpose lie apart: each keeps what was written to it, whatever is
    written to the others."""
    device = opened(bench)
    line, written = device.line(), []
    for number, n in enumerate((64, 1000, 4096, 70_000) * 2):
        for purpose in range(_PURPOSES):
            values = np.full(n, number * _PURPOSES + purpose, np.float32)
            block = device.alloc(values.nbytes, purpose=purpose)
            line.write(r.Ref(block.memory, 0), values, block)
            written.append((block, values, purpose))
    handles = {block.memory for block, _, _ in written}
    require(len(handles) == len(written) and 0 not in handles, "pools", "two blocks, one handle")
    for block, values, purpose in written:
        found = line.read(r.Ref(block.memory, 0), values)
        require_equal(found, values, "pools", f"a block of purpose {purpose}")
    return {"blocks": len(written)}


@behaviour("pools/as-asked", 10, tier="smoke")
def as_asked(bench: Bench) -> Measured:
    """A block has the bytes and alignment that were asked for, and a host address where its kind
    has stable ones."""
    device = opened(bench)
    for kind, row in enumerate(device.kinds):
        for size in (1, 100, 4097, 1 << 20):
            block = device.alloc(size, kind)
            what = f"a block of {size} bytes of kind {kind}"
            require(block.bytes >= size, "pools", f"{what} has {block.bytes}")
            stable = r.HOST_VISIBLE | r.STABLE_ADDRESS
            if row.flags & stable == stable:
                require(bool(block.host_address), "pools", f"{what} has no host address")
                least = max(256 if kind == device.compute else 1, row.base_alignment)
                require(
                    block.host_address % least == 0,
                    "pools",
                    f"{what} lies at {block.host_address:#x}, no multiple of {least}",
                )
                c.memset(block.host_address, 0x5B, size)
            device.free(block)
    return None


def _too_large(device: RawDevice, kind: int) -> Any:
    """A request that the device cannot meet, and what it may answer."""
    row = device.kinds[kind]
    size = 4 * row.heap_bytes if row.heap_bytes else 1 << 62
    statuses = {r.OUT_OF_MEMORY}
    if row.block_bytes_max:
        statuses.add(r.INVALID_ARGUMENT)
    return -(-size // max(row.granularity, 1)) * max(row.granularity, 1), statuses


@behaviour("pools/unknown-kind", 1, 10, tier="smoke")
def unknown_kind(bench: Bench) -> Measured:
    """Memory of a kind that does not exist, or with an unknown flag, is refused."""
    device = opened(bench)
    for name, fields in (
        ("a kind that does not exist", {"kind": len(device.kinds)}),
        ("an unknown flag", {"kind": device.compute, "flags": 1 << 20}),
    ):
        request = r.sized(r.Request, bytes=4096, alignment=256, **fields)
        block = r.sized(r.Block)
        status, error = device.instance.attempt(
            "memory_alloc", device.handle, r.pointer(request), r.pointer(block)
        )
        refused = status in (r.INVALID_ARGUMENT, r.UNSUPPORTED)
        require(refused, "accepted", f"{name}: {r.STATUSES[status]}")
        require(bool(error.text), "untyped", f"{name}: refused without a text")
    return None


@behaviour("pools/more-than-all", 10, 30, tier="smoke")
def more_than_all(bench: Bench) -> Measured:
    """A request for more than the heap is refused as `out_of_memory` (`invalid_argument` above a
    kind's largest block), on every kind, as often as it is made; blocks there are stay whole and
    the next request of a usual size is met."""
    device = opened(bench)
    line, values = device.line(), work.ramp(4096)
    kept = line.put(values)
    for kind in range(len(device.kinds)):
        if device.kinds[kind].flags & (r.CELL | 128):
            continue  # LAZY kinds may promise anything; cells are made at their first write
        size, allowed = _too_large(device, kind)
        for _ in range(3):
            try:
                device.alloc(size, kind)
            except RefusedError as why:
                require(why.status in allowed, "status", f"{size} bytes of kind {kind}: {why}")
                require(bool(why.text), "untyped", "refused without a text")
            else:
                require(False, "pools", f"{size} bytes of kind {kind}, above its heap: granted")
        device.free(device.alloc(4096, kind))
    require_equal(line.read(kept, values), values, "pools", "a block from before")
    return None


@behaviour("pools/exhausted", 10, 30)
def exhausted(bench: Bench) -> Measured:
    """Filled to the last block, where the heap is small enough to try: refused as `out_of_memory`,
    other heaps go on, and what is released can be had again."""
    device = opened(bench)
    row = device.kinds[device.compute]
    if not 0 < row.heap_bytes <= 2 << 30 or row.flags & 128:
        raise NotApplicableError("the heap is too large to fill, or promises more than it has")
    size = row.block_bytes_max or row.heap_bytes
    size = max(min(size, row.heap_bytes // 8), 1)
    blocks: list[Any] = []
    try:
        while len(blocks) < 4096:
            blocks.append(device.alloc(size))
        require(False, "pools", f"{len(blocks)} blocks of {size} bytes fit {row.heap_bytes} bytes")
    except RefusedError as why:
        require(why.status == r.OUT_OF_MEMORY, "status", f"a full heap: {why}")
    if device.staging != device.compute and row.heap != device.kinds[device.staging].heap:
        try:
            device.free(device.alloc(4096, device.staging))
        except RefusedError as why:
            require(False, "pools", f"another heap, while the first one is full: {why}")
    for block in blocks:
        device.free(block)
    try:
        device.free(device.alloc(size))
    except RefusedError as why:
        require(False, "pools", f"after all blocks were released: {why}")
    return {"blocks": len(blocks)}


@behaviour("pools/trim", 10)
def trim(bench: Bench) -> Measured:
    """Trimming gives back what nobody uses and touches nothing in use, in the core's pools and when
    the backend itself is told to."""
    device = opened(bench)
    line, values = device.line(), work.ramp(4096)
    plan, kept = work.add(device, 4096), line.put(values)
    if device.instance.has("notify"):
        given = r.U64()
        device.instance.call("notify", device.instance.self, r.EVENT_TRIM, 0, r.pointer(given))
    y = line.fresh(values.nbytes)
    line.run(plan, kept, kept, y)
    require_equal(line.read(y, values), 2 * values, "pools", "computed after trimming")
    there = hal.asarray(values, device=bench.device)
    hal.add(there, there)
    bench.device.trim()
    require_equal(hal.add(there, 1.0).numpy(), values + 1, "pools", "after the core trimmed")
    return None


@behaviour("pools/after-out-of-memory", 30, tier="smoke")
def after_out_of_memory(bench: Bench) -> Measured:
    """Through the core: an array larger than the device, or than what is left of a small one, is
    refused with OutOfMemoryError, and the same program then goes on."""
    values = work.ramp(4096)
    there = hal.asarray(values, device=bench.device)
    heap, held = bench.facts.memory_bytes, None
    size = max(heap, 1 << 30)
    if 0 < heap <= 2 << 30:
        size = heap // 32 * 5  # floats: five eighths of all bytes, and so much is held
        held = hal.empty((size,), dtype="float32", device=bench.device)
    for _ in range(2):
        try:
            hal.empty((size,), dtype="float32", device=bench.device)
            require(False, "pools", f"an array of {4 * size} bytes was made")
        except hal.OutOfMemoryError as why:
            require("byte" in str(why), "untyped", f"the refusal does not say how much: {why}")
        require_equal(hal.add(there, 1.0).numpy(), values + 1, "pools", "after the refusal")
    del held
    bench.device.trim()
    return None
