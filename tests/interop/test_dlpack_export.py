"""DLPack, outwards: what a capsule says, whom it keeps alive, and what is refused.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from dlpack_producer import (
    COPIED,
    READ_ONLY,
    Once,
    Producer,
    managed_of,
    on_a_foreign_thread,
)

import anyhal as hal

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def tensor_of(capsule: Any) -> tuple[Any, Any]:
    """The records of a capsule, which they keep."""
    record = managed_of(capsule)[1]
    record.capsule = capsule
    tensor = record.tensor
    tensor.capsule = capsule
    return record, tensor


@pytest.mark.parametrize("asked", [None, (0, 8), (1, 0), (1, 1), (1, 3), (2, 0)])
def test_the_capsule_is_of_the_consumers_age(asked: Any) -> None:
    record, tensor = tensor_of(hal.asarray(X).__dlpack__(max_version=asked))
    if asked is None or asked[0] < 1:
        assert not hasattr(record, "major")
    else:  # the version that is implemented, whatever later ones the consumer knows
        assert (record.major, record.minor, record.flags) == (1, 1, 0)
    assert (tensor.device_type, tensor.device_id, tensor.byte_offset) == (1, 0, 0)
    assert tensor.ndim == 2 and list(tensor.shape[:2]) == [3, 4]
    assert list(tensor.strides[:2]) == [4, 1]
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (2, 32, 1)


def test_flags_say_read_only_and_copied() -> None:
    constant = hal.asarray(X, constant=True)
    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    frozen = hal.frombuffer(bytes(12), "float32", (3,))
    for a in (constant, constant[1:], hal.from_dlpack(read_only), frozen):
        assert tensor_of(a.__dlpack__(max_version=(1, 0)))[0].flags == READ_ONLY
        for version in (None, (0, 8)):
            with pytest.raises(BufferError, match="copy=True"):
                a.__dlpack__(max_version=version)
            assert np.from_dlpack(Once(a.__dlpack__(max_version=version, copy=True))).size == a.size
        assert tensor_of(a.__dlpack__(max_version=(1, 0), copy=True))[0].flags == COPIED
    a = hal.asarray(X)
    assert tensor_of(a.__dlpack__(max_version=(1, 0), copy=False))[0].flags == 0
    view = np.from_dlpack(Once(a.__dlpack__(max_version=(1, 0), copy=True)))
    view[...] = 7
    np.testing.assert_array_equal(a.numpy(), X)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (1, 7), (7, 1), (1, 1, 1)])
def test_odd_shapes_have_strides_and_nothing_has_no_data(shape: tuple[int, ...]) -> None:
    _, tensor = tensor_of(hal.ones(shape).__dlpack__(max_version=(1, 0)))
    assert tensor.ndim == len(shape) and bool(tensor.strides)
    assert (tensor.data is None) == (0 in shape)
    back = np.from_dlpack(hal.ones(shape))
    assert back.shape == shape and (back == 1).all()


def test_views_keep_their_strides() -> None:
    a = hal.asarray(X)
    for view, want in (
        (a.T, X.T),
        (a[::2, 1:3], X[::2, 1:3]),
        (a[None, :, None], X[None, :, None]),
    ):
        got = np.from_dlpack(view)
        np.testing.assert_array_equal(got, want)
        assert np.shares_memory(got, np.from_dlpack(a))
    wide = np.from_dlpack(hal.broadcast_to(a[0], (5, 4)))
    assert wide.strides == (0, 4) and (wide == X[0]).all()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"max_version": 1}, "max_version"),
    ({"max_version": ("1", 0)}, "max_version"),
    ({"max_version": (1, 0, 0)}, "max_version"),
    ({"max_version": (1.0, 0)}, "max_version"),
    ({"dl_device": "cpu"}, "dl_device"),
    ({"dl_device": (1,)}, "dl_device"),
    ({"copy": "no"}, "copy is a"),
    ({"stream": 1}, "no streams"),
    ({"stream": 0}, "no streams"),
    ({"stream": "x"}, "no streams"),
    ({"stream": True}, "no streams"),
    ({"strean": None}, "strean"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_bad_arguments_are_type_errors(options: dict[str, Any], words: str) -> None:
    with pytest.raises(hal.InvalidTypeError, match=words) as caught:
        hal.asarray(X).__dlpack__(**options)
    assert isinstance(caught.value, TypeError)


def test_the_host_takes_no_stream_and_minus_one() -> None:
    a = hal.asarray(X)
    for stream in (None, -1):
        assert a.__dlpack__(stream=stream, dl_device=(1, 0)) is not None


@pytest.mark.parametrize("device", [(2, 0), (1, 1), (99, 0)])
def test_another_device_is_a_buffer_error(device: tuple[int, int]) -> None:
    with pytest.raises(BufferError, match="only its own device and the host"):
        hal.asarray(X).__dlpack__(dl_device=device)


def test_any_device_gives_its_values_on_the_host() -> None:
    for on in hal.devices():
        a = hal.asarray(X, device=on)
        np.testing.assert_array_equal(np.from_dlpack(a, device="cpu"), X)
        if a.__dlpack_device__() == (1, 0):
            continue
        with pytest.raises(BufferError, match="copy=False"):
            a.__dlpack__(dl_device=(1, 0), copy=False)
        record, tensor = tensor_of(a.T.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
        assert record.flags == COPIED and tensor.device_type == 1
        if a.__dlpack_device__()[0] == 12:  # nobody else addresses that memory
            with pytest.raises(BufferError, match="dl_device"):
                a.__dlpack__(max_version=(1, 0))


def test_block_formats_are_refused() -> None:
    a = hal.frombuffer(bytes(40), "q4_1", (2, 32))
    with pytest.raises(BufferError, match="block formats"):
        a.__dlpack__(max_version=(1, 0))


def test_a_graph_that_has_not_run_has_nothing_to_show() -> None:
    x = hal.asarray(X)
    with hal.graph() as g:
        y = x + x
        with pytest.raises(hal.InvalidArgumentError, match="captured"):
            y.__dlpack__()
    with pytest.raises(hal.InvalidArgumentError, match="launch it first"):
        y.__dlpack__()
    g.launch()
    np.testing.assert_array_equal(np.from_dlpack(y), X + X)


class TestLifetime:
    def test_the_exporter_may_go_first(self) -> None:
        a = hal.asarray(np.full(1 << 16, 3.0))
        capsule = a.__dlpack__(max_version=(1, 0))
        del a
        gc.collect()
        junk = [hal.full((1 << 16,), 9.0, dtype="float64") for _ in range(8)]
        view = np.from_dlpack(Once(capsule))
        assert (view == 3).all() and len(junk) == 8

    def test_capsules_that_nobody_consumes_give_their_memory_back(self) -> None:
        on = hal.device()
        before = hal.ledger(on)["activations"]["in_use"]
        for version in (None, (1, 0)):
            capsules = [hal.empty((1 << 18,)).__dlpack__(max_version=version) for _ in range(4)]
            assert hal.ledger(on)["activations"]["in_use"] >= before + (4 << 20)
            del capsules
            assert hal.ledger(on)["activations"]["in_use"] == before

    @pytest.mark.parametrize("version", [None, (1, 0)])
    def test_a_foreign_thread_without_the_gil_may_end_it(self, version: Any) -> None:
        """Of our own memory, and of memory that goes on to Python objects and deleters."""
        p = Producer(X.copy())
        host = hal.frombuffer(np.zeros(4, np.float32), "float32", (4,), constant=False)
        kept = hal.asarray(X)
        for a in (kept, hal.from_dlpack(p), host):
            capsule = a.__dlpack__(max_version=version)
            address, record = managed_of(capsule)
            deleter = record.deleter
            np.from_dlpack  # noqa: B018 (the capsule is renamed as a consumer does)
            consume(capsule, version)
            del a
            on_a_foreign_thread(deleter, address)
        del host
        gc.collect()
        assert p.deleted == 1
        np.testing.assert_array_equal(kept.numpy(), X)

    def test_threads_that_export_and_let_go_at_once(self) -> None:
        a = hal.asarray(X)
        wrong: list[Any] = []

        def work() -> None:
            for _ in range(300):
                if np.from_dlpack(a).sum() != X.sum() or hal.from_dlpack(X).shape != (3, 4):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong


def consume(capsule: Any, version: Any) -> None:
    import ctypes

    name = b"used_dltensor" if version is None else b"used_dltensor_versioned"
    consume.names.append(ctypes.create_string_buffer(name))  # type: ignore[attr-defined]
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_void_p]
    assert rename(capsule, ctypes.addressof(consume.names[-1])) == 0  # type: ignore[attr-defined]


consume.names = []  # type: ignore[attr-defined]
