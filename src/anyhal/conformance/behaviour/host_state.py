"""What the process is for everybody in it: how it computes, its locale, signals, streams, names.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
import locale
import os
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from anyhal import settings
from anyhal.conformance.behaviour import child
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotDeclaredError,
    WrongError,
    behaviour,
    if_declared,
    require,
)
from anyhal.errors import HalError

_libc = c.CDLL(None)
_libc.setlocale.restype, _libc.setlocale.argtypes = c.c_char_p, (c.c_int, c.c_char_p)


def _computes() -> dict[str, Any]:
    """How this thread computes: denormals, rounding of 1/3 and -1/3, traps."""
    tiny = np.float32(1e-39) * np.ones(1, np.float32)
    with suppress(AttributeError, OSError):
        libm = c.CDLL("libm.so.6")
        return {
            "denormals": float(tiny[0] * np.float32(1)) != 0 and 5e-324 * 1.0 != 0,
            "rounding": libm.fegetround(),
            "traps": libm.fegetexcept(),
            "third": (np.ones(1) / 3).tobytes().hex() + (np.ones(1) / -3).tobytes().hex(),
        }
    return {"denormals": bool(tiny[0] != 0)}


def _environment() -> dict[str, str]:
    """As the C library has it: os.environ is a copy."""
    rows = c.POINTER(c.c_char_p).in_dll(_libc, "environ")
    found, number = {}, 0
    while rows and rows[number] is not None:
        name, _, value = (rows[number] or b"").decode("utf-8", "replace").partition("=")
        found[name] = value
        number += 1
    return found


def _signals() -> dict[str, str]:
    """Caught, ignored and blocked ones; SIGPROF and the like of no one else."""
    with open("/proc/thread-self/status", encoding="utf-8") as rows:
        return {
            key: value.strip()
            for key, _, value in (row.partition(":") for row in rows)
            if key in ("SigCgt", "SigIgn", "SigBlk")
        }


def _handlers() -> dict[str, int]:
    """The handler of each signal that has one or may get one."""
    names = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGINT", "SIGTERM", "SIGPIPE")
    found = {}
    for name in names:
        action = (c.c_uint64 * 19)()  # struct sigaction begins with the handler
        if _libc.sigaction(int(getattr(signal, name)), None, c.byref(action)) == 0:
            found[name] = action[0]
    return found


_PROGRAMS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM")


def _listening() -> Callable[[], list[str]]:
    """Takes the signals that belong to programs; the function sends each and says which no longer
    arrive. A vendor's runtime may put itself in front when it is asked to start."""
    heard: set[int] = set()
    numbers = {name: int(getattr(signal, name)) for name in _PROGRAMS}
    for number in numbers.values():
        signal.signal(number, lambda n, _: heard.add(n))

    def missing() -> list[str]:
        for number in numbers.values():
            os.kill(os.getpid(), number)
            time.sleep(0.001)
        return [name for name, number in numbers.items() if number not in heard]

    return missing


def _limits() -> dict[str, Any]:
    names = ("RLIMIT_CORE", "RLIMIT_STACK", "RLIMIT_AS", "RLIMIT_NPROC")
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def _umask() -> int:
    with open("/proc/self/status", encoding="utf-8") as rows:
        return next((int(r.split()[1], 8) for r in rows if r.startswith("Umask")), 0)


def _names() -> dict[str, str]:
    with open("/proc/thread-self/comm", encoding="utf-8") as file:
        return {"this thread": file.read().strip()}


def _name(text: str) -> None:
    with open("/proc/thread-self/comm", "w", encoding="utf-8") as file:
        file.write(text)


_LOOKS: dict[str, tuple[str, Callable[[], Any]]] = {
    "computing": ("how the caller's thread computes (denormals, rounding, traps)", _computes),
    "locale": ("the locale", lambda: (_libc.setlocale(6, None) or b"").decode()),
    "signals": ("signal handlers and masks", lambda: {**_signals(), **_handlers()}),
    "environment": ("the environment", _environment),
    "directory": ("the working directory", os.getcwd),
    "umask": ("the file mode mask", _umask),
    "limits": ("resource limits", _limits),
    "thread-name": ("the name of the caller's thread", _names),
    "affinity": ("the processor cores of the caller", lambda: sorted(os.sched_getaffinity(0))),
}
_NOT_AT_LOADING = ("thread-name",)


def _difference(before: Any, after: Any) -> str:
    if isinstance(before, dict):
        keys = [k for k in {**before, **after} if before.get(k) != after.get(k)]
        return ", ".join(f"{k}: {before.get(k)!r} is now {after.get(k)!r}" for k in sorted(keys))
    return f"{before!r} is now {after!r}"


