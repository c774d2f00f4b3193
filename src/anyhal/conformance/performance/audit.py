"""Whether a backend computes when it is timed: results kept from an earlier call are found out.
SPDX-License-Identifier: Apache-2.0

Two kinds of calls alternate. Before each, one input is written from the host: with what it held, or
with one chunk changed to what was never there. A backend that keeps results is quicker with the
first kind, or wrong with the second. The idea is that of MLPerf's audits.
"""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.performance.items import Item
from anyhal.conformance.performance.leg import same, there
from anyhal.runtime.device import Device

PAIRS = 12
MOST_FASTER = 0.9  # of the time of a call with new data
_CHUNK = 64  # elements


def audit(item: Item, inputs: tuple[Any, ...], device: Device) -> dict[str, Any]:
    """`replayed`: least time of a call with known data over that with new data; `wrong`: what was
    seen of an output, or nothing."""
    found = _once(item, inputs, device, PAIRS)
    if found["replayed"] < MOST_FASTER:  # another program may have been at work
        again = _once(item, inputs, device, 3 * PAIRS)
        found = max(found, again, key=lambda one: one["replayed"])
    return found


def _once(item: Item, inputs: tuple[Any, ...], device: Device, pairs: int) -> dict[str, Any]:
    rng = random.Random()  # not from a seed: nobody can know what comes
    name = device.name
    looked, least = rng.randrange(pairs), [float("inf")] * 2
    wrong = ""
    with hal.use(device=name, fallback="never"):
        rest = [there(x, name) for x in inputs[1:]]
        first = hal.asarray(inputs[0], device=name)
        out = item.call([first, *rest])
        for pair in range(pairs):
            for fresh in rng.sample((False, True), 2):
                x = _changed(inputs[0], rng) if fresh else inputs[0]
                hal.copy(hal.asarray(x, device=name), out=first)
                device.synchronize()
                started = time.perf_counter()
                item.call([first, *rest], out)
                device.synchronize()
                least[fresh] = min(least[fresh], time.perf_counter() - started)
                if fresh and pair == looked:
                    again = item.call([hal.asarray(x, device=name), *rest])
                    if not same(out.numpy(), again.numpy()):
                        wrong = "a call with a changed input gives another result than a new call"
    return {"replayed": round(least[False] / least[True], 4), "wrong": wrong}


def _changed(x: Any, rng: random.Random) -> Any:
    flat = x.reshape(-1).copy()
    start = rng.randrange(max(1, flat.size - _CHUNK))
    flat[start : start + _CHUNK] = np.asarray(rng.uniform(-2, 2), flat.dtype)
    return flat.reshape(x.shape)
