"""Recording and replaying: with other inputs, beside other graphs, after other allocations.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour import work
from anyhal.conformance.behaviour.registry import Bench, Measured, behaviour, require, require_equal

_N = 512


def _recorded(bench: Bench, x: Any, factor: float) -> tuple[Any, Any]:
    """A graph of three ops of x, and its result: factor * (x + x) + 1."""
    with hal.graph(bench.device) as graph:
        y = hal.add(hal.multiply(hal.add(x, x), factor), 1.0)
    return graph, y


@behaviour("capture/changed-inputs", 16, tier="smoke")
def changed_inputs(bench: Bench) -> Measured:
    """A recorded graph, launched again and again, gives the results of the inputs at each launch,
    and of a launch that follows at once on another."""
    values = work.ramp(_N)
    x = hal.asarray(values, device=bench.device)
    graph, y = _recorded(bench, x, 3.0)
    for number in range(4):
        values = work.ramp(_N, 5 * number)
        x.set(values)
        graph.launch()
        if number % 2:
            graph.launch()
        require_equal(y.numpy(), 6 * values + 1, "capture", f"launch {number + 1}")
    return {"form": graph.form}


@behaviour("capture/two-graphs", 16)
def two_graphs(bench: Bench) -> Measured:
    """Two graphs, launched in turns, do not disturb each other, nor does what runs and is allocated
    between launches."""
    values, other = work.ramp(_N), work.ramp(_N, 100)
    x, z = (hal.asarray(v, device=bench.device) for v in (values, other))
    first, a = _recorded(bench, x, 2.0)
    second, b = _recorded(bench, z, 5.0)
    held = []
    for number in range(6):
        values, other = values + 1, other + 2
        x.set(values)
        z.set(other)
        first.launch()
        held.append(hal.add(z, x))
        second.launch()
        require_equal(a.numpy(), 4 * values + 1, "capture", f"first graph, launch {number + 1}")
        require_equal(b.numpy(), 10 * other + 1, "capture", f"second graph, launch {number + 1}")
        require_equal(held[-1].numpy(), other + values, "capture", "an op between launches")
    del first, a
    z.set(other * 2)
    second.launch()
    require_equal(b.numpy(), 20 * other + 1, "capture", "when the other graph was let go")
    return None


@behaviour("capture/equals-eager", 16)
def equals_eager(bench: Bench) -> Measured:
    """A graph gives the bits of the same calls made one by one, in place and overlapping ones
    too."""
    start = bench.rng("x").standard_normal((32, 32)).astype(np.float32)

    def calls(x: Any, w: Any) -> Any:
        y = hal.matmul(x, w)
        hal.add(y, x, out=y)
        hal.multiply(y, 0.5, out=y)
        return hal.sum(y, axis=0)

    x, w = (hal.asarray(v, device=bench.device) for v in (start, start.T.copy()))
    eager = calls(x, w).numpy()
    with hal.graph(bench.device) as graph:
        y = calls(x, w)
    for number in range(3):
        graph.launch()
        found = y.numpy()
        if graph.form == "compiled":  # fused products may round elsewhere
            close = np.allclose(found, eager, rtol=1e-4, atol=1e-4)
            require(close, "capture", f"launch {number + 1} differs from the calls one by one")
        else:
            require_equal(found, eager, "capture", f"launch {number + 1}")
    return {"form": graph.form}


@behaviour("capture/no-driver-calls", 11, 16)
def no_driver_calls(bench: Bench) -> Measured:
    """Launches between other calls make no block, prepare nothing and wait for nothing."""
    x = hal.asarray(work.ramp(_N), device=bench.device)
    graph, _ = _recorded(bench, x, 2.0)
    long = hal.asarray(np.ones(50_000, np.float32), device=bench.device)
    for _ in range(3):
        graph.launch()
        hal.add(long, long)  # a block of its own, idle from now on
    hal.synchronize(bench.device)
    before = hal.counters(bench.device)
    for _ in range(16):
        graph.launch()
        hal.add(long, long)
    after = hal.counters(bench.device)
    hal.synchronize(bench.device)
    names = ["plans_prepared", "driver_allocs", "driver_frees"]
    if not bench.device.native.record["queue_depth"]:
        names.append("host_waits")
    for name in names:
        grown = after[name] - before[name]
        require(not grown, "hot_path", f"{grown} {name} in 16 launches")
    return None
