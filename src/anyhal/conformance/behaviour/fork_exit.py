"""Fork and exit: nobody crashes, nobody hangs, nobody writes for somebody else.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour import child, driver
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotApplicableError,
    WrongError,
    behaviour,
    require,
)

_SECONDS = 10.0


def _in_fork(body: Any) -> tuple[int, bool]:
    """Runs body in a forked process, which then ends at once; its status, and whether it hung."""
    pid = os.fork()
    if pid == 0:
        status = 97
        try:
            status = body()
        finally:
            os._exit(status)
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), False
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -signal.SIGKILL, True


def _said(status: int, hung: bool) -> str:
    if status == 1:
        return "was refused, though the backend is synchronous"
    if hung:
        return f"hung for {_SECONDS:g} s"
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"answered {status}"


def _require_right(bench: Bench, status: int, hung: bool) -> None:
    """0: it computed right. 1: it was refused, as only a device with queues may: without queues
    there is nothing that a fork spoils."""
    synchronous = bench.device._instance.synchronous
    if hung or status not in ((0,) if synchronous else (0, 1)):
        raise WrongError("hang" if hung else "fork", f"the child {_said(status, hung)}")


def _opens(bench: Bench) -> int:
    """An instance and a device more, as another library of the child may want; as `use` answers."""
    try:
        driver.RawDevice(driver.instance_of(bench), bench.device._id)
    except driver.RefusedError:
        return 1
    except NotApplicableError:  # no shared library
        pass
    return 0


def _forked_after_use(bench: Bench) -> str:
    device, values = bench.device, np.arange(300, dtype=np.float32)
    x = hal.asarray(values, device=device)
    kept = hal.add(x, 1.0)

    def use() -> int:
        """0: right; 1: refused with a typed error; 3: wrong."""
        try:
            found = hal.add(x, x).numpy()
        except hal.HalError:
            return 1
        return 0 if np.array_equal(found, values + values) else 3

    status, hung = _in_fork(use)
    _require_right(bench, status, hung)
    if bench.device._instance.synchronous:
        _opens(bench)  # the core may have a copy of the library of its own
        again, hung = _in_fork(lambda: _opens(bench))
        _require_right(bench, again, hung)
    for array, right in ((kept, values + 1), (hal.add(x, 2.0), values + 2)):
        if not np.array_equal(array.numpy(), right):
            raise WrongError("fork", "the parent's results changed after the fork")
    return ("computes", "refuses with a typed error")[status]


@behaviour("fork_exit/fork-after-use", 21, seconds=60)
def fork_after_use(bench: Bench) -> Measured:
    """After a fork of a process that used the device, the child computes or, where there are
    queues, is refused with a typed error, and neither crashes nor hangs; the parent goes on."""
    ended = child.ask(bench, _forked_after_use, 40)
    why = ended.said()
    require(not why, "fork", f"the parent: {why}")
    return {"child": ended.told}


def _forked_while_busy(bench: Bench) -> str:
    device, values = bench.device, np.arange(4096, dtype=np.float32)
    x = hal.asarray(values, device=device)
    square = hal.asarray(np.ones((96, 96), np.float32), device=device)
    hal.matmul(square, square)
    busy = [hal.add(x, float(i)) for i in range(20)]

    def end() -> int:
        """The child lets go of everything and ends, as Python's workers do."""
        nonlocal busy
        del busy
        return 0

    status, hung = _in_fork(end)
    if hung or status:
        raise WrongError("hang" if hung else "fork", f"the child {_said(status, hung)}")
    for i, array in enumerate(busy):
        if not np.array_equal(array.numpy(), values + i):
            raise WrongError("fork", f"result {i}, queued before the fork, is wrong")
    return "ended"


@behaviour("fork_exit/fork-while-busy", 21, seconds=60)
def fork_while_busy(bench: Bench) -> Measured:
    """A fork while work is queued, whose child lets go of all arrays and ends, disturbs no result
    of the parent."""
    ended = child.ask(bench, _forked_while_busy, 40)
    why = ended.said()
    require(not why, "fork", f"the parent: {why}")
    return None


def _left_at_exit(bench: Bench) -> str:
    """Ends with work queued and objects alive."""
    device = bench.device
    square = hal.asarray(np.ones((128, 128), np.float32), device=device)
    for _ in range(6):
        square = hal.matmul(square, square)
    globals()["_kept"] = [square, hal.Queue(device), hal.graph(device)]
    return "ended"


@behaviour("fork_exit/exit", 21, seconds=60)
def exit_without_goodbye(bench: Bench) -> Measured:
    """A process that ends with work queued and objects alive ends by itself, with status 0, and
    writes nothing."""
    ended = child.ask(bench, _left_at_exit, 40)
    why = ended.said()
    require(not why, "hang" if ended.hung else "exit", f"a process at its end: {why}")
    require(not ended.out, "exit", f"written to standard output: {ended.out[:200]!r}")
    return None


def _opened_in_fork(bench: Bench) -> str:
    """Loaded here, opened in a child alone."""
    name, values = bench.device_name, np.arange(64, dtype=np.float32)

    def use() -> int:
        try:
            found = hal.add(hal.asarray(values, device=name), 1.0).numpy()
        except hal.HalError:
            return 1
        return 0 if np.array_equal(found, values + 1) else 3

    answers = [_in_fork(use) for _ in range(2)]
    for status, hung in answers:
        _require_right(bench, status, hung)
    return ("computes", "refuses with a typed error")[answers[0][0]]


@behaviour("fork_exit/open-after-fork", 21, seconds=60)
def open_after_fork(bench: Bench) -> Measured:
    """A device that was listed but not opened before a fork is opened by the child and computes
    there, or, where there are queues, is refused with a typed error."""
    ended = child.ask(bench, _opened_in_fork, 40)
    why = ended.said()
    require(not why, "fork", f"the parent: {why}")
    return {"child": ended.told}
