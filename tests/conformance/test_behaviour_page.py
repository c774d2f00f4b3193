"""The page of behaviours lists the cases that there are, and the records are those of backend.h.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

from anyhal.conformance import behaviour, suite
from anyhal.conformance.behaviour import records, work
from anyhal.ops import BY_NAME

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "what-behaviour-is-checked.md"


def table() -> list[str]:
    """The lines of the page's table."""
    lines = ["| Case | Tier | Rows | What must hold |", "| --- | --- | --- | --- |"]
    for one in behaviour.behaviours().values():
        rows = ", ".join(map(str, one.rows))
        name = one.case.id.removeprefix("behaviour/")
        lines.append(f"| `{name}` | {one.case.tier} | {rows} | {one.what} |")
    return lines


def test_the_page_lists_every_case() -> None:
    after = PAGE.read_text().partition("test_behaviour_page.py -->\n\n")[2]
    shown = after.partition("\n\n")[0].splitlines()
    right = "\n".join(table())
    assert shown == table(), f"replace the table of {PAGE.relative_to(ROOT)} by:\n{right}"


def test_every_row_but_one_has_a_case() -> None:
    found = {row for one in behaviour.behaviours().values() for row in one.rows}
    assert found == set(range(1, 32)) - {26}


def test_cases_are_plain_and_unique() -> None:
    cases = list(behaviour.cases())
    assert len({c.id for c in cases}) == len(cases)
    for case in cases:
        assert case.group == "behaviour" and case.tier in suite.TIERS
        assert json.loads(json.dumps(dict(case.given))) == dict(case.given)
        assert case.id.startswith("behaviour/")


def test_ops_have_their_numbers() -> None:
    for name in ("COPY", "BINARY", "REDUCE", "MATMUL", "GATHER"):
        assert getattr(work, name) == BY_NAME[name.lower()].id


def test_records_are_those_of_the_contract(tmp_path: Path) -> None:
    lines = [
        '#include <stddef.h>\n#include <stdio.h>\n#include "anyhal/backend.h"\nint main(void) {'
    ]
    right = []
    for kind in records.ALL:
        name = kind.__name__
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        right.append(ctypes.sizeof(kind))
        for field, *_ in kind._fields_:
            lines.append(f'printf("%zu\\n", offsetof({name}, {field}));')
            right.append(getattr(kind, field).offset)
    source = tmp_path / "layout.c"
    source.write_text("\n".join([*lines, "return 0; }"]))
    program = tmp_path / "layout"
    subprocess.run(["cc", f"-I{ROOT / 'include'}", str(source), "-o", str(program)], check=True)
    found = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert [int(n) for n in found.split()] == right
