"""What was copied from device to device, by calls that allow it and by asarray.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from _thread import allocate_lock
from typing import Any

from anyhal.errors import typed_call

_lock = allocate_lock()
_made: dict[tuple[str, str], list[int]] = {}  # (source, target): how many, bytes


def note(source: str, target: str, nbytes: int) -> None:
    with _lock:
        made = _made.setdefault((source, target), [0, 0])
        made[0] += 1
        made[1] += nbytes


@typed_call("copies")
def copies() -> list[dict[str, Any]]:
    """What was copied from one device to another since the process began, most bytes first: rows of
    `source`, `target`, `count`, `bytes`. Copies between the host's own arrays and a device are in
    `counters`."""
    with _lock:
        rows = [
            {"source": source, "target": target, "count": count, "bytes": nbytes}
            for (source, target), (count, nbytes) in _made.items()
        ]
    return sorted(rows, key=lambda r: -r["bytes"])
