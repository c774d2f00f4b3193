"""The same bits again, as far as a device claims it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour import work
from anyhal.conformance.behaviour.driver import opened
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotApplicableError,
    behaviour,
    require_equal,
)


@behaviour("determinism/run-to-run", 15)
def run_to_run(bench: Bench) -> Measured:
    """The same call gives the same bits again: 12 times, idle and with a second queue busy, where
    the device does not say that it promises nothing."""
    rng, device = bench.rng("x"), bench.device
    a = hal.asarray(rng.standard_normal((160, 300)).astype(np.float32), device=device)
    b = hal.asarray(rng.standard_normal((300, 110)).astype(np.float32), device=device)
    long = hal.asarray(rng.standard_normal(70_000).astype(np.float32), device=device)
    side = hal.Queue(device)
    calls = {
        "matmul": lambda: hal.matmul(a, b),
        "reduce": lambda: hal.sum(long),
        "softmax": lambda: hal.softmax(a, axis=1),
    }
    loose = {row["op"] for row in bench.capabilities if row["determinism"] == "none"}
    tried = [name for name in calls if name not in loose]
    if not tried:
        raise NotApplicableError("the device declares determinism none for matmul and reduce")
    for name in tried:
        first = calls[name]().numpy()
        for number in range(12):
            if number % 2:
                with hal.use(queue=side):
                    hal.matmul(a, b)
            require_equal(calls[name]().numpy(), first, "unstable", f"{name}, run {number + 2}")
    return None


@behaviour("determinism/parts-in-any-order", 15)
def parts_in_any_order(bench: Bench) -> Measured:
    """The order in which the core runs the parts of a kernel does not change the result's bits."""
    device = opened(bench)
    line, rng, host = device.line(), bench.rng("x"), device.instance.host
    a, b = (rng.standard_normal((160, 160)).astype(np.float32) for _ in range(2))
    long = rng.standard_normal(70_000).astype(np.float32)
    trials = [
        (work.RawPlan(device, work.MATMUL, [("f32", (160, 160))] * 3), [a, b], a),
        (
            work.RawPlan(
                device,
                work.REDUCE,
                [("f32", (70_000,)), ("f32", (1,))],
                work.attributes(work.SUM, axes=1),
            ),
            [long],
            np.zeros(1, np.float32),
        ),
    ]
    before = host.calls["parallel_for"]
    for plan, inputs, like in trials:
        refs, results = [line.put(x) for x in inputs], []
        for backward in (False, True):
            host.backward = backward
            y = line.fresh(like.nbytes)
            line.run(plan, *refs, y)
            results.append(line.read(y, like))
        host.backward = False
        require_equal(results[1], results[0], "unstable", "parts run backward")
    if host.calls["parallel_for"] == before:
        raise NotApplicableError("the backend shares no work out through the core")
    return None


@behaviour("determinism/batch-invariant", 15)
def batch_invariant(bench: Bench) -> Measured:
    """Where a device meets the demand `batch_invariant`, a row's bits do not depend on how many
    other rows there are."""
    rng, device = bench.rng("x"), bench.device
    x = rng.standard_normal((33, 130)).astype(np.float32)
    w = hal.asarray(rng.standard_normal((130, 70)).astype(np.float32), device=device)
    calls: dict[str, Callable[[Any], Any]] = {
        "matmul": lambda rows: hal.matmul(rows, w),
        "reduce": lambda rows: hal.sum(rows, axis=1),
        "softmax": lambda rows: hal.softmax(rows, axis=1),
    }
    met = []
    with hal.use(determinism="batch_invariant", fallback="never"):
        for name, call in calls.items():
            try:
                together = call(hal.asarray(x, device=device)).numpy()
            except hal.UnsupportedError:
                continue
            met.append(name)
            for first, count in ((0, 1), (5, 2), (16, 17)):
                rows = hal.asarray(x[first : first + count].copy(), device=device)
                right = together[first : first + count]
                require_equal(call(rows).numpy(), right, "unstable", f"{name} of {count} rows")
    if not met:
        raise NotApplicableError("the device refuses the demand batch_invariant")
    return {"met": met}
