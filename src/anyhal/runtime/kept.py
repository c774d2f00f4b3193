"""What anyhal keeps on disk between processes: one table of parts, and how a part is emptied.
SPDX-License-Identifier: Apache-2.0

All of it can be made again, a baseline while its library exists. A part is a folder (or one file)
of the cache folder together with the names that anyhal gives to files there. Only regular files of
such names that belong to this user are counted as its own and taken away; links are neither
followed nor removed, and folders stay, since another process may be about to write into them. What
another process has open or mapped keeps its content until it lets go. A part with a lock is left
alone while somebody holds it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from anyhal import settings
from anyhal.errors import NotFoundError
from anyhal.printable import get_close_matches

_UNFINISHED_S = 3600.0  # a file under its temporary name is a live writer's until then
_DEEPEST = 8  # folders below a part


@dataclass(frozen=True)
class Part:
    """A row. `names` matches whole paths below the part's folder, or the file's own name;
    `unfinished` those of files that are still being written, taken away when old."""

    name: str
    place: str  # below the cache folder
    names: str
    purpose: str
    cost: str  # what clearing it costs
    unfinished: str = r"(?!)"
    is_file: bool = False
    lock: str = ""  # held by who writes there
    locks: str = r"(?!)"  # files that others wait on: they stay, and nobody needs to know
    head: bytes = b""  # how its files begin


PARTS: tuple[Part, ...] = (
    Part(
        "artefacts",
        "artefacts",
        r"[^/]+/[0-9a-f]{16}\.bin",
        "programs that backends compiled for a device",
        "compiled again at first use",
        unfinished=r"[^/]+/[0-9a-f]{16}\.bin\.part\d+\.\d+",
    ),
    Part(
        "baselines",
        "baselines",
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\.json|[0-9a-f]{64}\.so",
        "libraries and speeds that anyhal bench --save kept",
        "the builds cannot be compared against any more",
        unfinished=r"\.[^/]+\.part",
    ),
    Part(
        "certify",
        "certify",
        r"[0-9a-f]{32}\.jsonl",
        "cases that interrupted runs of anyhal certify found",
        "such a run begins again",
    ),
    Part(
        "discovery",
        "discovery.bin",
        r"discovery\.bin",
        "what was found and checked of backends",
        "read from the backends' folders again",
        unfinished=r"discovery\.\d+\.part",
        is_file=True,
        head=b"anyhal-discovery ",
    ),
    Part(
        "models",
        "models",
        # By name, so that a model which the user put there himself stays.
        r"SmolLM2-135M-Instruct\.Q4_1\.gguf",
        "language models that were fetched by name",
        "fetched again when named",
        unfinished=r"\.partial-[^/]+/.+",
        lock=".lock",
    ),
    Part(
        "mutants",
        "mutants",
        r"[0-9a-f]{32}\.o",
        "compiled sources of the self-test of certification",
        "compiled again at the next one",
        unfinished=r"[0-9a-f]{32}\.o\.\d+\.part",
    ),
    Part(
        "probe",
        "probe",
        r"[0-9a-f]{32}\.json",
        "how libraries of strangers behaved at first contact",
        "each is met again in a process of its own",
        unfinished=r"[0-9a-f]{32}\.\d+\.part",
        locks=r"[0-9a-f]{32}\.lock",
    ),
    Part(
        "registry",
        "registry.tsv",
        r"registry\.tsv",
        "where C programs find backends",
        "C programs find none until anyhal devices --write-registry",
        unfinished=r"registry\.tsv\.\d+\.part",
        is_file=True,
        head=b"anyhal-registry\t",
    ),
    Part(
        "selftest",
        "selftest",
        r"[0-9a-f]{32}\.json",
        "verdicts of the self-test",
        "each op is tested again before its first use",
        unfinished=r"[0-9a-f]{32}\.\d+\.part",
        locks=r"[0-9a-f]{32}\.lock",
    ),
    Part(
        "smoke",
        "smoke",
        r"[0-9a-f]{32}\.json",
        "what the smoke set said of certified backends with drivers that they do not know",
        "the smoke set runs again, some seconds each",
        unfinished=r"[0-9a-f]{32}\.\d+\.part",
        locks=r"[0-9a-f]{32}\.lock",
    ),
)


@dataclass
class Content:
    """What a part holds now; `notes` are sentences on what was found there and left alone."""

    part: Part
    path: Path
    files: list[str] = field(default_factory=list)  # below `path`, or its own name
    nbytes: int = 0
    notes: list[str] = field(default_factory=list)


def part(name: str) -> Part:
    """The row of that name; NotFoundError suggests the nearest."""
    found = next((row for row in PARTS if row.name == name), None)
    if found is None:
        names = [row.name for row in PARTS]
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
        raise NotFoundError(f"no part of the cache is called {name!r}; {hint}")
    return found


def content(row: Part) -> Content:
    """What is there now. A part that cannot be read says so in its notes."""
    found = Content(row, Path(settings.cache_folder(), row.place))
    for name, _, info in _files(row, found):
        found.files.append(name)
        found.nbytes += info.st_size
    return found


def clear(row: Part) -> tuple[int, int, list[str]]:
    """Empties the part: (files removed, their bytes, sentences on what could not be removed)."""
    found = Content(row, Path(settings.cache_folder(), row.place))
    failures: list[str] = []
    removed = nbytes = 0
    with _locked(row, found.path) as free:
        if not free:
            return 0, 0, [f"{found.path}: another process is writing there; clear it afterwards"]
        for name, folder, info in _files(row, found):
            try:
                os.unlink(os.path.basename(name), dir_fd=folder)
            except FileNotFoundError:
                continue  # somebody else cleared it
            except OSError as why:
                failures.append(f"{found.path}: {name}: {(why.strerror or str(why)).lower()}")
                continue
            removed, nbytes = removed + 1, nbytes + info.st_size
    return removed, nbytes, failures


@contextmanager
def _locked(row: Part, path: Path) -> Iterator[bool]:
    """Whether nobody writes there, and nobody starts to until the end."""
    try:
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(path / row.lock, flags) if row.lock else -1
    except OSError:
        handle = -1  # nobody ever wrote there, or nobody can
    try:
        if handle >= 0:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        if handle >= 0:
            os.close(handle)


def _files(row: Part, found: Content) -> Iterator[tuple[str, int, os.stat_result]]:
    """(name below the part, descriptor of its folder, its state) of each file that is ours."""
    try:
        # The cache folder may be a link: the user chose it. What lies in it may not.
        top = os.open(settings.cache_folder(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as why:
        _note(found, why)
        return
    try:
        if row.is_file:
            yield from _own(row, found, "", os.dup(top), 0)
            return
        try:
            yield from _own(row, found, "", _open_folder(row.place, top), _DEEPEST)
        except OSError as why:
            _note(found, why, str(found.path))
    finally:
        os.close(top)


def _open_folder(name: str, beside: int) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(name, flags, dir_fd=beside)


def _own(
    row: Part, found: Content, above: str, folder: int, deeper: int
) -> Iterator[tuple[str, int, os.stat_result]]:
    """Walks one open folder, which is closed at the end."""
    try:
        for name in sorted(os.listdir(folder)):
            path = above + name
            try:
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode) and deeper:
                    yield from _own(row, found, path + "/", _open_folder(name, folder), deeper - 1)
                elif _is_own(row, path, info, folder):
                    yield path, folder, info
                elif deeper and path != row.lock and not re.fullmatch(row.locks, path):
                    found.notes.append(f"left alone: {path}, {_kind(info)}")
            except FileNotFoundError:
                continue  # gone since
            except OSError as why:
                _note(found, why, path)
    finally:
        os.close(folder)


def _is_own(row: Part, path: str, info: os.stat_result, folder: int) -> bool:
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
        return False
    if re.fullmatch(row.unfinished, path):
        return time.time() - info.st_mtime > _UNFINISHED_S
    if not re.fullmatch(row.names, path):
        return False
    if not row.head:
        return True
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    handle = os.open(os.path.basename(path), flags, dir_fd=folder)
    try:
        return os.read(handle, len(row.head)) == row.head
    finally:
        os.close(handle)


def _kind(info: os.stat_result) -> str:
    if stat.S_ISLNK(info.st_mode):
        return "a link"
    if not stat.S_ISREG(info.st_mode):
        return "no regular file"
    if info.st_uid != os.geteuid():
        return f"which belongs to user {info.st_uid}"
    return "which anyhal did not write, or is writing"


def _note(found: Content, why: OSError, where: str = "") -> None:
    if why.errno == errno.ENOENT:
        return  # nothing was kept yet
    # Linux says "not a directory" of a link that was not to be followed.
    said = "it is a link or no folder" if why.errno in (errno.ENOTDIR, errno.ELOOP) else ""
    reason = said or (why.strerror or str(why)).lower()
    found.notes.append(f"left alone: {where or settings.cache_folder()}: {reason}")
