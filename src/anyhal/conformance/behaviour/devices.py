"""Two devices of one backend: each its own memory, queues and results.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour import work
from anyhal.conformance.behaviour.driver import RawDevice, opened
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotApplicableError,
    behaviour,
    require_equal,
)


def _others(bench: Bench) -> list[int]:
    """Ids of the backend's other devices."""
    infos = opened(bench).instance.infos()
    others = [int(i.id) for i in infos if i.id != bench.device._id]
    if not others:
        raise NotApplicableError("the backend lists one device alone")
    return others


@behaviour("devices/apart", 25)
def apart(bench: Bench) -> Measured:
    """Two devices of one instance keep their blocks, queues and results apart, whichever was used
    last."""
    other = _others(bench)[0]
    first = opened(bench)
    second = RawDevice(first.instance, other)
    try:
        values = [work.ramp(4096), work.ramp(4096, 500)]
        lines = [d.line() for d in (first, second)]
        plans = [work.add(d, 4096) for d in (first, second)]
        refs = [(line.put(v), line.put(v)) for line, v in zip(lines, values, strict=True)]
        for _ in range(2):
            for line, plan, (x, y) in zip(lines, plans, refs, strict=True):
                line.run(plan, x, x, y)
        for line, (x, y), v in zip(lines, refs, values, strict=True):
            require_equal(line.read(x, v), v, "devices", "an input, two devices in turns")
            require_equal(line.read(y, v), 2 * v, "devices", "two devices in turns")
    finally:
        second.tidy()
        second.instance.release(1, second.handle.value or 0)
    return None


@behaviour("devices/copies", 25)
def copies(bench: Bench) -> Measured:
    """Through the core: patterns that go from one device to the other and back, both ways at once,
    arrive whole."""
    count, rng = len(_others(bench)) + 1, bench.rng("x")
    backend = bench.facts.backend
    every = (f"{backend}:{i}" for i in range(count))
    other = next(hal.device(n) for n in every if n != bench.device_name)
    patterns = [rng.integers(0, 1 << 31, 1 << 16).astype(np.int32) for _ in range(2)]
    names = (bench.device_name, other.name)
    there = [hal.asarray(p, device=n) for p, n in zip(patterns, names, strict=True)]
    for _ in range(3):
        there = [hal.asarray(a, device=n) for a, n in zip(there, names[::-1], strict=True)]
        names = names[::-1]
        for array, pattern in zip(there, patterns, strict=True):
            require_equal(array.numpy(), pattern, "devices", "a pattern that was sent across")
    return None
