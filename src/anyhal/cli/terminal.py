"""How the commands print text that files, devices and vendors gave: the only way it gets out.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys
from typing import Any

from anyhal.printable import printable

__all__ = ["cells", "encode_all", "escape", "printable"]


def escape(text: str) -> str:
    """For a table or a console of rich: no control characters, no markup."""
    from rich.markup import escape as without_markup

    return without_markup(printable(text))


def encode_all() -> None:
    """What the terminal's encoding lacks is written as \\uNNNN instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def cells(*texts: Any) -> tuple[str, ...]:
    """A row of a table."""
    return tuple(escape(str(text)) for text in texts)
