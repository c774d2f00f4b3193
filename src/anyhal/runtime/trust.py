"""Who else could change a file before it is opened, and what it holds now.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_LINKS = 40  # as the kernel's own walk


def writable_by_others(path: Path, owner_matters: bool = True) -> str:
    """Who else may replace the file or folder at `path`, as a sentence part, or "".

    Every folder on the way counts, also those in which a link lies. With `owner_matters` so do
    owner and group; without, only the right of everybody: who owns an installed package is the
    interpreter's concern, which runs its code already.
    """
    *way, last = _steps(path)
    for step in (last, *reversed(way)):
        info = step.lstat()
        if owner_matters and info.st_uid not in {0, os.geteuid()}:
            return f"{step} belongs to user {info.st_uid}"
        if stat.S_ISLNK(info.st_mode):
            continue  # it has an owner, but no rights of its own
        # In a sticky folder such as /tmp others cannot replace what is mine.
        sticky = stat.S_ISDIR(info.st_mode) and bool(info.st_mode & stat.S_ISVTX) and step != last
        if info.st_mode & stat.S_IWOTH and not sticky:
            return f"{step} can be written by everybody"
        by_group = info.st_mode & stat.S_IWGRP and info.st_gid not in {0, os.getegid()}
        if owner_matters and by_group and not sticky:
            return f"{step} can be written by group {info.st_gid}"
    return ""


def _steps(path: Path) -> Iterator[Path]:
    """What the system walks over from the root to the file behind all links, that last."""
    rest = list(reversed(path.absolute().parts[1:]))
    at, links = Path("/"), 0
    yield at
    while rest:
        part = rest.pop()
        if part == "..":
            at = at.parent
            continue
        yield at / part
        if not (at / part).is_symlink():
            at = at / part
            continue
        links += 1
        if links > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = Path(os.readlink(at / part))
        at = Path("/") if target.is_absolute() else at
        rest += [part for part in reversed(target.parts) if part != "/"]
    yield at


def hash_of(path: Path) -> str:
    """sha256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
