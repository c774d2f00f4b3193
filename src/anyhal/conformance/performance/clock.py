"""The process that times: one build, or two of the same backend in turns.
SPDX-License-Identifier: Apache-2.0

Arguments as JSON: device, an earlier library with its hash or none, items, blocks, seconds of a
leg. Prints one line of JSON per item. Inputs rotate over more memory than the caches hold where an
item moves more than it computes ("cold"); else they stay ("hot").
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.performance.items import Item, chosen
from anyhal.ops._spec import Blocks
from anyhal.runtime.device import Device, another_build

_CACHES = 4  # times the largest cache: what inputs rotate over
_MOST_SETS = 64
_OLD = "earlier"
COMMAND = "from anyhal.conformance.performance.clock import main; main()"


def main() -> None:
    words = json.loads(sys.argv[1])
    device = hal.device(words["device"])
    device.tested = False
    sides = {"new": device}
    if words["library"]:
        backend, _, index = words["device"].partition(":")
        made = another_build(backend, words["library"], words["sha256"], _OLD)
        sides["old"] = made[int(index or 0)]
        sides["old"].tested = False
    for item in chosen(words["items"]):
        line = {"name": item.name, "family": item.family, "op": item.op, "dtype": item.short}
        try:
            line |= _timed(item, sides, words["blocks"], words["seconds"])
        except hal.UnsupportedError as why:
            line["refused"] = why.reason
        print(json.dumps(line), flush=True)


def _timed(item: Item, sides: dict[str, Device], blocks: int, seconds: float) -> dict[str, Any]:
    inputs = item.make(np.random.default_rng([1, *item.name.encode()]))
    flops, nbytes = item.work(inputs)
    found: dict[str, Any] = {"flops": flops, "bytes": nbytes}
    for heat in ("hot", "cold"):
        sets = 1 if heat == "hot" else _sets(nbytes)
        if heat == "cold" and sets == 1:
            continue
        legs = {name: _leg(item, inputs, device, sets) for name, device in sides.items()}
        calls = _calibrated(legs["new"], seconds)
        found[heat] = {"calls": calls, **_in_turns(legs, calls, blocks)}
    return found


def _sets(nbytes: float) -> int:
    wanted = _CACHES * _largest_cache()
    return int(min(_MOST_SETS, -(-wanted // max(nbytes, 1)))) if nbytes < wanted else 2


def _leg(item: Item, inputs: tuple[Any, ...], device: Device, sets: int) -> Callable[[int], float]:
    """Seconds that so many calls take, the last one's result waited for."""
    name = device.name
    with hal.use(device=name, fallback="never"):
        arrays = [[_there(x, name) for x in inputs] for _ in range(sets)]
        outs = [item.call(one) for one in arrays]
        device.synchronize()

    def run(calls: int) -> float:
        with hal.use(device=name, fallback="never"):
            started = time.perf_counter()
            for i in range(calls):
                item.call(arrays[i % sets], outs[i % sets])
            device.synchronize()
            return time.perf_counter() - started

    return run


def _there(x: Any, device: str) -> Any:
    if isinstance(x, Blocks):  # weights
        data = np.ascontiguousarray(x.data).reshape(-1)
        return hal.frombuffer(data, x.dtype.name, x.shape, device=device, constant=True)
    return hal.asarray(x, device=device)


def _calibrated(leg: Callable[[int], float], seconds: float) -> int:
    """Calls that fill a leg; warm by then."""
    calls = 1
    while (took := leg(calls)) < seconds / 4:
        calls = max(calls + 1, min(calls * 8, int(calls * seconds / max(took, 1e-7) / 2)))
    return max(1, round(calls * seconds / took))


def _in_turns(
    legs: dict[str, Callable[[int], float]], calls: int, blocks: int
) -> dict[str, list[list[float]]]:
    """Per block, the seconds of a call in the first and the second leg of each side: ABBA. The
    first half of what a single side takes warms up and is dropped."""
    times: dict[str, list[list[float]]] = {name: [] for name in legs}
    for block in range(blocks):
        names = list(legs)[:: 1 if block % 2 else -1]
        seen: dict[str, list[float]] = {name: [] for name in legs}
        for name in (*names, *names[::-1]):
            seen[name].append(legs[name](calls) / calls)
        for name, two in seen.items():
            times[name].append(two if block % 2 else two[::-1])
    return times


def _largest_cache() -> int:
    """Bytes, as the system says; 32 MiB where it says nothing."""
    largest = 0
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text(encoding="ascii").strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        largest = max(largest, int(text.rstrip("KM") or 0) * unit)
    if not largest:
        largest = max(0, os.sysconf("SC_LEVEL3_CACHE_SIZE"))
    return min(largest, 64 << 20) or 32 << 20
