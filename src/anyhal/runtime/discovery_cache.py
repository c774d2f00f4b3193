"""What was worked out from files, kept for the next process as long as those files stay the same.
SPDX-License-Identifier: Apache-2.0

One file in the cache folder (kept_file.py), a line per row, its parts in JSON. A row has a key, the
stamp of its files, and answers to questions about them: a manifest as parsed, the entry points of
installed packages. An answer is used only while the stamp is what it was.
"""

from __future__ import annotations

import json
import os
import time
from _thread import RLock
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from anyhal.records import record
from anyhal.runtime.kept_file import read_kept, write_kept
from anyhal.settings import cache_folder

FILE_NAME = "discovery.json"
_FORM = "anyhal-discovery 2"
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
    """The file's lines, and the rows of which this process asked or that it added: a program takes
    apart no line that others left."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = _read(path)
        self.rows: dict[str, _Row] = {}
        self.changed = False

    def row(self, key: str) -> _Row:
        found = self.rows.get(key)
        if found is None:
            found = self.rows[key] = _row_of(self.lines.get(json.dumps(key), ""))
        return found


def _row_of(line: str) -> _Row:
    try:
        stamp, answers = json.loads(line or '["", {}]')
    except (ValueError, TypeError):
        return "", {}
    return (stamp, answers) if isinstance(answers, dict) else ("", {})


_kept: _Kept | None = None
_lock = RLock()


def remember(key: str, stamp: Stamp, question: str, answer: Callable[[], _Answer]) -> _Answer:
    """The answer kept under `key` for files of that stamp, else what `answer` gives now.

    Answers are what JSON holds: text, numbers, lists, dicts with text keys; others are not kept. A
    question whose answer changes its form needs another name.
    """
    with _lock:
        kept = _of_now()
        text, answers = kept.row(key)
        if text == stamp.text and question in answers:
            found: _Answer = answers[question]
            return found
    made = answer()
    if time.time_ns() - stamp.newest_ns < _SETTLED_NS or not _is_json(made):
        return made
    with _lock:
        text, answers = kept.row(key)
        kept.rows[key] = (stamp.text, {**(answers if text == stamp.text else {}), question: made})
        kept.changed = True
    return made


def _is_json(made: object) -> bool:
    try:
        json.dumps(made)
    except (TypeError, ValueError):  # a date of TOML; NaN would be none either, and comes back
        return False
    return True


def begin() -> None:
    """Takes the file of the cache folder as it is named now; discovery starts with it."""
    global _kept
    with _lock:
        path = cache_folder() / FILE_NAME
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


def _read(path: Path) -> dict[str, str]:
    """Lines by their key."""
    content = read_kept(path, _FORM, _MOST_BYTES)
    try:
        lines = [line.partition("\t") for line in (content or b"").decode("ascii").split("\n")]
    except ValueError:
        return {}
    return {key: line for key, _, line in lines}


def _bounded(kept: _Kept) -> dict[str, str]:
    """The rows that this process used, and of the others as many as there is room for."""
    mine = {json.dumps(key): json.dumps(row) for key, row in kept.rows.items() if row[1]}
    others = {key: line for key, line in kept.lines.items() if key not in mine}
    return dict([*mine.items(), *others.items()][:_MOST_ROWS])


def _write(path: Path, lines: dict[str, str]) -> None:
    text = "\n".join(f"{key}\t{line}" for key, line in lines.items()).encode()
    if len(text) <= _MOST_BYTES - 64:
        write_kept(path, _FORM, text)
