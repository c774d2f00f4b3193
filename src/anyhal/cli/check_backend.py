"""anyhal check-backend: the check list of a backend in a folder, line by line.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from anyhal.cli.terminal import printable


def check_backend(
    folder: Annotated[Path, typer.Argument(help="The backend's folder, which holds backend.toml.")],
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="How long it may take for one answer.")
    ] = 60,
) -> int:
    """Put a backend to its check list: known answers of all it declares, refusals, second calls."""
    from anyhal import settings
    from anyhal.errors import InvalidArgumentError
    from anyhal.runtime.manifest import FILE_NAME, ManifestError, read_manifest
    from anyhal.sdk.checking import check

    try:
        name = read_manifest(folder / FILE_NAME).name
    except (OSError, ManifestError) as why:
        raise InvalidArgumentError(f"checking the backend in {folder}: {why}") from None
    os.environ[settings.BACKEND_PATH.name] = str(folder.resolve())
    failures = 0
    for line in check(name, seconds):
        if isinstance(line, str):
            print(printable(line), flush=True)
            continue
        failures += bool(line.failed)
        mark = f"failed: {printable(line.failed)}" if line.failed else f"ok ({line.count})"
        print(f"  {line.check}: {mark}", flush=True)
    print(f"{failures} failed" if failures else "all hold")
    return 1 if failures else 0
