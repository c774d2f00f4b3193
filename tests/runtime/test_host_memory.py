"""Memory of devices that are the host: refused before the system must kill, given back on demand.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from pathlib import Path

import pytest

import anyhal as hal

HOST = [d.name for d in hal.devices() if d.name in ("cpu:0", "cpu_ref:0", "dayone:0")]


def available() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


@pytest.mark.parametrize("device", HOST)
def test_more_than_the_host_has_is_out_of_memory(device: str) -> None:
    with pytest.raises(hal.OutOfMemoryError, match=f"on {device} failed: the device has no more"):
        hal.empty((available() * 2,), dtype="i8", device=device)
    assert float(hal.sum(hal.ones((3,), device=device))) == 3


@pytest.mark.parametrize("device", HOST)
def test_trim_gives_idle_blocks_back_and_spares_the_rest(device: str) -> None:
    kept = hal.full((1 << 20,), 7, dtype="i8", device=device)
    dropped = hal.empty((32 << 20,), dtype="i8", device=device)
    del dropped
    assert hal.ledger(device)["activations"]["cached"] >= 32 << 20
    assert hal.device(device).trim() >= 32 << 20
    assert hal.ledger(device)["activations"]["cached"] < 32 << 20
    assert int(hal.max(kept)) == 7 == int(hal.min(kept))
