"""Failures: values that only the call knows, memory that is refused at any point.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour import child, work
from anyhal.conformance.behaviour import records as r
from anyhal.conformance.behaviour.driver import Description, Line, RawDevice, RefusedError, opened
from anyhal.conformance.behaviour.interposing import Interposed, NotHereError
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotApplicableError,
    WrongError,
    behaviour,
    require,
    require_equal,
)

_BEFORE = np.full((3, 4), 77, np.float32)


def _gather(device: RawDevice, line: Line, index: int) -> tuple[work.RawPlan, list[Any]]:
    """A gather of which one index may be out of range: plan and operands, the output last."""
    x, indices = work.ramp(64).reshape(16, 4), np.array([0, index, 2], np.int64)
    shapes = [("f32", (16, 4)), ("i64", (3,)), ("f32", (3, 4))]
    plan = work.RawPlan(device, work.GATHER, shapes, work.attributes(0))
    return plan, [line.put(x), line.put(indices), line.put(_BEFORE)]


@behaviour("failures/bad-index", 19, tier="smoke")
def bad_index(bench: Bench) -> Measured:
    """An index out of range is `invalid_argument`, from the call or from the wait for it; the call
    wrote nothing, other queues and later calls go on."""
    device = opened(bench)
    healthy, values = device.line(), work.ramp(64)
    plan, x = work.add(device, 64), healthy.put(values)
    for index in (16, -1, 1 << 40):
        line, late = device.line(), False
        gather, refs = _gather(device, line, index)
        try:
            line.run(gather, *refs)
            line.wait()
        except RefusedError as why:
            late = why.slot != "op_enqueue"
            require(why.status == r.INVALID_ARGUMENT, "status", f"index {index} of 16 rows: {why}")
            require(bool(why.text), "untyped", f"index {index}: refused without a text")
            line.dead = late
        else:
            raise WrongError("accepted", f"index {index} of 16 rows was accepted")
        if late:
            status, state, _ = line.attempt_wait(line.signalled, 0)
            require(
                status != r.OK and state.status != r.OK and 0 < state.failed_value,
                "status",
                f"asked again after the failure the wait answers {status}, the state"
                f" {state.status}, first failed value {state.failed_value}",
            )
        found = healthy.read(refs[-1], _BEFORE)
        require_equal(found, _BEFORE, "outside_written", f"the output of index {index}")
        y = healthy.fresh(values.nbytes)
        healthy.run(plan, x, x, y)
        require_equal(healthy.read(y, values), 2 * values, "failure", "another queue, afterwards")
    line = device.line()
    gather, refs = _gather(device, line, 15)
    line.run(gather, *refs)
    right = work.ramp(64).reshape(16, 4)[[0, 15, 2]]
    require_equal(line.read(refs[-1], _BEFORE), right, "failure", "a right call, afterwards")
    return None


@behaviour("failures/wrong-count", 19, 22)
def wrong_count(bench: Bench) -> Measured:
    """A call with another number of operands than its plan is `invalid_argument`, and later calls
    go on."""
    device = opened(bench)
    line, values = device.line(), work.ramp(64)
    plan, x, y = work.add(device, 64), line.put(values), line.put(values)
    operands = (r.Ref * 4)(x, x, y, y)
    for count in (2, 4):
        call = r.sized(r.Call, tag=1, operands=operands, operand_count=count)
        status, _ = device.instance.attempt("op_enqueue", line.handle, plan.handle, r.pointer(call))
        require(
            status == r.INVALID_ARGUMENT,
            "accepted",
            f"a plan of three operands called with {count}: {r.STATUSES[status]}",
        )
    require_equal(line.read(y, values), values, "outside_written", "an operand of those calls")
    line.run(plan, x, x, y)
    require_equal(line.read(y, values), 2 * values, "failure", "a right call, afterwards")
    return None


@behaviour("failures/through-the-core", 19)
def through_the_core(bench: Bench) -> Measured:
    """Through the core: a call that fails late is reported to whoever reads its result, with a
    typed error, and unrelated work of the same queue goes on."""
    values = work.ramp(64).reshape(16, 4)
    x = hal.asarray(values, device=bench.device)
    for _ in range(2):
        try:
            bad = hal.asarray(np.array([0, 16], np.int64), device=bench.device)
            hal.take(x, bad, axis=0).numpy()
        except (hal.InvalidArgumentError, hal.ExecutionFailedError) as why:
            require("index" in str(why) or "16" in str(why), "untyped", f"it says only: {why}")
        else:
            raise WrongError("accepted", "index 16 of 16 rows was accepted")
        found = hal.add(x, 1.0).numpy()
        require_equal(found, values + 1, "failure", "the next call on the device")
        with suppress(hal.HalError):  # what failed late is told once more, to who waits for all
            hal.synchronize(bench.device)
    return None


# Rows that are not there, and a row that two tokens claim.
_MISPLACED: list[tuple[str, str, tuple[Any, ...]]] = [
    ("cache_append", "rows 7 and 8 of 8", ((1, 2, 8, 4), (1, 2, 2, 4), 7)),
    ("cache_append", "row -1", ((1, 2, 8, 4), (1, 2, 2, 4), -1)),
    ("paged_cache_append", "page 3 of 3", ((3, 4, 2, 3), (1, 2, 3), [0, 1], [[3]], [2])),
    ("paged_cache_append", "page -1", ((3, 4, 2, 3), (1, 2, 3), [0, 1], [[-1]], [2])),
    (
        "paged_cache_append",
        "one row for two tokens",
        ((3, 4, 2, 3), (2, 2, 3), [0, 1, 2], [[0], [0]], [1, 1]),
    ),
]


@behaviour("failures/bad-places", 19)
def bad_places(bench: Bench) -> Measured:
    """A cache is not written where it has no row, nor twice in one: the call is an error, and the
    next one goes on."""
    declared = {row["op"] for row in bench.capabilities}
    asked = [row for row in _MISPLACED if row[0] in declared]
    if not asked:
        raise NotApplicableError("the backend declares no op that writes into caches")
    for op, what, (cache_shape, update_shape, *places) in asked:
        cache = hal.asarray(np.zeros(cache_shape, np.float32), device=bench.device)
        update = hal.asarray(np.ones(update_shape, np.float32), device=bench.device)
        given = [hal.asarray(np.array(one, np.int64), device=bench.device) for one in places]
        try:
            getattr(hal, op)(cache, update, *given).numpy()
        except (hal.InvalidArgumentError, hal.ExecutionFailedError):
            pass
        else:
            raise WrongError("accepted", f"{op} accepted {what}")
        with suppress(hal.HalError):  # what failed late is told once more, to who waits for all
            hal.synchronize(bench.device)
        require_equal(
            hal.add(update, 1.0).numpy(),
            np.full(update_shape, 2, np.float32),
            "failure",
            f"the next call on the device, after {op} with {what}",
        )
    return None


def _tries(device: RawDevice) -> list[tuple[str, Any]]:
    """What may ask for memory: name and a function that gives a status."""
    shapes = [("f32", (48, 48))] * 3

    def prepare(op: int, attributes: bytes) -> int:
        description = Description(device, op, shapes, attributes)
        status, plan, _, error = description.attempt_prepare()
        if status == r.OK:
            device.instance.release(r.PLAN, plan.value or 0)
        elif not error.text:
            raise WrongError("untyped", "memory was refused to op_prepare, which gives no text")
        return status

    def block() -> int:
        try:
            device.free(device.alloc(5000))
        except RefusedError as why:
            return why.status
        return r.OK

    return [
        ("op_prepare of matmul", lambda: prepare(work.MATMUL, b"")),
        ("op_prepare of add", lambda: prepare(work.BINARY, work.attributes(work.ADD))),
        ("memory_alloc", block),
    ]


@behaviour("failures/refused-memory", 12)
def refused_memory(bench: Bench) -> Measured:
    """When the core refuses memory to the backend at its first, second, … request, the slot answers
    `out_of_memory` or does without, and works again afterwards."""
    device = opened(bench)
    host, points = device.instance.host, 0
    try:
        for name, attempt in _tries(device):
            for point in range(1, 17):
                host.calls["host_alloc"], host.refuse_from = 0, point
                status = attempt()
                asked = host.calls["host_alloc"]
                require(
                    status in (r.OK, r.OUT_OF_MEMORY),
                    "status",
                    f"{name}, refused memory at request {point}: {r.STATUSES[status]}",
                )
                if asked < point:
                    break
                points += 1
            host.refuse_from = 0
            require(attempt() == r.OK, "failure", f"{name}, when memory is granted again")
    finally:
        host.refuse_from = 0
    if not points:
        raise NotApplicableError("the backend asks the core for no memory")
    return {"points": points}


def _with_failing_malloc(bench: Bench) -> dict[str, int]:
    device = opened(bench)
    try:
        watched = Interposed(bench.device.native.instance.path, nullable=True)
    except NotHereError as why:
        raise NotApplicableError(str(why)) from why
    points = 0
    for name, attempt in _tries(device):
        for point in range(1, 33):
            watched.calls.clear()
            watched.refuse_from = point
            with watched:
                status = attempt()
            if status not in (r.OK, r.OUT_OF_MEMORY):
                said = r.STATUSES[status]
                raise WrongError("status", f"{name}, malloc failing at call {point}: {said}")
            if sum(watched.calls.values()) < point:
                break
            points += 1
        if attempt() != r.OK:
            raise WrongError("failure", f"{name} does not work when malloc does again")
    return {"points": points}


@behaviour("failures/failing-malloc", 12, seconds=30)
def failing_malloc(bench: Bench) -> Measured:
    """When malloc fails inside the backend's library at its first, second, … call, the slot answers
    `out_of_memory` or does without; it does not crash and works again afterwards."""
    if not bench.device.native.instance.path.endswith(".so"):
        raise NotApplicableError("a chip in Python calls no malloc of its own")
    ended = child.ask(bench, _with_failing_malloc, 25)
    why = ended.said()
    require(not why, "crash", f"with malloc failing inside the library: {why}")
    if not ended.told["points"]:
        raise NotApplicableError("the library calls no malloc that may answer NULL")
    return dict(ended.told)
