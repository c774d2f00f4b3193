"""`anyhal backend`: for those who make one.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from anyhal.cli.terminal import escape


def backend(
    action: Annotated[str, typer.Argument(help="lint: look for mistakes.")],
    path: Annotated[Path, typer.Argument(help="The backend's folder.", metavar="PATH")],
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Look at a backend's folder without opening its library: manifest, symbols, what it needs.

    Exit status 1 when something is wrong.
    """
    if action != "lint":
        raise typer.BadParameter(f"{action!r} is no action of `anyhal backend`; write lint")
    from rich.console import Console

    from anyhal.runtime.lint import lint

    found = lint(path.resolve())
    if json_:
        rows: list[dict[str, Any]] = [
            {
                "file": f.file,
                "code": f.code,
                "detail": f.detail,
                "hint": f.hint,
                "wrong": not f.absent,
            }
            for f in found
        ]
        print(json.dumps({"schema": 1, "path": str(path.resolve()), "findings": rows}))
    else:
        console = Console(soft_wrap=True)
        for f in found:
            note = "note: " if f.absent else ""
            said = f"{note}{f.file}: {f.detail}; {f.hint} ({f.code})"
            console.print(escape(said), highlight=False)
        if not found:
            console.print(escape(f"{path}: nothing to say"), highlight=False)
    return 0 if all(f.absent for f in found) else 1
