"""Writes the smallest ELF library that says something of itself; nothing in it can run.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import platform
import struct

MACHINE = {"x86_64": 62, "aarch64": 183}[platform.machine()]


def elf_library(
    *,
    exports: tuple[str, ...] = ("anyhal_backend_main",),
    unique: tuple[str, ...] = (),
    needed: tuple[str, ...] = (),
    runpath: str = "",
    build_id: bytes = b"",
    machine: int = MACHINE,
    tail: bytes = b"",
) -> bytes:
    """One loaded segment that holds everything; `tail` makes two of them differ."""
    strings = bytearray(b"\0")

    def text(word: str) -> int:
        at = len(strings)
        strings.extend(word.encode() + b"\0")
        return at

    rows = [(text(name), 10 if name in unique else 1) for name in (*exports, *unique)]
    symbols = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", name, binding << 4 | 2, 0, 1, 64, 0) for name, binding in rows
    )
    entries = [(1, text(name)) for name in needed]
    entries += [(29, text(runpath))] if runpath else []
    note = struct.pack("<III", 4, len(build_id), 3) + b"GNU\0" + build_id.ljust(-len(build_id) % 4)
    table = struct.pack("<II", 1, len(rows) + 1) + bytes(4 * (2 + len(rows)))
    parts, place = bytearray(64 + 3 * 56), {}
    for name, data in (("strings", bytes(strings)), ("symbols", symbols), ("hash", table)):
        parts += bytes(-len(parts) % 8)
        place[name] = len(parts)
        parts += data
    parts += bytes(-len(parts) % 8)
    entries += [(5, place["strings"]), (6, place["symbols"]), (10, len(strings))]
    entries += [(4, place["hash"]), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    place["dynamic"] = len(parts)
    parts += dynamic
    place["note"] = len(parts)
    parts += note if build_id else b""
    end = len(parts)

    def segment(kind: int, at: int, size: int) -> bytes:
        return struct.pack("<IIQQQQQQ", kind, 4, at, at, at, size, size, 8)

    header = struct.pack("<4sBBBBB7x", b"\x7fELF", 2, 1, 1, 0, 0)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0)
    parts[:64] = header
    parts[64 : 64 + 168] = (
        segment(1, 0, end)
        + segment(2, place["dynamic"], len(dynamic))
        + segment(4 if build_id else 0, place["note"], end - place["note"])
    )
    return bytes(parts) + tail
