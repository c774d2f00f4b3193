"""Under what conditions something was timed: load, clock rate, governor, temperature.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def now() -> dict[str, Any]:
    """What the system tells; what it does not tell is left out."""
    found: dict[str, Any] = {"load": round(os.getloadavg()[0], 2)}
    if rates := _clock_rates():
        found["mhz"] = round(sum(rates) / len(rates))
    if governor := _text(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")):
        found["governor"] = governor
    zones = Path("/sys/class/thermal").glob("thermal_zone*/temp")
    if heats := [int(text) for zone in zones if (text := _text(zone)).isdecimal()]:
        found["celsius"] = round(max(heats) / 1000)
    return found


def over(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Least and most of each number over what `now` gave at several times; texts as a list."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = sorted({row[name] for row in rows if name in row})
        found[name] = values if isinstance(values[0], str) else [values[0], values[-1]]
    return found


def _clock_rates() -> list[float]:
    lines = _text(Path("/proc/cpuinfo")).splitlines()
    return [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]


def _text(file: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text(encoding="ascii").strip()
    return ""
