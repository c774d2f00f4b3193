"""Writes what is generated from the contract's header; --check only compares.
SPDX-License-Identifier: Apache-2.0

From include/anyhal/backend.h: include/anyhal/fingerprints.h and docs/reference/abi.md.

    python tools/abi_files.py
    python tools/abi_files.py --check
    python tools/abi_files.py --include DIR    fingerprints.h alone, beside the backend.h in DIR
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import abi_layout  # noqa: E402
import abi_page  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
SPDX = "SPDX-License-Identifier: Apache-2.0"
FROZEN = ("anyhal_error", "anyhal_hello", "anyhal_reply")


@dataclass(frozen=True)
class Field:
    """A field or slot as the compiler has it; `text` is its type and name, parameters unnamed."""

    name: str
    offset: int
    size: int
    text: str
    since: tuple[int, int]  # (0, 0): as old as its record

    @property
    def word(self) -> int:
        """48 bits of what it is, 16 bits of where it is."""
        return hashed(self.text) >> 16 << 16 | self.offset

    @property
    def spelt(self) -> str:
        """Its name in C at any floor."""
        return (
            f"ANYHAL_SINCE_{self.since[0]}_{self.since[1]}({self.name})"
            if any(self.since)
            else self.name
        )


@dataclass(frozen=True)
class Record:
    name: str
    size: int
    fields: list[Field]

    @property
    def grows(self) -> bool:
        return self.fields[0].name == "size" and self.name not in FROZEN


def number(version: tuple[int, int]) -> str:
    return f"{version[0] << 16 | version[1]}u"


def hashed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


_FUNCTION = re.compile(r"(.*?\(\*\w+\))\((.*)\)")


def typed(declaration: str, pointers: dict[str, str]) -> str:
    """The declaration without the names of parameters; types that are functions are spelt out."""
    text, function = declaration, _FUNCTION.fullmatch(declaration)
    if function:
        text = f"{function[1]}({', '.join(unnamed(p) for p in split(function[2]))})"
    for name, meaning in pointers.items():
        if re.search(rf"\b{name}\b", text):
            text += f" where {typed(meaning.removeprefix('typedef '), {})}"
    return text


def unnamed(parameter: str) -> str:
    if function := _FUNCTION.fullmatch(parameter):
        head = re.sub(r"\w+\)$", ")", function[1])
        return f"{head}({', '.join(unnamed(p) for p in split(function[2]))})"
    return re.sub(r"\s*\b\w+$", "", parameter) if " " in parameter else parameter


def split(parameters: str) -> list[str]:
    """At the commas outside of parentheses."""
    parts, depth = [""], 0
    for character in parameters:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def read(header: Path) -> list[Record]:
    """Every record of the header, in its order."""
    parsed = abi_layout.parse(header.read_text())
    facts = [line.split(" ", 3) for line in abi_layout.layout(header)]
    sizes = {fact[1]: int(fact[2]) for fact in facts if fact[0] == "record"}
    fields = [fact for fact in facts if fact[0] == "field"]
    places = {name: (int(at), int(rest.split()[0])) for _, name, at, rest in fields}
    return [
        Record(
            record,
            sizes[record],
            [
                Field(
                    name,
                    *places[f"{record}.{name}"],
                    typed(text, parsed.pointer_types),
                    parsed.since.get((record, name), (0, 0)),
                )
                for name, text in declared.items()
            ],
        )
        for record, declared in parsed.records.items()
    ]


def needs(header: str) -> dict[str, str]:
    """Slot -> YES, UNLESS_SYNCHRONOUS or NO, from the last line of its comment."""
    table = abi_layout.plain(header[header.index("struct anyhal_table {") :])
    slots = re.findall(r"/\*((?:(?!\*/).)*)\*/\s+anyhal_status \(\*(\w+)\)", table, re.DOTALL)
    found = {}
    for comment, slot in slots:
        said = re.search(r"\bRequired (yes|unless synchronous)", comment)
        found[slot] = said[1].upper().replace(" ", "_") if said else "NO"
    return found


def fingerprints(header: Path) -> str:
    records, text = read(header), header.read_text()
    rows = []
    for r in records:
        growth = "GROWS" if r.grows else "FIXED"
        rows.append(
            f"  RECORD({r.name}, {hashed(r.name):#018x}u, {r.size}, {len(r.fields)}, {growth})"
        )
        rows += [
            f"  FIELD({r.name}, {f.name}, {f.spelt}, {f.offset}, {f.size}, {f.word:#018x}u,"
            f' {number(f.since)}, "{f.text}")'
            for f in r.fields
        ]
    since = {f.name: f.since for r in records if r.name == "anyhal_table" for f in r.fields}
    table = [f"  SLOT({slot}, {need}, {number(since[slot])})" for slot, need in needs(text).items()]
    count = 1 + sum(2 + len(r.fields) for r in records)
    return TEMPLATE.format(
        spdx=SPDX,
        version=abi_layout.parse(text).version,
        count=count,
        rows=" \\\n".join(rows),
        slots=" \\\n".join(table),
    )


TEMPLATE = """\
/* What backend.h says, as data: the layout that a backend was built with, for the core to compare.
 * {spdx}
 * Generated by tools/abi_files.py from include/anyhal/backend.h; do not edit.
 *
 * A backend includes it where it fills its reply:
 *
 *   reply->fingerprints = anyhal_fingerprints;
 *   reply->fingerprint_count = ANYHAL_FINGERPRINT_COUNT;
 *
 * The words: a form; then for each record a hash of its name, (bytes << 32 | fields), and one word
 * a field: the upper 48 bits of the hash of its type and name, then 16 bits of its offset. Hashes
 * are the first eight bytes of SHA-256. The core compares the fields that both sides know. */
