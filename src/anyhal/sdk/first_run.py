"""First contact with a stranger's chip in Python: this runs it in a process that nobody will miss.
SPDX-License-Identifier: Apache-2.0

`runtime/probing.py` starts it with the file, writes the settings to standard input, and reads one
line of JSON for each stage that was begun; how the process ended says the rest. It does what
loading does, up to the list of devices.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import locale
import os
import signal
import sys
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


class _Report:
    """What the parent reads, on the standard output that it gave; the chip gets another one."""

    def __init__(self) -> None:
        self._to = os.fdopen(os.dup(1), "w")  # a descriptor that no program inherits
        # A file each: what was printed is looked at behind every stage.
        self._printed = [os.fdopen(os.memfd_create(name), "w+b") for name in ("out", "err")]
        for number, file in enumerate(self._printed, 1):
            os.dup2(file.fileno(), number)
        self._found: dict[str, Any] = {"stage": "start", "changes": [], "out": None, "err": None}
        self._before = _state()

    def begin(self, stage: str) -> None:
        self.look()
        self._found["stage"] = stage
        self._write()

    def look(self) -> None:
        """Notes what the stage that ends here has done."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for name, file in zip(("out", "err"), self._printed, strict=True):
            size = os.fstat(file.fileno()).st_size
            if size and self._found[name] is None:
                said = os.pread(file.fileno(), 200, 0).decode("utf-8", "replace")
                place = {"bytes": size, "stage": self._found["stage"], "beginning": said}
                self._found[name] = place
        now = _state()
        for what, value in now.items():
            detail = _difference(self._before[what], value)
            if detail:  # variables of a library's own are none
                self._found["changes"].append((what, self._found["stage"], detail))
        self._before = now

    def changed(self) -> None:
        """The file is not the one that was found."""
        self._found = {"changed": True}
        self._write()

    def end(self, why: BaseException | None, modules: list[tuple[str, str]]) -> None:
        """The last line: the process ends as programs do, with all exit handlers."""
        if why is not None:
            text = f"{type(why).__name__}: {why}"[:200]
            self._found |= {"core_stage": self._found["stage"], "core_text": text}
        self.begin("exit")
        self._found |= {"whole": True, "depends": modules}
        self._write()

    def _write(self) -> None:
        self._to.write(json.dumps(self._found) + "\n")
        self._to.flush()


def main() -> None:
    """Arguments: the file's descriptor, its hash, its path, the instance, bytes of settings."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    file, sha256, path, name, size = sys.argv[1:]
    words = sys.stdin.buffer.read(int(size)).split(b"\0")[:-1]
    given = {os.fsdecode(k): os.fsdecode(v) for k, v in zip(words[::2], words[1::2], strict=True)}
    with os.fdopen(int(file), "rb") as opened:
        source = opened.read()
    from anyhal.runtime.discovery_cache import stamp_of
    from anyhal.sdk.chip import made

    report = _Report()
    if sha256 and hashlib.sha256(source).hexdigest() != sha256:
        report.changed()
        return
    why: BaseException | None = None
    known = set(sys.modules)
    report.begin("open")
    try:
        chip = made(source, Path(path), name, given, sha256)
        report.begin("devices")
        chip._devices()
    except Exception as raised:
        why = raised  # the core says it again
    new = {module.partition(".")[0] for module in set(sys.modules) - known}
    files = [getattr(sys.modules.get(module), "__file__", None) for module in sorted(new)]
    report.end(why, [(at, stamp_of([at]).text) for at in files if at and at != path])


def _state() -> dict[str, Any]:
    """What everything else in the process depends on, as far as Python tells."""
    return {
        "directory": os.getcwd(),
        "locale": locale.setlocale(locale.LC_ALL, None),
        "signal": {s.name: str(signal.getsignal(s)) for s in _WATCHED},
        "environment": dict(os.environ),
    }


def _difference(before: Any, now: Any) -> str:
    if isinstance(before, dict):
        return ", ".join(key for key in before if now.get(key) != before[key])
    return str(now) if now != before else ""
