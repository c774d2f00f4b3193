"""Reads a small file whole: a regular one of bounded size, without waiting for a writer.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import errno
import os
import stat


def read_small_file(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """The bytes. OSError, with the reason in `strerror`, for what is no such file."""
    try:
        # Without O_NONBLOCK a named pipe would block here for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except ValueError as why:  # a name with NUL, or one that is no text
        raise OSError(errno.EINVAL, str(why)) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        with open(descriptor, "rb", closefd=False) as stream:
            data = stream.read(most_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes", str(path))
    return data