#ifndef ANYHAL_FINGERPRINTS_H_
#define ANYHAL_FINGERPRINTS_H_

#include "anyhal/backend.h"

#define ANYHAL_FINGERPRINT_FORM 0x616e7968616c0001u
#define ANYHAL_FINGERPRINT_COUNT {count}u

/* clang-format off */
/* Contract {version}.
 * RECORD(name, hash, bytes, fields, GROWS or FIXED)
 * FIELD(record, name, name at any floor, offset, bytes, word, version that brought it or 0, what)
 * SLOT(name, YES or UNLESS_SYNCHRONOUS or NO: is it required, version that brought it or 0) */
#define ANYHAL_RECORD_LIST(RECORD, FIELD) \\
{rows}

#define ANYHAL_SLOT_LIST(SLOT) \\
{slots}
/* clang-format on */

#define ANYHAL_RECORD_WORDS_(record, hash, bytes, fields, growth) \\
  hash, (uint64_t)(bytes) << 32 | (fields),
#define ANYHAL_FIELD_WORD_(record, name, spelt, offset, bytes, word, since, text) word,

static const uint64_t anyhal_fingerprints[ANYHAL_FINGERPRINT_COUNT] = {{
    ANYHAL_FINGERPRINT_FORM, ANYHAL_RECORD_LIST(ANYHAL_RECORD_WORDS_, ANYHAL_FIELD_WORD_)}};

/* This compiler lays the records out as the words say, and the two headers belong together. */
#ifdef __cplusplus
#define ANYHAL_ASSERT_ static_assert
#else
#define ANYHAL_ASSERT_ _Static_assert
#endif
#define ANYHAL_ASSERT_RECORD_(record, hash, bytes, fields, growth) \\
  ANYHAL_ASSERT_(sizeof(struct record) == (bytes), #record " is not as fingerprints.h has it");
#define ANYHAL_ASSERT_FIELD_(record, name, spelt, at, bytes, word, since, text)                \\
  ANYHAL_ASSERT_(                                                                              \\
      offsetof(struct record, spelt) == (at) && sizeof(((struct record*)0)->spelt) == (bytes), \\
      #record "." #name " is not as fingerprints.h has it");
ANYHAL_RECORD_LIST(ANYHAL_ASSERT_RECORD_, ANYHAL_ASSERT_FIELD_)

#endif /* ANYHAL_FINGERPRINTS_H_ */
"""


def outputs() -> dict[Path, str]:
    header = ROOT / "include/anyhal/backend.h"
    return {
        header.with_name("fingerprints.h"): fingerprints(header),
        ROOT / "docs/reference/abi.md": abi_page.page(header, read(header)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a file differs")
    parser.add_argument("--include", type=Path, help="a folder with another backend.h")
    given = parser.parse_args()
    if given.include:
        header = given.include / "backend.h"
        wanted = {header.with_name("fingerprints.h"): fingerprints(header)}
    else:
        wanted = outputs()
    stale = [p for p, text in wanted.items() if not p.exists() or p.read_text("utf-8") != text]
    for path in stale:
        print(f"{path.name}: {'differs' if given.check else 'written'}", file=sys.stderr)
        if not given.check:
            path.write_text(wanted[path], "utf-8", newline="\n")
    if given.check and stale:
        print("run python tools/abi_files.py and commit the result", file=sys.stderr)
    return 1 if given.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
