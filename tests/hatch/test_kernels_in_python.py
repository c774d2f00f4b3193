"""Users' kernels that are Python: other threads, calls from inside, what does not fit.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyhal as hal

Made = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32
)
BEGIN = """
import ctypes, threading, time
import numpy as np
import anyhal as hal
Made = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32
)
scope = hal.use(device="cpu:0")
scope.__enter__()
x, y = hal.ones(4), hal.zeros(4)
hal.add(x, x), x + 1.0  # planned
def kernel(function):
    return hal.load_module(Made(function)).kernel("k", ["in f32", "out f32"])
"""


def run(code: str) -> str:
    """In a process of its own: what was wrong here hung."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# What another thread does while a kernel in Python has the queue and needs the interpreter's lock.
OTHER = {
    "op": "assert hal.add(x, x).numpy().tolist() == [2] * 4",
    "unplanned": "assert hal.multiply(x, 3.0).numpy().tolist() == [3] * 4",
    "kernel": "kernel(lambda *_: 0)(x, y)",
    "synchronize": "hal.synchronize()",
    "graph": "with hal.graph() as g: z = x + x\n    g.launch()\n    assert z.numpy()[0] == 2",
    "native": "hal.enqueue_native(lambda work: None, reads=[x])",
    "shared out": "assert float(hal.sum(hal.ones(1 << 20)).numpy()) == 1 << 20",
    "other queue": "with hal.use(queue=hal.Queue('cpu:0')): hal.add(x, x)",
}


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", OTHER)
def test_other_threads_wait_for_it_without_the_interpreter(name: str, parts: int) -> None:
    code = f"""
begun = threading.Event()
def slow(*_):
    begun.set()
    time.sleep(0.2)
    return 0
def other():
    begun.wait()
    scope = hal.use(device="cpu:0")
    scope.__enter__()
    {OTHER[name]}
    print("other")
thread = threading.Thread(target=other)
thread.start()
kernel(slow)(x, y, grid={parts})
thread.join()
print("end")
"""
    assert run(code).split() == ["other", "end"]


INSIDE = {
    "op": "hal.add(x, x)",
    "unplanned": "hal.multiply(x, 3.0)",
    "kernel": "inner(x, z)",
    "other queue": "inner(x, z, queue=queue)",
    "synchronize": "hal.synchronize()",
    "graph": "g.launch()",
    "capture": "hal.graph().__enter__()",
    "native": "hal.enqueue_native(lambda work: None)",
}


@pytest.mark.parametrize("form", ["alone", "parts", "graph"])
@pytest.mark.parametrize("name", INSIDE)
def test_a_call_from_inside_is_refused(name: str, form: str) -> None:
    call = {"alone": "f(x, y)", "parts": "f(x, y, grid=8)", "graph": "launch(f)"}[form]
    code = f"""
inner, z, queue, said = kernel(lambda *_: 0), hal.zeros(4), hal.Queue("cpu:0"), []
with hal.graph() as g:
    hal.add(x, x)
def inside(*_):
    try:
        {INSIDE[name]}
    except hal.InvalidArgumentError as why:
        said.append(str(why))
    return 0
def launch(f):
    with hal.graph() as own:
        f(x, y)
    own.launch()
f = kernel(inside)
{call}
assert said and all("inside a user's kernel" in text for text in said), said
assert hal.add(x, x).numpy().tolist() == [2] * 4
print("end")
"""
    assert run(code).split() == ["end"]


def test_native_work_may_call() -> None:
    code = """
def work(_):
    assert hal.add(x, x).numpy().tolist() == [2] * 4
    kernel(lambda *_: 0)(x, y)
hal.enqueue_native(work)
print("end")
"""
    assert run(code).split() == ["end"]


@pytest.fixture
def module() -> hal.Module:
    return hal.load_module(Made(lambda *_: 0), device="cpu:0")


@pytest.mark.parametrize("given", [-1, 1.5, "x", None, 1 << 32, 1 << 40, True])
def test_shared_bytes_that_are_none(module: hal.Module, given: Any) -> None:
    with pytest.raises(hal.InvalidArgumentError, match="no size of memory; pass an int from 0"):
        module.kernel("k", ["in f32"], shared_bytes=given)


@pytest.mark.parametrize("given", ["\udcff", "a\0b", "", None])
def test_names_that_are_none(module: hal.Module, given: Any) -> None:
    with pytest.raises(hal.InvalidTypeError, match="no function's name"):
        module.kernel(given, ["in f32"])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_a_float_that_is_too_large(module: hal.Module, dtype: str) -> None:
    k = module.kernel("k", [dtype])
    largest = {"f16": 65504.0, "f64": 1.7e308}.get(dtype, 3.3e38)
    for good in (largest, -largest, 1 << 15, float("inf"), float("nan"), np.float32(2)):
        k(good)
    bad = [10**400, 10**5000, -(10**400)] + [1e39, 1 << 128] * (dtype != "f64")
    bad += [1 << 63, 70000.0] * (dtype == "f16")
    for given in bad:
        with pytest.raises(hal.InvalidArgumentError, match="too large for"):
            k(given)


def test_an_int_that_is_too_large_to_be_written(module: hal.Module) -> None:
    with pytest.raises(hal.InvalidArgumentError, match="an int of 16610 bits does not fit"):
        module.kernel("k", ["i64"])(10**5000)
    module.kernel("k", ["bf16"])(1 << 63)


def test_a_path_with_a_zero_byte() -> None:
    for path in ("/tmp/a\0.so", Path("/tmp/a\0.so")):
        with pytest.raises(hal.InvalidArgumentError, match="has a zero byte"):
            hal.load_module(path, device="cpu:0", format="library")


def test_text_that_is_no_utf8() -> None:
    with pytest.raises(hal.InvalidArgumentError, match="lone surrogate"):
        hal.load_module("\udcff", device="cpu:0", format="opencl_c")


@pytest.mark.parametrize("grid", [(1 << 30,) * 3, (1 << 22, 1 << 22, 1 << 20), (1 << 16, 1 << 16)])
def test_a_grid_of_more_parts_than_can_be_counted(module: hal.Module, grid: Any) -> None:
    sizes = " x ".join(map(str, (*grid, 1)[:3]))
    with pytest.raises(hal.InvalidArgumentError, match=f"grid of {sizes} has not 1 to"):
        module.kernel("k", ["in f32"])(hal.ones(4, device="cpu:0"), grid=grid)
