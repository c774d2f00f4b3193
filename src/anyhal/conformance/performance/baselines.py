"""Libraries kept under a name to compare later builds with: by hash, with what belongs to them.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from anyhal import _core
from anyhal.errors import InvalidArgumentError, NotFoundError
from anyhal.printable import get_close_matches
from anyhal.records import record
from anyhal.runtime.file_rights import writable_by_others
from anyhal.settings import cache_folder

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@record
class Baseline:
    """An archived library: what it is called, whose it is, and the bench figures of its day."""

    name: str
    backend: str
    library: Path
    sha256: str
    saved: str  # date, UTC
    bench: dict[str, Any]


def folder() -> Path:
    return Path(cache_folder()) / "baselines"


def save(name: str, backend: str, library: Path, bench: dict[str, Any]) -> Baseline:
    """Archives the library; a baseline of that name is replaced as a whole."""
    import datetime

    check_name(name)
    data = library.read_bytes()
    sha256 = _core.sha256(data)
    place = folder()
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write(place / f"{sha256}.so", data)
    saved = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    words = {"schema": 1, "backend": backend, "sha256": sha256, "saved": saved, "bench": bench}
    _write(place / f"{name}.json", (json.dumps(words, indent=1) + "\n").encode())
    return load(name)


def load(name: str) -> Baseline:
    """NotFoundError names the nearest known one; a file that was changed is refused."""
    check_name(name)
    file = folder() / f"{name}.json"
    try:
        words = json.loads(file.read_text(encoding="utf-8"))
        found = Baseline(
            name,
            str(words["backend"]),
            folder() / f"{words['sha256']}.so",
            str(words["sha256"]),
            str(words["saved"]),
            dict(words["bench"]),
        )
    except FileNotFoundError:
        known = sorted(f.stem for f in folder().glob("*.json"))
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else "make one with anyhal bench --save"
        raise NotFoundError(f"comparing with {name!r}: no baseline has that name; {hint}") from None
    except (OSError, ValueError, KeyError, TypeError) as why:
        raise InvalidArgumentError(
            f"reading the baseline {file}: {why}; make it again with anyhal bench --save {name}"
        ) from None
    for one in (folder(), found.library):
        if writer := writable_by_others(one):
            raise InvalidArgumentError(
                f"comparing with {name!r}: {writer}; take that right away (chmod go-w)"
            )
    try:
        whole = _core.sha256(found.library.read_bytes()) == found.sha256
    except OSError:
        whole = False
    if not whole:
        raise InvalidArgumentError(
            f"comparing with {name!r}: its library {found.library} is missing or was changed; make"
            f" it again with anyhal bench --save {name}"
        )
    return found


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"naming a baseline: {name!r} is no name; use letters, digits, '.', '_' and '-', at"
            " most 64"
        )


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    number, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
