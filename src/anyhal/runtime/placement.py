"""Calls that ran on another device than the one they were for, and the line that says so.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import atexit
import contextlib
import sys
from _thread import allocate_lock
from collections import Counter
from typing import Any

from anyhal import settings
from anyhal.errors import typed_call
from anyhal.printable import printable
from anyhal.runtime.device import routes

_lock = allocate_lock()
_moved: dict[str, Counter[tuple[str, str, str]]] = {}  # by home: (op, where, reason)


def note(home: str, where: str, op: str, reason: str) -> None:
    """One call for `home` ran on `where`, since `home` refused it."""
    with _lock:
        _moved.setdefault(home, Counter())[op, where, reason] += 1


@typed_call("placement")
def placement() -> list[dict[str, Any]]:
    """Devices whose calls ran elsewhere (fallback="any") since the process began: rows of `device`,
    `calls` (for it), `elsewhere` (of them), `share` (of all, 0 to 1) and `reasons`, which are rows
    of `op`, `ran_on`, `reason` and `calls`, most calls first. The same stands in one line on stderr
    when the process ends."""
    with _lock:
        moved = {home: counts.copy() for home, counts in _moved.items()}
    stayed: Counter[str] = Counter()
    for row in routes():
        stayed[row["device"]] += row["calls"]
    rows = []
    for home, counts in moved.items():
        elsewhere = counts.total()
        calls = elsewhere + stayed[home]
        reasons = [
            {"op": op, "ran_on": where, "reason": reason, "calls": n}
            for (op, where, reason), n in counts.most_common()
        ]
        share = elsewhere / calls
        rows.append(
            {
                "device": home,
                "calls": calls,
                "elsewhere": elsewhere,
                "share": share,
                "reasons": reasons,
            }
        )
    return sorted(rows, key=lambda r: -int(r["elsewhere"]))


@atexit.register
def _say() -> None:
    """One line for each device that was asked for and did not run its calls."""
    if not _moved or sys.stderr is None:
        return
    if settings.LOG_LEVELS.index(settings.LOG.read()) > settings.LOG_LEVELS.index("warning"):
        return
    for row in placement():
        top = ", ".join(
            f"{r['op']} {r['calls']} on {r['ran_on']} (reason {r['reason']})"
            for r in row["reasons"][:3]
        )
        line = (
            f"anyhal: warning: {row['elsewhere']} of {row['calls']} calls for {row['device']} ran"
            f" elsewhere ({row['share']:.0%}), with copies: {top}"
        )
        with contextlib.suppress(OSError):
            print(printable(line), file=sys.stderr)
