"""JSON files in the cache folder: believed only where nobody else can have written them, and
replaced as a whole. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from anyhal.runtime.file_rights import writable_by_others
from anyhal.runtime.small_file import read_small_file


def read_kept(path: Path, most_bytes: int) -> Any:
    """What the file holds; None where there is none, or none to believe."""
    try:
        if writable_by_others(path.parent) or writable_by_others(path):
            return None
        return json.loads(read_small_file(path, most_bytes).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def write_kept(path: Path, data: Any) -> None:
    """Written whole and renamed; a cache that cannot be written costs only time."""
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("x", encoding="utf-8") as file:  # a pipe of that name would block
            file.write(json.dumps(data, indent=1))
        os.replace(part, path)
    except OSError:
        with suppress(OSError):  # its folder may be what is wrong
            part.unlink()
