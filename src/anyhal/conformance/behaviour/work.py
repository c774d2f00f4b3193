"""Small work whose right results are exact, and work that holds a queue for a while.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import struct
import time
from typing import Any

import numpy as np

from anyhal.conformance.behaviour.driver import Line, RawDevice, RawPlan
from anyhal.conformance.behaviour.registry import NotApplicableError

COPY, BINARY, REDUCE, MATMUL, GATHER = 1, 5, 7, 8, 9  # as in ops.h; a test compares them
ADD, MULTIPLY, SUM = 1, 3, 1


def attributes(number: int, axes: int | None = None) -> bytes:
    """The records of unary, binary, gather; with `axes` that of reduce."""
    if axes is None:
        return struct.pack("=IIiI", 16, 0, number, 0)
    return struct.pack("=IIiIQ", 24, 0, number, 0, axes)


def add(device: RawDevice, n: int, dtype: str = "f32") -> RawPlan:
    return RawPlan(device, BINARY, [(dtype, (n,))] * 3, attributes(ADD))


def ramp(n: int, first: float = 0.0) -> np.ndarray:
    """Whole numbers, so that every sum is exact."""
    return (np.arange(n) % 1024 + first).astype(np.float32)


class Gate:
    """Work that holds a queue for about `seconds`."""

    def __init__(self, device: RawDevice, seconds: float) -> None:
        device.queues()
        line = device.line()
        depth = device.info.queue_depth
        most = min(64, depth // 2) if depth else 64
        for n in (48, 64, 96, 128, 192, 256, 384, 512, 768):
            numbers = np.ones((n, n), np.float32)
            self.plan = RawPlan(device, MATMUL, [("f32", (n, n))] * 3)
            self.refs = [line.put(numbers), line.put(numbers), line.fresh(numbers.nbytes)]
            self.count = 1
            self._timed(line)  # the first run of a plan may do what later ones do not
            once = max(min(self._timed(line) for _ in range(3)), 1e-6)
            self.count = max(1, min(most, round(seconds / once)))
            if once * most >= seconds:
                break
        self.seconds = min(self._timed(line), self._timed(line))
        if self.seconds < seconds / 4:
            raise NotApplicableError("no work was found that takes long enough to hold a queue")
        device.plans.remove(self.plan)  # the gate outlives its first case
        for ref in self.refs:
            del device.blocks[ref.memory]
        if self.plan.workspace is not None:
            del device.blocks[self.plan.workspace.memory]

    def _timed(self, line: Line) -> float:
        began = time.perf_counter()
        self.hold(line)
        line.wait()
        return time.perf_counter() - began

    def hold(self, line: Line) -> None:
        for _ in range(self.count):
            line.run(self.plan, *self.refs)


def gate(device: RawDevice, seconds: float = 0.06) -> Gate:
    """The device's gate; made once."""
    made: dict[float, Gate] = device.__dict__.setdefault("gates", {})
    if seconds not in made:
        made[seconds] = Gate(device, seconds)
    return made[seconds]


def holding(device: RawDevice) -> tuple[Line, Any]:
    """A queue that is busy, and the gate that keeps it so."""
    held = gate(device)
    line = device.line()
    held.hold(line)
    return line, held
