"""What the dynamic loader loaded for a probe, and what it looked for in vain.
SPDX-License-Identifier: Apache-2.0

The loader says so itself, when `LD_DEBUG` asks; it writes while it works, so that a crash loses
nothing. The probe takes both variables out of its environment before it opens the library.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from pathlib import Path
from shutil import rmtree

from anyhal.runtime.discovery_cache import stamp_of

_MOST_BYTES = 16 << 20
_MOST_FILES = 2048
_TICK_NS = 20 * 10**6  # a file system's clock may be so late
_FILE = re.compile(rb"\t *(?:trying )?file=(.*?)(?: \[\d+\];.*)?$", re.MULTILINE)
_SEALED = re.compile(r"/proc/(self|\d+)/fd/\d+")
_COPY = re.compile(r"/proc/(self|\d+)/fd")  # what a sealed library takes for its folder


class Loads:
    """Of one probe. Without a folder for temporary files nothing is known."""

    def __init__(self) -> None:
        self.began = time.time_ns() - _TICK_NS
        self.folder: str | None = None

    def environ(self) -> dict[str, str]:
        """This process's, and what makes the loader write."""
        try:
            self.folder = tempfile.mkdtemp(prefix="anyhal-probe-")
        except OSError:
            return dict(os.environ)
        asked = {"LD_DEBUG": "files,libs", "LD_DEBUG_OUTPUT": self._name}
        return {**os.environ, **asked}

    @property
    def _name(self) -> str:
        return f"{self.folder}/loads"

    def depends(self, process: int, beside: Path) -> tuple[tuple[str, str], ...]:
        """Path and stamp of each; () when that is not known, or has changed meanwhile."""
        if self.folder is None:
            return ()
        try:
            with open(f"{self._name}.{process}", "rb") as file:
                text = file.read(_MOST_BYTES + 1)
            free = os.statvfs(self.folder)
        except OSError:
            return ()  # another dynamic loader than glibc's
        if free.f_bavail * free.f_frsize < _MOST_BYTES:
            return ()  # the loader does not say that its lines were lost on a full disk
        names = {os.fsdecode(name) for name in _FILE.findall(text) if b"/" in name}
        names = {name for name in names if not _SEALED.fullmatch(name)}
        paths = {_first_missing(_COPY.sub(str(beside), name)) for name in names}
        paths = {path for path in paths if not path.startswith("/proc/")}
        if len(text) > _MOST_BYTES or len(paths) > _MOST_FILES:
            return ()
        stamps = {path: stamp_of([path]) for path in sorted(paths)}
        if any(stamp.newest_ns > self.began for stamp in stamps.values()):
            return ()
        return tuple((path, stamp.text) for path, stamp in stamps.items())

    def close(self) -> None:
        if self.folder is not None:
            rmtree(self.folder, ignore_errors=True)


def _first_missing(path: str) -> str:
    """Of a file in a folder that is not there, the folder: the loader looks there only once."""
    while (folder := os.path.dirname(path)) not in ("", "/") and not os.path.exists(folder):
        path = folder
    return path
