"""NumPy's protocols on arrays: __array__, the buffer protocol, ml_dtypes; copies and pickles.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anyhal as hal

X = np.arange(12, dtype=np.float32).reshape(3, 4)
PLAIN = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
]


class TestArray:
    def test_the_rules_of_copy(self) -> None:
        for on in hal.devices():
            a = hal.asarray(X, device=on)
            shares = "host_visible" in on.fact.memory_kinds[0]
            copied = np.array(a)
            np.testing.assert_array_equal(copied, X)
            assert a.__array__(copy=True).flags.writeable
            if not shares:
                for ask in (
                    lambda a=a: np.asarray(a, copy=False),
                    lambda a=a: a.__array__(copy=False),
                ):
                    with pytest.raises(ValueError, match="copy=False"):
                        ask()
                assert not np.shares_memory(np.asarray(a), np.asarray(a))
                continue
            for view in (
                np.asarray(a),
                np.asarray(a, copy=False),
                a.__array__(),
                np.from_dlpack(a),
            ):
                assert np.shares_memory(view, np.from_dlpack(a)) and view.flags.writeable
            np.asarray(a)[0, 0] = 50
            assert a.numpy()[0, 0] == 50 and copied[0, 0] == 0
            assert not np.shares_memory(a.numpy(), np.asarray(a))

    def test_another_dtype_is_a_copy(self) -> None:
        a = hal.asarray(X)
        assert np.asarray(a, np.float64).dtype == np.float64
        assert a.__array__(np.int32).tolist() == X.astype(np.int32).tolist()
        assert np.shares_memory(a.__array__("float32"), np.asarray(a))
        with pytest.raises(ValueError, match="copy"):
            np.asarray(a, np.float64, copy=False)
        with pytest.raises(hal.InvalidArgumentError, match="copy=False"):
            a.__array__(np.float64, copy=False)

    def test_constants_are_shared_read_only(self) -> None:
        c = hal.asarray(X, constant=True)
        for view in (np.asarray(c), c.__array__(), np.asarray(c, copy=False)):
            assert not view.flags.writeable
        assert np.array(c).flags.writeable

    @pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
    def test_ml_dtypes_come_and_go(self, name: str) -> None:
        values = np.array([1.5, -2, 0], getattr(ml_dtypes, name))
        a = hal.asarray(values)
        assert a.dtype == name
        for got in (np.asarray(a), np.array(a), a.numpy(), a.__array__(copy=True)):
            assert got.dtype == values.dtype
            np.testing.assert_array_equal(got, values)
        assert np.shares_memory(np.asarray(a), a.__array__(copy=False))
        assert np.asarray(a, np.float32).tolist() == [1.5, -2, 0]

    def test_foreign_true_is_one(self) -> None:
        two = np.array([2, 0, 255], np.uint8).view(np.bool_)
        for a in (
            hal.from_dlpack(two),
            hal.from_dlpack(two, copy=True),
            hal.asarray(hal.from_dlpack(two)),
        ):
            assert a.numpy().view(np.uint8).tolist() == [1, 0, 1]
            assert a.astype("int32").numpy().tolist() == [1, 0, 1]
        assert hal.from_dlpack(two[0:1].reshape(())).numpy().shape == ()


class TestBuffer:
    @pytest.mark.parametrize("name", PLAIN)
    def test_a_memoryview_is_what_numpys_is(self, name: str) -> None:
        x = np.array([[1, 0, 3], [4, 5, 6]]).astype(name)
        a = hal.asarray(x)
        view, want = memoryview(a), memoryview(x)
        assert view.format == want.format and view.itemsize == want.itemsize
        assert view.shape == want.shape and view.strides == want.strides
        assert view.nbytes == want.nbytes and np.asarray(view).tolist() == x.tolist()
        assert not view.readonly and view.c_contiguous
        assert np.asarray(view).dtype == x.dtype and bytes(a) == x.tobytes()

    def test_writes_reach_the_array(self) -> None:
        a = hal.asarray(X)
        memoryview(a)[1, 2] = 99.0
        assert a.numpy()[1, 2] == 99

    def test_strides_are_shown_and_constants_are_read_only(self) -> None:
        a = hal.asarray(X)
        assert memoryview(a.T).strides == (4, 16) and memoryview(a.T).f_contiguous
        assert memoryview(a[::2, 1:3]).tolist() == X[::2, 1:3].tolist()
        c = hal.asarray(X, constant=True)
        assert memoryview(c).readonly
        with pytest.raises(TypeError):
            memoryview(c)[0, 0] = 1.0

    @pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1, 3)])
    def test_odd_shapes(self, shape: tuple[int, ...]) -> None:
        view = memoryview(hal.ones(shape))
        assert view.shape == shape and view.nbytes == 4 * int(np.prod(shape))
        assert np.asarray(view).shape == shape

    def test_what_a_buffer_cannot_say_is_refused(self) -> None:
        cases = [
            (hal.asarray(X).astype("bfloat16"), "no such dtype"),
            (hal.frombuffer(bytes(20), "q4_1", (32,)), "no such dtype"),
        ]
        for on in hal.devices():
            if "host_visible" not in on.fact.memory_kinds[0]:
                cases.append((hal.asarray(X, device=on), "numpy()"))
        for a, words in cases:
            with pytest.raises(BufferError) as caught:
                memoryview(a)
            assert words in str(caught.value) and a.device.name in str(caught.value)

    def test_a_consumer_that_asks_for_less_gets_what_fits(self) -> None:
        import hashlib

        assert hashlib.sha256(hal.asarray(X)).digest() == hashlib.sha256(X).digest()
        with pytest.raises((BufferError, ValueError)):  # no strides asked for
            hashlib.sha256(hal.asarray(X)[:, ::2])

    def test_the_memory_stays_while_the_view_does(self) -> None:
        a = hal.asarray(np.full(1 << 16, 3.0))
        view = memoryview(a)
        del a
        gc.collect()
        junk = [hal.full((1 << 16,), 9.0, dtype="float64") for _ in range(8)]
        assert (np.asarray(view) == 3).all() and len(junk) == 8

    def test_a_graph_that_has_not_run_has_nothing_to_show(self) -> None:
        x = hal.asarray(X)
        with hal.graph():
            y = x + x
        with pytest.raises(hal.InvalidArgumentError, match="launch it first"):
            memoryview(y)
        with pytest.raises(hal.InvalidArgumentError, match="launch it first"):
            np.asarray(y)


class TestCopies:
    def test_a_copy_is_a_view_and_a_deep_copy_is_not(self) -> None:
        for on in hal.devices():
            a = hal.asarray(X, device=on)
            shallow, deep = copy.copy(a), copy.deepcopy(a)
            assert shallow is not a and shallow.device is on and deep.device is on
            a.set(7)
            assert (shallow.numpy() == 7).all()
            np.testing.assert_array_equal(deep.numpy(), X)

    def test_deep_copies_stay_constant_and_keep_sharing_inside_one(self) -> None:
        c = hal.asarray(X, constant=True)
        assert copy.deepcopy(c).constant and copy.copy(c).constant
        a = hal.asarray(X)
        first, second = copy.deepcopy([a, a])
        assert first is second and first is not a

    def test_devices_queues_and_events_are_themselves(self) -> None:
        queue = hal.Queue()
        for one in (hal.device(), queue, queue.signal()):
            assert copy.copy(one) is one and copy.deepcopy({"x": one})["x"] is one
        g = hal.graph()
        assert copy.copy(g) is g
        with pytest.raises(hal.InvalidTypeError, match="record another"):
            copy.deepcopy(g)

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_pickling_is_refused_with_what_to_do(self, protocol: int) -> None:
        queue = hal.Queue()
        for one, words in (
            (hal.asarray(X), "numpy()"),
            (hal.device(), "hal.device(name)"),
            (queue, "make another"),
            (queue.signal(), "wait for it"),
            (hal.graph(), "record it there"),
        ):
            for whole in (one, {"inside": [one]}):
                with pytest.raises(hal.InvalidTypeError) as caught:
                    pickle.dumps(whole, protocol)
                assert "pickling" in str(caught.value) and words in str(caught.value)

    def test_what_the_sentence_advises_works(self) -> None:
        a = hal.asarray(X)
        values = pickle.loads(pickle.dumps(a.numpy()))
        on = hal.device(pickle.loads(pickle.dumps(a.device.name)))
        np.testing.assert_array_equal(hal.asarray(values, device=on).numpy(), X)

    def test_weak_references_end_with_the_array(self) -> None:
        a = hal.asarray(X)
        seen: list[int] = []
        ref = weakref.ref(a, lambda _: seen.append(1))
        assert ref() is a
        del a
        assert ref() is None and seen == [1]
        for _ in range(400):  # objects are used again, their references are not
            b = hal.asarray([1.0])
            assert weakref.getweakrefcount(b) == 0
            keep = weakref.ref(b)
        assert keep() is b

    def test_an_array_has_no_hash(self) -> None:
        with pytest.raises(TypeError, match="unhashable"):
            hash(hal.asarray(X))


class TestShown:
    def test_device_dtype_shape_and_state(self) -> None:
        for on in hal.devices():
            a = hal.asarray(X, device=on)
            hal.synchronize(on)
            for text in (repr(a), str(a)):
                assert text.startswith(f"Array(f32[3,4], {on.name}, ready,\n[[ 0.  1.")
        assert repr(hal.zeros((2000,))).endswith("ready)")
        c = hal.asarray(X, constant=True)
        assert ", constant, ready," in repr(c)

    def test_a_graph_is_recorded_and_not_read(self) -> None:
        x = hal.asarray(X)
        with hal.graph() as g:
            y: Any = x + x
            assert repr(y).endswith(", recording)") and str(y) == repr(y)
        assert repr(y).endswith(", recorded)")
        g.launch()
        hal.synchronize()
        assert ", ready," in repr(y)
