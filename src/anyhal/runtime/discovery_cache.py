"""What was worked out from files, kept for the next process as long as those files stay the same.
SPDX-License-Identifier: Apache-2.0

One file in the cache folder (kept_file.py): rows as `marshal` packs them, which Python keeps its
modules in: no other reader is there at every start. A row has a key, the stamp of its files, and
answers to questions about them: a manifest as parsed, the entry points of installed packages. An
answer is used only while the stamp is what it was. The file is unpacked only where nobody else can
write it and its hash is right.
"""

from __future__ import annotations

import marshal
import os
import time
from _thread import RLock
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from anyhal.records import record
from anyhal.runtime.kept_file import read_kept, write_kept
from anyhal.settings import cache_folder

FILE_NAME = "discovery.bin"
_FORM = f"anyhal-discovery 3.{marshal.version}"
_MOST_BYTES = 8 << 20
_MOST_ROWS = 4096  # a row takes about a kilobyte
# A file that changed so shortly before it was read may change once more within one tick of the file
# system's clock, with the same stamp.
_SETTLED_NS = 2 * 10**9

_Answer = TypeVar("_Answer")


@record
class Stamp:
    """What some files were when they were looked at."""

    text: str
    newest_ns: int  # the last change of any of them


def stamp_of(paths: Iterable[str | os.PathLike[str]], given: str = "") -> Stamp:
    """Of the files and folders themselves, not of what lies in a folder. Taken before the files are
    read. `given` is whatever else the answers depend on."""
    seen, newest = [given], 0
    for path in paths:
        try:
            i = os.stat(path)
        except OSError:
            seen.append("-")
            continue
        seen.append(f"{i.st_dev} {i.st_ino} {i.st_size} {i.st_mtime_ns} {i.st_ctime_ns}")
        newest = max(newest, i.st_mtime_ns, i.st_ctime_ns)
    return Stamp("|".join(seen), newest)


_Row = tuple[str, dict[str, Any]]  # the text of a stamp, and answers by question


class _Kept:
    """The file's rows, packed until this process asks for one: of what others left nothing is made
    that the collector would have to walk over."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.packed = _read(path)
        self.used: dict[str, None] = {}  # keys
        self.changed = False

    def row(self, key: str) -> _Row:
        self.used[key] = None
        return _row_of(self.packed.get(key))


def _row_of(packed: bytes | None) -> _Row:
    try:
        stamp, answers = marshal.loads(packed or b"")
    except (EOFError, ValueError, TypeError):  # none, or of another form
        return "", {}
    return (stamp, answers) if isinstance(answers, dict) else ("", {})


_kept: _Kept | None = None
_lock = RLock()


def remember(key: str, stamp: Stamp, question: str, answer: Callable[[], _Answer]) -> _Answer:
    """The answer kept under `key` for files of that stamp, else what `answer` gives now.

    Answers are text, numbers, lists, dicts; what `marshal` does not take is not kept. A question
    whose answer changes its form needs another name.
    """
    with _lock:
        kept = _of_now()
        text, answers = kept.row(key)
        if text == stamp.text and question in answers:
            found: _Answer = answers[question]
            return found
    made = answer()
    if time.time_ns() - stamp.newest_ns < _SETTLED_NS:
        return made
    with _lock, suppress(ValueError):  # of marshal: a date of TOML
        text, answers = kept.row(key)
        row = stamp.text, {**(answers if text == stamp.text else {}), question: made}
        kept.packed[key] = marshal.dumps(row)
        kept.changed = True
    return made


def begin() -> None:
    """Takes the file of the cache folder as it is named now; discovery starts with it."""
    global _kept
    with _lock:
        path = f"{cache_folder()}/{FILE_NAME}"
        if _kept is None or _kept.path != path:
            _kept = _Kept(path)


def save() -> None:
    """Writes what was added, whole, and renamed into place; nothing when nothing was."""
    with _lock:
        kept = _of_now()
        if not kept.changed:
            return
        kept.changed = False
        _write(kept.path, _bounded(kept))


def _of_now() -> _Kept:
    if _kept is None:
        begin()
    assert _kept is not None
    return _kept


def _read(path: str) -> dict[str, bytes]:
    """Packed rows by their key."""
    rows = read_kept(path, _FORM, _MOST_BYTES)
    found = marshal.loads(rows) if rows else {}
    return found if isinstance(found, dict) else {}


def _bounded(kept: _Kept) -> dict[str, bytes]:
    """The rows that this process used, and of the others as many as there is room for."""
    mine = [key for key in kept.used if key in kept.packed]
    others = [key for key in kept.packed if key not in kept.used]
    return {key: kept.packed[key] for key in [*mine, *others][:_MOST_ROWS]}


def _write(path: str, rows: dict[str, bytes]) -> None:
    data = marshal.dumps(rows)
    if len(data) <= _MOST_BYTES - 128:
        write_kept(path, _FORM, data)
