"""The rows that a device declares: well formed, and the same whenever they are read.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from threading import Thread
from typing import Any

import numpy as np

from anyhal.conformance.capabilities.calls import dtypes_of
from anyhal.conformance.suite import Case, Finding
from anyhal.errors import UnsupportedError
from anyhal.ops import BY_NAME


def cases() -> Iterator[Case]:
    for name in ("formed", "stable"):
        yield Case(f"capabilities/rows/{name}", "capabilities", tier="smoke")


def run(case: Case, bench: Any) -> Finding:
    found: Finding = (_formed if case.id.endswith("formed") else _stable)(bench)
    return found


def _formed(bench: Any) -> Finding:
    if not bench.capabilities:
        return Finding("fail", "the device declares nothing, so nothing can be certified", "lie")
    seen: set[tuple[str, str, int, str]] = set()
    for row in bench.capabilities:
        why = _why_not(row) or _repeated(row, seen)
        if why:
            return Finding("fail", f"the row of {row['op']}: {why}", "lie")
    return Finding("pass", measured={"rows": len(bench.capabilities)})


def _why_not(row: dict[str, Any]) -> str:
    spec = BY_NAME.get(row["op"])
    if spec is None:
        return "there is no such op"
    if not row["dtypes"]:
        return "it names no dtype that there is"
    beyond = [d for d in row["dtypes"] if d not in dtypes_of(spec.name)]
    if beyond:
        return f"it names {', '.join(beyond)}, which the op does not have"
    if not 1 <= row["rank_max"] <= 64:
        return f"its largest rank is {row['rank_max']}"
    if row["accumulate"] > 3 or row["rounding"]:
        return "its numerics are not among those of the contract"
    return ""


def _repeated(row: dict[str, Any], seen: set[tuple[str, str, int, str]]) -> str:
    for name in row["dtypes"]:
        key = (row["op"], name, row["accumulate"], row["determinism"])
        if key in seen:
            return f"{name} with the same numerics stands in two rows"
        seen.add(key)
    return ""


def _stable(bench: Any) -> Finding:
    """Read again, read from another thread, and read after work."""
    import anyhal as hal

    first = bench.device.capabilities()
    elsewhere: list[Any] = []
    reader = Thread(target=lambda: elsewhere.append(bench.device.capabilities()))
    reader.start()
    reader.join()
    numbers = np.arange(24, dtype=np.float32).reshape(4, 6)
    with hal.use(device=bench.device_name):
        there = hal.asarray(numbers)
        with suppress(UnsupportedError):
            (there + there).numpy()
        with suppress(UnsupportedError):
            (there @ there.T).numpy()
    after = bench.device.capabilities()
    for when, rows in (("from another thread", elsewhere[0]), ("after work", after)):
        if rows != first:
            changed = [r["op"] for r in rows if r not in first] or ["fewer rows"]
            why = f"the rows read {when} are others: {', '.join(changed[:5])}"
            return Finding("fail", why, "lie")
    return Finding("pass")
