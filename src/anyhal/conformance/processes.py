"""A child process with a line of JSON each way, watched from outside.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_LONGEST = 64 << 20  # bytes of one line


class UnreadableError(ValueError):
    """A child said what is no line of the protocol."""


class Process:
    """A child with a line of JSON each way, in a group of its own."""

    def __init__(self, command: str, words: Sequence[str], environ: dict[str, str]) -> None:
        mine_read, its_write = os.pipe()
        its_read, mine_write = os.pipe()
        # What a backend prints is none of the protocol. Closed by `end`.
        self.log = tempfile.TemporaryFile()  # noqa: SIM115
        first, *others = words
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", command, first, str(its_read), str(its_write)]
                + others,
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                pass_fds=(its_read, its_write),
                env=environ,
                start_new_session=True,  # a terminal's Ctrl-C is the parent's
            )
        finally:
            os.close(its_read)
            os.close(its_write)
        os.set_blocking(mine_read, False)
        self.reads, self._writes = mine_read, mine_write
        self._rest = b""
        self.closed = False

    def send(self, words: dict[str, Any]) -> bool:
        """False when nobody reads any more."""
        try:
            data = (json.dumps(words) + "\n").encode()
            while data:
                data = data[os.write(self._writes, data) :]
            return True
        except BrokenPipeError:
            return False

    def receive(self) -> Iterator[dict[str, Any]]:
        """The whole lines that are there; UnreadableError for what is none."""
        while True:
            try:
                data = os.read(self.reads, 1 << 20)
            except BlockingIOError:
                break
            if not data:
                self.closed = True
                break
            self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > _LONGEST:
            raise UnreadableError(f"a line of more than {_LONGEST >> 20} MiB")
        for line in lines:
            try:
                words = json.loads(line)
            except (ValueError, RecursionError):
                words = None
            if not isinstance(words, dict) or not isinstance(words.get("kind"), str):
                raise UnreadableError(f"{line[:80]!r}")
            yield words

    def held_bytes(self) -> int:
        try:
            text = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii")
            return int(text.split()[1]) * os.sysconf("SC_PAGESIZE")
        except (OSError, IndexError, ValueError):
            return 0

    def tail(self) -> str:
        """The last line it printed."""
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - 2000))
        lines = self.log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def end(self) -> int:
        """Ends it and all it started; its status, negative for a signal."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        for one in (self.reads, self._writes):
            with suppress(OSError):
                os.close(one)
        self.log.close()
        return status

    def status(self) -> int:
        """How it ended by itself; waits a moment for it."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(2)
        return 0


def ended(status: int) -> str:
    if status < 0:
        with suppress(ValueError):
            return signal.Signals(-status).name
    return f"status {status}"
