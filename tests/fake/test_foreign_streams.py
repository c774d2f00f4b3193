"""ILK-03 and ILK-04, and order with other libraries' streams: `fake` plays devices whose memory
they know. SPDX-License-Identifier: Apache-2.0

What needs a card and is not shown here: that a real driver's streams obey the event (the simulated
driver's do, backends/cuda/tests/test_cuda_foreign.py), and HIP, for which there is no backend yet.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "doubles"))

from dlpack_producer import CUDA, ONEAPI, READ_ONLY, ROCM, Producer, managed_of  # noqa: E402

import anyhal as hal  # noqa: E402
from anyhal import _core  # noqa: E402

# Counters: calls that nobody has waited for, streams made to wait, the last of them.
WAITING, STREAMS, LAST = 113, 114, 115
Fake = Callable[..., Any]
KINDS = {"cuda": CUDA, "rocm": ROCM, "oneapi": ONEAPI}
X = np.arange(64, dtype=np.float32)


def playing(fake: Fake, kind: str = "cuda", more: str = "") -> Any:
    return fake(f"mode=async; foreign={kind}; {more}")


def waits(device: Any) -> int:
    return int(hal.counters(device)["host_waits"])


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_called_what_its_driver_is_called(fake: Fake, on: Any, kind: str) -> None:
    devices = fake(f"devices=2; mode=async; foreign={kind}")
    for number, device in enumerate(devices):
        with on(device):
            a = hal.asarray(X)
            assert a.__dlpack_device__() == (KINDS[kind][0], number)
            record = managed_of(capsule := a.__dlpack__(max_version=(1, 0)))[1]
            assert record.tensor.device_type == KINDS[kind][0] and capsule
            assert record.tensor.device_id == number and record.tensor.data


# What reaches the driver: None where nothing does.
GOOD: dict[str, dict[Any, int | None]] = {
    "cuda": {
        None: 1,
        -1: None,
        1: 1,
        2: 2,
        3: 3,
        0x7F0000001000: 0x7F0000001000,
        2**64 - 1: 2**64 - 1,
    },
    "rocm": {None: 0, -1: None, 0: 0, 3: 3, 0x7F0000001000: 0x7F0000001000},
    "oneapi": {None: None, -1: None},
}
BAD: dict[str, list[Any]] = {
    "cuda": [0, -2, 2**64, 2**70, True, False, 1.0, "1", object(), np.bool_(True)],
    "rocm": [1, 2, -2, 2**64, True, 0.0, "0", object()],
    "oneapi": [0, 1, 2, 3, 2**70, object()],
}


@pytest.mark.parametrize("kind", KINDS)
def test_ilk_04_streams_mean_what_the_standard_says(fake: Fake, on: Any, kind: str) -> None:
    device = playing(fake, kind, "delay=20ms")
    for stream, reaches in GOOD[kind].items():
        with on(device):
            b = hal.asarray(X) + 1
            before, host = device.counter(STREAMS), waits(device)
            given = np.int64(stream) if stream in (1, 3) else stream
            b.__dlpack__(stream=given, max_version=(1, 0))
            assert device.counter(STREAMS) - before == (reaches is not None), stream
            if reaches is not None:
                assert device.counter(LAST) == reaches
            if stream is None and kind == "oneapi":  # no streams that could wait: the host does
                assert ", ready" in repr(b)
            else:
                assert waits(device) == host, "an event, and no host wait"
                assert device.counter(WAITING) > 0
    for stream in BAD[kind]:
        with on(device):
            before, a = device.counter(STREAMS), hal.asarray(X)
            with pytest.raises(TypeError) as caught:
                a.__dlpack__(stream=stream)
            assert isinstance(caught.value, hal.InvalidTypeError)
            assert "stream" in str(caught.value) and device.counter(STREAMS) == before


def test_a_stream_runs_after_the_arrays_own_work(fake: Fake, on: Any) -> None:
    """The consumer's stream is another queue of the same device: with its wait the value is right,
    without it (stream=-1) the consumer is too early, and the test can tell."""
    device = playing(fake, "cuda", "delay=1ms")
    for stream_given, right in ((True, True), (False, False)):
        with on(device):
            b = hal.add(hal.asarray(X), 1.0)
            consumer = hal.Queue(device)
            handle = _core.foreign_stream(consumer._native) if stream_given else -1
            capsule = b.__dlpack__(stream=handle, max_version=(1, 0))
            address = managed_of(capsule)[1].tensor.data
            alias = Producer(X, device=CUDA)
            alias.data = type("At", (), {"ctypes": type("C", (), {"data": address})})()  # type: ignore[assignment]
            with on(device, queue=consumer):
                seen = hal.from_dlpack(alias)  # as another library reads: by address alone
                got = hal.add(seen, 0.0).numpy()
            assert (got == X + 1).all() == right


def test_where_streams_cannot_wait_the_host_does(fake: Fake, on: Any) -> None:
    device = playing(fake, "cuda", "delay=5ms; stream_waits=off")
    with on(device):
        b = hal.asarray(X) + 1
        b.__dlpack__(stream=7)
        assert ", ready" in repr(b) and device.counter(STREAMS) == 0


def test_a_copy_and_the_host_are_served_in_order(fake: Fake, on: Any) -> None:
    device = playing(fake, "cuda", "delay=5ms")
    with on(device):
        b = hal.asarray(X) + 1
        np.testing.assert_array_equal(np.from_dlpack(b, device="cpu"), X + 1)
        b = hal.asarray(X) + 2
        record = managed_of(capsule := b.__dlpack__(stream=9, copy=True, max_version=(1, 0)))[1]
        assert record.flags == 2 and device.counter(LAST) == 9 and capsule
        for stream in (0, 1, 9):
            with pytest.raises(hal.InvalidTypeError, match="no streams"):
                b.__dlpack__(dl_device=(1, 0), stream=stream)


def test_what_failed_is_not_given_away(fake: Fake, on: Any) -> None:
    device = playing(fake, "cuda", "late_failure=1")
    with on(device):
        b = hal.asarray(X) + 1
        with pytest.raises(hal.ExecutionFailedError):
            hal.synchronize(device)
        assert ", failed: " in repr(b) and repr(b) == str(b)
        with pytest.raises(hal.ExecutionFailedError, match="never computed"):
            b.__dlpack__(stream=1)
        with pytest.raises(hal.ExecutionFailedError):
            b.__dlpack__(dl_device=(1, 0))


class TestImport:
    def test_the_producer_is_given_our_stream(self, fake: Fake, on: Any) -> None:
        device = playing(fake)
        p = Producer(X.copy(), device=CUDA, flags=READ_ONLY)
        queue = hal.Queue(device)
        with on(device):
            a = hal.from_dlpack(p)
            assert a.constant and a.device is device
            np.testing.assert_array_equal((a + 1).numpy(), X + 1)
        with on(device, queue=queue):
            hal.from_dlpack(p)
        asked = [options["stream"] for options in p.asked]
        assert asked == [_core.foreign_stream(q) for q in (device.native.queue, queue._native)]
        assert all(s > 2 for s in asked)

    def test_any_address_and_any_part_of_it(self, fake: Fake, on: Any) -> None:
        device = playing(fake)
        for skip in range(5):
            p = Producer(X.copy(), device=CUDA, byte_offset=4 * skip, shape=(7, 2), strides=(4, 1))
            with on(device):
                a = hal.from_dlpack(p)
                want = np.lib.stride_tricks.as_strided(X[skip:], (7, 2), (16, 4))
                np.testing.assert_array_equal((a + 0).numpy(), want)
                a.set(np.zeros((7, 2), np.float32))
                hal.synchronize(device)
                assert p.data[skip] == 0 and p.data[skip + 4] == 0
            del a
            assert p.deleted == 1

    def test_other_queues_wait_for_the_producer_as_well(self, fake: Fake, on: Any) -> None:
        """The producer makes the importing queue wait; a use on another queue comes after that."""
        device = playing(fake)
        first, second = hal.Queue(device), hal.Queue(device)
        slot = 200 + 10  # queue_wait, on this device
        with on(device, queue=first):
            a = hal.from_dlpack(Producer(X.copy(), device=CUDA))
        before = device.counter(slot)
        with on(device, queue=second):
            b = a + 1
        assert device.counter(slot) == before + 1
        np.testing.assert_array_equal(b.numpy(), X + 1)

    def test_the_right_one_of_two_devices_takes_it(self, fake: Fake, on: Any) -> None:
        devices = fake("devices=2; mode=async; foreign=cuda")
        p = Producer(X.copy(), device=(2, 1))
        with on(devices[1]):
            assert hal.from_dlpack(p).device is devices[1]  # of the scope
        with on(devices[0]):
            with pytest.raises(BufferError, match="copy=False"):
                hal.from_dlpack(p, device=devices[0], copy=False)
            assert hal.from_dlpack(p, device=devices[1]).device is devices[1]
            found = hal.from_dlpack(p)  # one that has the memory, not the scope's
            assert found.__dlpack_device__() == (2, 1)

    def test_a_copy_stays_on_the_device_or_comes_by_the_host(self, fake: Fake, on: Any) -> None:
        device = playing(fake)
        with on(device):
            a = hal.asarray(X)
            b = hal.from_dlpack(a, copy=True)
            shared = hal.from_dlpack(a)
            a.set(np.zeros_like(X))
            assert b.device is device and (b.numpy() == X).all() and not shared.numpy().any()
            home = hal.from_dlpack(b, device=hal.select_backend("cpu"))
            assert home.device.name == "cpu:0" and (home.numpy() == X).all()

    def test_while_a_graph_is_recorded_nothing_is_imported(self, fake: Fake, on: Any) -> None:
        device = playing(fake)
        p = Producer(X.copy(), device=CUDA)
        with on(device):
            a = hal.asarray(X)
            with hal.graph() as g:
                b = a + 1
                with pytest.raises(BufferError, match="recorded"):
                    hal.from_dlpack(p)
            assert p.made == 0 and len(g) == 1 and b.shape == (64,)

    @pytest.mark.parametrize("slot", ["memory_import", "memory_import:out_of_memory"])
    def test_a_device_that_refuses_it_lets_it_go(self, fake: Fake, on: Any, slot: str) -> None:
        rest = "" if ":" in slot else ":unsupported"
        device = playing(fake, "cuda", f"fail={slot}{rest}")
        p = Producer(X.copy(), device=CUDA)
        with on(device), pytest.raises(hal.HalError):
            hal.from_dlpack(p)
        gc.collect()
        assert p.deleted == p.made == 1


def poisoned(data: np.ndarray[Any, Any]) -> Callable[[], None]:
    def poison() -> None:
        data[...] = -777

    return poison


def test_ilk_03_an_import_lives_until_its_last_use_is_done(fake: Fake, on: Any) -> None:
    """The producer poisons its memory in its deleter; the op that reads it is 50 ms behind."""
    device = playing(fake, "cuda", "delay=50ms")
    data = X.copy()
    p = Producer(data, device=CUDA, on_delete=poisoned(data))
    with on(device):
        b = hal.from_dlpack(p) + 1  # the import itself is gone after this line
        gc.collect()
        assert p.deleted == 0 and device.counter(WAITING) > 0
        np.testing.assert_array_equal(b.numpy(), X + 1)
        hal.synchronize(device)
        assert p.deleted == 1 and (data == -777).all()


def test_ilk_03_a_deleter_at_once_would_be_seen(fake: Fake, on: Any) -> None:
    """The same program with the mistake: the producer's memory is poisoned before the op ran."""
    device = playing(fake, "cuda", "delay=20ms")
    data = X.copy()
    p = Producer(data, device=CUDA)
    with on(device):
        b = hal.from_dlpack(p) + 1
        poisoned(data)()
        assert (b.numpy() == -776).all()


