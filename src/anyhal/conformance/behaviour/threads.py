"""Threads: one plan from many, objects made and ended by many at once.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour import records as r
from anyhal.conformance.behaviour import work
from anyhal.conformance.behaviour.drift import affordable
from anyhal.conformance.behaviour.driver import Description, opened
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    behaviour,
    if_declared,
    require_equal,
)


def _in_threads(count: int, body: Callable[[int], None]) -> None:
    """Runs body(number) in each thread; raises the first thing that one raised."""
    raised: list[BaseException] = []
    together = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            together.wait()
            body(number)
        except BaseException as why:  # told to the caller
            raised.append(why)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


@behaviour("threads/one-plan", 17, tier="smoke")
def one_plan(bench: Bench) -> Measured:
    """Four threads run the same plans at once on arrays of their own, each right."""
    device = bench.device

    def body(number: int) -> None:
        values = work.ramp(4096, number)
        a = np.full((48, 48), number + 1, np.float32)
        rows = np.full((40, 3000), number + 1, np.float32)
        with hal.use(device=device, allow_uncertified=(device.fact.backend,)):
            x, m = hal.asarray(values, device=device), hal.asarray(a, device=device)
            long = hal.asarray(rows, device=device)
            for _ in range(6):
                sums = if_declared(bench, hal.sum, long, axis=1)
                if sums is not None:
                    right = rows.sum(1)
                    require_equal(sums.numpy(), right, "threads", f"sums of rows, thread {number}")
                found = hal.multiply(x, x).numpy()
                require_equal(found, values * values, "threads", f"multiply, thread {number}")
                made = if_declared(bench, hal.matmul, m, m)
                if made is not None:
                    require_equal(made.numpy(), a @ a, "threads", f"thread {number}")

    hal.multiply(hal.asarray(work.ramp(4096), device=device), 1.0)
    _in_threads(4, body)
    return None


@behaviour("threads/queues-of-their-own", 17)
def queues_of_their_own(bench: Bench) -> Measured:
    """Four threads with a queue each, on an instance called directly: no thread disturbs another's
    queue, plan or result."""
    device = opened(bench)
    plan = work.add(device, 4096)
    product = work.RawPlan(device, work.MATMUL, [("f32", (80, 80))] * 3)
    sums = work.RawPlan(
        device, work.REDUCE, [("f32", (64, 500)), ("f32", (64, 1))],
        work.attributes(work.SUM, axes=2),
    )  # fmt: skip
    made = device.line()
    b = made.put(np.ones(4096, np.float32))

    def body(number: int) -> None:
        line, values = device.line(), work.ramp(4096, number)
        square = np.full((80, 80), number + 1, np.float32)
        rows = np.full((64, 500), number + 1, np.float32)
        x, y = line.put(values), line.fresh(values.nbytes)
        m, n = line.put(square), line.fresh(square.nbytes)
        long, s = line.put(rows), line.fresh(64 * 4)
        for _ in range(10):
            line.run(product, m, m, n)
            line.run(sums, long, s)
        require_equal(line.read(n, square), square @ square, "threads", f"products, {number}")
        right = rows.sum(1, keepdims=True)
        require_equal(line.read(s, right), right, "threads", f"sums of rows, thread {number}")
        for step in range(20):
            line.run(plan, x, b, y)
            x, y = y, x
            if step % 3 == 2:
                line.wait()
        found = line.read(x, values)
        require_equal(found, values + 20, "threads", f"20 additions of thread {number}")

    _in_threads(4, body)
    return None


@behaviour("threads/made-and-ended", 17)
def made_and_ended(bench: Bench) -> Measured:
    """Four threads make and end blocks, queues and plans at once, 25 times each (less where a plan
    takes long), and the device still computes."""
    device = opened(bench)
    values = work.ramp(256)

    def once(number: int) -> None:
        block = device.alloc(4096 + number)
        description = Description(
            device, work.BINARY, [("f32", (64 + number,))] * 3, work.attributes(work.ADD)
        )
        description.query()
        plan, _ = description.prepare()
        device.instance.release(r.PLAN, plan.value or 0)
        if not device.instance.synchronous and not device.info.queue_count_max:
            line = device.line()
            line.wait()
            device.lines.remove(line)
            line.end()
        device.free(block)

    rounds = affordable(25, lambda: once(0), 0.25)

    def body(number: int) -> None:
        for _ in range(rounds):
            once(number)

    _in_threads(4, body)
    line = device.line()
    x, y = line.put(values), line.fresh(values.nbytes)
    line.run(work.add(device, 256), x, x, y)
    require_equal(line.read(y, values), 2 * values, "threads", "afterwards")
    return None
