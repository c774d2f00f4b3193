"""Calls of one item on one device: timed without pause, and looked at while that goes on.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.performance.items import Item
from anyhal.ops._spec import Blocks
from anyhal.runtime.device import Device

# Idle before each leg: threads of the side before go on spinning for a while after their last task.
SETTLE_SECONDS = 0.02
_WARM = 4  # one of so many calls goes before the timed ones: threads wake, clocks rise
_ROUNDINGS = 16  # of the largest value: sums in another order, not another precision


def there(x: Any, device: str) -> Any:
    """An input on the device; block-quantised weights as constants."""
    if isinstance(x, Blocks):
        data = np.ascontiguousarray(x.data).reshape(-1)
        return hal.frombuffer(data, x.dtype.name, x.shape, device=device, constant=True)
    return hal.asarray(x, device=device)


def same(got: Any, wanted: Any) -> bool:
    """Whether two answers to one question differ by no more than the order of sums."""
    a, b = np.asarray(got), np.asarray(wanted)
    if a.tobytes() == b.tobytes():
        return True
    if a.dtype.kind in "iub":
        return False
    eps = float(2.0**-7 if a.dtype.itemsize == 2 else np.finfo(a.dtype).eps)
    a, b = a.astype(np.float64), b.astype(np.float64)
    return bool(np.max(np.abs(a - b)) <= _ROUNDINGS * eps * np.max(np.abs(b)))


class Leg:
    """An item on one device, its inputs in so many places in turns. `wrong` says what was seen of
    its outputs, `clocks` what the machine's raw clock and this process's processor time counted in
    each run, as parts of its seconds."""

    def __init__(self, item: Item, inputs: tuple[Any, ...], device: Device, sets: int) -> None:
        self._item, self._inputs, self._device, self._sets = item, inputs, device, sets
        self._random = random.Random()  # not from a seed: nobody can know which output is looked at
        self.clocks: list[tuple[float, float]] = []
        self.wrong = ""
        self.renew()
        self._wanted = self._outs[0].numpy()

    def renew(self) -> None:
        """Takes other memory: where arrays happen to lie favours one side while they do."""
        self._arrays, self._outs = [], []  # the old ones go first
        with self._here() as name:
            for _ in range(self._sets):
                self._arrays.append([there(x, name) for x in self._inputs])
                self._outs.append(self._item.call(self._arrays[-1]))
            self._device.synchronize()

    @contextmanager
    def _here(self) -> Iterator[str]:
        with hal.use(device=self._device.name, fallback="never"):
            yield self._device.name

    def _calls(self, count: int) -> None:
        for i in range(count):
            self._item.call(self._arrays[i % self._sets], self._outs[i % self._sets])
        self._device.synchronize()

    def run(self, calls: int, looks: bool = False) -> float:
        """Seconds that so many calls take, the last one's result waited for; `looks` at one of the
        outputs afterwards, of which nothing was there before."""
        warm = -(-calls // _WARM)
        chosen = self._random.randrange(calls) % self._sets
        with self._here() as name:
            if looks:
                self._outs[chosen] = hal.asarray(np.zeros_like(self._wanted), device=name)
            time.sleep(SETTLE_SECONDS)
            self._calls(warm)
            busy, raw = time.process_time(), time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
            started = time.perf_counter()
            self._calls(calls)
            took = time.perf_counter() - started
            raw = time.clock_gettime(time.CLOCK_MONOTONIC_RAW) - raw
            self.clocks.append((raw / took, (time.process_time() - busy) / took))
            if looks and not same(self._outs[chosen].numpy(), self._wanted):
                self.wrong = "an output of a timed call is not what the same call gives untimed"
        return took
