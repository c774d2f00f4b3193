"""Who else may replace a file: the rights of everything on the way to it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import errno
import os
import stat

_LINKS = 40  # as the kernel's own walk
_Writers = tuple[str, str]  # the sentence part with regard to owner and group, and without
_Way = tuple[str, _Writers, os.stat_result]


class Rights:
    """One look at the disk: what was asked of the system once is not asked again, so that many
    files of one folder cost little. Made anew for each question that must see the disk as it is."""

    def __init__(self) -> None:
        root = os.lstat("/")
        # By path as it was given: where it leads behind all links, who stands on the way, with and
        # without regard to owners, and what lies there.
        self._ways: dict[str, _Way] = {"/": ("/", _other_writers("/", root, last=False), root)}

    def writable_by_others(self, path: str | os.PathLike[str], owner_matters: bool = True) -> str:
        """Who else may replace the file or folder at `path`, as a sentence part, or "".

        Every folder on the way counts, also those in which a link lies. With `owner_matters` so do
        owner and group; without, only the right of everybody: who owns an installed package is the
        interpreter's concern, which runs its code already.
        """
        last, on_the_way, info = self._at(path)
        which = 0 if owner_matters else 1
        return _other_writers(last, info, last=True)[which] or on_the_way[which]

    def resolved(self, path: str | os.PathLike[str]) -> str:
        """The file or folder behind all links; OSError where there is none."""
        return self._at(path)[0]

    def found(self, path: str | os.PathLike[str]) -> os.stat_result:
        """What lies there, behind all links; OSError where nothing does."""
        return self._at(path)[2]

    def _at(self, path: str | os.PathLike[str]) -> _Way:
        return self._ways.get(os.fspath(path)) or self._way(_absolute(path))

    def _way(self, path: str, links: int = 0) -> _Way:
        """What the system walks over on its way to `path`, and through the links there."""
        found = self._ways.get(path)
        if found is not None:
            return found
        folder, _, name = path.rpartition("/")
        real, writers, info = self._way(folder or "/", links)
        if name in ("", "."):
            return real, writers, info
        if name == "..":
            real = os.path.dirname(real)
            return real, writers, os.lstat(real)
        here = f"{real.rstrip('/')}/{name}"
        info = os.lstat(here)
        writers = _first(_other_writers(here, info, last=False), writers)
        if stat.S_ISLNK(info.st_mode):
            if links >= _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            here, behind, info = self._way(os.path.join(real, os.readlink(here)), links + 1)
            writers = _first(behind, writers)
        found = self._ways[path] = here, writers, info
        return found


def _first(near: _Writers, far: _Writers) -> _Writers:
    return near[0] or far[0], near[1] or far[1]


def _other_writers(path: str, info: os.stat_result, last: bool) -> _Writers:
    """Who else may replace what lies at `path`; `last` where that is the thing asked about."""
    owner = ""
    if info.st_uid not in {0, os.geteuid()}:
        owner = f"{path} belongs to user {info.st_uid}"
    if stat.S_ISLNK(info.st_mode):
        return owner, ""  # it has an owner, but no rights of its own
    # In a sticky folder such as /tmp others cannot replace what is mine.
    if not last and stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX:
        return owner, ""
    everybody = f"{path} can be written by everybody" if info.st_mode & stat.S_IWOTH else ""
    if info.st_mode & stat.S_IWGRP and info.st_gid not in {0, os.getegid()}:
        group = f"{path} can be written by group {info.st_gid}"
        return owner or everybody or group, everybody
    return owner or everybody, everybody


def writable_by_others(path: str | os.PathLike[str], owner_matters: bool = True) -> str:
    """`Rights.writable_by_others` as of now."""
    return Rights().writable_by_others(path, owner_matters)


def is_own(path: str | os.PathLike[str]) -> bool:
    """Whether there is a file that nobody else can have written, or put where it lies."""
    rights = Rights()
    try:
        folder = os.path.dirname(path)
        return not (rights.writable_by_others(folder) or rights.writable_by_others(path))
    except OSError:
        return False


def _absolute(path: str | os.PathLike[str]) -> str:
    """From the root; `..` stays, for behind a link it leads elsewhere than the text says."""
    text = os.fspath(path)
    text = text if text.startswith("/") else os.path.join(os.getcwd(), text)
    return text.rstrip("/") or "/"
