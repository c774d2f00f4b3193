"""Reads a backend's dynamic symbol table: exactly one symbol out, none of ours in.
SPDX-License-Identifier: Apache-2.0

    python tools/symbols.py LIBRARY...
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ENTRY = "anyhal_backend_main"
_OURS = re.compile(r"_?(any)?hal_|_ZN3hal")

# ELF-64, little endian (System V ABI): section types, symbol bindings.
SHT_DYNSYM, SHN_UNDEF = 11, 0
STB_LOCAL = 0


@dataclass(frozen=True)
class Symbol:
    name: str
    defined: bool


def dynamic_symbols(path: Path) -> Iterator[Symbol]:
    """Every non-local entry of the dynamic symbol table."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is not a little-endian 64-bit ELF file")
    (section_offset,) = struct.unpack_from("<Q", data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", data, section_offset + i * entry_size)
        for i in range(count)
    ]
    for _, kind, _, _, offset, size, link, _, _, step in sections:
        if kind != SHT_DYNSYM:
            continue
        strings = sections[link][4]
        for at in range(offset, offset + size, step):
            name_at, info, _, section, _, _ = struct.unpack_from("<IBBHQQ", data, at)
            if info >> 4 == STB_LOCAL or name_at == 0:
                continue
            start = strings + name_at
            name = data[start : data.index(b"\0", start)].decode("ascii", "replace")
            yield Symbol(name, section != SHN_UNDEF)


def violations(path: Path) -> list[str]:
    symbols = list(dynamic_symbols(path))
    exported = sorted(s.name for s in symbols if s.defined)
    found = []
    if exported != [ENTRY]:
        shown = ", ".join(exported[:5]) + (", ..." if len(exported) > 5 else "")
        found.append(f"{path}: exports {len(exported)} symbols ({shown}), not only {ENTRY}")
    found += [
        f"{path}: needs {s.name} of ours; a backend links nothing of ours"
        for s in symbols
        if not s.defined and _OURS.match(s.name)
    ]
    return found


def core_violations(path: Path, declared: set[str]) -> list[str]:
    """What the core exports beside its own C++ (namespace hal, for the binding and the tests) and
    the calls of hal.h, or fails to export of them."""
    exported = {s.name for s in dynamic_symbols(path) if s.defined}
    plain = {name for name in exported if not name.startswith("_Z")}
    found = [f"{path}: exports {name}, which hal.h does not declare" for name in plain - declared]
    found += [f"{path}: does not export {name} of hal.h" for name in declared - exported]
    return sorted(found)


def main() -> int:
    found = [v for name in sys.argv[1:] for v in violations(Path(name))]
    print("\n".join(found) if found else f"{len(sys.argv) - 1} libraries export one symbol each")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
