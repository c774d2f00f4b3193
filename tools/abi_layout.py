"""Layout of the backend contract: computes it, records it, refuses a change without a new version.

SPDX-License-Identifier: Apache-2.0

The rule (draft 0.N): any change of a size, an offset, a type or a number raises N, and the header
as it was moves to include/anyhal/history/0.N/backend.h. LAYOUTS beside it holds one digest a
version. Comments and formatting are not layout.

    python tools/abi_layout.py            print the layout, one fact a line
    python tools/abi_layout.py --check    fail when header and records do not agree
    python tools/abi_layout.py --record   add the digest of a new version
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_RECORD = re.compile(r"(typedef )?struct (\w+) \{(.*?)\n\}", re.DOTALL)
_ENUM = re.compile(r"(?:typedef )?enum(?: \w+)? \{(.*?)\}", re.DOTALL)
_POINTER_TYPE = re.compile(r"^typedef ([^;{]*?\(\*(\w+)\)[^;]*);", re.MULTILINE)
_SLOT = re.compile(r"\(\*(\w+)\)")
_FIELD = re.compile(r"(\w+)(?:\[\w+\])?$")
_SINCE = re.compile(r"\bANYHAL_SINCE_(\d+)_(\d+)\((\w+)\)")


class LayoutError(Exception):
    """The rule of the draft is broken; the text says how and what to do."""


@dataclass(frozen=True)
class Header:
    """What a header declares, by name, as written."""

    version: str
    records: dict[str, dict[str, str]]  # record -> field -> its declaration
    constants: list[str]
    pointer_types: dict[str, str]
    since: dict[tuple[str, str], tuple[int, int]]  # (record, field) -> the minor that brought it


def plain(text: str) -> str:
    """Without the macros that say which minor brought a name."""
    return _SINCE.sub(r"\3", text)


def parse(text: str) -> Header:
    """Reads names out of a header; numbers come from a compiler, not from here."""
    code = _COMMENT.sub(" ", text)
    version = ".".join(_macro(code, f"ANYHAL_ABI_{part}") for part in ("MAJOR", "MINOR"))
    records: dict[str, dict[str, str]] = {}
    since: dict[tuple[str, str], tuple[int, int]] = {}
    for match in _RECORD.finditer(code):
        fields = {}
        for declaration in match[3].split(";"):
            words = " ".join(declaration.split())
            if newer := _SINCE.search(words):
                since[match[2], newer[3]] = int(newer[1]), int(newer[2])
            words = plain(words)
            if words:
                name = _SLOT.search(words) or _FIELD.search(words)
                if name is None:
                    raise LayoutError(f"abi_layout: cannot read the field '{words}' of {match[2]}")
                fields[name[1]] = words
        records[match[2]] = fields
    code = plain(code)
    constants = [name for body in _ENUM.findall(code) for name in re.findall(r"\bANYHAL_\w+", body)]
    constants += re.findall(r"^#define (ANYHAL_\w+_MAX) ", code, re.MULTILINE)
    pointers = {match[2]: " ".join(match[1].split()) for match in _POINTER_TYPE.finditer(code)}
    return Header(version, records, constants, pointers, since)


def layout(path: Path) -> list[str]:
    """The layout of a header: one fact a line, numbers as the C compiler has them."""
    header = parse(path.read_text())
    probe = ['#include "backend.h"', "#include <stdio.h>", "int main(void) {"]
    for record, fields in header.records.items():
        kind = f"struct {record}"
        probe.append(f'  printf("record {record} %zu\\n", sizeof({kind}));')
        for field, declaration in fields.items():
            probe.append(
                f'  printf("field {record}.{field} %zu %zu {declaration}\\n",'
                f" offsetof({kind}, {field}), sizeof((({kind}*)0)->{field}));"
            )
    for name in header.constants:
        probe.append(f'  printf("value {name} %lld\\n", (long long){name});')
    probe += ["  return 0;", "}"]
    lines = run_probe("\n".join(probe), path.parent)
    return lines + [f"type {name} {words}" for name, words in sorted(header.pointer_types.items())]


def digest(lines: list[str]) -> str:
    """One line that changes with any fact."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def recorded(history: Path) -> dict[str, str]:
    """Version -> digest, from the LAYOUTS file."""
    rows = (history / "LAYOUTS").read_text().splitlines()
    return {row.split()[0]: row.split()[1] for row in rows if row and not row.startswith("#")}


