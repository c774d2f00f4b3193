"""What a process and its device hold: bytes, plans, open files, threads.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import gc
import os
from functools import cache
from typing import Any

from anyhal import _core
from anyhal.records import record

_PAGE = os.sysconf("SC_PAGE_SIZE")
_LEAST = 8  # bytes of each refusal: less is no record that somebody forgot
_RESIDENT = 2 << 20  # of noise


@record
class Holdings:
    """`heap` is what malloc has given out, where the C library tells."""

    heap: int
    resident: int
    device: int
    plans: int
    files: int
    threads: int

    @staticmethod
    def now(device: Any) -> Holdings:
        gc.collect()
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * _PAGE
        pools = device.native.ledger()
        return Holdings(
            _heap_bytes(),
            resident,
            sum(row.get("in_use", 0) + row.get("cached", 0) for row in pools.values()),
            len(_core.plans()),
            len(os.listdir("/proc/self/fd")),
            len(os.listdir("/proc/self/task")),
        )

    def more_than(self, before: Holdings, count: int) -> str:
        """ "" when nothing grew by what `count` times something leaves behind."""
        limits = {
            "heap": ("bytes of the heap", count * _LEAST),
            "resident": ("bytes of memory", max(_RESIDENT, count * _LEAST)),
            "device": ("bytes of the device", 0),
            "plans": ("plans", 0),
            "files": ("open files", 0),
            "threads": ("threads", 0),
        }
        for name, (what, least) in limits.items():
            grown = getattr(self, name) - getattr(before, name)
            if grown > least:
                return f"{grown} {what}"
        return ""


class _Mallinfo2(ctypes.Structure):
    _fields_ = [  # noqa: RUF012
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


@cache
def _mallinfo() -> Any:
    """glibc's mallinfo2; None elsewhere."""
    try:
        found = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    found.restype = _Mallinfo2
    return found


def _heap_bytes() -> int:
    read = _mallinfo()
    if read is None:
        return 0
    info = read()
    return int(info.uordblks + info.hblkhd)
