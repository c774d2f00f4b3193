"""Calling again: with other values, other arrays, other scratch memory, less memory left.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import anyhal as hal
from anyhal import _core, settings
from anyhal.conformance.behaviour import records as r
from anyhal.conformance.behaviour import work
from anyhal.conformance.behaviour.driver import RawPlan, opened
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotApplicableError,
    behaviour,
    require_equal,
)
from anyhal.ops import BY_NAME
from anyhal.ops._record import pack

_N = 1024


@behaviour("second_call/same-values", 14, 15, tier="smoke")
def same_values(bench: Bench) -> Measured:
    """The same call, 20 times in a row, gives the same right bits each time, whatever its output
    held before."""
    values = work.ramp(_N)
    x = hal.asarray(values, device=bench.device)
    right = values * values
    for number in range(20):
        before = (np.full(_N, np.nan, np.float32), -right, right + 1)[number % 3]
        out = hal.asarray(before, device=bench.device)
        hal.multiply(x, x, out=out)
        require_equal(out.numpy(), right, "second_call", f"call {number + 1}")
    return None


@behaviour("second_call/changed-values", 13, tier="smoke")
def changed_values(bench: Bench) -> Measured:
    """The same call on the same arrays with other values in them gives their results, not earlier
    ones; a single changed element is enough."""
    values = work.ramp(_N)
    x = hal.asarray(values, device=bench.device)
    a = np.ones((32, 32), np.float32)
    m = hal.asarray(a, device=bench.device)
    out = hal.empty((_N,), dtype="float32", device=bench.device)
    for number in range(10):
        values[(number * 101) % _N] += 1 + number
        x.set(values)
        hal.add(x, x, out=out)
        require_equal(out.numpy(), 2 * values, "second_call", f"add, call {number + 1}")
        a[number, 3] = number + 2
        m.set(a)
        require_equal(hal.matmul(m, m).numpy(), a @ a, "second_call", f"matmul, call {number + 1}")
    return None


@behaviour("second_call/other-arrays", 13)
def other_arrays(bench: Bench) -> Measured:
    """One plan on other arrays each time works on these, in whatever order they come back."""
    values = [work.ramp(_N, 10 * i) for i in range(5)]
    there = [hal.asarray(v, device=bench.device) for v in values]
    for number in range(25):
        i, k = number % 5, (number * 3 + 1) % 5
        found = hal.subtract(there[i], there[k]).numpy()
        require_equal(found, values[i] - values[k], "second_call", f"arrays {i} and {k}")
    return None


@behaviour("second_call/workspace", 3, 14)
def workspace(bench: Bench) -> Measured:
    """What a workspace holds before the call changes nothing, and a call writes no byte behind the
    end of its workspace."""
    device = opened(bench)
    line = device.line()
    square = np.arange(48 * 48, dtype=np.float32).reshape(48, 48) % 7
    rows = [("f32", (48, 48)), ("f32", (48, 1))]
    sort = BY_NAME["sort"]  # which as a rule needs some
    ordered = [("f32", (48, 48)), ("f32", (48, 48)), ("i64", (48, 48))]
    along = pack(sort, {"axis": 1, "descending": False})
    # op, operands, attributes, how many are inputs, the first output
    trials: list[tuple[int, list[Any], bytes, int, Any]] = [
        (work.MATMUL, [("f32", (48, 48))] * 3, b"", 2, square @ square),
        (work.REDUCE, rows, work.attributes(work.SUM, axes=2), 1, square.sum(1)),
        (sort.id, ordered, along, 1, np.sort(square, axis=1)),
    ]
    x, tried = line.put(square), 0
    for op, operands, attributes, inputs, right in trials:
        try:
            plan = RawPlan(device, op, operands, attributes, input_count=inputs)
        except NotApplicableError:
            continue
        size = plan.prepared.workspace_bytes
        if not size:
            continue
        tried += 1
        for content in (0xFF, 0x00, 0x5B):
            room = np.full(size + 4096, content, np.uint8)
            scratch = line.put(room)
            y, more = line.fresh(right.nbytes), operands[inputs + 1 :]
            others = [line.fresh(8 * math.prod(shape)) for _, shape in more]
            plan.enqueue(line, [x] * inputs + [y, *others], scratch)
            found = line.read(y, right)
            require_equal(found, right, "workspace", f"a workspace full of {content:#x}")
            if not device.cells:
                behind = line.read(r.Ref(scratch.memory, 0), room)[size:]
                require_equal(behind, room[size:], "outside_written", "behind the workspace")
    if not tried:
        raise NotApplicableError("no plan of matmul, sum or sort wants a workspace")
    return {"plans": tried}


@behaviour("second_call/poisoned-memory", 14)
def poisoned_memory(bench: Bench) -> Measured:
    """Through the core: outputs and workspaces that are full of 0xff when a call gets them, and not
    what they held the last time, change no bit of a result."""
    if not bench.device.native.host_memory:
        raise NotApplicableError("the core poisons memory that the host can reach alone")
    rng = bench.rng("x")
    x = hal.asarray(rng.standard_normal((33, 65)).astype(np.float32), device=bench.device)
    rows = hal.asarray(np.array([3, 1, 3, 0, 7], np.int64), device=bench.device)
    calls: dict[str, Callable[[], Any]] = {
        "matmul": lambda: hal.matmul(x, x.T),
        "sort": lambda: hal.sort(x, axis=1)[1],
        "topk": lambda: hal.topk(x, k=5, largest=True)[1],
        "softmax": lambda: hal.softmax(x, axis=0),
        "cumsum": lambda: hal.cumsum(x, axis=0),
        "sum": lambda: hal.sum(x, axis=0),
        "embedding_backward": lambda: hal.embedding_backward(x[:5], rows, rows=9),
    }

    def result(call: Callable[[], Any]) -> Any:
        try:
            return call().numpy()
        except hal.UnsupportedError:
            return None

    first = {name: result(call) for name, call in calls.items()}
    _core.set_debug_pool(True)
    try:
        then = {name: result(call) for name, call in calls.items()}
    finally:
        _core.set_debug_pool(settings.DEBUG_POOL.read())
    for name, found in then.items():
        if found is not None and first[name] is not None:
            require_equal(found, first[name], "workspace", f"{name} in poisoned memory")
    return None


@behaviour("second_call/less-memory", 14)
def less_memory(bench: Bench) -> Measured:
    """Results are the same bits when much less memory is free."""
    rng = bench.rng("x")
    a = hal.asarray(rng.standard_normal((96, 130)).astype(np.float32), device=bench.device)
    b = hal.asarray(rng.standard_normal((130, 70)).astype(np.float32), device=bench.device)
    before = hal.matmul(a, b).numpy(), hal.sum(a).numpy()
    heap = bench.facts.memory_bytes or 1 << 30
    size = max(min(heap // 2, 256 << 20) // 4, 1)
    held = hal.empty((size,), dtype="float32", device=bench.device)
    more = [hal.zeros((4096,), dtype="float32", device=bench.device) for _ in range(64)]
    after = hal.matmul(a, b).numpy(), hal.sum(a).numpy()
    del held, more
    for name, was, now in zip(("matmul", "sum"), before, after, strict=True):
        require_equal(now, was, "unstable", f"{name} with {4 * size >> 20} MiB less")
    return None