def check(include: Path) -> str:
    """Returns a line that says what holds, or raises LayoutError."""
    header, history = include / "backend.h", include / "history"
    version = parse(header.read_text()).version
    known = recorded(history)
    now = digest(layout(header))
    if version not in known:
        raise LayoutError(
            f"abi_layout: contract {version} has no recorded layout;"
            " run tools/abi_layout.py --record once it is final"
        )
    if known[version] != now:
        raise LayoutError(
            f"abi_layout: the layout of backend.h is no longer that of contract {version};"
            " raise ANYHAL_ABI_MINOR, put the old header (git show) at"
            f" include/anyhal/history/{version}/backend.h, then run tools/abi_layout.py --record"
        )
    _check_history(history, known, version)
    return f"contract {version}: layout {now[:12]}, {len(known) - 1} earlier version(s) kept"


def record(include: Path) -> str:
    """Adds the current version to LAYOUTS; refuses to rewrite one that is there."""
    header, history = include / "backend.h", include / "history"
    version = parse(header.read_text()).version
    known = recorded(history)
    if version in known:
        raise LayoutError(
            f"abi_layout: contract {version} is recorded already and is never rewritten;"
            " raise ANYHAL_ABI_MINOR for another layout"
        )
    _check_history(history, known, version)
    with (history / "LAYOUTS").open("a") as file:
        file.write(f"{version} {digest(layout(header))}\n")
    return f"contract {version} recorded"


def _check_history(history: Path, known: dict[str, str], current: str) -> None:
    for version, expected in known.items():
        if version == current:
            continue
        old = history / version / "backend.h"
        if not old.is_file():
            raise LayoutError(
                f"abi_layout: the header of contract {version} is missing; take it from git and put"
                f" it at include/anyhal/history/{version}/backend.h"
            )
        if digest(layout(old)) != expected:
            raise LayoutError(
                f"abi_layout: history/{version}/backend.h is not contract {version} as recorded;"
                " restore it from git"
            )


def _macro(code: str, name: str) -> str:
    match = re.search(rf"^#define {name} (\d+)u$", code, re.MULTILINE)
    if match is None:
        raise LayoutError(f"abi_layout: no '#define {name}' in the header; restore it from git")
    return match[1]


def run_probe(source: str, include: Path) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        probe, program = Path(folder) / "probe.c", Path(folder) / "probe"
        probe.write_text(source)
        command = ["cc", "-std=c11", f"-I{include}", str(probe), "-o", str(program)]
        built = subprocess.run(command, check=False, capture_output=True, text=True)
        if built.returncode != 0:
            raise LayoutError(f"abi_layout: the header does not compile as C11: {built.stderr}")
        ran = subprocess.run([program], capture_output=True, text=True, check=True)
        return ran.stdout.splitlines()


def main() -> int:
    """Command line; exit 1 with one line on stderr when the rule is broken."""
    parser = argparse.ArgumentParser(description="layout of the backend contract")
    parser.add_argument("--check", action="store_true", help="fail when records do not agree")
    parser.add_argument("--record", action="store_true", help="add the digest of a new version")
    parser.add_argument("--include", type=Path, default=ROOT / "include/anyhal")
    options = parser.parse_args()
    try:
        if options.record:
            print(record(options.include))
        elif options.check:
            print(check(options.include))
        else:
            print("\n".join(layout(options.include / "backend.h")))
    except LayoutError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
