"""Puts a backend to its check list in a process of its own: it may crash, or never answer.
SPDX-License-Identifier: Apache-2.0

The child says what it asks before it asks, one line of JSON each, so that the parent knows what the
backend was asked last.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from anyhal.errors import HalError, InternalError
from anyhal.sdk.checklist import Line

_CHILD = "from anyhal.sdk.checking import child; child()"
_PR_SET_PDEATHSIG = 1
_SUFFIX = "_checked"


def check(name: str, seconds: float) -> Iterator[str | Line]:
    """Of a backend on the search path: the lines of each device behind its title. A question that
    ends the process, or takes longer than `seconds`, fails its line, and nothing more is asked.
    InternalError where it is not loaded."""
    read, write = os.pipe()
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _CHILD, name, str(write)],
        stdout=2,  # what a backend prints is none of the list
        pass_fds=(write,),
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,  # a terminal's Ctrl-C is ours
    )
    os.close(write)
    asked = ("it is loaded", "")
    try:
        for message in _messages(read, seconds):
            if message is None:
                yield _failed(asked, f"it did not answer within {seconds:g} s")
                return
            kind, *words = message
            if kind == "ask":
                asked = (words[0], words[1])
            elif kind == "device":
                yield f"{words[0]} ({words[1]})"
            elif kind == "line":
                yield Line(*words)
            elif kind == "error":
                raise InternalError(words[0])
            else:
                return
        yield _failed(asked, _ended(process.wait(seconds)))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(read)


def _failed(asked: tuple[str, str], why: str) -> Line:
    check, about = asked
    return Line(check, f"{about}: {why}" if about else why)


def _ended(status: int) -> str:
    if status >= 0:
        return f"it ended the process with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "without a name"
    return f"it crashed with signal {-status} ({name})"


def _messages(read: int, seconds: float) -> Iterator[list[Any] | None]:
    """What the child says; None when it says nothing for so long."""
    text = bytearray()
    until = time.monotonic() + seconds
    while True:
        line, ended, rest = text.partition(b"\n")
        if ended:
            text = rest
            yield json.loads(line)
            until = time.monotonic() + seconds
            continue
        waits = select.poll()
        waits.register(read, select.POLLIN)
        if not waits.poll(max(0.0, until - time.monotonic()) * 1000):
            yield None
            return
        piece = os.read(read, 1 << 16)
        if not piece:
            return
        text += piece


def child() -> None:
    """Arguments: the backend's name, the descriptor to write to."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    name, number = sys.argv[1:]
    to = int(number)
    os.set_inheritable(to, False)
    instance = f"{name[:40]}{_SUFFIX}"

    def say(*words: Any) -> None:
        # The author gave one name, and is the vendor.
        shown = [_shown(word, instance, name) for word in words]
        os.write(to, json.dumps(shown).encode() + b"\n")

    from anyhal.runtime import device as devices
    from anyhal.sdk.checklist import check_device

    try:
        # Under a name of its own: an instance that was asked for is never deferred or absent.
        found = devices.load_backend(name, instance=instance)
    except HalError as why:
        say("error", str(why))
        return
    if not found:
        say("error", f"checking the backend {name}: it was loaded and has no device; connect one")
        return
    for device in found:
        say("device", device.name, str(device.native.record["name"]))
        for line in check_device(device, partial(say, "ask")):
            say("line", line.check, line.failed, line.count)
    say("end")


def _shown(word: Any, instance: str, name: str) -> Any:
    if not isinstance(word, str):
        return word
    return word.replace(instance, name).replace("report this to its vendor", "correct the backend")
