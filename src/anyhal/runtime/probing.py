"""Runs `anyhal-probe`: several at once, each library by one process of the machine at a time.
SPDX-License-Identifier: Apache-2.0

Whatever ends this process, or interrupts it, ends its probes: each watches the pipe on its standard
input, which closes with us. A chip in Python is met by the interpreter instead
(`sdk/first_run.py`), which the system ends with us.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from anyhal import settings
from anyhal.runtime.loads import Loads
from anyhal.runtime.probe import (
    _MEMORY_BYTES,
    Answer,
    Stranger,
    answer_of,
    keep,
    known,
    path_of,
    program,
)

_AT_ONCE = 8  # most of them wait for a disk, a driver or their limit
_ASK_AGAIN = 0.02  # s; for an answer that another process is getting
_LOOK_AGAIN = 0.5  # s; for a probe that is stopped
_GRACE = 5  # s; beyond its limit, for a probe that is itself kept from running
_STOP = 2  # s; for a probe to end the process it watches
_START = 2  # s; for an interpreter to start
_LINGER = 0.5  # s; for processes of a chip that end with it
_FIRST_RUN = "from anyhal.sdk.first_run import main; main()"


def _most_bytes() -> int:
    return min(_MEMORY_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


def probe_all(strangers: dict[str, Stranger]) -> dict[str, Answer]:
    """By key. Each answer is kept as soon as it is there."""
    seconds = settings.PROBE_SECONDS.read()
    waiting = dict(strangers)
    patience = time.monotonic() + seconds + _GRACE  # for another process's probe
    running: list[_Run] = []
    answers: dict[str, Answer] = {}
    try:
        while waiting or running:
            for key, stranger in list(waiting.items()):
                if len(running) >= _AT_ONCE:
                    break
                lock = _lock(path_of(key).with_suffix(".lock"))
                if lock == _BUSY and time.monotonic() < patience:
                    continue
                del waiting[key]
                answer = known(stranger)  # another process may just have got it
                if answer is None:
                    kind = _PythonRun if stranger.python else _Run
                    running.append(kind(key, stranger, seconds, lock))
                else:
                    _unlock(lock)
                    answers[key] = answer
            watched = any(run.stranger.python for run in running)
            _read_ready(running, _ASK_AGAIN if waiting or watched else _LOOK_AGAIN)
            for run in [one for one in running if one.over]:
                running.remove(run)
                answers[run.key] = run.answer()
                keep(run.key, answers[run.key])
                run.stop()
    finally:
        for run in running:
            run.stop()
    return answers


@dataclass
class _Run:
    """One probe, from its start to its end. `over` when its answer is whole, or will never be."""

    key: str
    stranger: Stranger
    seconds: int
    lock: int
    process: subprocess.Popen[bytes] | None = None
    failed: str = ""
    text: bytearray = field(default_factory=bytearray)
    closed: bool = False
    limit: float = 0.0
    loads: Loads = field(default_factory=Loads)

    def __post_init__(self) -> None:
        self.limit = time.monotonic() + self.seconds
        given = b"".join(
            os.fsencode(word) + b"\0" for pair in self.stranger.settings for word in pair
        )
        opened = -1
        try:
            file = self.stranger.descriptor
            if file is None:
                flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
                file = opened = os.open(self.stranger.library, flags)
            command = self._command(file, len(given))
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(file,),
                env=self._environment(),
                start_new_session=True,  # a terminal's Ctrl-C is ours, and so is what we end
            )
            assert self.process.stdin is not None
            self.process.stdin.write(given)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its end is read below
        except OSError as why:
            self.failed = f"{program()}: {why.strerror or why}"
        finally:
            if opened >= 0:
                os.close(opened)

    def _environment(self) -> dict[str, str]:
        return self.loads.environ()

    def _command(self, file: int, bytes_given: int) -> list[str | Path]:
        stranger = self.stranger
        numbers = [file, self.seconds * 1000, _most_bytes(), bytes_given]
        words = [stranger.sha256, str(stranger.library), stranger.name]
        return [program(), *map(str, numbers), *words]

    @property
    def output(self) -> int:
        assert self.process is not None and self.process.stdout is not None
        return self.process.stdout.fileno()

    @property
    def over(self) -> bool:
        if self.failed or self.closed:
            return True
        late = time.monotonic() - self.limit
        return late > _GRACE or (late > 0 and self.stopped)

    @property
    def stopped(self) -> bool:
        """Whether somebody, as its library can, sent the probe itself SIGSTOP."""
        assert self.process is not None
        what = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.process.pid, what) is not None
        return False

    def answer(self) -> Answer:
        if self.failed:
            return Answer("not_run", self.failed)
        if not self.closed:
            return Answer("hung", "was itself stopped" if self.stopped else "was kept from running")
        try:
            answer = answer_of(json.loads(self.text.decode("utf-8", "replace")))
            assert self.process is not None
            beside = self.stranger.library.parent
            return replace(answer, depends=self.loads.depends(self.process.pid, beside))
        except ValueError:
            assert self.process is not None
            status = self.process.wait()
            return Answer("not_run", f"{program()} ended with status {status}, without an answer")

    def stop(self) -> None:
        """Ends the probe, and with it all that it watches; leaves no zombie."""
        if self.process is not None:
            assert self.process.stdin is not None and self.process.stdout is not None
            with suppress(OSError):
                self.process.stdin.close()
            self.process.stdout.close()
            try:
                self.process.wait(0 if self.stopped else _STOP)
            except subprocess.TimeoutExpired:
                for group in (*_children(self.process.pid), self.process.pid):
                    with suppress(OSError):
                        os.killpg(group, signal.SIGKILL)
                self.process.wait()
        self.loads.close()
        _unlock(self.lock)


def _children(process: int) -> list[int]:
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


class _PythonRun(_Run):
    """Of a chip in Python, by an interpreter like ours."""

    peak = 0
    left = 0
    ended = 0.0

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(os.path.abspath(part) for part in sys.path)
        # What the chip itself may load there is met by nobody: it is not opened in a program.
        return os.environ | {"PYTHONPATH": path, settings.PROBE.name: "off"}

    def _command(self, file: int, bytes_given: int) -> list[str | Path]:
        one = self.stranger
        words = [str(file), one.sha256, str(one.library), one.name, str(bytes_given)]
        return [sys.executable, "-P", "-c", _FIRST_RUN, *words]

    @property
    def over(self) -> bool:
        if self.failed or self.process is None:
            return True
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            self.peak = max(self.peak, pages * os.sysconf("SC_PAGE_SIZE"))
        if self.peak > _most_bytes() or time.monotonic() > self.limit + _START:
            return True
        if self.process.poll() is None:
            return False
        alone = self.closed and not _is_group(self.process.pid)
        self.ended = self.ended or time.monotonic()
        if not alone and time.monotonic() < self.ended + _LINGER:
            return False
        self.left = int(not alone)  # copies of it, or programs that it started
        return True

    def answer(self) -> Answer:
        if self.failed:
            return Answer("not_run", self.failed)
        assert self.process is not None
        status = self.process.poll()
        lines = self.text.decode("utf-8", "replace").splitlines()
        try:
            said = json.loads(lines[-1]) if lines else {}
            whole = said.pop("whole", False)
            said |= {"left": self.left, "peak_bytes": self.peak}
            if status is None:
                ended = "memory" if self.peak > _most_bytes() else "hung"
                return answer_of(said | {"ended": ended})
            if said.get("changed"):
                return Answer("changed", "it was changed after it was found")
            if not lines and status >= 0:
                why = f"{sys.executable} ended with status {status}, without an answer"
                return Answer("not_run", why)
            if status < 0:
                return answer_of(said | {"ended": "signal", "number": -status})
            ended = "clean" if whole and status == 0 else "exited"
            return answer_of(said | {"ended": ended, "number": status})
        except (ValueError, TypeError, AttributeError):
            return Answer("not_run", f"{sys.executable} wrote no answer")

    def stop(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        super().stop()


def _is_group(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except OSError:
        return False
    return True


def _read_ready(running: list[_Run], seconds: float) -> None:
    """Takes what the probes have written; waits for that at most so long."""
    by_output = {run.output: run for run in running if not run.failed}
    waited = select.poll()
    for output in by_output:
        waited.register(output, select.POLLIN | select.POLLHUP)
    if any(run.failed for run in running) or not (by_output or seconds == _ASK_AGAIN):
        seconds = 0
    for output, _ in waited.poll(seconds * 1000):
        piece = os.read(output, 1 << 16)
        by_output[output].text += piece
        by_output[output].closed = not piece


_BUSY, _NONE = -2, -1


def _lock(path: Path) -> int:
    """Of one library's probe, for as long as the descriptor is open; _BUSY when another process has
    it, _NONE when there can be none, which costs only time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(path, flags, 0o600)
    except OSError:
        return _NONE
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as why:
        os.close(file)
        return _BUSY if isinstance(why, BlockingIOError) else _NONE
    return file


def _unlock(file: int) -> None:
    if file >= 0:
        with suppress(OSError):  # a forked child may hold the descriptor; the lock goes now
            fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)
