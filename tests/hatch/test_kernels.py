"""Users' kernels on the processor: C libraries and functions, Numba; order, graphs, refusals.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyhal as hal

SCALE = ("in f32", "out f32", "f32", "i64")
Made = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32
)


@pytest.fixture(autouse=True)
def on_the_processor() -> Iterator[None]:
    with hal.use(device="cpu:0"):
        yield


@pytest.fixture
def module(library: Path) -> hal.Module:
    return hal.load_module(library, device="cpu:0")


@pytest.mark.parametrize("parts", [1, 3, (2, 2), 64])
def test_a_c_kernel_runs_in_order_among_ops(module: hal.Module, parts: Any) -> None:
    scale = module.kernel("scale", SCALE)
    x = hal.arange(1000, dtype="f32")
    doubled = hal.add(x, x)
    y = hal.zeros(1000)
    scale(doubled, y, 0.5, 1000, grid=parts)
    np.testing.assert_array_equal(hal.negative(y).numpy(), -x.numpy())


def test_values_lie_as_in_a_c_struct(module: hal.Module) -> None:
    kinds = ["i8", "u8", "i16", "u16", "i32", "u32", "f32", "i64", "u64", "f64", "bool"]
    given = [-7, 200, -3000, 60000, -(2**30), 2**31, 0.1, -(2**62), 2**63, 0.1, True]
    out = hal.zeros(11, dtype="f64")
    module.kernel("sums", ["out f64", *kinds])(out, *given)
    want = np.array(given[:6] + [np.float32(0.1)] + given[7:], np.float64)
    np.testing.assert_array_equal(out.numpy(), want)


def test_a_graph_records_it(module: hal.Module) -> None:
    scale = module.kernel("scale", SCALE)
    x, y = hal.ones(4), hal.zeros(4)
    with hal.graph() as g:
        scale(x, y, 3.0, 4)
        z = hal.add(y, y)
    del scale
    gc.collect()
    for value in (1.0, 5.0):
        x.set(np.full(4, value, np.float32))
        g.launch()
        assert z.numpy().tolist() == [6 * value] * 4
    assert len(g) == 2


def test_it_is_counted_and_has_receipts(module: hal.Module) -> None:
    scale = module.kernel("scale", SCALE)
    with hal.use(receipts=True):
        scale(hal.ones(4), hal.zeros(4), 1.0, 4)
    rows = [r for r in hal.routes() if r["op"] == "scale"]
    assert rows and rows[0]["device"] == "cpu:0" and rows[0]["state"] == "user's"
    assert hal.receipts()[-1]["op"] == "scale" and hal.receipts()[-1]["kernel"] == "scale"


def test_views_begin_where_they_begin(module: hal.Module) -> None:
    x, y = hal.arange(10, dtype="f32"), hal.zeros(10)
    module.kernel("scale", SCALE)(x[5:], y[2:7], 1.0, 5)
    assert y.numpy().tolist() == [0, 0, 5, 6, 7, 8, 9, 0, 0, 0]


# Made from the module's kernel, x and y (f32[8], dense): calls that must be refused.
BAD_CALLS: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "too few": (lambda k, x, y: k(x, y, 1.0), hal.InvalidTypeError, "3 arguments.*has 4"),
    "too many": (lambda k, x, y: k(x, y, 1.0, 8, 1), hal.InvalidTypeError, "5 arguments"),
    "no array": (lambda k, x, y: k(1.0, y, 1.0, 8), hal.InvalidTypeError, "float is no array"),
    "numpy": (lambda k, x, y: k(x.numpy(), y, 1.0, 8), hal.InvalidTypeError, "ndarray is no array"),
    "none": (lambda k, x, y: k(None, y, 1.0, 8), hal.InvalidTypeError, "NoneType is no array"),
    "dtype": (
        lambda k, x, y: k(x.astype("f64"), y, 1.0, 8),
        hal.InvalidArgumentError,
        r"argument 0 \(in f32\).*float64",
    ),
    "device": (
        lambda k, x, y: k(hal.ones(8, device="cpu_ref:0"), y, 1.0, 8),
        hal.InvalidArgumentError,
        "cpu_ref:0; copy it to cpu:0",
    ),
    "strided": (
        lambda k, x, y: k(hal.ones((8, 8)).T, y, 1.0, 8),
        hal.InvalidArgumentError,
        "strided",
    ),
    "alias": (lambda k, x, y: k(y, y, 1.0, 8), hal.InvalidArgumentError, "0 and 1 share bytes"),
    "overlap": (
        lambda k, x, y: k(y[:6], y[2:], 1.0, 4),
        hal.InvalidArgumentError,
        "share bytes",
    ),
    "constant": (
        lambda k, x, y: k(x, hal.asarray(np.ones(8, np.float32), constant=True), 1.0, 8),
        hal.InvalidArgumentError,
        "constant",
    ),
    "text": (lambda k, x, y: k(x, y, "1", 8), hal.InvalidTypeError, "no float32"),
    "fraction": (lambda k, x, y: k(x, y, 1.0, 8.5), hal.InvalidTypeError, "no int64"),
    "bool": (lambda k, x, y: k(x, y, 1.0, True), hal.InvalidTypeError, "no int64"),
    "range": (lambda k, x, y: k(x, y, 1.0, 2**63), hal.InvalidArgumentError, "does not fit"),
    "grid": (lambda k, x, y: k(x, y, 1.0, 8, grid=0), hal.InvalidArgumentError, "grid=0"),
    "queue": (
        lambda k, x, y: k(x, y, 1.0, 8, queue=hal.Queue("cpu_ref:0")),
        hal.InvalidArgumentError,
        "queue is one of cpu_ref:0",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_call_that_does_not_fit_writes_nothing(module: hal.Module, name: str) -> None:
    make, error, words = BAD_CALLS[name]
    x, y = hal.ones(8), hal.full(8, 7.0, dtype="f32")
    with pytest.raises(error, match=words):
        make(module.kernel("scale", SCALE), x, y)
    assert y.numpy().tolist() == [7] * 8


BAD_SIGNATURES = {
    "one text": "in f32",
    "unknown dtype": ["in f33"],
    "unknown access": ["inn f32"],
    "value first": ["i64", "in f32"],
    "block value": ["q8_0"],
    "too many": ["i64"] * 25,
    "no text": [3],
}


@pytest.mark.parametrize("name", BAD_SIGNATURES)
def test_a_signature_that_makes_no_sense(module: hal.Module, name: str) -> None:
    with pytest.raises(hal.InvalidArgumentError):
        module.kernel("scale", BAD_SIGNATURES[name])  # type: ignore[arg-type]


def test_code_that_cannot_be_loaded(library: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("no library")
    unsupported, invalid = hal.UnsupportedError, hal.InvalidArgumentError
    for code, given, error, words in [
        (tmp_path / "none.so", {}, hal.NotFoundError, "cannot be read"),
        (text, {}, unsupported, "loader refuses it"),
        ("kernels.so", {}, invalid, "absolute path only"),
        (0, {}, invalid, "NULL"),
        (-1, {}, invalid, "not NULL"),
        (object(), {}, hal.InvalidTypeError, "has no address"),
        (Made(), {}, invalid, "NULL"),
        ("__kernel", {}, invalid, "say which"),
        (b"x", {"format": "ptx"}, unsupported, "format 1"),
        (b"x", {"format": "pdf"}, invalid, "unknown"),
        (library, {"device": "cpu_ref:0"}, unsupported, "loads no code"),
    ]:
        with pytest.raises(error, match=words):
            hal.load_module(code, **given)
    with pytest.raises(hal.NotFoundError, match="no function 'absent'"):
        hal.load_module(library).kernel("absent", [])
    with pytest.raises(hal.InvalidTypeError, match="no function's name"):
        hal.load_module(library).kernel("", [])


def test_a_kernel_that_fails_is_an_error_and_the_queue_goes_on(module: hal.Module) -> None:
    fails = module.kernel("fails", [])
    with pytest.raises(
        hal.ExecutionFailedError, match="'fails' on cpu:0: the function answered 42"
    ):
        fails(grid=4)
    fails()
    x, y = hal.ones(4), hal.zeros(4)
    module.kernel("scale", SCALE)(x, y, 2.0, 4)
    assert y.numpy().tolist() == [2] * 4


def test_a_function_is_kept_as_long_as_something_runs_it() -> None:
    class Owner:
        def __init__(self) -> None:
            def triple(arrays: int, values: int, part: int, parts: int) -> int:
                at = ctypes.cast(arrays, ctypes.POINTER(ctypes.POINTER(ctypes.c_float)))
                for i in range(4):
                    at[0][i] *= 3
                return 0

            self.function = Made(triple)
            self.address = ctypes.cast(self.function, ctypes.c_void_p).value

    owner = Owner()
    seen = weakref.ref(owner)
    kernel = hal.load_module(owner).kernel("triple", ["inout f32"])
    x = hal.ones(4)
    del owner
    with hal.graph() as g:
        kernel(x)
    del kernel
    gc.collect()
    assert seen() is not None, "the graph runs it"
    g.launch()
    assert x.numpy().tolist() == [3] * 4
    del g
    gc.collect()
    assert seen() is None


def test_other_threads_go_on_while_it_runs(module: hal.Module) -> None:
    slow = module.kernel("slow", ["i64"])
    ticks = 0
    thread = threading.Thread(target=lambda: slow(300_000, queue=hal.Queue("cpu:0")))
    thread.start()
    end = time.monotonic() + 0.2
    while time.monotonic() < end and thread.is_alive():
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert ticks > 10


def test_many_grids_keep_few_plans(module: hal.Module) -> None:
    scale = module.kernel("scale", SCALE)
    x, y = hal.ones(256), hal.zeros(256)
    for parts in range(1, 200):
        scale(x, y, float(parts), 256, grid=parts)
    assert y.numpy().tolist() == [199] * 256 and len(scale._plans) == 64


def test_a_numba_function_runs_in_order() -> None:
    if not os.environ.get("TEST_NUMBA"):  # CI promises it
        pytest.importorskip("numba", reason='numba is not installed: pip install ".[numba-test]"')
    import numba

    kinds = numba.types
    pointer = kinds.CPointer

    @numba.cfunc(
        kinds.int32(pointer(kinds.voidptr), pointer(kinds.int64), kinds.uint32, kinds.uint32)
    )
    def squares(arrays, values, part, parts):  # type: ignore[no-untyped-def]
        n = values[0]
        x = numba.carray(arrays[0], n, np.float32)
        y = numba.carray(arrays[1], n, np.float32)
        for i in range(n * part // parts, n * (part + 1) // parts):
            y[i] = x[i] * x[i]
        return 0

    kernel = hal.load_module(squares).kernel("squares", ["in f32", "out f32", "i64"])
    x, y = hal.add(hal.arange(100, dtype="f32"), 1.0), hal.zeros(100)
    kernel(x, y, 100, grid=4)
    np.testing.assert_array_equal(hal.sqrt(y).numpy(), np.arange(1, 101, dtype=np.float32))

    @numba.cfunc(kinds.int32(kinds.voidptr))
    def short(arrays):  # type: ignore[no-untyped-def]
        return 0

    with pytest.raises(
        hal.InvalidArgumentError, match="takes 1 arguments, and is called with four"
    ):
        hal.load_module(short)
