"""Sentences on stderr, as loud as ANYHAL_LOG allows; the core and backends have their own.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import sys

from anyhal import settings
from anyhal.printable import printable

_said: set[str] = set()


def say(level: str, sentence: str) -> None:
    """Prints it once per process when `level` (of settings.LOG_LEVELS) is loud enough."""
    loud = settings.LOG_LEVELS.index
    if loud(level) < loud(settings.LOG.read()) or sentence in _said or sys.stderr is None:
        return
    _said.add(sentence)
    with contextlib.suppress(OSError):
        print(f"anyhal: {level}: {printable(sentence)}", file=sys.stderr)
