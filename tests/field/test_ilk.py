"""Field cases ILK-01 to ILK-12: DLPack and the array API.
SPDX-License-Identifier: Apache-2.0

ILK-03 and ILK-04 need a device with queues and streams: tests/fake/test_foreign_streams.py on the
scriptable backend, backends/cuda/tests/test_cuda_foreign.py on the simulated driver. A card is
needed only to see NVIDIA's own driver obey the events; there is no HIP backend yet, so ROCm's
numbers are shown by `fake` alone. ILK-10 needs torch: tests/interop/test_torch.py.
"""

from __future__ import annotations

import gc
import itertools
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "doubles"))

from dlpack_producer import Once, Producer, managed_of  # noqa: E402

import anyhal as hal  # noqa: E402

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_ilk_01_an_unconsumed_capsule_does_not_leak() -> None:
    """10,000 exports of 4 MB, of both ages; memory stays flat."""
    on = hal.device()
    before = None
    for i in range(5000):
        hal.empty((1 << 20,)).__dlpack__(max_version=(1, 0))
        hal.empty((1 << 20,)).__dlpack__()
        if i == 50:
            gc.collect()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            in_use = hal.ledger(on)["activations"]["in_use"]
    assert before is not None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB
    assert hal.ledger(on)["activations"]["in_use"] == in_use


def test_ilk_02_a_capsule_is_consumed_once() -> None:
    once = Once(hal.asarray([1.0, 2.0]).__dlpack__(max_version=(1, 0)))
    kept = hal.from_dlpack(once)
    with pytest.raises(BufferError):
        hal.from_dlpack(once)
    del once
    assert kept.numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))])
def test_ilk_02_one_deleter_call_in_every_order(order: tuple[int, ...]) -> None:
    p = Producer(X.copy())
    a = hal.from_dlpack(p)
    held: list[Any] = [a, np.from_dlpack(a), a.__dlpack__(max_version=(1, 0)), a[2]]
    del a
    for place in order:
        assert p.deleted == 0
        held[place] = None
    assert p.deleted == 1


def test_ilk_05_negative_strides() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (x[:, ::-1], x[::-1], np.arange(5)[::-1]):
        with pytest.raises(BufferError, match="copy=True"):
            hal.from_dlpack(view)
        np.testing.assert_array_equal(hal.from_dlpack(view, copy=True).numpy(), view)
        np.testing.assert_array_equal(hal.asarray(view).numpy(), view)


@pytest.mark.parametrize("shape", [(1, 77), (77, 1), (1, 1, 1), (0, 5), ()])
def test_ilk_06_round_trip_of_odd_shapes(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    back = np.from_dlpack(hal.from_dlpack(x))
    assert back.shape == shape and back.strides == x.strides
    assert back.flags.c_contiguous and hal.from_dlpack(x)._dense
    np.testing.assert_array_equal(back, x)
    odd = Producer(np.ones(77, np.float32), shape=(1, 77), strides=(1, 1))
    a = hal.from_dlpack(odd)
    assert a._dense and (hal.matmul(a, a.T).numpy() == 77).all()
    assert np.from_dlpack(a).strides == (308, 4)


def test_ilk_07_booleans() -> None:
    for x in (np.array([True, False, True]), np.array(True), np.array([True, False] * 4)[::2]):
        a = hal.from_dlpack(x)
        assert a.dtype == "bool"
        np.testing.assert_array_equal(np.from_dlpack(a), x)
    p = Producer(np.array([2, 0], np.uint8), dtype=(6, 8, 1))
    for two in (hal.from_dlpack(p), hal.from_dlpack(p, copy=True), hal.asarray(p)):
        assert hal.logical_not(two).numpy().tolist() == [False, True]
        assert two.astype("int32").numpy().tolist() == [1, 0]
        assert hal.where(two, hal.ones(2), hal.zeros(2)).numpy().tolist() == [1, 0]
        assert two.numpy().view(np.uint8).tolist() == [1, 0]


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 3)])
def test_ilk_08_read_only_data(version: tuple[int, int] | None) -> None:
    host = np.arange(3.0)
    host.flags.writeable = False
    for c in (hal.asarray([1.0, 2.0], constant=True), hal.from_dlpack(host)):
        if version is None or version < (1, 0):
            with pytest.raises(BufferError):
                c.__dlpack__(max_version=version)
            copied = np.from_dlpack(Once(c.__dlpack__(max_version=version, copy=True)))
            np.testing.assert_array_equal(copied, c.numpy())
        else:
            view = np.from_dlpack(Once(c.__dlpack__(max_version=version)))
            with pytest.raises(ValueError, match="read-only"):
                view[0] = 1
            back = hal.from_dlpack(Once(c.__dlpack__(max_version=version)))
            with pytest.raises(hal.InvalidArgumentError, match="constant"):
                back.set(0)
    writable = hal.asarray([1.0])
    if version is not None and version >= (1, 0):
        view = np.from_dlpack(Once(writable.__dlpack__(max_version=version)))
        view[0] = 5
        assert writable.item() == 5


