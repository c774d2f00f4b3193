"""Contexts belong to threads: many of ours at once, and those of others, which stay as they were.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from simulated import Double

DRIVER = """
import ctypes, os, threading
import numpy as np, anyhal as hal
driver = ctypes.CDLL(os.environ["ANYHAL_CUDA_DRIVER"] + "/libcuda.so.1")

def context_of(number):
    context = ctypes.c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number) == 0
    return context.value

def current():
    context = ctypes.c_void_p()
    assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
    return context.value

def become(context):
    assert driver.cuCtxSetCurrent(ctypes.c_void_p(context)) == 0

def work(device, value, rounds=12):
    x = hal.asarray(np.full((8, 8), value, np.float32), device=device)
    for _ in range(rounds):
        with hal.graph(device) as graph:
            y = hal.add(x @ x, 1.0)
        graph.launch()
        assert (y.numpy() == 8 * value * value + 1).all()

failed = []
def on_threads(bodies):
    def guarded(body):
        try:
            body()
        except BaseException as why:
            failed.append(repr(why))
    threads = [threading.Thread(target=guarded, args=(b,)) for b in bodies]
    for t in threads: t.start()
    for t in threads: t.join()
    assert not failed, failed
"""


def run(double: Double, code: str, script: str) -> None:
    double.python(DRIVER + code, f"devices=sm_90,sm_80; {script}")
    assert double.report().violations == []


def test_a_foreign_context_is_current_before_and_after(double: Double) -> None:
    """Another library of the program works on the second device, this one on both."""
    code = """
theirs = context_of(1)
become(theirs)
work("cuda:0", 2)
assert current() == theirs
work("cuda:1", 3)
assert current() == theirs
bad = hal.asarray(np.array([9]), device="cuda:0")
try: hal.take(hal.ones((4,), device="cuda:0"), bad, axis=0).numpy()
except hal.InvalidArgumentError: pass
assert current() == theirs, "after a failure"
become(None)
work("cuda:0", 2)
assert current() is None
"""
    run(double, code, "seed=1")


def test_threads_with_and_without_contexts_of_their_own(double: Double) -> None:
    code = """
contexts = [context_of(0), context_of(1)]
def body(i):
    mine = [None, *contexts][i % 3]
    def inside():
        become(mine)
        for device in ("cuda:0", "cuda:1"):
            with hal.use(queue=hal.Queue(hal.device(device))):
                work(device, i + 1, 4)
                assert current() == mine, (i, device)
    return inside
on_threads([body(i) for i in range(6)])
"""
    run(double, code, "seed=5")


def test_the_primary_context_is_retained_once_a_device(double: Double) -> None:
    run(double, 'work("cuda:0", 1); work("cuda:1", 1); work("cuda:0", 2)', "seed=2")
    assert double.report().calls["cuDevicePrimaryCtxRetain"] == 2
