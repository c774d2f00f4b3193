"""Queues of a device, and graphs recorded on them.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from anyhal import _core
from anyhal.errors import InvalidArgumentError, InvalidTypeError, typed_call, typed_calls
from anyhal.runtime import context
from anyhal.runtime.context import queue_of as queue_of
from anyhal.runtime.device import Device, device
from anyhal.runtime.handles import Handle

_LONGEST_S = 9e9  # 285 years: the core counts nanoseconds in 63 bits


@typed_calls
class Event(Handle):
    """A position of a queue that was submitted."""

    _instead = "wait for it here and pickle the values"

    def __init__(self, queue: Queue, value: int) -> None:
        self.queue = queue
        self.value = value

    def done(self) -> bool:
        """Whether the work before it has finished; does not wait."""
        return bool(self.queue._native.reached(self.value))

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits; HalTimeoutError after `timeout_s`, ExecutionFailedError when the work failed."""
        self.queue._wait(self.value, timeout_s)

    def __repr__(self) -> str:
        return f"Event({self.value} of {self.queue!r}, {'done' if self.done() else 'not done'})"


_spare: dict[str, list[Any]] = {}  # by device: queues that nobody holds any more


def _give_back(native: Any, spare: list[Any]) -> None:
    if not native.capturing:
        spare.append(native)


@typed_calls
class Queue(Handle):
    """An in-order stream of work on one device. Ops go to it inside `use(queue=...)`."""

    def __init__(self, on: Device | str | None = None, *, _native: Any = None) -> None:
        self.device = device(on)
        if _native is not None:
            self._native = _native
            return
        # A device has few, and what was written remembers its queue: they are used again.
        spare = _spare.setdefault(self.device.name, [])
        try:
            self._native = spare.pop()
        except IndexError:
            self._native = _core.new_queue(self.device.native)
        self._native.renew()
        weakref.finalize(self, _give_back, self._native, spare).atexit = False

    def signal(self) -> Event:
        """Submits everything so far and marks the position."""
        return Event(self, self._native.signal())

    def wait_for(self, event: Event) -> None:
        """Later work here runs after the event."""
        if not isinstance(event, Event):
            raise InvalidTypeError(
                f"waiting for an event: a {type(event).__name__} is none; pass what signal() gave"
            )
        self._native.wait_for(event.queue._native, event.value)

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits for everything accepted so far."""
        self._wait(None, timeout_s)

    def _wait(self, value: int | None, timeout_s: float | None) -> None:
        limit = [] if timeout_s is None else [_nanoseconds(timeout_s)]
        if value is None:
            self._native.wait_all(*limit)
        else:
            self._native.wait(value, *limit)

    def __repr__(self) -> str:
        state = ", recording a graph" if self._native.capturing else ""
        done, all_ = self._native.completed, self._native.submitted
        return f"Queue({self.device.name!r}, {done} of {all_} submissions completed{state})"


def _nanoseconds(timeout_s: Any) -> int:
    """The limit of a wait; more than the core counts in 63 bits is for ever."""
    known = isinstance(timeout_s, int | float | np.integer | np.floating)
    if not known or isinstance(timeout_s, bool) or timeout_s != timeout_s:
        raise InvalidArgumentError(
            f"waiting: timeout_s={timeout_s!r} is no number of seconds; pass a number, or None to"
            " wait as long as it takes"
        )
    return int(max(0, min(timeout_s, _LONGEST_S)) * 1e9)


@typed_calls
class Graph(Handle):
    """Calls recorded once and replayed natively.

    `with hal.graph() as g:` records the ops called inside on one device; nothing runs. Arrays made
    inside are the graph's own and keep their buffers while it lives. Arrays made outside are its
    inputs: rewrite them with `.set()` between launches. An error inside forgets the recording and
    leaves the queue usable. Calls on other devices are not recorded: they run at once. Calls of
    other threads on the queue that is captured are refused.
    """

    _instead = "record it there"

    def __init__(self, on: Device | str | None = None) -> None:
        self.device = device(on)
        self._scope = context.current().queue  # kept, so that nobody else gets the queue
        self._queue = queue_of(self.device)
        self._native: Any = None

    def __enter__(self) -> Graph:
        if self._native is not None:
            raise InvalidArgumentError(
                f"recording a graph on {self.device.name}: this one was recorded already; make"
                " another with hal.graph()"
            )
        self._native = _core.NativeGraph(self._queue)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._native.abort()
            return
        self._native.end()
        if self._native.size == 0:
            raise InvalidArgumentError(
                f"recording a graph on {self.device.name}: no call was made inside; call ops on"
                " arrays of that device"
            )

    def launch(self) -> None:
        """Runs all recorded calls, in order."""
        if self._native is None:
            raise InvalidArgumentError(
                f"launching a graph on {self.device.name}: nothing was recorded; use it as"
                " `with hal.graph() as g:` first"
            )
        self._native.launch()

    @property
    def form(self) -> str:
        """How it runs: "compiled" or "recorded" by the backend as one call, or "replayed" here call
        by call; "" before it was recorded."""
        recorded = self._native is not None and not self._native.capturing
        return str(self._native.form) if recorded else ""

    def __len__(self) -> int:
        return self._native.size if self._native is not None else 0

    def __deepcopy__(self, memo: Any) -> Graph:
        raise InvalidTypeError(
            f"copying a Graph of {self.device.name}: its calls name the arrays that they were"
            " recorded with; record another, or keep this one by copy.copy"
        )

    def __repr__(self) -> str:
        if self._native is None:
            state = "nothing recorded"
        elif self._native.capturing:
            state = f"recording, {len(self)} calls so far"
        else:
            state = f"{len(self)} calls, {self.form}"
        return f"Graph({self.device.name!r}, {state})"


@typed_call("graph")
def graph(on: Device | str | None = None) -> Graph:
    """A new graph on a device (default: the scope's)."""
    return Graph(on)