def _calls(bench: Any) -> None:
    """A new plan, a known one, a refusal, and a thread of its own."""
    import anyhal as hal

    n = 40 + int(bench.rng("n").integers(20))
    values = np.ones((n, n), np.float32)
    x = hal.asarray(values, device=bench.device)
    ran = []
    for _ in range(2):
        for call in (hal.matmul, hal.add):
            ran.append(if_declared(bench, call, x, x))
        ran.append(if_declared(bench, hal.exp, x))
    if all(result is None for result in ran):
        raise NotDeclaredError("it needs matmul, binary or unary of f32, and none is declared")
    for result in ran:
        if result is not None:
            result.numpy()
    with suppress(HalError):
        hal.take(x, hal.asarray(np.array([n], np.int64), device=bench.device), axis=0).numpy()
    with suppress(HalError):
        hal.synchronize(bench.device)


for _key, (_what, _look) in _LOOKS.items():

    def _check(bench: Bench, what: str, look: str) -> Measured:
        ask, name = _LOOKS[look][1], _names()["this thread"]
        cores = os.sched_getaffinity(0)
        # Earlier calls may have left what these would leave too.
        _name("a program")
        with suppress(OSError):
            os.sched_setaffinity(0, range(os.cpu_count() or 1))
        try:
            before = ask()
            _calls(bench)
            after = ask()
        finally:
            _name(name)
            os.sched_setaffinity(0, cores)
        require(
            before == after, "host_state", f"calls changed {what}: {_difference(before, after)}"
        )
        return None

    _check.__doc__ = "Calls leave {what} as it was."
    _tier = "smoke" if _key in ("computing", "locale", "signals") else "quick"
    behaviour(f"host_state/{_key}", 20, tier=_tier, what=_what, look=_key)(_check)


@behaviour("host_state/output", 20, tier="smoke")
def output(bench: Bench) -> Measured:
    """Nothing is written to the program's standard output."""
    with tempfile.TemporaryFile() as file:
        _libc.fflush(None)
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            _calls(bench)
            _libc.fflush(None)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        written = file.read(200)
    require(not written, "host_state", f"written to standard output: {written!r}")
    return None


@behaviour("host_state/worker-threads", 20)
def worker_threads(bench: Bench) -> Measured:
    """A thread that has called computes as before: denormals, rounding and traps of a second thread
    of the program, too."""
    found: list[Any] = []

    def body() -> None:
        import anyhal as hal

        with hal.use(device=bench.device, allow_uncertified=(bench.facts.backend,)):
            found.append(_computes())
            _calls(bench)
            found.append(_computes())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    require(len(found) == 2, "failure", "the calls of a second thread failed")
    require(
        found[0] == found[1], "host_state", f"a second thread: {_difference(found[0], found[1])}"
    )
    return None


def _loading(name: str, seed: int, library: str) -> list[str]:
    """What finding, loading and opening the device changed, and its first calls. A child begins
    with what the backend may have left in its parent: hence a folder and a mask of its own."""
    places = os.environ.get(settings.BACKEND_PATH.name, "")
    if all(map(os.path.isabs, filter(None, places.split(os.pathsep)))):
        os.chdir(tempfile.gettempdir())
    os.umask(0o027)
    with suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "C.UTF-8")
    looks = {k: look for k, (_, look) in _LOOKS.items() if k not in _NOT_AT_LOADING}
    missing = _listening()
    before = {k: look() for k, look in looks.items()}
    with suppress(OSError):  # what it needs may have to be opened first
        c.CDLL(library)  # its constructors, with nobody to put right what they do
    opened = {k: look() for k, look in looks.items()}
    import anyhal as hal

    device = hal.device(name)
    device.tested = False
    with hal.use(device=device, allow_uncertified=(device.fact.backend,)):
        _calls(child.OwnBench(device, seed))
    after = {k: look() for k, look in looks.items()}
    lost = missing()
    after["signals"] = f"{', '.join(lost)} no longer arrive" if lost else "arrive"
    started = {**before, "signals": "arrive"}
    return [
        f"{_LOOKS[k][0]} ({_difference(started[k], after[k])})"
        for k in started
        if started[k] != after[k]
    ] + [
        f"{_LOOKS[k][0]}, by its constructors ({_difference(before[k], opened[k])})"
        for k in before
        if before[k] != opened[k]
    ]


_loading.before_loading = True  # type: ignore[attr-defined]


@behaviour("host_state/loading", 20, seconds=60)
def loading(bench: Bench) -> Measured:
    """Loading the library, opening the device and its first calls leave the process as it was, and
    write nothing to standard output."""
    ended = child.ask(bench, _loading, 50, library=bench.device._instance.path)
    why = ended.said()
    require(not why, "crash", f"a process that loads the backend: {why}")
    if ended.told:
        raise WrongError("host_state", f"loading changed {'; '.join(ended.told)}")
    require(not ended.out, "host_state", f"written to standard output: {ended.out[:200]!r}")
    return None
