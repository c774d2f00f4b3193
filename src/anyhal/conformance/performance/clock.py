"""The process that times: one build, or two of the same backend in turns.
SPDX-License-Identifier: Apache-2.0

Arguments as JSON: device, an earlier library with its hash or none, items, blocks, seconds of a
leg. Prints one line of JSON per item. "hot": the same inputs again and again; "cold": inputs in
turns over more memory than the caches hold.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.performance import conditions
from anyhal.conformance.performance.audit import audit
from anyhal.conformance.performance.items import Item, chosen
from anyhal.conformance.performance.leg import Leg
from anyhal.runtime.device import Device, another_build

_CACHES = 4  # times the largest cache: what inputs rotate over
_MOST_SETS = 64
_RENEWED = 3  # blocks between two changes of memory
_LOOKED = 4  # one of so many legs
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
    found: dict[str, Any] = {"flops": flops, "bytes": nbytes, "conditions": conditions.now()}
    legs: dict[str, Leg] = {}
    for heat, sets in (("hot", 1), ("cold", _sets(nbytes))):
        legs.clear()  # before others take their memory
        legs |= {name: Leg(item, inputs, device, sets) for name, device in sides.items()}
        calls = _calibrated(legs["new"], seconds)
        found[heat] = {"calls": calls, **_in_turns(legs, calls, blocks)}
        found[heat]["clocks"] = _clocks(legs["new"])
        if wrong := next((leg.wrong for leg in legs.values() if leg.wrong), ""):
            found["wrong"] = wrong
    if "old" not in sides:
        found["audit"] = audit(item, inputs, sides["new"])
    return found


def _sets(nbytes: float) -> int:
    """At least two, so that no call meets what the one before left in the caches."""
    wanted = _CACHES * _largest_cache()
    return int(min(_MOST_SETS, max(2, -(-wanted // max(nbytes, 1)))))


def _calibrated(leg: Leg, seconds: float) -> int:
    """Calls that fill a leg; warm by then."""
    calls = 1
    while (took := leg.run(calls)) < seconds / 4:
        calls = max(calls + 1, min(calls * 8, int(calls * seconds / max(took, 1e-7) / 2)))
    return max(1, round(calls * seconds / took))


def _in_turns(legs: Mapping[str, Leg], calls: int, blocks: int) -> dict[str, list[list[float]]]:
    """Per block, the seconds of a call in two legs of each side: ABBA, and which of the two is told
    first alternates. An output is looked at after legs that nobody can know before."""
    times: dict[str, list[list[float]]] = {name: [] for name in legs}
    looks = random.Random()
    for block in range(blocks):
        if block and block % _RENEWED == 0:
            for leg in legs.values():
                leg.renew()
        names = list(legs)[:: 1 if block % 2 else -1]
        seen: dict[str, list[float]] = {name: [] for name in legs}
        for name in (*names, *names[::-1]):
            seen[name].append(legs[name].run(calls, looks.randrange(_LOOKED) == 0) / calls)
        for name, two in seen.items():
            times[name].append(two if block % 2 else two[::-1])
    return times


def _clocks(leg: Leg) -> dict[str, float]:
    """Medians: a run may be held back just between two clocks."""
    raw, busy = np.median(leg.clocks, axis=0)
    return {"raw": round(float(raw), 4), "busy": round(float(busy), 4)}


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
