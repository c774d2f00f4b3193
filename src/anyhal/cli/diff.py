"""`anyhal diff`: did the upgrade change routes or numbers, or lose speed?
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from anyhal.cli.files import read_json, understood
from anyhal.cli.terminal import cells, escape

SAME, CHANGED = 0, 1
MADE_BY = "anyhal bench --json or anyhal certify --json"


def diff(
    old: Annotated[Path, typer.Argument(help="From anyhal bench --json or certify --json.")],
    new: Annotated[Path, typer.Argument(help="The same of another day or version.")],
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Compare routes, libraries, known answers and speed; exits 1 when something changed."""
    from anyhal.conformance.diff import compare

    documents = read_json(old, MADE_BY), read_json(new, MADE_BY)
    with understood(f"{old} and {new}", MADE_BY):
        found = compare(*documents)
    if json_:
        rows = [{"kind": c.kind, "what": c.what, "old": c.old, "new": c.new} for c in found.changes]
        print(json.dumps({"schema": 1, "changes": rows, "notes": list(found.notes)}))
    else:
        _print(found)
    return CHANGED if found.changes else SAME


def _print(found: Any) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for note in found.notes:
        console.print(escape(note), soft_wrap=True, highlight=False)
    if not found.changes:
        console.print("nothing changed")
        return
    table = Table(box=box.SIMPLE)
    for heading in ("kind", "what", "old", "new"):
        table.add_column(heading, overflow="fold")
    for c in found.changes:
        table.add_row(*cells(c.kind, c.what, c.old, c.new))
    console.print(table)
    console.print(f"{len(found.changes)} changed")
