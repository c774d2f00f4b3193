"""A check in a process of its own, with a deadline: what may end a process, or begins with one.
SPDX-License-Identifier: Apache-2.0

One process imports what is needed and loads no backend; it is forked for each check, so that a
check costs milliseconds and finds a process as fresh as a program's.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from anyhal.conformance.behaviour.registry import (
    Bench,
    NotApplicableError,
    NotDeclaredError,
    WrongError,
    not_declared,
)
from anyhal.errors import UnsupportedError
from anyhal.records import record

_COMMAND = "from anyhal.conformance.behaviour.child import main; main()"
_TOLD_BYTES = 1 << 16


@record
class Ended:
    """How the check's process ended. `told` is what the function gave back, None where it did not
    end; `out` and `err` what was written to its standard streams."""

    status: int  # exit status, or minus the signal
    hung: bool
    told: Any
    out: str
    err: str

    def said(self) -> str:
        """How it ended, in words; "" when it ended well."""
        if self.hung:
            return "it had not ended in time"
        last = self.err.strip().rpartition("\n")[2]
        tail = f" ({last})" if last else ""
        if self.status < 0:
            return f"it was ended by {signal.Signals(-self.status).name}{tail}"
        return f"it ended with status {self.status}{tail}" if self.status else ""


class OwnBench:
    """The bench in the child."""

    def __init__(self, device: Any, seed: int) -> None:
        self.device, self.seed = device, seed
        self.device_name, self.facts = device.name, device.fact

    @property
    def capabilities(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.device.capabilities()
        return found

    def rng(self, tensor: str = "") -> np.random.Generator:
        return np.random.default_rng([self.seed, *tensor.encode()])


_nursery: subprocess.Popen[bytes] | None = None  # ends when its input does


def ask(bench: Bench, function: Callable[..., Any], seconds: float, **given: Any) -> Ended:
    """Runs module-level `function(bench, **given)` there. What it raises as NotApplicableError,
    NotDeclaredError or WrongError is raised here."""
    global _nursery
    if _nursery is None or _nursery.poll() is not None:
        _nursery = subprocess.Popen(
            [sys.executable, "-c", _COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ),  # Python's copy: as it was before the backend was loaded
            start_new_session=True,
        )
    assert _nursery.stdin is not None and _nursery.stdout is not None
    words = {
        "device": bench.device_name,
        "seed": bench.seed,
        "module": function.__module__,
        "function": function.__name__,
        "seconds": seconds,
        "given": given,
    }
    _nursery.stdin.write(json.dumps(words).encode() + b"\n")
    _nursery.stdin.flush()
    row = json.loads(_nursery.stdout.readline() or b'{"status": -9, "hung": false}')
    told = row.get("told") or {}
    if "not_applicable" in told:
        raise NotApplicableError(told["not_applicable"])
    if "not_declared" in told:
        raise NotDeclaredError(told["not_declared"])
    if "wrong" in told:
        raise WrongError(told["code"], told["wrong"])
    return Ended(
        row["status"], row["hung"], told.get("told"), row.get("out", ""), row.get("err", "")
    )


def main() -> None:
    import anyhal  # noqa: F401  (imported once for all checks)
    import anyhal.conformance.behaviour as behaviour

    behaviour.behaviours()
    for line in sys.stdin:
        words = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.setpgid(0, 0)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                os.close(read)
                return _check(write, words)  # and the process ends as a program's does
            os.close(write)
            status, hung = _wait(pid, words["seconds"])
            row = {"status": status, "hung": hung, "told": _told(read)}
            for name, file in (("out", out), ("err", err)):
                file.seek(0)
                row[name] = file.read(4096).decode("utf-8", "replace")
        print(json.dumps(row), flush=True)


def _wait(pid: int, seconds: float) -> tuple[int, bool]:
    """Exit status or minus the signal, and whether it had to be ended."""
    until, pause = time.monotonic() + seconds, 0.0005
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), False
        if time.monotonic() > until:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return -signal.SIGKILL, True
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def _told(read: int) -> Any:
    with os.fdopen(read, "rb") as pipe:
        os.set_blocking(read, False)  # a process that it forked may hold the other end
        text = pipe.read(_TOLD_BYTES) or b""
    return json.loads(text.splitlines()[0]) if text else None


def _check(write: int, words: Any) -> None:
    def tell(**what: Any) -> None:
        os.write(write, json.dumps(what).encode() + b"\n")

    function = getattr(import_module(words["module"]), words["function"])
    try:
        if getattr(function, "before_loading", False):
            tell(told=function(words["device"], words["seed"], **words["given"]))
            return
        import anyhal as hal

        device = hal.device(words["device"])
        device.tested = False
        with hal.use(device=device, allow_uncertified=(device.fact.backend,)):
            tell(told=_told_of(function, OwnBench(device, words["seed"]), words["given"]))
    except NotApplicableError as why:
        tell(not_applicable=str(why))
    except NotDeclaredError as why:
        tell(not_declared=str(why))
    except WrongError as why:
        tell(wrong=str(why), code=why.code)


def _told_of(function: Callable[..., Any], bench: OwnBench, given: dict[str, Any]) -> Any:
    try:
        return function(bench, **given)
    except UnsupportedError as why:
        raise (not_declared(bench, why) or why) from None
