"""The calls that were explained in this process, with every answer, and the file they go to.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
from _thread import allocate_lock
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from anyhal.errors import InvalidArgumentError
from anyhal.routing.facts import CallFact, Candidate

_KEPT = 1024  # calls; the oldest goes first
_calls: dict[str, tuple[CallFact, tuple[Candidate, ...]]] = {}
_lock = allocate_lock()


def add(call: CallFact, asked: Sequence[Candidate]) -> None:
    with _lock:
        _calls.pop(call.key, None)
        _calls[call.key] = (call, tuple(asked))
        while len(_calls) > _KEPT:
            del _calls[next(iter(_calls))]


def calls() -> list[tuple[CallFact, tuple[Candidate, ...]]]:
    with _lock:
        return list(_calls.values())


def write(path: str | os.PathLike[str], data: Mapping[str, Any]) -> None:
    """As JSON, whole or not at all."""
    import json  # most processes write none
    from pathlib import Path

    target = Path(path)
    part = target.parent / f".{target.name}.{os.getpid()}.part"
    try:
        part.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(part, target)
    except (OSError, ValueError) as why:  # ValueError: a name with NUL
        with suppress(OSError, ValueError):
            part.unlink()
        said = (getattr(why, "strerror", None) or str(why)).lower()
        raise InvalidArgumentError(
            f"writing facts to {target}: {said}; choose a file that can be written"
        ) from None
