"""Who else may replace a file: the rights of everything on the way to it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

_LINKS = 40  # as the kernel's own walk


class Rights:
    """One look at the disk: what was asked of the system once is not asked again, so that many
    files of one folder cost little. Made anew for each question that must see the disk as it is."""

    def __init__(self) -> None:
        self._seen: dict[str, os.stat_result] = {}

    def writable_by_others(self, path: str | os.PathLike[str], owner_matters: bool = True) -> str:
        """Who else may replace the file or folder at `path`, as a sentence part, or "".

        With `owner_matters` every folder on the way counts, also those in which a link lies, and so
        do owner and group; without, only the right of everybody to write the thing itself: who owns
        an installed package is the interpreter's concern, which runs its code already.
        """
        if not owner_matters:
            everybody = os.stat(path).st_mode & stat.S_IWOTH
            return f"{path} can be written by everybody" if everybody else ""
        *way, last = self._steps(os.fspath(path))
        for step in (last, *reversed(way)):
            info = self._lstat(step)
            if info.st_uid not in {0, os.geteuid()}:
                return f"{step} belongs to user {info.st_uid}"
            if stat.S_ISLNK(info.st_mode):
                continue  # it has an owner, but no rights of its own
            # In a sticky folder such as /tmp others cannot replace what is mine.
            sticky = (
                stat.S_ISDIR(info.st_mode) and bool(info.st_mode & stat.S_ISVTX) and step != last
            )
            if info.st_mode & stat.S_IWOTH and not sticky:
                return f"{step} can be written by everybody"
            if info.st_mode & stat.S_IWGRP and info.st_gid not in {0, os.getegid()} and not sticky:
                return f"{step} can be written by group {info.st_gid}"
        return ""

    def resolved(self, path: str | os.PathLike[str]) -> str:
        """The file or folder behind all links; OSError where there is none."""
        for step in self._steps(os.fspath(path)):
            last = step
        self._lstat(last)
        return last

    def _lstat(self, path: str) -> os.stat_result:
        found = self._seen.get(path)
        if found is None:
            found = self._seen[path] = os.lstat(path)
        return found

    def _is_link(self, path: str) -> bool:
        try:
            return stat.S_ISLNK(self._lstat(path).st_mode)
        except FileNotFoundError:
            return False

    def _steps(self, path: str) -> Iterator[str]:
        """What the system walks over from the root to the file behind all links, that last."""
        rest = _parts(path if os.path.isabs(path) else os.path.join(os.getcwd(), path))
        at, links = "/", 0
        yield at
        while rest:
            part = rest.pop()
            if part == "..":
                at = os.path.dirname(at)
                continue
            here = os.path.join(at, part)
            yield here
            if not self._is_link(here):
                at = here
                continue
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(here)
            at = "/" if os.path.isabs(target) else at
            rest += _parts(target)
        yield at


def writable_by_others(path: str | os.PathLike[str], owner_matters: bool = True) -> str:
    """`Rights.writable_by_others` as of now."""
    return Rights().writable_by_others(path, owner_matters)


def _parts(path: str) -> list[str]:
    """The names of a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]
