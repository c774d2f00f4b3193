"""Order: on one queue, across queues, from several threads; and that nobody waits for it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
import threading
import time
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour import records as r
from anyhal.conformance.behaviour import work
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


@behaviour("order/op-after-copy", 4, tier="smoke")
def op_after_copy(bench: Bench) -> Measured:
    """Copies and ops of one queue take effect in the order of the calls, with nothing waited for
    in between."""
    device = opened(bench)
    line, plan = device.line(), work.add(device, _N)
    first, second = work.ramp(_N), work.ramp(_N, 7)
    a, b = line.put(first), line.put(second)
    outs = [line.fresh(first.nbytes) for _ in range(8)]
    if not line.instance.has("queue_copy"):  # host memory: ops alone
        for i, out in enumerate(outs):
            line.run(plan, outs[i - 1] if i else a, b, out)
        right = first + 8 * second
        require_equal(line.read(outs[-1], right), right, "order", "8 additions, one on another")
        return None
    nbytes, moving = first.nbytes, line.put(first)
    sources = [line.on_host(values) for values in (first, second)]
    for i, out in enumerate(outs):
        line.copy(moving, sources[i % 2], nbytes)
        line.run(plan, moving, b, out)
    line.wait()
    for i, out in enumerate(outs):
        right = (second if i % 2 else first) + second
        require_equal(line.read(out, right), right, "order", f"op {i} behind copy {i}")
    return None


@behaviour("order/op-after-fill", 4, tier="smoke")
def op_after_fill(bench: Bench) -> Measured:
    """Fills and ops of one queue take effect in the order of the calls."""
    device = opened(bench)
    if not device.instance.has("queue_fill"):
        raise NotApplicableError("the backend has no queue_fill")
    line, plan, values = device.line(), work.add(device, _N), work.ramp(_N)
    a, y, z = line.put(values), line.put(values), line.put(values)
    if not line.instance.synchronous:
        work.gate(device).hold(line)
    line.run(plan, a, a, y)
    line.run(plan, y, a, z)
    pattern = c.create_string_buffer(np.float32(3).tobytes(), 4)
    status, error = line.instance.attempt(
        "queue_fill", line.handle, y, values.nbytes, c.cast(pattern, r.P), 4
    )
    if status == r.UNSUPPORTED:
        raise NotApplicableError("the backend does not fill this memory")
    require(status == r.OK, "status", f"queue_fill answered {r.STATUSES[status]}: {error.text!r}")
    right = 3 * values
    require_equal(line.read(z, right), right, "order", "an op before the fill")
    right = np.full(_N, 3, np.float32)
    require_equal(line.read(y, right), right, "order", "the fill behind the ops")
    return None


@behaviour("order/across-queues", 6, tier="smoke")
def across_queues(bench: Bench) -> Measured:
    """A queue that waits for a value of another one runs behind it; a value between two signals
    means the later one; two queues may wait for one value."""
    device = opened(bench)
    device.queues()
    values, one = work.ramp(_N), np.ones(_N, np.float32)
    plan = work.add(device, _N)
    source = device.line()
    a, b, x = source.put(values), source.put(one), source.put(values)
    work.gate(device).hold(source)
    early = source.signal(step=2)
    work.gate(device).hold(source)
    source.run(plan, a, b, x)
    late = source.signal(step=4)
    found = []
    for value in (early + 1, late):  # early + 1 lies between the two signals
        target = device.line()
        target.after(source, value)
        y = target.fresh(values.nbytes)
        target.run(plan, x, b, y)
        found.append((target, y, target.signal()))
    for target, y, value in found:
        target.wait(value)
        right = values + 2
        require_equal(target.read(y, right), right, "order", "read behind another queue's value")
    return None


@behaviour("order/later-signals", 6)
def later_signals(bench: Bench) -> Measured:
    """What is signalled on a queue after others began to wait for an earlier value changes nothing
    for them, and two queues may wait for each other in turns."""
    device = opened(bench)
    device.queues()
    plan, one = work.add(device, _N), np.ones(_N, np.float32)
    lines = [device.line(), device.line()]
    x, b = lines[0].put(np.zeros(_N, np.float32)), lines[0].put(one)
    value = lines[0].signal()
    steps = 24
    for step in range(steps):
        here, other = lines[step % 2], lines[(step + 1) % 2]
        here.after(other, value if step else lines[0].signalled) if step else None
        y = here.fresh(one.nbytes)
        here.run(plan, x, b, y)
        value, x = here.signal(), y
        if step % 5 == 4:
            here.signal()
    last = lines[(steps - 1) % 2]
    last.wait(value)
    right = np.full(_N, steps, np.float32)
    require_equal(last.read(x, right), right, "order", f"{steps} additions on two queues in turns")
    return None


@behaviour("order/nobody-waits", 5, 11)
def nobody_waits(bench: Bench) -> Measured:
    """Calls and signals behind work that takes long return before that work has ended, as many as
    `queue_depth` allows (200 where it allows any number)."""
    device = opened(bench)
    gate = work.gate(device, 0.12)
    line, plan = device.line(), work.add(device, 64)
    values = work.ramp(64)
    a, b, c = line.put(values), line.put(values), line.put(values)
    depth = device.info.queue_depth
    count = max(min(200, depth - gate.count - 1), 1) if depth else 200
    best = 1.0
    for _ in range(4):  # a busy machine: the best of some counts
        began = time.perf_counter()
        gate.hold(line)
        for i in range(count):
            line.run(plan, a, b, c)
            if i % 20 == 19:
                line.signal()
        queued = time.perf_counter() - began
        line.wait()
        best = min(best, queued / (time.perf_counter() - began))
        if best < 0.6:
            break
    require(
        best < 0.6,
        "blocked",
        f"queueing {count} calls behind {gate.seconds * 1e3:.0f} ms of work took {best:.0%} of the"
        " time until all was done; queue_depth does not say that a call waits",
        calls=count,
        share=round(best, 3),
    )
    return {"calls": count, "share": round(best, 3)}


@behaviour("order/callers-threads", 9)
def callers_threads(bench: Bench) -> Measured:
    """A queue is what it is from every thread: calls on one queue from several threads are in their
    order, calls of one thread on two queues are on these."""
    device = opened(bench)
    plan, one = work.add(device, _N), np.ones(_N, np.float32)
    lines = [device.line(), device.line()]
    xs = [lines[0].put(one), lines[0].put(one)]
    b = lines[0].put(one)

    def step(number: int) -> None:
        for i in (number % 2, (number + 1) % 2):
            y = lines[i].fresh(one.nbytes)
            lines[i].run(plan, xs[i], b, y)
            xs[i] = y

    for number in range(6):  # one after another, each by a thread of its own
        thread = threading.Thread(target=step, args=(number,))
        thread.start()
        thread.join()
    for i in (0, 1):
        value = lines[i].signal()
        lines[i].wait(value)
        right = np.full(_N, 7, np.float32)
        found = lines[i].read(xs[i], right)
        require_equal(found, right, "order", f"queue {i}, called from six threads")
    return None


@behaviour("order/program-order", 4, 6, tier="smoke")
def program_order(bench: Bench) -> Measured:
    """Through the core: what one queue writes and another reads, in turns, is as the program
    says."""
    device = bench.device
    queues = [hal.Queue(device), hal.Queue(device)]
    values = work.ramp(_N)
    x: Any = hal.asarray(values, device=device)
    for step in range(12):
        with hal.use(queue=queues[step % 2]):
            x = hal.add(x, 1.0)
    require_equal(x.numpy(), values + 12, "order", "12 additions on two queues")
    return None
