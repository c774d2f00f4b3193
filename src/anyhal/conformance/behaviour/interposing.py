"""Counts the calls of malloc and its kin that one library makes, through its import table.
SPDX-License-Identifier: Apache-2.0

The table's entries are replaced by counting twins for as long as the `with` lasts. Nothing else in
the process is touched: what other libraries allocate on the library's behalf is not seen.
"""

from __future__ import annotations

import ctypes as c
import mmap
import os
import struct
from collections import Counter
from typing import Any

_WATCHED = frozenset(
    ("malloc", "calloc", "realloc", "aligned_alloc", "memalign", "posix_memalign", "mmap")
    + ("_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t")
    + ("_ZnwmSt11align_val_t", "_ZnamSt11align_val_t")
)
_NULLABLE = frozenset(
    ("malloc", "calloc", "realloc", "aligned_alloc", "memalign")
    + ("_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t")
)
_Twin = c.CFUNCTYPE(*[c.c_uint64] * 7)
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_RELRO = 1, 2, 0x6474E552
_DT_PLTRELSZ, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_JMPREL = 2, 5, 6, 7, 8, 23
_kept: list[Any] = []  # a thread may be inside a twin when the `with` ends


class NotHereError(Exception):
    """This library's imports cannot be watched."""


class Interposed:
    """Calls by name, while open. `names`: what of the family the library imports at all. With
    `nullable`, only functions that may answer NULL, and they do from call `refuse_from` on."""

    def __init__(self, library: str, nullable: bool = False) -> None:
        self.calls: Counter[str] = Counter()
        self.refuse_from = 0
        self._handle = c.CDLL(library)
        base = _base_of(library)
        self._slots = [
            (base + at, name) for name, at in _imports(library) if not nullable or name in _NULLABLE
        ]
        self.names = sorted({name for _, name in self._slots})
        self._before: list[tuple[int, int]] = []
        self._twins = {name: self._twin(name) for name in self.names}
        _kept.append(self._twins)

    def _twin(self, name: str) -> Any:
        real = _Twin(c.cast(getattr(self._handle, name), c.c_void_p).value or 0)

        def counted(*arguments: int) -> int:
            self.calls[name] += 1
            if self.refuse_from and sum(self.calls.values()) >= self.refuse_from:
                return 0
            return int(real(*arguments))

        return _Twin(counted)

    def __enter__(self) -> Interposed:
        for at, name in self._slots:
            _make_writable(at)
            slot = c.c_uint64.from_address(at)
            self._before.append((at, slot.value))
            slot.value = c.cast(self._twins[name], c.c_void_p).value or 0
        return self

    def __exit__(self, *_: object) -> None:
        for at, value in self._before:
            c.c_uint64.from_address(at).value = value
        self._before = []


def _make_writable(at: int) -> None:
    page = at & ~(mmap.PAGESIZE - 1)
    if c.CDLL(None).mprotect(c.c_void_p(page), c.c_size_t(mmap.PAGESIZE), 3) != 0:
        raise NotHereError("the library's import table cannot be changed here")


def _base_of(library: str) -> int:
    """Where it is mapped."""
    real = os.path.realpath(library)
    with open("/proc/self/maps", encoding="utf-8") as rows:
        for row in rows:
            parts = row.split(maxsplit=5)
            if len(parts) == 6 and parts[5].rstrip("\n") == real and int(parts[2], 16) == 0:
                return int(parts[0].partition("-")[0], 16)
    raise NotHereError(f"{library} is not mapped under its name")


def _imports(library: str) -> list[tuple[str, int]]:
    """Name and place, relative to the base, of each watched import."""
    with open(library, "rb") as file:
        data = file.read()
    if data[:6] != b"\x7fELF\x02\x01":
        raise NotHereError(f"{library} is no 64-bit little-endian ELF file")
    start, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    segments = [struct.unpack_from("<IIQQQQ", data, start + 56 * i) for i in range(count)]

    def offset(address: int) -> int:
        for kind, _, at, virtual, _, size in segments:
            if kind == _PT_LOAD and virtual <= address < virtual + size:
                return int(address - virtual + at)
        raise NotHereError(f"{library}: address {address:#x} is in no segment of the file")

    at, size = next((s[2], s[5]) for s in segments if s[0] == _PT_DYNAMIC)
    tags = dict(struct.unpack_from("<QQ", data, at + 16 * i) for i in range(size // 16))
    names, symbols = offset(tags[_DT_STRTAB]), offset(tags[_DT_SYMTAB])
    found = []
    for table, length in ((_DT_RELA, _DT_RELASZ), (_DT_JMPREL, _DT_PLTRELSZ)):
        if table not in tags:
            continue
        for i in range(tags[length] // 24):
            place, info, _ = struct.unpack_from("<QQq", data, offset(tags[table]) + 24 * i)
            if not info >> 32:
                continue
            name_at = names + struct.unpack_from("<I", data, symbols + 24 * (info >> 32))[0]
            name = data[name_at : data.index(b"\0", name_at)].decode("ascii", "replace")
            if name in _WATCHED:
                found.append((name, place))
    return found
