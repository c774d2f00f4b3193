"""JSON files in the cache folder: believed only where nobody else can have written them, and
replaced as a whole. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from anyhal.runtime.file_rights import is_own
from anyhal.runtime.small_file import read_small_file


def read_kept(path: str | os.PathLike[str], most_bytes: int) -> Any:
    """What the file holds; None where there is none, or none to believe."""
    import json  # who remembers what a file held need not read it

    if not is_own(path):
        return None
    try:
        return json.loads(read_small_file(path, most_bytes).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def write_kept(path: str | os.PathLike[str], data: Any) -> None:
    """Written whole and renamed; a cache that cannot be written costs only time."""
    import json

    part = f"{os.path.splitext(path)[0]}.{os.getpid()}.part"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(part, "x", encoding="utf-8") as file:  # a pipe of that name would block
            file.write(json.dumps(data, indent=1))
        os.replace(part, path)
    except OSError:
        with suppress(OSError):  # its folder may be what is wrong
            os.unlink(part)
