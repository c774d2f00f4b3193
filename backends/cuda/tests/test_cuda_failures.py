"""What a failing device says to whoever waits, in Python, while other devices go on.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from simulated import Double

TWO = "devices=sm_90,sm_80"
OTHERS_GO_ON = """
import ctypes, os
import numpy as np, anyhal as hal
driver = ctypes.CDLL(os.environ["ANYHAL_CUDA_DRIVER"] + "/libcuda.so.1")

def fail(script):
    # From now on: NAME@N:CODE, the n-th call of a function or run of a kernel.
    driver.cuda_double_fail(script.encode())

def works(device):
    x = hal.asarray(np.arange(6, dtype=np.float32).reshape(2, 3), device=device)
    np.testing.assert_array_equal((x @ x.T).numpy(), [[5, 14], [14, 50]])

def raised(call):
    try:
        call()
    except hal.HalError as why:
        return why
    raise AssertionError("nothing was raised")

def others_go_on():
    works("cuda:1"), works("cpu:0")
"""


def run(double: Double, code: str, script: str) -> str:
    """Of what the self-test finds nothing is kept beyond the program."""
    cache = str(double.report_file.parent / "cache")
    printed = double.python(OTHERS_GO_ON + code, f"{TWO}; {script}", ANYHAL_CACHE=cache)
    assert double.report().violations == []
    return printed


def test_memory_that_runs_out_is_told_and_comes_back(double: Double) -> None:
    code = """
kept = []
def fill():
    while len(kept) < 100:
        kept.append(hal.asarray(np.ones(4 << 20, np.float32), device="cuda:0"))
why = raised(fill)
print(type(why).__name__, "allocating" in str(why))
others_go_on()
assert kept[0].numpy()[-1] == 1
kept.clear()
works("cuda:0")
"""
    assert run(double, code, "memory=128M") == "OutOfMemoryError True\n"


@pytest.mark.parametrize("code", [700, 719])
@pytest.mark.parametrize("waiter", ["x.numpy()", "hal.device('cuda:0').synchronize()"])
def test_a_lost_device_says_why_for_good(double: Double, code: int, waiter: str) -> None:
    program = f"""
x = hal.add(hal.asarray(np.ones(64, np.float32), device="cuda:0"), 1.0)  # tests the op first
fail("anyhal_binary@1:{code}")
x = hal.add(x, 1.0)
first = raised(lambda: {waiter})
print(type(first).__name__, "{code}" in str(first), "start a new one" in str(first))
for call in (lambda: x.numpy(), lambda: hal.add(x, x),
             lambda: hal.asarray(np.ones(4, np.float32), device="cuda:0")):
    assert "{code}" in str(raised(call))  # also where the device is not chosen for it
others_go_on()
"""
    printed = run(double, program, "seed=4")
    assert printed == "DeviceLostError True True\n"


@pytest.mark.parametrize("kernel", ["cublasLtMatmul", "anyhal_reduce_short", "anyhal_gather"])
def test_any_kernel_that_dies_reaches_its_waiter(double: Double, kernel: str) -> None:
    program = f"""
x = hal.asarray(np.ones((4, 4), np.float32), device="cuda:0")
at = hal.asarray(np.array([1]), device="cuda:0")
make = lambda: hal.take(hal.sum(x @ x, axis=1), at, axis=0)
assert make().numpy()[0] == 16
fail("{kernel}@1:719")
print(type(raised(lambda: make().numpy())).__name__)
others_go_on()
"""
    assert run(double, program, "seed=2") == "DeviceLostError\n"


def test_a_device_lost_in_the_self_test_is_no_wrong_answer(double: Double) -> None:
    """What happened to the device is told as such, and no later process refuses the op for it."""
    program = """