def test_ilk_09_missing_strides_and_other_versions() -> None:
    a = hal.from_dlpack(Producer(X.copy(), strides=None, version=None))
    np.testing.assert_array_equal(a.numpy(), X)
    capsule = hal.ones((3,)).__dlpack__(max_version=(1, 99))
    record = managed_of(capsule)[1]
    assert record.tensor.strides[0] == 1 and (record.major, record.minor) == (1, 1)
    newer = Producer(X.copy(), version=(2, 0))
    with pytest.raises(BufferError, match="version"):
        hal.from_dlpack(newer)
    assert newer.deleted == 1
    later = Producer(X.copy(), version=(1, 99))
    np.testing.assert_array_equal(hal.from_dlpack(later).numpy(), X)


def test_ilk_10_complex_numbers_and_their_parts() -> None:
    """What is lazily conjugated or negated is refused, see test_torch; NumPy's parts are plain."""
    z = np.array([1 + 2j, 3 - 4j], np.complex64)
    for copy in (None, True):
        with pytest.raises(BufferError, match="complex"):
            hal.from_dlpack(z.conj(), copy=copy)
        assert hal.from_dlpack(z.conj().imag, copy=copy).numpy().tolist() == [-2, 4]

    class Negated(Producer):
        def is_neg(self) -> bool:
            return True

    for take in (hal.from_dlpack, hal.asarray):
        with pytest.raises(BufferError, match="resolve_neg"):
            take(Negated(X.copy()))


def test_ilk_11_offsets_alignment_and_byte_order() -> None:
    block = np.zeros(128, np.float32)
    start = -block.ctypes.data % 256 // 4
    data = block[start : start + 12]
    data[...] = np.arange(12)
    p = Producer(data, byte_offset=4, shape=(10,), strides=(1,))
    assert data.ctypes.data % 256 == 0
    assert hal.from_dlpack(p).numpy().tolist() == list(range(1, 11))
    crooked = Producer(data, byte_offset=2, shape=(3,), strides=(1,))
    with pytest.raises(BufferError, match="aligned"):
        hal.from_dlpack(crooked)
    want = np.frombuffer(data.tobytes()[2:14], np.float32)
    np.testing.assert_array_equal(hal.from_dlpack(crooked, copy=True).numpy(), want)
    big = np.arange(3, dtype=">i4")
    with pytest.raises(BufferError, match="byte order"):
        hal.from_dlpack(big)  # NumPy's own refusal
    assert hal.asarray(big).numpy().tolist() == [0, 1, 2]


def test_ilk_12_results_are_ours_on_the_asked_device() -> None:
    foreign = Producer(X.copy())
    for device in hal.devices():
        made = [
            hal.asarray(np.ones(2), device=device),
            hal.asarray(foreign, device=device),
            hal.asarray(foreign, device=device, dtype="float64"),
            hal.from_dlpack(foreign, device=device, copy=True),
            hal.zeros((2,), dtype="int32", device=device),
            hal.ones((2,), dtype="bool", device=device),
            hal.arange(3, device=device),
            hal.full((1,), 2, device=device),
            hal.empty((1,), dtype="float16", device=device),
            hal.frombuffer(bytes(8), "float32", (2,), device=device),
        ]
        assert all(isinstance(a, hal.Array) and a.device is device for a in made)
        assert [a.dtype for a in made[2:6]] == ["float64", "float32", "int32", "bool"]
