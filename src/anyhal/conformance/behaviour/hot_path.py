"""The steady state: what is done again costs no allocation, no compile, no wait, no service.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour import records as r
from anyhal.conformance.behaviour import work
from anyhal.conformance.behaviour.driver import opened
from anyhal.conformance.behaviour.interposing import Interposed, NotHereError
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotApplicableError,
    behaviour,
    if_declared,
    require,
)

_CALLS = 64


def _steady(bench: Bench) -> Callable[[], None]:
    """Sixteen calls of the usual kinds, fewer where the backend does not declare one; on arrays
    made before."""
    rng = bench.rng("x")
    x = hal.asarray(rng.standard_normal((64, 64)).astype(np.float32), device=bench.device)
    long = hal.asarray(np.ones(50_000, np.float32), device=bench.device)
    out = hal.empty((64, 64), dtype="float32", device=bench.device)

    def matmul() -> Any:
        return hal.matmul(x, x, out=out)

    def exp() -> Any:
        return hal.exp(x, out=out)

    some = [c for c in (matmul, exp) if if_declared(bench, c) is not None]

    def calls() -> None:
        for _ in range(4):
            hal.add(long, long)  # its memory comes from the pool and goes back
            hal.multiply(x, x, out=out)
            for call in some:
                call()

    return calls


@behaviour("hot_path/no-driver-calls", 11, tier="smoke")
def no_driver_calls(bench: Bench) -> Measured:
    """Through the core, after a warm-up: no block made or released, nothing prepared, no wait of
    the host, in 64 calls of four ops."""
    calls = _steady(bench)
    for _ in range(3):
        calls()
    hal.synchronize(bench.device)
    before = hal.counters(bench.device)
    for _ in range(_CALLS // 16):
        calls()
    after = hal.counters(bench.device)
    hal.synchronize(bench.device)
    grown = {k: after[k] - before[k] for k in before if after[k] != before[k]}
    names = ["plans_prepared"]
    depth = bench.device.native.record["queue_depth"]
    if not depth or depth > _CALLS:
        names.append("host_waits")
    if not bench.device.native.cells:
        names += ["driver_allocs", "driver_frees"]
    for name in names:
        require(not grown.get(name), "hot_path", f"{grown.get(name)} {name} in {_CALLS} calls")
    if bench.device.native.cells:
        raise NotApplicableError(
            "no plan was prepared and nothing waited for; memory of cells is the backend's own, so"
            " that it makes no block cannot be asked"
        )
    return dict(grown)


@behaviour("hot_path/no-services", 11)
def no_services(bench: Bench) -> Measured:
    """From the second run of a plan on the backend asks the core for no memory, no artefact, no
    setting, and writes no line."""
    device = opened(bench)
    line, values = device.line(), np.ones((48, 48), np.float32)
    plans = [
        (work.add(device, 48 * 48), 2),
        (work.RawPlan(device, work.MATMUL, [("f32", (48, 48))] * 3), 2),
    ]
    refs = [line.put(values), line.put(values), line.put(values)]
    for plan, _ in plans:
        for _ in range(2):
            line.run(plan, *refs)
    line.wait()
    host = device.instance.host
    before = dict(host.calls)
    for _ in range(_CALLS // 2):
        for plan, _ in plans:
            line.run(plan, *refs)
    line.wait()
    asked = {
        k: n - before.get(k, 0)
        for k, n in host.calls.items()
        if n != before.get(k, 0) and k not in ("parallel_for", "span")
    }
    require(not asked, "hot_path", f"services called in {_CALLS} runs of known plans: {asked}")
    return None


@behaviour("hot_path/no-allocation", 11)
def no_allocation(bench: Bench) -> Measured:
    """From the second run of a plan on the backend's library allocates nothing: its calls of malloc
    and its kin are counted in its import table. Declared not applicable by HIDDEN_MEMORY."""
    device = opened(bench)
    if device.instance.reply.flags & r.HIDDEN_MEMORY:
        raise NotApplicableError("the backend declares that it allocates while enqueuing")
    line, values = device.line(), np.ones((48, 48), np.float32)
    plans = [
        work.add(device, 48 * 48),
        work.RawPlan(device, work.MATMUL, [("f32", (48, 48))] * 3),
    ]
    refs = [line.put(values), line.put(values), line.put(values)]
    for plan in plans:
        for _ in range(2):
            line.run(plan, *refs)
    line.wait()
    try:
        watched: Any = Interposed(bench.device.native.instance.path)
    except NotHereError as why:
        raise NotApplicableError(str(why)) from why
    with watched:
        for _ in range(_CALLS // 2):
            for plan in plans:
                line.run(plan, *refs)
        made = dict(watched.calls)
    line.wait()
    require(not made, "hot_path", f"in {_CALLS} runs of known plans the library called {made}")
    return {"watched": len(watched.names)}