x = hal.asarray(np.ones(4, np.float32), device="cuda:0")
print(type(raised(lambda: hal.add(x, x).numpy())).__name__)
others_go_on()
"""
    assert run(double, program, "fault=anyhal_binary@1:719") == "DeviceLostError\n"
    assert run(double, "print(hal.ones((2,), device='cuda:0') + 1)", "seed=0")


def test_a_failed_self_test_costs_the_op_in_its_process_only(double: Double) -> None:
    program = """
x = hal.asarray(np.ones(4, np.float32), device="cuda:0")
why = raised(lambda: hal.add(x, x))
print(type(why).__name__, "cuLaunchKernel answered 1" in str(why), "in this process" in str(why))
"""
    assert run(double, program, "fail=cuLaunchKernel@1:1") == "UnsupportedError True True\n"
    assert run(double, "works('cuda:0'); hal.ones((2,), device='cuda:0') + 1", "seed=0") == ""


def test_an_asynchronous_error_names_its_call_and_keeps_the_rest(double: Double) -> None:
    program = """
on = lambda a: hal.asarray(np.array(a), device="cuda:0")
x = on(np.arange(4, dtype=np.float32))
before = hal.add(x, 1.0)
bad = hal.take(x, on([4]), axis=0)
after = hal.add(bad, 1.0)
why = raised(after.numpy)
print(type(why).__name__, "index 4 is outside [0, 4)" in str(why))
assert isinstance(raised(bad.numpy), hal.InvalidArgumentError)
np.testing.assert_array_equal(before.numpy(), [1, 2, 3, 4])
works("cuda:0"), others_go_on()
"""
    assert run(double, program, "seed=6") == "InvalidArgumentError True\n"


def test_a_call_that_the_driver_refuses_is_typed_and_the_next_works(double: Double) -> None:
    program = """
x = hal.asarray(np.ones(4, np.float32), device="cuda:0")
hal.add(x, x).numpy()
fail("cuLaunchKernel@1:1")
why = raised(lambda: hal.add(x, x))
print(type(why).__name__, "cuLaunchKernel answered 1" in str(why))
assert hal.add(x, x).numpy()[0] == 2
works("cuda:0"), others_go_on()
"""
    assert run(double, program, "seed=0") == "InternalError True\n"


SWEEP = """
import gc, re
driver.cuda_double_report.restype = ctypes.c_char_p
def report(): return driver.cuda_double_report().decode()
def calls(): return {n: int(c) for n, c in re.findall(r"^calls (\\w+) (\\d+)$", report(), re.M)}

def program():
    x = hal.asarray(np.arange(600000, dtype=np.float32).reshape(600, 1000), device="cuda:0")
    with hal.graph("cuda:0") as graph:
        y = hal.sum(hal.add(x, 1.0) @ x.T, axis=0)
    graph.launch()
    z = hal.take(y, hal.asarray(np.array([2, 0]), device="cuda:0"), axis=0)
    return z.numpy()

want = program()
fail("")
np.testing.assert_array_equal(program(), want)
counts, met, refused = calls(), 0, 0
for name, count in sorted(counts.items()):
    # Without its context a dead queue cannot be made anew, and then the device counts as lost.
    if name in ("cuGetErrorName", "cuCtxGetCurrent", "cuCtxSetCurrent"): continue
    for call in range(1, min(count, 12) + 1):  # a wait asks as often as it takes
        for code in (2, 999):
            fail(f"{name}@{call}:{code}")
            try:
                found = program()
            except hal.HalError:
                refused += 1
            else:
                np.testing.assert_array_equal(found, want, str((name, call, code)))
            met += 1
            gc.collect()
fail("")
np.testing.assert_array_equal(program(), want)
works("cuda:0"), others_go_on()
print(met, refused)
"""


def test_a_program_meets_a_failure_of_every_call_it_makes(double: Double) -> None:
    """Its own result, or a typed error; and afterwards all works in the same process."""
    met, refused = map(int, run(double, SWEEP, "seed=0").split())
    assert met > 40 and refused > met / 4  # how often it asks whether something ended varies