def test_an_import_that_was_let_go_is_not_kept_for_longer_than_needed(fake: Fake, on: Any) -> None:
    """Reading, importing again or synchronizing returns what is done with."""
    for finish in ("numpy", "import", "synchronize"):
        device = playing(fake, "cuda", "delay=2ms")
        p, other = Producer(X.copy(), device=CUDA), Producer(X.copy(), device=CUDA)
        with on(device):
            b = hal.from_dlpack(p) + 1
            assert p.deleted == 0
            if finish == "numpy":
                b.numpy()
            elif finish == "import":
                time.sleep(0.02)
                kept = hal.from_dlpack(other)
                assert kept.shape == b.shape
            else:
                hal.synchronize(device)
            assert p.deleted == 1, finish


def test_a_lost_device_lets_its_imports_go_once(fake: Fake, on: Any) -> None:
    device = playing(fake, "cuda", "delay=5ms; fail=host_wait@1+:device_lost")
    p = Producer(X.copy(), device=CUDA)
    with on(device):
        a: Any = hal.from_dlpack(p)
        b = a + 1
        with pytest.raises(hal.DeviceLostError):
            b.numpy()
        for text in (repr(b), str(b), repr(a)):
            assert f"{device.name}, lost: " in text
        with pytest.raises(hal.DeviceLostError):
            a.__dlpack__()
        with pytest.raises(hal.DeviceLostError):
            hal.from_dlpack(p)
    del a, b
    gc.collect()
    assert p.deleted == p.made


