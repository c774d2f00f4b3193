"""Arrays handed from the backend's process to the oracle's: raw bytes in a file of their own.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from anyhal.conformance.suite import Answer, Part
from anyhal.dtypes import dtype

PREFIX = "anyhal-certify-"
_BEGINS_S = 10.0  # between making a folder and locking it, with room to spare


def make_folder() -> tuple[Path, int]:
    """A new one in memory, where there is such a place, and the descriptor that holds it. Those
    whose run was killed are removed first."""
    shared = Path("/dev/shm")
    place = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    for old in place.glob(f"{PREFIX}*"):
        _remove_left(old)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return folder, lock


def remove_folder(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        os.close(lock)


def _remove_left(folder: Path) -> None:
    with suppress(OSError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(lock).st_uid != os.getuid():
                return
            if time.time() - os.fstat(lock).st_mtime < _BEGINS_S:
                return  # its run may not have locked it yet
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def write(answer: Answer, file: Path) -> list[dict[str, Any]]:
    """Writes the arrays; returns what `read` needs besides, as plain JSON data."""
    rows: list[dict[str, Any]] = []
    with file.open("xb") as out:
        for part in answer.parts:
            arrays: list[Any] = []
            for one in part.arrays:
                if one is None:
                    arrays.append(None)
                    continue
                one = np.ascontiguousarray(one).reshape(np.shape(one))
                arrays.append([dtype(one.dtype).short, list(one.shape), out.tell()])
                out.write(one.reshape(-1).view(np.uint8).data)
            words = {"refusal": part.refusal, "code": part.code, "failed": part.failed}
            rows.append({"label": part.label, "arrays": arrays, **words})
    return rows


def read(rows: list[dict[str, Any]], file: Path) -> Answer:
    with open(file, "rb", opener=_plainly) as stream:
        data = stream.read()
    return Answer(
        tuple(
            Part(
                row["label"],
                tuple(None if a is None else _array(data, *a) for a in row["arrays"]),
                row["refusal"],
                row["code"],
                row["failed"],
            )
            for row in rows
        )
    )


def _plainly(path: str, flags: int) -> int:
    """A link leads out of the folder, and a pipe never ends."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _array(data: bytes, short: str, shape: list[int], offset: int) -> Any:
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(data, dtype(short).numpy, count, offset).reshape(shape)
