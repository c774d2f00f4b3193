"""The vendor's own means from Python: handles, work among a queue's calls, named extensions.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import anyhal as hal

Fake = Callable[..., Any]
HOST = ("cpu:0", "cpu_ref:0", "dayone:0")
_numbers = itertools.count()


@pytest.fixture
def fake() -> Iterator[Fake]:
    from anyhal.runtime import device

    made: list[str] = []

    def make(script: str = "") -> Any:
        (only,) = hal.load_backend(
            "fake", instance=f"hatch{next(_numbers)}", settings={"script": script}
        )
        made.append(only.name)
        return only

    yield make
    assert device._state is not None
    for name in made:
        del device._state.devices[name]


# ------------------------------------------------------------------------------------ handles


@pytest.mark.parametrize("device", HOST)
def test_an_array_of_the_host_is_its_address(device: str) -> None:
    x = hal.arange(6, dtype="f32", device=device)
    handle = hal.native_handle(x[2:])
    assert (handle.api, handle.kind, handle.owned) == ("host", "memory", False)
    address = handle.handle + handle.offset_bytes
    assert list((ctypes.c_float * 4).from_address(address)) == [2, 3, 4, 5]
    assert handle.of.shape == (4,), "the record keeps the array"
    with pytest.raises(dataclasses.FrozenInstanceError):
        handle.handle = 0  # type: ignore[misc]


@pytest.mark.parametrize("device", HOST)
def test_nothing_stands_behind_a_synchronous_queue(device: str) -> None:
    with pytest.raises(hal.UnsupportedError, match="is the calling thread"):
        hal.native_handle(hal.Queue(device))
    with pytest.raises(hal.UnsupportedError, match=f"the device {device}"):
        hal.native_handle(hal.device(device))


def test_handles_are_of_devices_queues_and_arrays_alone() -> None:
    for given in (None, 3, "cpu:0", np.ones(2)):
        with pytest.raises(hal.InvalidTypeError, match="pass a Device, a Queue or an Array"):
            hal.native_handle(given)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------- native work


@pytest.mark.parametrize("device", HOST)
def test_native_work_runs_in_order_between_ops(device: str) -> None:
    with hal.use(device=device):
        x = hal.add(hal.ones(4), 1.0)
        y = hal.zeros(4)
        seen = []

        def work(given: hal.NativeWork) -> None:
            seen.append((given.type, [o.writable for o in given.operands]))
            source, target = (o.numpy() for o in given.operands)
            assert not source.flags.writeable
            target[:] = source * 10

        hal.enqueue_native(work, reads=[x], writes=[y])
        assert hal.negative(y).numpy().tolist() == [-20] * 4
    assert seen == [("host", [False, True])]


def test_a_view_is_shown_as_it_lies() -> None:
    x = hal.asarray(np.arange(12, dtype=np.float32).reshape(3, 4), device="cpu:0")

    def work(given: hal.NativeWork) -> None:
        (shown,) = (o.numpy() for o in given.operands)
        np.testing.assert_array_equal(shown, np.arange(12).reshape(3, 4).T[1:])
        with pytest.raises(ValueError, match="read-only"):
            shown[0, 0] = 100

    hal.enqueue_native(work, reads=[x.T[1:]])


def test_a_callback_that_raises_is_the_cause() -> None:
    x = hal.ones(4, device="cpu:0")

    def work(given: hal.NativeWork) -> None:
        raise ValueError("no luck")

    with pytest.raises(
        hal.ExecutionFailedError, match=r"cpu:0: the callback raised ValueError \(no luck\)"
    ) as failed:
        hal.enqueue_native(work, writes=[x])
    assert isinstance(failed.value.__cause__, ValueError)

    def typed(given: hal.NativeWork) -> None:
        raise hal.OutOfMemoryError("typed already")

    with pytest.raises(hal.OutOfMemoryError, match="typed already"):
        hal.enqueue_native(typed, writes=[x])

    def interrupt(given: hal.NativeWork) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hal.enqueue_native(interrupt, writes=[x])
    assert hal.add(x, x).numpy().tolist() == [2] * 4, "the queue goes on"


def test_what_cannot_be_asked_for_calls_nothing() -> None:
    x, other = hal.ones(4, device="cpu:0"), hal.ones(4, device="cpu_ref:0")
    constant = hal.asarray(np.ones(4, np.float32), device="cpu:0", constant=True)
    called: list[Any] = []
    work = called.append
    for given, error, words in [
        ({"writes": [x, other]}, hal.InvalidArgumentError, "cpu:0 and cpu_ref:0"),
        ({"writes": [x], "queue": hal.Queue("cpu_ref:0")}, hal.InvalidArgumentError, "cpu_ref:0"),
        ({"writes": [constant]}, hal.InvalidArgumentError, "writes a constant"),
        ({"reads": [np.ones(4)]}, hal.InvalidTypeError, "pass anyhal Arrays"),
        ({"reads": [x[:1] for _ in range(25)]}, hal.InvalidArgumentError, "at most 24"),
    ]:
        with pytest.raises(error, match=words):
            hal.enqueue_native(work, **given)  # type: ignore[arg-type]
    with pytest.raises(hal.InvalidTypeError, match="pass a function"):
        hal.enqueue_native(None, writes=[x])  # type: ignore[arg-type]
    with hal.use(device="cpu:0"), hal.graph():
        hal.add(x, x)
        with pytest.raises(hal.InvalidArgumentError, match="cannot be replayed"):
            hal.enqueue_native(work, writes=[x])
    assert not called


def test_a_failure_travels_along_the_queue(fake: Fake) -> None:
    """What reads a result that was lost is not called."""
    device = fake("mode=async; late_failure=2")
    called: list[int] = []
    with hal.use(device=device, allow_uncertified=(device.fact.backend,)):
        x = hal.ones(4)
        good = hal.add(x, x)
        lost = hal.add(good, x)
        with pytest.raises(hal.ExecutionFailedError):
            lost.numpy()
        with pytest.raises(hal.ExecutionFailedError):
            hal.enqueue_native(lambda w: called.append(1), reads=[lost], writes=[good])
        assert not called
        np.testing.assert_array_equal(good.numpy(), np.full(4, 2))


def test_a_device_without_a_native_queue_says_so(fake: Fake) -> None:
    device = fake("mode=async")
    x = hal.ones(4, device=device)
    with pytest.raises(hal.UnsupportedError, match="native work"):
        hal.enqueue_native(lambda w: None, writes=[x])
    np.testing.assert_array_equal(x.numpy(), np.ones(4))


# ---------------------------------------------------------------------------------- extensions


def test_the_limits_of_kernels_by_name_and_by_hand() -> None:
    found = hal.extension("cpu:0", "kernel_limits")
    assert (found.name, found.version, found.size) == ("kernel_limits", 1, 16)

    class Limits(ctypes.Structure):
        _fields_ = [(n, ctypes.c_uint32) for n in ("size", "units", "group_items", "reserved")]
        _fields_ += [("group_bytes", ctypes.c_uint64), ("features", ctypes.c_char * 1024)]

    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    slot = ctypes.c_void_p.from_address(found.address + 8).value
    assert slot is not None
    limits = Limits(size=ctypes.sizeof(Limits))
    assert call(slot)(found.device_handle, ctypes.byref(limits), None) == 0
    known = hal.kernel_limits("cpu:0")
    assert limits.units == known.units > 0 and known.group_items == 1
    assert known.features == tuple(limits.features.decode().split())


def test_an_unknown_extension_is_refused_with_what_there_is() -> None:
    for name, since in (("wings", 1), ("kernel_limits", 2)):
        with pytest.raises(hal.UnsupportedError, match="there is: kernel_limits 1"):
            hal.extension("cpu:0", name, since=since)
    with pytest.raises(hal.UnsupportedError, match="has no extensions"):
        hal.extension("cpu_ref:0", "kernel_limits")
    with pytest.raises(hal.UnsupportedError, match="has no extensions"):
        hal.kernel_limits("dayone:0")
    for since in (0, -1, True, "1"):
        with pytest.raises(hal.InvalidArgumentError, match="is no version"):
            hal.extension("cpu:0", "kernel_limits", since=since)  # type: ignore[arg-type]
    with pytest.raises(hal.InvalidTypeError, match="is no name"):
        hal.extension("cpu:0", None)  # type: ignore[arg-type]
