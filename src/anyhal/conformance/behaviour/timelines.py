"""A queue's counter: it rises, it is true, waits keep their limit, notices come once.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
import time

import numpy as np

from anyhal.conformance.behaviour import records as r
from anyhal.conformance.behaviour import work
from anyhal.conformance.behaviour.driver import RefusedError, opened
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotApplicableError,
    behaviour,
    require,
    require_equal,
)

_N = 4096
_calls: list[object] = []  # a callback may come late; it must still be there


@behaviour("timelines/rise", 29, tier="smoke")
def rise(bench: Bench) -> Measured:
    """The value reached never falls, never passes the last one signalled, and is at least the one
    that a wait was told of."""
    device = opened(bench)
    device.queues()
    line, plan = device.line(), work.add(device, _N)
    values = work.ramp(_N)
    a, b, y = line.put(values), line.put(values), line.fresh(values.nbytes)
    reached, asked = 0, []
    for step in (1, 3, 1, 7, 2, 1, 5):
        line.run(plan, a, b, y)
        asked.append(line.signal(step))
        _, state, _ = line.attempt_wait(asked[0], 0)
        for name, holds in (
            ("fell", state.completed >= reached),
            ("passed what was signalled", state.completed <= line.signalled),
        ):
            require(holds, "timeline", f"the value reached {name}: {state.completed}")
        reached = state.completed
        if len(asked) % 2 == 0:
            reached = line.wait(asked[-1]).completed
    for value in asked:
        state = line.wait(value)
        require(
            value <= state.completed <= line.signalled and state.completed >= reached,
            "timeline",
            f"waiting for {value} of {line.signalled} ended with {state.completed} reached",
        )
        require(
            state.status == r.OK and not state.failed_value,
            "timeline",
            f"a queue that did all it was asked says status {state.status}, first failed value"
            f" {state.failed_value}",
        )
        reached = state.completed
    return None


@behaviour("timelines/done-is-done", 4, 29, tier="smoke")
def done_is_done(bench: Bench) -> Measured:
    """When a value is reached, by a wait or by polling, the work before it has been done: the host
    sees the result at once."""
    device = opened(bench)
    device.queues()
    plan, values = work.add(device, _N), work.ramp(_N)
    for polling in (False, True):
        line = device.line()
        a, y = line.put(values), line.put(values)
        host = device.alloc(values.nbytes, device.staging)
        c.memset(host.host_address, 0xFF, values.nbytes)
        work.gate(device).hold(line)
        line.run(plan, a, a, y)
        line.copy(r.Ref(host.memory, 0), y, values.nbytes)
        value, status = line.signal(), r.TIMEOUT
        while status == r.TIMEOUT:
            status, state, _ = line.attempt_wait(value, 0 if polling else r.NO_LIMIT)
            if polling and state.completed >= value:
                break
        found = np.empty_like(values)
        c.memmove(found.ctypes.data, host.host_address, values.nbytes)
        require_equal(found, values + values, "early", "read when the value was said to be reached")
    return None


@behaviour("timelines/wait-limit", 24)
def wait_limit(bench: Bench) -> Measured:
    """A wait with a limit ends near its limit with `timeout`, fills the state, and the work goes
    on."""
    device = opened(bench)
    gate = work.gate(device, 0.12)
    line = device.line()
    share, status = 1.0, r.OK
    for _ in range(6):  # a busy machine: the best of some
        gate.hold(line)
        value = line.signal()
        began = time.perf_counter()
        status, state, _ = line.attempt_wait(value, 1_000_000)
        took = time.perf_counter() - began
        line.wait(value)
        share = min(share, took / (time.perf_counter() - began))
        if status == r.TIMEOUT and share < 0.6:
            break
    require(
        status == r.TIMEOUT,
        "timeline",
        f"waiting 1 ms for {gate.seconds * 1e3:.0f} ms of work answered status {status}",
    )
    require(
        share < 0.6, "hang", f"a wait of at most 1 ms took {share:.0%} of the time of all the work"
    )
    require(state.completed < value, "timeline", "timed out, and says that the value is reached")
    return {"milliseconds": round(took * 1e3, 2), "share": round(share, 3)}


@behaviour("timelines/notice", 29)
def notice(bench: Bench) -> Measured:
    """A notice of a value comes exactly once, with status ok, and not before the work is done."""
    device = opened(bench)
    device.queues()
    if not device.instance.has("queue_notify"):
        raise NotApplicableError("the backend has no queue_notify")
    line, plan, values = device.line(), work.add(device, _N), work.ramp(_N)
    a, y = line.put(values), line.put(values)
    host = device.alloc(values.nbytes, device.staging)
    c.memset(host.host_address, 0xFF, values.nbytes)
    seen: list[tuple[int, bytes]] = []

    def told(_: object, status: int) -> None:
        seen.append((status, c.string_at(host.host_address, values.nbytes)))

    callback = r.NotifyFn(told)
    _calls.append(callback)
    work.gate(device).hold(line)
    line.run(plan, a, a, y)
    line.copy(r.Ref(host.memory, 0), y, values.nbytes)
    value = line.signal()
    line.instance.call("queue_notify", line.handle, value, callback, None)
    line.wait(value)
    until = time.monotonic() + 5
    while not seen and time.monotonic() < until:
        time.sleep(0.001)
    time.sleep(0.01)  # a second one would come now
    line.wait()
    require(len(seen) == 1, "notice", f"the notice came {len(seen)} times")
    require(seen[0][0] == r.OK, "notice", f"the notice says status {seen[0][0]}")
    found = np.frombuffer(seen[0][1], np.float32)
    require_equal(found, values + values, "early", "read when the notice came")
    return None


@behaviour("timelines/spans", 29)
def spans(bench: Bench) -> Measured:
    """Spans of a profiled queue begin before they end, lie within the host's time of the work, and
    are in nanoseconds."""
    device = opened(bench)
    gate = work.gate(device)
    try:
        line = device.line(r.PROFILED)
    except RefusedError as why:
        require(why.status == r.UNSUPPORTED, why.word, str(why))
        raise NotApplicableError("the backend makes no profiled queues") from why
    host = device.instance.host
    host.spans.clear()
    began = time.monotonic_ns()
    gate.hold(line)
    line.wait()
    time.sleep(0.002)
    ended = time.monotonic_ns()
    if not host.spans:
        raise NotApplicableError("the backend reports no spans")
    covered = 0
    for tag, begin, end in host.spans:
        require(
            began <= begin <= end <= ended,
            "time",
            f"call {tag} ran from {begin} to {end} ns; the host saw it between {began} and {ended}",
        )
        covered += end - begin
    require(
        covered > gate.seconds * 1e9 / 20,
        "time",
        f"spans cover {covered} ns of work that took {gate.seconds * 1e9:.0f} ns",
    )
    return {"spans": len(host.spans)}
