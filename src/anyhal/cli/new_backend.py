"""anyhal new-backend: a folder with the smallest real backend, to begin from.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anyhal.cli.terminal import printable


def new_backend(
    name: Annotated[str, typer.Argument(help="Its name: one lower-case word.")],
    language: Annotated[str, typer.Option(help="c, cpp or python.")] = "c",
    into: Annotated[Path, typer.Option(help="The folder in which the new one is made.")] = Path(),
) -> None:
    """Write the smallest real backend into a new folder; it builds and passes its check list."""
    from anyhal.sdk import scaffold

    folder = scaffold.new_backend(name, language, into)
    print(printable(f"made {folder}:"))
    for path in sorted(folder.iterdir()):
        print(f"  {path.name}")
    build = "" if language == "python" else "make && "
    print(printable(f"next: cd {folder} && {build}anyhal check-backend ."))
