"""DLPack, inwards: what a producer may say, what it may not, and when it is let go.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from dlpack_producer import CUDA, FLOAT32, READ_ONLY, Once, Producer

import anyhal as hal

X = np.arange(12, dtype=np.float32).reshape(3, 4)
PLAIN = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
]


def test_memory_is_shared_and_kept_until_the_last_array_goes() -> None:
    p = Producer(X.copy())
    a = hal.from_dlpack(p)
    view = a[1:]
    p.data[1, 0] = 99
    assert a.numpy()[1, 0] == 99 and view.numpy()[0, 0] == 99
    del a
    assert p.deleted == 0
    del view
    assert p.deleted == 1 and p.asked == [{"max_version": (1, 1)}]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "two lanes": ({"dtype": (2, 32, 2), "shape": (6,), "strides": (1,)}, "2 lanes"),
    "complex": ({"dtype": (5, 64, 1), "shape": (6,), "strides": (1,)}, "complex"),
    "opaque": ({"dtype": (3, 64, 1), "shape": (6,), "strides": (1,)}, "opaque handle"),
    "unknown code": ({"dtype": (99, 32, 1)}, "not of DLPack"),
    "12 bits": ({"dtype": (0, 12, 1)}, "12 bits"),
    "float128": ({"dtype": (2, 128, 1), "shape": (3,), "strides": (1,)}, "128 bits"),
    "fp4": ({"dtype": (17, 4, 1)}, "float4_e2m1fn"),
    "fp8 e8m0": ({"dtype": (14, 8, 1)}, "float8_e8m0fnu"),
    "negative rank": ({"ndim": -1}, "-1 dims"),
    "nine dims": ({"shape": (1,) * 9, "strides": (1,) * 9}, "9 dims"),
    "no shape": ({"no_shape": True}, "shape is missing"),
    "negative size": ({"shape": (-3, 4)}, "negative"),
    "no data": ({"no_data": True}, "data is missing"),
    "too many elements": ({"shape": (1 << 40, 1 << 40)}, "63 bits"),
    "too many bytes": (
        {"shape": ((1 << 63) - 1,), "strides": ((1 << 62) + 1,), "dtype": (2, 64, 1)},
        "byte count",
    ),
    "strides past the end": ({"strides": (1 << 62, 1)}, "beyond any address"),
    "an offset past the end": ({"byte_offset": (1 << 64) - 4}, "beyond any address"),
    "the lowest stride": ({"shape": (2,), "strides": (-(1 << 63),)}, "beyond any address"),
    "crooked": ({"byte_offset": 2}, "not aligned"),
    "backwards": ({"strides": (-4, 1), "byte_offset": 32}, "negative"),
    "a card": ({"device": CUDA}, "device"),
}


@pytest.mark.parametrize("version", [None, (1, 0), (1, 1)])
@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_shared_is_refused_and_let_go_once(
    what: str, version: tuple[int, int] | None
) -> None:
    said, words = WRONG[what]
    p = Producer(X.copy(), version=version, **said)
    with pytest.raises(BufferError, match=words):
        hal.from_dlpack(p)
    gc.collect()
    assert p.deleted == p.made


@pytest.mark.parametrize("copy", [None, False, True])
def test_the_same_refusals_hold_for_a_copy(copy: bool | None) -> None:
    for what in (
        *("two lanes", "complex", "negative rank", "no shape", "negative size", "no data"),
        *("strides past the end", "an offset past the end", "the lowest stride"),
        "too many bytes",
    ):
        p = Producer(X.copy(), **WRONG[what][0])
        with pytest.raises(BufferError):
            hal.from_dlpack(p, copy=copy)
        gc.collect()
        assert p.deleted == p.made, what


def test_an_unknown_major_is_refused_through_its_deleter() -> None:
    p = Producer(X.copy(), version=(2, 0))
    once = Once(p.__dlpack__())
    with pytest.raises(BufferError, match=r"version 2\.0"):
        hal.from_dlpack(once)
    assert p.deleted == 1  # by the consumer, not when the capsule goes
    with pytest.raises(BufferError, match="no capsule"):
        hal.from_dlpack(once)
    del once
    assert p.deleted == 1


def test_an_unknown_minor_and_unknown_flags_are_accepted() -> None:
    p = Producer(X.copy(), version=(1, 99), flags=1 << 40)
    np.testing.assert_array_equal(hal.from_dlpack(p).numpy(), X)


def test_a_tensor_without_deleter_is_taken_and_left() -> None:
    p = Producer(X.copy(), no_deleter=True)
    np.testing.assert_array_equal(hal.from_dlpack(p).numpy(), X)


@pytest.mark.parametrize("answer", [None, 3, "capsule", object()])
def test_what_is_no_capsule_is_refused(answer: Any) -> None:
    with pytest.raises(BufferError, match="no capsule"):
        hal.from_dlpack(Once(answer))


@pytest.mark.parametrize("copy", [None, True])
def test_a_stride_of_one_element_is_of_no_account(copy: bool | None) -> None:
    p = Producer(X.copy(), shape=(1, 1), strides=(-(1 << 63), 1 << 62))
    assert hal.from_dlpack(p, copy=copy).numpy().tolist() == [[0.0]]


def test_an_empty_shape_that_numpy_has_not_is_a_buffer_error() -> None:
    p = Producer(X.copy(), shape=(0, 1 << 40, 1 << 40), strides=(1, 1, 1))
    with pytest.raises(BufferError, match="shape"):
        hal.from_dlpack(p, copy=True)


@pytest.mark.parametrize("device", [None, 3, (1,), ("cpu", "0"), (1, 0, 0), (1 << 40, 0)])
def test_what_is_no_device_is_refused(device: Any) -> None:
    once = Once(Producer(X.copy()).__dlpack__(), device)
    with pytest.raises(BufferError, match="__dlpack_device__"):
        hal.from_dlpack(once)


def test_what_a_producer_raises_is_passed_on() -> None:
    class Fails(Once):
        def __dlpack__(self, **_: Any) -> Any:
            raise RuntimeError("its own reason")

    with pytest.raises(RuntimeError, match="its own reason"):
        hal.from_dlpack(Fails(None))


def test_a_producer_of_before_dlpack_1_is_asked_without_a_version() -> None:
    class Old(Producer):
        def __dlpack__(self, *, stream: Any = None) -> Any:  # type: ignore[override]
            return super().__dlpack__(stream=stream)

    p = Old(X.copy(), version=None)
    np.testing.assert_array_equal(hal.from_dlpack(p).numpy(), X)
    np.testing.assert_array_equal(hal.from_dlpack(p, copy=True).numpy(), X)
    assert all(options == {"stream": None} for options in p.asked)


class TestLayouts:
    def test_missing_strides_mean_packed(self) -> None:
        a = hal.from_dlpack(Producer(X.copy(), strides=None, version=None))
        np.testing.assert_array_equal(a.numpy(), X)

    def test_an_offset_in_bytes_is_honoured(self) -> None:
        p = Producer(X.reshape(-1).copy(), byte_offset=4, shape=(5,), strides=(2,))
        assert hal.from_dlpack(p).numpy().tolist() == [1, 3, 5, 7, 9]

    def test_a_stride_of_zero_repeats(self) -> None:
        p = Producer(X.reshape(-1).copy(), shape=(3, 2), strides=(0, 1))
        assert hal.from_dlpack(p).numpy().tolist() == [[0, 1]] * 3

    @pytest.mark.parametrize("strides", [(-7, 1), (1 << 60, 1), (0, 1)])
    def test_the_stride_of_one_element_is_of_no_account(self, strides: Any) -> None:
        p = Producer(X.reshape(-1).copy(), shape=(1, 5), strides=strides)
        a = hal.from_dlpack(p)
        assert a.numpy().tolist() == [[0, 1, 2, 3, 4]]
        assert np.from_dlpack(a).strides == (20, 4)

    @pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0, 2)])
    def test_nothing_needs_no_memory(self, shape: tuple[int, ...]) -> None:
        p = Producer(np.empty(shape, np.float32), no_data=True, flags=READ_ONLY)
        a = hal.from_dlpack(p)
        assert a.shape == shape and a.constant and a.numpy().shape == shape
        assert p.deleted == 1  # there is nothing to keep

    def test_no_dims(self) -> None:
        p = Producer(np.array(2.5, np.float32))
        a = hal.from_dlpack(p)
        assert a.shape == () and a.item() == 2.5
        del a
        assert p.deleted == 1

    @pytest.mark.parametrize("copy", [True, None])
    def test_a_copy_takes_any_layout(self, copy: bool | None) -> None:
        for view in (X[:, ::-1], X[::-1], X[::-1, ::-2], X.T, X[1:, 1:3]):
            negative = min(view.strides) < 0
            p = Producer(view)
            if copy is None and negative:
                continue
            np.testing.assert_array_equal(hal.from_dlpack(p, copy=copy).numpy(), view)
            assert p.deleted == 1
        crooked = np.zeros(50, np.uint8)
        crooked[2:].view(np.uint8)[:48] = X.reshape(-1).view(np.uint8)
        p = Producer(crooked, dtype=FLOAT32, shape=(3, 4), strides=(4, 1), byte_offset=2)
        np.testing.assert_array_equal(hal.from_dlpack(p, copy=True).numpy(), X)


CODES = {
    "bfloat16": ((4, 16, 1), ml_dtypes.bfloat16),
    "float8_e4m3fn": ((10, 8, 1), ml_dtypes.float8_e4m3fn),
    "float8_e4m3fnuz": ((11, 8, 1), ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2": ((12, 8, 1), ml_dtypes.float8_e5m2),
    "float8_e5m2fnuz": ((13, 8, 1), ml_dtypes.float8_e5m2fnuz),
}


@pytest.mark.parametrize("name", CODES)
def test_small_floats_come_and_go_by_their_codes(name: str) -> None:
    code, kind = CODES[name]
    values = np.array([0.5, 1, -2, 4], kind)
    p = Producer(values.view(f"u{values.itemsize}"), dtype=code)
    for a in (hal.from_dlpack(p), hal.from_dlpack(p, copy=True), hal.asarray(p)):
        assert a.dtype == name
        np.testing.assert_array_equal(a.numpy(), values)
        again = hal.from_dlpack(a)
        assert again.dtype == name and again.numpy().tolist() == values.tolist()


@pytest.mark.parametrize("name", PLAIN)
def test_plain_dtypes_round_trip_by_pointer(name: str) -> None:
    x = np.array([[1, 0, 3], [4, 5, 6]]).astype(name)
    a = hal.from_dlpack(x)
    back = np.from_dlpack(a)
    assert a.dtype == name and back.dtype == x.dtype
    assert back.__array_interface__["data"][0] == x.__array_interface__["data"][0]


def test_read_only_is_kept_and_writing_raises() -> None:
    p = Producer(X.copy(), flags=READ_ONLY)
    a = hal.from_dlpack(p)
    assert a.constant and a[0].constant
    for write in (lambda: a.set(0), lambda: hal.add(X, X, out=a)):
        with pytest.raises(hal.InvalidArgumentError, match="constant"):
            write()
    assert not np.from_dlpack(a).flags.writeable and memoryview(a).readonly
    b = hal.from_dlpack(p, copy=True)
    assert not b.constant
    b.set(0)
    np.testing.assert_array_equal(p.data, X)


def test_a_capsule_is_consumed_once_whatever_the_order() -> None:
    p = Producer(X.copy())
    once = Once(p.__dlpack__())
    kept = hal.from_dlpack(once)
    for again in (hal.from_dlpack, hal.asarray, np.from_dlpack):
        with pytest.raises((BufferError, ValueError)):
            again(once)  # type: ignore[operator]
    del once
    assert p.deleted == 0
    np.testing.assert_array_equal(kept.numpy(), X)
    del kept
    assert p.deleted == 1


def test_the_deleter_runs_once_in_every_order_of_letting_go() -> None:
    """An import, a view of it, an export that is consumed and one that is not, a memoryview."""
    for order in itertools.permutations(range(5)):
        p = Producer(X.copy())
        a = hal.from_dlpack(p)
        held: list[Any] = [a, a[1:], np.from_dlpack(a), a.__dlpack__(), memoryview(a)]
        del a
        for place in order:
            assert p.deleted == 0
            held[place] = None
        assert p.deleted == 1, order


class TestWhere:
    def test_device_and_copy(self) -> None:
        for on in hal.devices():
            with hal.use(device=on):
                shares = "host_visible" in on.fact.memory_kinds[0]
                p = Producer(X.copy())
                if shares:
                    a = hal.from_dlpack(p, device=on, copy=False)
                    p.data[0, 0] = 5
                    assert a.device is on and a.numpy()[0, 0] == 5
                else:
                    with pytest.raises(BufferError, match="copy=False"):
                        hal.from_dlpack(p, device=on, copy=False)
                    a = hal.from_dlpack(p, device=on)
                    assert a.device is on
                    np.testing.assert_array_equal(a.numpy(), X)
                    home = hal.from_dlpack(p)  # without a device: one that has the memory
                    assert "host_visible" in home.device.fact.memory_kinds[0]
                copied = hal.from_dlpack(p, device=on, copy=True)
                p.data[...] = 0
                assert copied.device is on and copied.numpy()[2, 3] == 11

    @pytest.mark.parametrize("copy", ["yes", 1, 0.0])
    def test_copy_is_a_bool(self, copy: Any) -> None:
        with pytest.raises(hal.InvalidTypeError, match="copy is a"):
            hal.from_dlpack(X, copy=copy)

    def test_an_unknown_device_is_named(self) -> None:
        with pytest.raises(hal.NotFoundError):
            hal.from_dlpack(X, device="nonsense:0")

    def test_an_array_of_ours_is_shared_as_any_other(self) -> None:
        a = hal.asarray(X)
        b = hal.from_dlpack(a)
        a.set(1)
        assert (b.numpy() == 1).all()
