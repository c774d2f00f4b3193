"""Files of the cache folder that are whole or count for nothing: form and hash, then the content.
SPDX-License-Identifier: Apache-2.0

A file is believed only where nobody else can have written it, and replaced as a whole. Losing one
costs only time, but in each process anew: so what keeps a file from being read or written is said
on stderr.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress

from anyhal import _core
from anyhal.runtime.file_rights import Rights
from anyhal.runtime.log import say
from anyhal.runtime.small_file import read_small_file

_NOTHING = (errno.ENOENT, errno.ENOTDIR)  # to read; of the second the writer tells
_told: set[object] = set()  # why writing failed and who else may write: once per process


def head_of(form: str, content: bytes) -> bytes:
    """The first line: what follows is whole, and of the form that this version writes."""
    return f"{form} {_core.sha256(content)}".encode()


def read_kept(path: str | os.PathLike[str], form: str, most_bytes: int) -> bytes | None:
    """The content; None where there is none, or none to believe."""
    rights = Rights()
    try:
        writer = rights.writable_by_others(os.path.dirname(path)) or rights.writable_by_others(path)
        if writer:
            if writer not in _told:
                doubt(path, f"{writer}, so that others may have written it", "take that right away")
            _told.add(writer)
            return None
        head, _, content = read_small_file(path, most_bytes).partition(b"\n")
    except OSError as why:
        if why.errno not in _NOTHING:
            doubt(path, (why.strerror or str(why)).lower())
        return None
    if head == head_of(form, content):
        return content
    kind = form.rpartition(" ")[0].encode()
    if head.startswith(kind) and not head.startswith(form.encode()):
        say("info", f"{path} is of another version and is written anew")
    else:
        doubt(path, "it is damaged")
    return None


def doubt(
    path: str | os.PathLike[str], why: str, cure: str = "remove it if this comes again"
) -> None:
    """Says that the file counts for nothing."""
    say("warning", f"{path} is not used: {why}; what it held is worked out again; {cure}")


def write_kept(path: str | os.PathLike[str], form: str, content: bytes) -> None:
    """Written whole and renamed; a cache that cannot be written costs only time."""
    # Not by the process alone: in another container another one has the same number.
    part = f"{os.path.splitext(path)[0]}.{os.getpid()}{time.monotonic_ns()}.part"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # O_EXCL: a pipe of that name would block.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(part, flags, 0o600), "wb") as file:
            file.write(head_of(form, content) + b"\n" + content)
        os.replace(part, path)
    except (OSError, ValueError) as why:  # ValueError: a name with NUL
        with suppress(OSError, ValueError):  # its folder may be what is wrong
            os.unlink(part)
        number = getattr(why, "errno", None)
        if number not in _told:
            _told.add(number)
            reason = (getattr(why, "strerror", None) or str(why)).lower()
            say(
                "warning",
                f"{path} cannot be kept: {reason}; what belongs there is worked out again in each"
                " process; make room there, or set ANYHAL_CACHE to a folder that can be written",
            )
