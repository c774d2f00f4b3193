"""Who else may replace a file: the rights of everything on the way to it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import errno
import os
import stat

_LINKS = 40  # as the kernel's own walk


class Rights:
    """One look at the disk: what was asked of the system once is not asked again, so that many
    files of one folder cost little. Made anew for each question that must see the disk as it is."""

    def __init__(self) -> None:
        # By path as it was given: where it leads behind all links, and who stands on the way.
        self._ways = {"/": ("/", _other_writer("/", os.lstat("/"), last=False))}

    def writable_by_others(self, path: str | os.PathLike[str], owner_matters: bool = True) -> str:
        """Who else may replace the file or folder at `path`, as a sentence part, or "".

        With `owner_matters` every folder on the way counts, also those in which a link lies, and so
        do owner and group; without, only the right of everybody to write the thing itself: who owns
        an installed package is the interpreter's concern, which runs its code already.
        """
        if not owner_matters:
            everybody = os.stat(path).st_mode & stat.S_IWOTH
            return f"{path} can be written by everybody" if everybody else ""
        last, on_the_way = self._way(_absolute(path))
        return _other_writer(last, os.lstat(last), last=True) or on_the_way

    def resolved(self, path: str | os.PathLike[str]) -> str:
        """The file or folder behind all links; OSError where there is none."""
        return self._way(_absolute(path))[0]

    def _way(self, path: str, links: int = 0) -> tuple[str, str]:
        """What the system walks over on its way to `path`, and through the links there."""
        found = self._ways.get(path)
        if found is not None:
            return found
        folder, name = os.path.split(path)
        real, writer = self._way(folder, links)
        if name in ("", "."):
            return real, writer
        if name == "..":
            return os.path.dirname(real), writer
        here = f"{real.rstrip('/')}/{name}"
        info = os.lstat(here)
        writer = _other_writer(here, info, last=False) or writer
        if stat.S_ISLNK(info.st_mode):
            if links >= _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            here, behind = self._way(os.path.join(real, os.readlink(here)), links + 1)
            writer = behind or writer
        self._ways[path] = here, writer
        return here, writer


def _other_writer(path: str, info: os.stat_result, last: bool) -> str:
    """Who else may replace what lies at `path`; `last` where that is the thing asked about."""
    if info.st_uid not in {0, os.geteuid()}:
        return f"{path} belongs to user {info.st_uid}"
    if stat.S_ISLNK(info.st_mode):
        return ""  # it has an owner, but no rights of its own
    # In a sticky folder such as /tmp others cannot replace what is mine.
    if not last and stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX:
        return ""
    if info.st_mode & stat.S_IWOTH:
        return f"{path} can be written by everybody"
    if info.st_mode & stat.S_IWGRP and info.st_gid not in {0, os.getegid()}:
        return f"{path} can be written by group {info.st_gid}"
    return ""


def writable_by_others(path: str | os.PathLike[str], owner_matters: bool = True) -> str:
    """`Rights.writable_by_others` as of now."""
    return Rights().writable_by_others(path, owner_matters)


def _absolute(path: str | os.PathLike[str]) -> str:
    """From the root; `..` stays, for behind a link it leads elsewhere than the text says."""
    text = os.fspath(path)
    text = text if os.path.isabs(text) else os.path.join(os.getcwd(), text)
    return text.rstrip("/") or "/"
