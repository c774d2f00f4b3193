"""DLPack both ways, and the field cases about it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import resource
from typing import Any

import numpy as np
import pytest

import anyhal as hal


class Capsule:
    """A producer that hands out one capsule."""

    def __init__(self, array: Any, **options: Any) -> None:
        self.capsule = array.__dlpack__(**options)

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_memory_is_shared_both_ways() -> None:
    a = hal.asarray(np.arange(6, dtype=np.float32))
    view = np.from_dlpack(a)
    view[0] = 9
    assert a.numpy()[0] == 9
    host = np.arange(6, dtype=np.int32)
    b = hal.from_dlpack(host)
    host[1] = 7
    assert b.numpy()[1] == 7


def test_ilk_01_an_unconsumed_capsule_does_not_leak() -> None:
    a = hal.empty((1 << 20,))
    before = None
    for i in range(2000):
        a.__dlpack__(max_version=(1, 0))
        hal.empty((1 << 20,)).__dlpack__()
        if i == 50:
            gc.collect()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert before is not None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB


def test_ilk_02_a_capsule_is_consumed_once() -> None:
    once = Capsule(hal.asarray([1.0, 2.0]))
    kept = hal.from_dlpack(once)
    with pytest.raises(BufferError):
        hal.from_dlpack(once)
    del once
    assert kept.numpy().tolist() == [1.0, 2.0]


def test_ilk_02_either_side_may_go_first() -> None:
    for first in ("producer", "consumer"):
        a = hal.asarray(np.arange(1000, dtype=np.float64))
        view = np.from_dlpack(a)
        if first == "producer":
            del a
            assert view.sum() == 499500
        else:
            del view
            assert a.numpy().sum() == 499500


def test_ilk_04_streams_are_refused_on_the_host() -> None:
    with pytest.raises(TypeError):
        hal.asarray([1.0]).__dlpack__(stream=1)


def test_ilk_05_negative_strides() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (x[:, ::-1], x[::-1]):
        with pytest.raises(BufferError):
            hal.from_dlpack(view)
        np.testing.assert_array_equal(hal.asarray(view).numpy(), view)


@pytest.mark.parametrize("shape", [(1, 77), (77, 1), (1, 1, 1), (0, 5), ()])
def test_ilk_06_round_trip_of_odd_shapes(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    back = np.from_dlpack(hal.from_dlpack(x))
    assert back.shape == shape
    np.testing.assert_array_equal(back, x)


def test_ilk_07_booleans() -> None:
    for x in (np.array([True, False, True]), np.array(True), np.array([True, False] * 4)[::2]):
        a = hal.from_dlpack(x)
        assert a.dtype == "bool"
        np.testing.assert_array_equal(np.from_dlpack(a), x)
    two = np.array([2, 0], np.uint8).view(np.bool_)
    assert hal.logical_not(hal.from_dlpack(two)).numpy().tolist() == [False, True]


def test_ilk_08_read_only_data() -> None:
    c = hal.asarray([1.0, 2.0], constant=True)
    for version in (None, (0, 8)):
        with pytest.raises(BufferError):
            c.__dlpack__(max_version=version)
    assert not np.from_dlpack(c).flags.writeable
    assert np.from_dlpack(hal.asarray([1.0])).flags.writeable
    host = np.arange(3.0)
    host.flags.writeable = False
    imported = hal.from_dlpack(host)
    with pytest.raises(hal.InvalidArgumentError, match="constant"):
        imported.set(0)


def test_ilk_11_offsets_and_alignment() -> None:
    host = np.arange(10, dtype=np.float32)
    assert hal.from_dlpack(host[1:]).numpy().tolist() == host[1:].tolist()
    crooked = np.zeros(9, np.uint8)[1:].view(np.float32)
    with pytest.raises(BufferError, match="aligned"):
        hal.from_dlpack(crooked)
    assert hal.asarray(np.arange(3, dtype=">i4")).numpy().tolist() == [0, 1, 2]


def test_ilk_12_asarray_gives_our_type_on_the_asked_device() -> None:
    for device in hal.devices():
        made = [
            hal.asarray(np.ones(2), device=device),
            hal.zeros((2,), dtype="int32", device=device),
            hal.arange(3, device=device),
            hal.full((1,), 2, device=device),
            hal.empty((1,), device=device),
        ]
        assert all(isinstance(a, hal.Array) and a.device is device for a in made)
