"""`anyhal diff`: did the upgrade change routes or numbers, or lose speed?
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from anyhal.cli.terminal import cells, escape

SAME, CHANGED = 0, 1


def diff(
    old: Annotated[Path, typer.Argument(help="From anyhal bench --json or certify --json.")],
    new: Annotated[Path, typer.Argument(help="The same of another day or version.")],
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Compare routes, libraries, known answers and speed; exits 1 when something changed."""
    from anyhal.conformance.diff import compare

    found = compare(_read(old), _read(new))
    if json_:
        rows = [{"kind": c.kind, "what": c.what, "old": c.old, "new": c.new} for c in found.changes]
        print(json.dumps({"schema": 1, "changes": rows, "notes": list(found.notes)}))
    else:
        _print(found)
    return CHANGED if found.changes else SAME


def _read(file: Path) -> Any:
    from anyhal.errors import InvalidArgumentError

    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as why:
        raise InvalidArgumentError(
            f"reading {file}: {why}; make one with anyhal bench --json"
        ) from None


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
