"""`anyhal cache`: what anyhal keeps on disk, how large it is and what for; and clears it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anyhal.cli.terminal import cells, escape, printable
from anyhal.errors import InvalidArgumentError
from anyhal.settings import cache_folder

if TYPE_CHECKING:
    from anyhal.runtime.kept import Content, Part

ALL = "all"


def cache(
    clear_: Annotated[
        list[str] | None,
        typer.Option("--clear", help="A part to empty, or `all`; may be given several times."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Clear without asking.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show what is kept on disk between runs, or clear it; all of it can be made again."""
    from anyhal.runtime.kept import PARTS, clear, content, part

    if not clear_:
        if yes:
            raise typer.BadParameter("--yes goes with --clear")
        _show([content(row) for row in PARTS], json_, [])
        return
    rows = list(PARTS) if ALL in clear_ else list(dict.fromkeys(map(part, clear_)))
    before = [content(row) for row in rows]
    if not yes and any(found.files for found in before) and not _agreed(before):
        raise typer.Abort
    cleared, failures = [], []
    for row in rows:
        count, nbytes, problems = clear(row)
        cleared.append((row, count, nbytes))
        failures += problems
    _show([content(row) for row in rows], json_, cleared)
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise InvalidArgumentError(f"clearing the cache: {failures[0]}{more}; repair it, try again")


def _agreed(before: list[Content]) -> bool:
    """Whether the person says yes; a program must say so with --yes."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidArgumentError(
            "clearing the cache: nobody can be asked, since standard input is no terminal; add"
            " --yes"
        )
    for found in before:
        if found.files:
            said = f"{found.part.name}: {_many(found)}, {_size(found.nbytes)}; {found.part.cost}"
            print(printable(said), file=sys.stderr)
    return typer.confirm(f"clear these below {printable(cache_folder())}?", err=True)


def _many(found: Content) -> str:
    return f"{len(found.files)} file{'' if len(found.files) == 1 else 's'}"


def _size(nbytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} B"


def _show(found: list[Content], as_json: bool, cleared: list[tuple[Part, int, int]]) -> None:
    if as_json:
        print(json.dumps(_document(found, cleared)))
        return
    if cleared:
        for row, count, nbytes in cleared:
            print(f"{row.name}: {count} file{'' if count == 1 else 's'} removed, {_size(nbytes)}")
    else:
        _print_table(found)
    for one in found:
        for note in one.notes:
            print(printable(f"{one.part.name}: {note}"), file=sys.stderr)


def _document(found: list[Content], cleared: list[tuple[Part, int, int]]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "schema": 1,
        "folder": printable(cache_folder()),
        "parts": [
            {
                "name": one.part.name,
                "path": printable(str(one.path)),
                "files": len(one.files),
                "bytes": one.nbytes,
                "purpose": one.part.purpose,
                "cost": one.part.cost,
                "notes": [printable(note) for note in one.notes],
            }
            for one in found
        ],
    }
    if cleared:
        document["cleared"] = [
            {"name": row.name, "files": count, "bytes": nbytes} for row, count, nbytes in cleared
        ]
    return document


def _print_table(found: list[Content]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    table.add_column("part", no_wrap=True)
    table.add_column("files", justify="right", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("what for", overflow="fold")
    table.add_column("when cleared", overflow="fold")
    for one in found:
        row = one.part
        sizes = (str(len(one.files)), _size(one.nbytes))
        table.add_row(*cells(row.name, *sizes, row.purpose, row.cost))
    console = Console()
    console.print(table)
    console.print(escape(f"below {cache_folder()}"), highlight=False, soft_wrap=True)