def test_letting_go_may_be_what_finds_the_device_lost(fake: Fake, on: Any) -> None:
    """Nothing is raised where nobody could take it."""
    device = playing(fake, "cuda", "delay=5ms; fail=host_wait@1+:device_lost")
    p = Producer(X.copy(), device=CUDA)
    with on(device):
        b = hal.from_dlpack(p) + 1
    gc.collect()
    assert p.deleted == 1 and ", lost: " in repr(b)


class TestShown:
    def test_a_repr_waits_for_nothing(self, fake: Fake, on: Any) -> None:
        device = playing(fake, "cuda", "delay=200ms")
        with on(device):
            a = hal.asarray(X[:3])
            b = a + 1
            begin = time.perf_counter()
            assert repr(b) == f"Array(f32[3], {device.name}, pending)"
            # Its values are here, but reading them would wait for what is queued meanwhile.
            assert repr(a) == f"Array(f32[3], {device.name}, ready)"
            assert time.perf_counter() - begin < 0.15
            assert str(b) == f"Array(f32[3], {device.name}, ready,\n[1. 2. 3.])"
            assert repr(b) == str(b) and "[0. 1. 2.]" in repr(a)

    def test_str_says_what_failed_meanwhile(self, fake: Fake, on: Any) -> None:
        device = playing(fake, "cuda", "late_failure=1; delay=50ms")
        with on(device):
            b = hal.asarray(X) + 1
            assert ", pending)" in repr(b)
            assert "failed" in str(b) and ", failed: " in repr(b)
