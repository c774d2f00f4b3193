"""Long runs: memory, descriptors and threads stay, results stay.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
import gc
import time
from collections.abc import Callable

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour import process, work
from anyhal.conformance.behaviour import records as r
from anyhal.conformance.behaviour.driver import Description, opened
from anyhal.conformance.behaviour.registry import Bench, Measured, behaviour, require, require_equal


class _Mallinfo(c.Structure):
    _fields_ = [(n, c.c_size_t) for n in ("arena", "ordblks", "smblks", "hblks", "hblkhd")] + [
        (n, c.c_size_t) for n in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]


def _allocated() -> int | None:
    """Bytes that malloc has given out; None where the C library does not say."""
    try:
        ask = c.CDLL(None).mallinfo2
    except AttributeError:
        return None
    ask.restype = _Mallinfo
    found = ask()
    return int(found.uordblks + found.hblkhd)


def flat(
    runs: int, body: Callable[[], None], what: str, most: int, slack: int = 64 << 10
) -> dict[str, int]:
    """Requires that `runs` runs of body leave no more than `most` bytes each, and `slack` for what
    a vendor's runtime keeps for itself; what a first quarter of the runs fills is not counted."""
    for _ in range(max(runs // 4, 3)):
        body()
    gc.collect()
    gc.disable()  # what Python itself keeps comes and goes
    try:
        before = process.resident(), _allocated(), process.descriptors(), process.threads()
        for _ in range(runs):
            body()
        after = process.resident(), _allocated(), process.descriptors(), process.threads()
    finally:
        gc.enable()
    found = {}
    heaps = [(0, "resident memory", 4096)] + ([(1, "malloc", 0)] if before[1] is not None else [])
    for i, name, least in heaps:
        grown = (after[i] or 0) - (before[i] or 0)
        found[name] = grown
        allowed = runs * max(most, least) + (4 << 20 if i == 0 else slack)
        require(
            grown <= allowed, "leak", f"{runs} times {what}: {name} grew by {grown} bytes", **found
        )
    require(after[2] <= before[2] + 2, "leak", f"{what}: {after[2] - before[2]} more descriptors")
    require(after[3] <= before[3] + 2, "leak", f"{what}: {after[3] - before[3]} more threads")
    return found


def affordable(runs: int, body: Callable[[], None], seconds: float) -> int:
    """So many runs, or fewer where one takes long: a backend may compile for each plan."""
    body()
    began = time.perf_counter()
    body()
    once = time.perf_counter() - began
    return max(3, min(runs, int(seconds / max(once, 1e-6))))


def _run(bench: Bench, runs: int) -> Measured:
    values = work.ramp(4096)
    x = hal.asarray(values, device=bench.device)
    square = hal.asarray(np.ones((24, 24), np.float32), device=bench.device)
    out = hal.empty((4096,), dtype="float32", device=bench.device)

    def body() -> None:
        hal.add(x, x, out=out)
        hal.multiply(out, x, out=out)
        hal.matmul(square, square)
        hal.sum(x)
        hal.synchronize(bench.device)

    found = flat(runs, body, "four calls", 16, slack=160 << 10)
    require_equal(out.numpy(), 2 * values * values, "drift", f"after {4 * runs} calls")
    return found


@behaviour("drift/calls", 31, runs=300, seconds=60)
def calls(bench: Bench, runs: int) -> Measured:
    """{runs} times four calls: memory, descriptors and threads stay flat, the last result is
    right."""
    return _run(bench, runs)


@behaviour("drift/many-calls", 31, tier="full", runs=10_000, seconds=240)
def many_calls(bench: Bench, runs: int) -> Measured:
    """{runs} times four calls: memory, descriptors and threads stay flat, the last result is
    right."""
    return _run(bench, runs)


@behaviour("drift/objects", 17, 31, runs=200, seconds=60)
def objects(bench: Bench, runs: int) -> Measured:
    """Plans, blocks and queues, made and ended {runs} times (less where a plan takes long), leave
    nothing behind."""
    device = opened(bench)

    def body() -> None:
        description = Description(
            device, work.BINARY, [("f32", (64,))] * 3, work.attributes(work.ADD)
        )
        plan, _ = description.prepare()
        device.instance.release(r.PLAN, plan.value or 0)
        device.free(device.alloc(4096))
        if not device.instance.synchronous:
            line = device.line()
            device.lines.remove(line)
            line.end()

    return flat(affordable(runs, body, 2.0), body, "a plan, a block and a queue", 48)


@behaviour("drift/results", 31, runs=150)
def results(bench: Bench, runs: int) -> Measured:
    """The result of every one of {runs} calls is right, not the first ones' alone."""
    values = work.ramp(512)
    x = hal.asarray(values, device=bench.device)
    for number in range(runs):
        require_equal(hal.add(x, x).numpy(), 2 * values, "drift", f"call {number + 1}")
    return None
