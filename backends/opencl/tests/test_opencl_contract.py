"""Queues, memory and failures of the opencl library, seen through its table.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
import threading
import time

import contract
import numpy as np
import pytest
from cl_client import BLOCKS, EVENTS, PLANS, STAGING, Blocked, Notify, OpenCL
from contract import ADD, BINARY, GATHER, MATMUL, U32, U64, P, Reader, Ref, Refused, ptr, put
from opencl_double import Double

VECTOR = ("float32", (64,))
SECOND = 10**9
DRIVER = 9  # anyhal_reason


@pytest.fixture
def device(cl: str) -> contract.Device:
    return OpenCL().open(int(cl.partition(":")[2]))


def vector(start: float = 0) -> np.ndarray:
    return np.arange(start, start + 64, dtype=np.float32)


def test_work_is_ordered_and_positions_count(device: contract.Device) -> None:
    queue = device.queue()
    plan = device.prepare(BINARY, [VECTOR] * 3, 2, fn=ADD)
    x = put(device, queue, vector())
    for value in range(1, 5):
        plan.run(queue, x, x, x)
        device.signal(queue, 10 * value)
    read = Reader(device, queue, x, vector())
    device.signal(queue, 50)
    assert device.wait(queue, 50).completed == 50
    assert device.wait(queue, 15).completed == 50  # between two signals: the later one
    np.testing.assert_array_equal(read.values(), vector() * 16)
    with pytest.raises(Refused) as refused:
        device.wait(queue, 51)
    assert refused.value.status == contract.INVALID
    with pytest.raises(Refused):
        device.signal(queue, 50)


@pytest.mark.parametrize("setting", ["0", "1"])
def test_one_queue_waits_for_another(cl: str, setting: str) -> None:
    device = OpenCL(out_of_order=setting).open(int(cl.partition(":")[2]))
    first, second = device.queue(), device.queue()
    plan = device.prepare(BINARY, [VECTOR] * 3, 2, fn=ADD)
    x = put(device, first, vector(1))
    gate = Blocked(device, first, x)
    for _ in range(3):
        plan.run(first, x, x, x)
    device.signal(first, 7)
    device.instance.call("queue_wait", second, first, U64(7))
    plan.run(second, x, x, x)
    read = Reader(device, second, x, vector())
    device.signal(second, 1)
    time.sleep(0.02)
    with pytest.raises(Refused) as late:
        device.wait(second, 1, 0)
    assert late.value.status == contract.TIMEOUT
    gate.finish()
    device.wait(second, 1, 20 * SECOND)
    np.testing.assert_array_equal(read.values(), vector(1) * 16)


def test_a_wait_honours_its_limit(device: contract.Device) -> None:
    queue = device.queue()
    x = put(device, queue, vector())
    gate = Blocked(device, queue, x)
    device.signal(queue, 1)
    for limit in (0, SECOND // 50):
        began = time.monotonic()
        with pytest.raises(Refused) as late:
            device.wait(queue, 1, limit)
        assert late.value.status == contract.TIMEOUT
        assert limit / SECOND <= time.monotonic() - began < limit / SECOND + 1
    gate.finish()
    assert device.wait(queue, 1, 20 * SECOND).completed == 1


STATUSES = {
    -1: contract.EXECUTION_FAILED,  # as PoCL says of a kernel that failed
    -4: contract.OUT_OF_MEMORY,
    -5: contract.EXECUTION_FAILED,
    -77: contract.EXECUTION_FAILED,
}


@pytest.fixture
def lying(cl: str, double: Double) -> contract.Device:
    return OpenCL(opencl_library=double.path).open(int(cl.partition(":")[2]))


@pytest.mark.parametrize("code", STATUSES)
def test_an_asynchronous_error_reaches_the_waiter_and_spares_the_rest(
    lying: contract.Device, code: int, double: Double
) -> None:
    device = lying
    queue, other = device.queue(), device.queue()
    plan = device.prepare(BINARY, [VECTOR] * 3, 2, fn=ADD)
    x = put(device, queue, vector())
    device.signal(queue, 3)
    device.wait(queue, 3)
    double.script(f"fault=clEnqueueNDRangeKernel@2:{code}")
    failed_call = device.tag + 2
    for _ in range(100):
        plan.run(queue, x, x, x)
    device.signal(queue, 4)
    with pytest.raises(Refused) as failed:
        device.wait(queue, 4, 20 * SECOND)
    assert failed.value.status == STATUSES[code], str(failed.value)
    assert (device.last_state.completed, device.last_state.failed_value) == (3, 4)
    assert device.last_state.failed_tag == failed_call
    assert str(failed.value).startswith(f"call {failed_call} ended with")
    with pytest.raises(Refused, match="the queue is dead") as dead:
        plan.run(queue, x, x, x)
    assert dead.value.status == contract.EXECUTION_FAILED
    double.script()
    device.instance.release(contract.QUEUE, queue.value)
    y = put(device, other, vector(5))
    plan.run(other, y, y, y)
    read = Reader(device, other, y, vector())
    device.signal(other, 1)
    device.wait(other, 1, 20 * SECOND)
    np.testing.assert_array_equal(read.values(), 2 * vector(5))


def test_a_call_refused_for_want_of_memory_may_be_made_again(
    lying: contract.Device, double: Double
) -> None:
    queue = lying.queue()
    plan = lying.prepare(BINARY, [VECTOR] * 3, 2, fn=ADD)
    x = put(lying, queue, vector())
    double.script("fail=clEnqueueNDRangeKernel@1+:-4")
    with pytest.raises(Refused, match="MEM_OBJECT_ALLOCATION_FAILURE") as refused:
        plan.run(queue, x, x, x)
    assert refused.value.status == contract.OUT_OF_MEMORY
    double.script()
    plan.run(queue, x, x, x)
    read = Reader(lying, queue, x, vector())
    lying.signal(queue, 1)
    lying.wait(queue, 1)
    np.testing.assert_array_equal(read.values(), 2 * vector())


@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        ("fail=clGetPlatformIDs@1+:-1001", "knows no platform"),
        ("fail=clGetDeviceIDs@1+:-1", "no OpenCL platform has a device"),
    ],
)
def test_absence_is_named(double: Double, lie: str, sentence: str) -> None:
    double.script(lie)
    with pytest.raises(Refused, match=sentence) as refused:
        OpenCL(opencl_library=double.path).devices()
    assert refused.value.status == contract.NOT_FOUND
    with pytest.raises(Refused, match="install it"):
        OpenCL(opencl_library="/nowhere/libOpenCL.so.1").devices()


def test_a_device_that_is_too_old_is_refused_by_reason(double: Double) -> None:
    double.script("version=OpenCL 1.1 old")
    with pytest.raises(Refused, match="OpenCL 1.2 is needed") as refused:
        OpenCL(opencl_library=double.path).open(0)
    assert (refused.value.status, refused.value.reason) == (contract.UNSUPPORTED, DRIVER)


def test_notes_come_once_also_of_a_failure(lying: contract.Device, double: Double) -> None:
    device = lying
    told: list[tuple[int, int]] = []
    done = threading.Event()

    def note(argument: int, status: int) -> None:
        told.append((argument or 0, status))
        if len(told) == 3:
            done.set()

    keep = Notify(note)
    queue = device.queue()
    x = put(device, queue, vector())
    device.signal(queue, 1)
    device.wait(queue, 1)
    notify = lambda value, tag: device.instance.call(  # noqa: E731
        "queue_notify", queue, U64(value), c.cast(keep, P), P(tag)
    )
    notify(1, 1)
    assert told == [(1, contract.OK)]
    good = Blocked(device, queue, x)
    device.signal(queue, 2)
    notify(2, 2)
    double.script("fault=clEnqueueNDRangeKernel@1:-5")
    device.prepare(BINARY, [VECTOR] * 3, 2, fn=ADD).run(queue, x, x, x)
    device.signal(queue, 3)
    notify(3, 3)
    good.finish()
    device.wait(queue, 2, 20 * SECOND)
    with pytest.raises(Refused):
        device.wait(queue, 3, 20 * SECOND)
    assert done.wait(20)
    time.sleep(0.05)
    assert sorted(told) == [(1, contract.OK), (2, contract.OK), (3, contract.EXECUTION_FAILED)]
    with pytest.raises(Refused):
        notify(9, 9)


def test_an_index_outside_is_told_with_its_call_and_writes_nothing(
    device: contract.Device,
) -> None:
    queue = device.queue()
    shapes = [VECTOR, ("int64", (4,)), ("float32", (4,))]
    plan = device.prepare(GATHER, shapes, 2)
    x = put(device, queue, vector())
    before = np.full(4, 7, np.float32)
    out = put(device, queue, before)
    right, wrong = (put(device, queue, np.array([0, 1, 2, last])) for last in (63, 64))
    plan.run(queue, x, right, out)
    device.signal(queue, 1)
    device.wait(queue, 1)
    read = Reader(device, queue, out, before)
    plan.run(queue, x, wrong, out)
    tag = device.tag
    after = Reader(device, queue, out, before)
    device.signal(queue, 2)
    with pytest.raises(Refused, match=r"index 64 is outside \[0, 64\)") as refused:
        device.wait(queue, 2, 20 * SECOND)
    assert refused.value.status == contract.INVALID
    assert (device.last_state.failed_value, device.last_state.failed_tag) == (2, tag)
    np.testing.assert_array_equal(read.values(), [0, 1, 2, 63])
    np.testing.assert_array_equal(after.values(), [0, 1, 2, 63])


def test_blocks_have_limits_and_offsets(cl: str, device: contract.Device) -> None:
    kinds = device.instance.devices()[int(cl.partition(":")[2])].kinds
    with pytest.raises(Refused) as large:
        device.alloc(kinds[0].block_max + 64)
    assert large.value.status == contract.INVALID
    blocks, refused = [], None
    for _ in range(64):  # drivers accept more than they have; the backend does not
        try:
            blocks.append(device.alloc(kinds[0].block_max))
        except Refused as full:
            refused = full
            break
    assert refused is not None and refused.status == contract.OUT_OF_MEMORY
    for block in blocks:
        device.instance.release(contract.MEMORY, block.memory)
    # An offset that no sub-buffer could have.
    queue = device.queue()
    x = put(device, queue, vector())
    plan = device.prepare(BINARY, [("float32", (60,))] * 3, 2, fn=ADD)
    out = device.alloc(256)
    at = Ref(x.memory, 12)
    plan.run(queue, at, at, Ref(out.memory, 4))
    read = Reader(device, queue, Ref(out.memory, 4), vector()[:60])
    device.signal(queue, 1)
    device.wait(queue, 1)
    np.testing.assert_array_equal(read.values(), 2 * vector()[3:63])
    for ref in (Ref(x.memory, 20), Ref(x.memory, 2**63), Ref(0, 0)):
        with pytest.raises(Refused) as outside:
            plan.run(queue, ref, at, Ref(out.memory, 0))
        assert outside.value.status == contract.INVALID
        with pytest.raises(Refused):
            device.copy(queue, Ref(out.memory, 0), ref, 240)


def test_mem_09_nothing_is_left_behind(device: contract.Device) -> None:
    instance = device.instance
    start = [device.counter(n) for n in (BLOCKS, PLANS, EVENTS)]
    queue = device.queue()
    plan = device.prepare(BINARY, [VECTOR] * 3, 2, fn=ADD)
    x = device.alloc(256)
    staging = device.alloc(256, STAGING)
    ref = Ref(x.memory, 0)
    device.copy(queue, ref, Ref(staging.memory, 0), 256)
    for value in range(1, 1001):
        plan.run(queue, ref, ref, ref)
        device.signal(queue, value)
        if value % 100 == 0:
            device.wait(queue, value)
    device.wait(queue, 1000)
    assert device.counter(EVENTS) == start[2]
    instance.release(contract.QUEUE, queue.value)
    instance.release(contract.PLAN, plan.handle.value)
    for block in (x, staging):
        instance.release(contract.MEMORY, block.memory)
    assert [device.counter(n) for n in (BLOCKS, PLANS, EVENTS)] == start


def test_two_threads_share_a_plan(device: contract.Device) -> None:
    """clSetKernelArg is not safe on one kernel object: each queue has its own."""
    plan = device.prepare(MATMUL, [("float32", (16, 16))] * 3, 2)
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        queue = device.queue()
        for round_number in range(1, 40):
            a, b = rng.integers(-4, 5, (2, 16, 16)).astype(np.float32)
            out = Ref(device.alloc(1024).memory, 0)
            plan.run(queue, put(device, queue, a), put(device, queue, b), out)
            read = Reader(device, queue, out, a)
            device.instance.call("queue_signal", queue, U64(round_number))
            state = contract.sized(contract.State)
            device.instance.call(
                "host_wait", queue, U64(round_number), U64(contract.NO_LIMIT), ptr(state)
            )
            if not np.array_equal(read.values(), a @ b):
                wrong.append(f"thread {seed}, round {round_number}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_fill_repeats_its_pattern(device: contract.Device) -> None:
    queue = device.queue()
    x = put(device, queue, vector())
    pattern = (c.c_uint8 * 4)(0, 0, 0x80, 0x3F)
    device.instance.call(
        "queue_fill", queue, Ref(x.memory, 16), U64(64), c.cast(pattern, P), U32(4)
    )
    with pytest.raises(Refused) as odd:
        device.instance.call(
            "queue_fill", queue, Ref(x.memory, 2), U64(64), c.cast(pattern, P), U32(4)
        )
    assert odd.value.status == contract.UNSUPPORTED
    read = Reader(device, queue, x, vector())
    device.signal(queue, 1)
    device.wait(queue, 1)
    want = vector()
    want[4:20] = 1
    np.testing.assert_array_equal(read.values(), want)
