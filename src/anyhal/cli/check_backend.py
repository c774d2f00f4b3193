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
) -> int:
    """Put a backend to its check list: known answers of all it declares, refusals, second calls."""
    from anyhal import settings

    os.environ[settings.BACKEND_PATH.name] = str(folder.resolve())  # before anything is found
    from anyhal.errors import InvalidArgumentError
    from anyhal.runtime import device as devices
    from anyhal.runtime.manifest import FILE_NAME, ManifestError, read_manifest
    from anyhal.sdk.checklist import check_device

    try:
        name = read_manifest(folder / FILE_NAME).name
    except (OSError, ManifestError) as why:
        raise InvalidArgumentError(f"checking the backend in {folder}: {why}") from None
    # Under a name of its own: an instance that was asked for is never deferred or absent.
    found = devices.load_backend(name, instance=f"{name[:40]}_checked")
    if not found:
        raise InvalidArgumentError(
            f"checking the backend in {folder}: it was loaded and has no device; connect one"
        )
    failures = 0
    for device in found:
        print(f"{device.name} ({printable(str(device.native.record['name']))})")
        for line in check_device(device):
            failures += bool(line.failed)
            mark = f"failed: {printable(line.failed)}" if line.failed else f"ok ({line.count})"
            print(f"  {line.check}: {mark}")
    print(f"{failures} failed" if failures else "all hold")
    return 1 if failures else 0
