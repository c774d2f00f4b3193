"""`anyhal report`: reports of `anyhal certify` as tables, a page, or what build servers read.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from anyhal.cli.files import check_writable, read_json, understood, write
from anyhal.cli.terminal import cells

MADE_BY = "anyhal certify --json"


def report(
    files: Annotated[list[Path], typer.Argument(help="Reports that certify wrote with --json.")],
    html: Annotated[Path | None, typer.Option(help="Write one page of all of them there.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML; of one report only.")] = None,
    summary: Annotated[
        Path | None, typer.Option(help="Write the one report without its cases, as JSON.")
    ] = None,
) -> None:
    """Show what was found about backends: ops by dtypes, and pages of it."""
    from anyhal.conformance.reports import matrix
    from anyhal.conformance.reports.html import page
    from anyhal.conformance.reports.junit import junit as junit_text
    from anyhal.errors import InvalidArgumentError

    found = [matrix.checked(read_json(file, MADE_BY), str(file)) for file in files]
    if (junit or summary) and len(found) != 1:
        raise InvalidArgumentError(
            f"writing one report: {len(found)} were given; name one file for --junit and --summary"
        )
    check_writable({"--html": html, "--junit": junit, "--summary": summary})
    with understood(" ".join(map(str, files)), MADE_BY):
        if html is not None:
            write(html, page(found))
        if junit is not None:
            write(junit, junit_text(found[0]))
        if summary is not None:
            write(summary, json.dumps(matrix.summary(found[0]), indent=1) + "\n")
        if html is None and junit is None and summary is None:
            for one in found:
                _print(one)


def _print(one: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from anyhal.conformance.reports import matrix

    found = matrix.cells(one)
    console = Console()
    table = Table(box=box.SIMPLE, title=None)
    table.add_column("op", no_wrap=True)
    dtypes = matrix.dtypes_of([found])
    for dtype in dtypes:
        table.add_column(dtype, justify="center")
    for op in matrix.ops_of([found]):
        row = (found.get((op, d)) for d in dtypes)
        signs = ((matrix.SIGNS[c.state] + ("*" if c.stale else "")) if c else "" for c in row)
        table.add_row(*cells(op, *signs))
    state = "certified" if one.get("certified") else "not certified"
    console.print(f"{one['device']}, {one['tier']}: {state}", highlight=False, markup=False)
    console.print(table)
    legend = ", ".join(f"{matrix.SIGNS[s]} {matrix.SENTENCES[s]}" for s in matrix.SIGNS)
    console.print(f"{legend}; * the op has changed since", highlight=False, soft_wrap=True)
