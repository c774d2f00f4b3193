"""Public failure reports that a CUDA backend could repeat, one test each, named by its id.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated import CUDA, Double, Report

import anyhal as hal

Run = Callable[..., Report]


@pytest.fixture
def accounts(double_folder: Path) -> Callable[[], Report]:
    """What the double has counted in this process."""
    driver = ctypes.CDLL(str(double_folder / "libcuda.so.1"))
    driver.cuda_double_report.restype = ctypes.c_char_p
    return lambda: Report.read(driver.cuda_double_report().decode())


def test_mem_04_a_block_is_not_reused_while_another_queue_reads_it(simulated: Any) -> None:
    with hal.use(device=simulated.name):
        first, second = hal.Queue(simulated), hal.Queue(simulated)
        for value in range(30):
            with hal.use(queue=first):
                x = hal.asarray(np.full(5000, value, np.float32))
            with hal.use(queue=second):
                copy = hal.add(x, 0.0)
            del x  # its memory goes back while the second queue may still read it
            with hal.use(queue=first):
                hal.asarray(np.full(5000, np.nan, np.float32))
            np.testing.assert_array_equal(copy.numpy(), np.full(5000, value, np.float32))


def test_mem_05_pinned_memory_stays_until_its_copy_is_done(simulated: Any) -> None:
    with hal.use(device=simulated.name):
        made = [hal.asarray(np.full(3000, value, np.float32)) for value in range(40)]
        for value, array in enumerate(made):
            np.testing.assert_array_equal(array.numpy(), np.full(3000, value, np.float32))


def test_mem_06_no_copy_touches_pageable_memory(simulated: Any, accounts: Any) -> None:
    x = hal.asarray(np.arange(1 << 20, dtype=np.float32), device=simulated.name)
    assert x.numpy()[-1] == (1 << 20) - 1
    assert [v for v in accounts().violations if "pageable" in v] == []


def test_mem_09_events_do_not_grow_with_the_calls(simulated: Any, accounts: Any) -> None:
    with hal.use(device=simulated.name):
        x = hal.asarray(np.zeros(8, np.float32))
        for _ in range(70):  # more than a queue keeps
            hal.add(x, 1.0, out=x)
            x.numpy()
        before = accounts()
        for _ in range(300):
            hal.add(x, 1.0, out=x)
            x.numpy()
        after = accounts()
    assert after.calls["cuEventRecord"] >= before.calls["cuEventRecord"] + 300
    assert after.calls["cuEventCreate"] == before.calls["cuEventCreate"]
    assert after.left["events"] == before.left["events"]


def test_mem_11_listing_devices_makes_no_context(double: Double) -> None:
    double.python("import anyhal as hal; print([d.name for d in hal.devices()])")
    report = double.report()
    assert report.calls["cuInit"] == 1 and report.calls["cuDevicePrimaryCtxRetain"] == 0


@pytest.mark.parametrize("call", [1, 2, 3, 5, 8])
def test_mem_12_memory_that_is_short_at_any_allocation_is_an_error(
    double: Double, call: int
) -> None:
    code = (
        "import numpy as np, anyhal as hal\n"
        "try:\n"
        "    x = hal.asarray(np.ones(40000, np.float32), device='cuda:0')\n"
        "    for _ in range(6): x = hal.add(x, x)\n"
        "    print(x.numpy()[0])\n"
        "except hal.OutOfMemoryError as why:\n"
        "    print('refused')\n"
    )
    printed = double.python(code, script=f"growth=0; fail=cuMemAlloc_v2@{call}:2")
    assert printed.strip() in ("64.0", "refused")  # once more after a trim, or an error
    assert double.report().violations == []


def test_str_01_every_stream_is_the_queues_own(simulated: Any, accounts: Any) -> None:
    with hal.use(device=simulated.name):
        side = hal.Queue(simulated)
        with hal.use(queue=side):
            x = hal.add(hal.asarray(np.ones(64, np.float32)), 1.0)
            np.testing.assert_array_equal(hal.add(x, x).numpy(), np.full(64, 4, np.float32))
    assert [v for v in accounts().violations if "STR-01" in v] == []


def test_str_03_memory_handed_out_later_is_not_the_graphs(simulated: Any) -> None:
    with hal.use(device=simulated.name):
        x = hal.asarray(np.ones(64, np.float32))
        with hal.graph() as graph:
            between = hal.add(x, x)
            out = hal.multiply(between, between)
        others = [hal.asarray(np.full(64, 42, np.float32)) for _ in range(16)]
        graph.launch()
        np.testing.assert_array_equal(out.numpy(), np.full(64, 4, np.float32))
        for other in others:
            np.testing.assert_array_equal(other.numpy(), np.full(64, 42, np.float32))


@pytest.mark.parametrize("length", [1, 50, 200, 500])
def test_str_04_a_replay_of_any_length_sees_new_values(scenario: Run, length: int) -> None:
    report = scenario("replays", str(length), script="seed=4")
    assert report.runs["anyhal_binary"] == length  # once, while it was captured
    assert report.calls["cuGraphLaunch"] == 5


def test_str_05_a_failed_end_of_capture_leaves_the_next_alone(scenario: Run) -> None:
    scenario("recapture", script="fail=cuStreamEndCapture@1:901")


def test_str_06_others_may_allocate_and_ask_during_a_capture(scenario: Run) -> None:
    scenario("beside", script="seed=6")


def test_str_07_threads_with_queues_of_their_own_share_a_product(scenario: Run) -> None:
    scenario("products", script="seed=7")


def test_str_10_a_capture_on_the_second_device_stays_there(scenario: Run) -> None:
    report = scenario("replays", "20", "1", script="devices=sm_90,sm_80; seed=2")
    assert report.calls["cuDevicePrimaryCtxRetain"] == 1


def test_det_04_a_product_has_the_same_bits_on_every_run(simulated: Any) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((64, 512)).astype(np.float32)
    with hal.use(device=simulated.name):
        a = hal.asarray(x)
        runs = {(a @ a.T).numpy().tobytes() for _ in range(12)}
    assert len(runs) == 1


def test_num_34_no_kernel_knows_the_width_of_a_warp() -> None:
    for source in (CUDA / "kernels").iterdir():
        text = source.read_text()
        assert not re.search(r"warp|__shfl|__ballot|laneid", text, re.IGNORECASE), source


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("c.cuStreamWaitEvent(stream, event, 0)", "was never recorded"),
        ("c.cuMemFree_v2(c_uint64(12345))", "no block, or twice"),
        ("c.cuMemcpyAsync(p, c_uint64(id(c)), c_size_t(8), stream)", "pageable host memory"),
        ("c.cuStreamDestroy_v2(stream); c.cuStreamDestroy_v2(stream)", "no stream, or twice"),
        ("c.cuStreamCreateWithPriority(byref(stream), 0, 0)", "default stream"),
        ("c.cuStreamEndCapture(stream, byref(event))", "without a begin"),
        (
            "c.cuStreamBeginCapture_v2(stream, 1); c.cuMemAlloc_v2(byref(p), c_size_t(8))",
            "captured",
        ),
    ],
)
def test_the_double_notices_broken_rules(double: Double, code: str, rule: str) -> None:
    setup = (
        "from ctypes import *; import os\n"
        "c = CDLL(os.environ['ANYHAL_CUDA_DRIVER'] + '/libcuda.so.1')\n"
        "context, stream, event, p = c_void_p(), c_void_p(), c_void_p(), c_uint64()\n"
        "assert c.cuInit(0) == 0 and c.cuDevicePrimaryCtxRetain(byref(context), 0) == 0\n"
        "assert c.cuCtxSetCurrent(context) == 0 and c.cuEventCreate(byref(event), 0) == 0\n"
        "assert c.cuStreamCreateWithPriority(byref(stream), 1, 0) == 0\n"
        "assert c.cuMemAlloc_v2(byref(p), c_size_t(64)) == 0\n"
    )
    double.python(setup + code)
    assert any(rule in v for v in double.report().violations), double.report().violations
    assert double.report().left["memory"] >= 1  # and what was not given back


def test_the_host_cannot_touch_the_doubles_memory(double: Double) -> None:
    code = (
        "import ctypes, numpy as np, anyhal as hal\n"
        "x = hal.asarray(np.ones(64, np.float32), device='cuda:0'); x.numpy()\n"
        "c = ctypes.CDLL(__import__('os').environ['ANYHAL_CUDA_DRIVER'] + '/libcuda.so.1')\n"
        "p = ctypes.c_uint64()\n"
        "assert c.cuMemGetInfo_v2(ctypes.byref(p), ctypes.byref(p)) in (0, 201)\n"
        "context = ctypes.c_void_p(); c.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)\n"
        "c.cuCtxSetCurrent(context); c.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(64))\n"
        "print('looking', flush=True); ctypes.string_at(p.value, 4)\n"
    )
    done = double.run(sys.executable, "-c", code)
    assert done.returncode == -11 and "looking" in done.stdout  # a segmentation fault
