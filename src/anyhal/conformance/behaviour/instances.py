"""Two instances in one process, and a library's manners in the table of symbols.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour import records as r
from anyhal.conformance.behaviour import work
from anyhal.conformance.behaviour.driver import RawDevice, RefusedError, instance_of, opened
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    behaviour,
    require,
    require_equal,
)


@behaviour("instances/apart", 23)
def apart(bench: Bench) -> Measured:
    """Two instances in one process work in turns, each with its own devices, blocks and results."""
    first, second = opened(bench), RawDevice(instance_of(bench), bench.device._id)
    lines = [d.line() for d in (first, second)]
    plans = [work.add(d, 1024) for d in (first, second)]
    values = [work.ramp(1024), work.ramp(1024, 300)]
    refs = [(line.put(v), line.put(v)) for line, v in zip(lines, values, strict=True)]
    there = hal.asarray(values[0], device=bench.device)
    for _ in range(3):
        for line, plan, (x, y) in zip(lines, plans, refs, strict=True):
            line.run(plan, x, x, y)
        hal.add(there, there, out=there)
    for line, (x, y), v in zip(lines, refs, values, strict=True):
        require_equal(line.read(y, v), 2 * v, "instances", "of two instances in turns")
        require_equal(line.read(x, v), v, "instances", "an input of two instances in turns")
    require_equal(there.numpy(), 8 * values[0], "instances", "the core's instance beside them")
    second.tidy()
    second.instance.release(r.DEVICE, second.handle.value or 0)
    lines[0].run(plans[0], *refs[0][:1], *refs[0][:1], refs[0][1])
    found = lines[0].read(refs[0][1], values[0])
    require_equal(found, 2 * values[0], "instances", "after the other one's device was closed")
    return None


@behaviour("instances/reopened", 21)
def reopened(bench: Bench) -> Measured:
    """A device that was closed can be opened again, three times over, and computes."""
    instance, values = instance_of(bench), work.ramp(256)
    for _ in range(3):
        device = RawDevice(instance, bench.device._id)
        line = device.line()
        x, y = line.put(values), line.fresh(values.nbytes)
        line.run(work.add(device, 256), x, x, y)
        require_equal(line.read(y, values), 2 * values, "instances", "on a device opened again")
        device.tidy()
        instance.release(r.DEVICE, device.handle.value or 0)
    return None


@behaviour("instances/handshake", 22)
def handshake(bench: Bench) -> Measured:
    """A caller of an older or newer contract is answered `abi_mismatch`, with the versions that the
    backend speaks; unknown flags and reserved words are refused as `invalid_argument`."""
    here = r.ABI_VERSION
    for low, high in ((here + 1, here + 4), (0, here - 1), (1 << 16, 2 << 16)):
        try:
            instance_of(bench, abi_min=low, abi_max=high)
            require(False, "handshake", f"a caller of versions {low} to {high} was accepted")
        except RefusedError as why:
            require(why.status == r.ABI_MISMATCH, "handshake", f"{low} to {high}: {why}")
            require(bool(why.text), "untyped", "refused a caller without a text")
    for field in ("flags", "reserved"):
        try:
            instance_of(bench, **{field: 0x4000})
            require(False, "handshake", f"a hello with an unknown word in {field} was accepted")
        except RefusedError as why:
            require(why.status == r.INVALID_ARGUMENT, "handshake", f"{field}: {why}")
    wide = instance_of(bench, abi_min=0, abi_max=5 << 16)
    require(wide.reply.chosen == here, "handshake", f"of all versions it chose {wide.reply.chosen}")
    return None


@behaviour("instances/settings", 22)
def settings(bench: Bench) -> Measured:
    """Unknown settings are no reason to fail, and the instance works."""
    instance = instance_of(bench)
    again = type(instance)(
        bench.device.native.instance.path,
        {**dict(bench.device.native.instance.settings), "no_such_setting": "1"},
    )
    device = RawDevice(again, bench.device._id)
    line, values = device.line(), np.ones(64, np.float32)
    x, y = line.put(values), line.fresh(values.nbytes)
    line.run(work.add(device, 64), x, x, y)
    require_equal(line.read(y, values), 2 * values, "instances", "with an unknown setting")
    device.tidy()
    again.release(r.DEVICE, device.handle.value or 0)
    return None
