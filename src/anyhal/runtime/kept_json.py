"""JSON in a file of the cache folder (kept_file.py). SPDX-License-Identifier: Apache-2.0

Its reader is imported when a file is read: who remembers what one held need not read it.
"""

from __future__ import annotations

import os
from typing import Any

from anyhal.runtime.kept_file import doubt, read_kept, write_kept


def read_kept_json(path: str | os.PathLike[str], form: str, most_bytes: int) -> Any:
    """What the file holds; None where there is none, or none to believe."""
    import json

    content = read_kept(path, form, most_bytes)
    if content is None:
        return None
    try:
        return json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        doubt(path, "it holds no JSON")
        return None


def write_kept_json(path: str | os.PathLike[str], form: str, data: Any) -> None:
    """A cache that cannot be written costs only time."""
    import json

    write_kept(path, form, json.dumps(data, indent=1).encode())
