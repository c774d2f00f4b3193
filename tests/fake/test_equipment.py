"""The fake backend is honest: it computes right, defers really, and fails exactly as told.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import time

import contract as abi
import numpy as np
import pytest
from contract import Instance, Reader, Ref, Refused, put

A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.arange(8, dtype=np.float32).reshape(4, 2)
MODES = ["mode=sync", "mode=async", "mode=sync; memory=cell", "mode=async; memory=cell"]
MATMUL_SHAPES = [("float32", (3, 4)), ("float32", (4, 2)), ("float32", (3, 2))]


def add_plan(device: abi.Device, n: int = 4, **options: object) -> abi.Plan:
    return device.prepare(abi.BINARY, [("float32", (n,))] * 3, 2, fn=abi.ADD, **options)


def violations(device: abi.Device) -> int:
    return device.counter(110)


@pytest.mark.parametrize("script", MODES)
def test_a_product_is_right_in_every_mode(script: str) -> None:
    device = Instance(script).open()
    queue = device.queue()
    plan = device.prepare(abi.MATMUL, MATMUL_SHAPES, 2, cell="cell" in script)
    out = Ref(device.alloc(24).memory, 0)
    plan.run(queue, put(device, queue, A), put(device, queue, B), out)
    reader = Reader(device, queue, out, np.empty((3, 2), np.float32))
    if "async" in script:
        assert not np.array_equal(reader.values(), A @ B), "nothing runs before it is waited for"
        device.signal(queue, 1)
        assert device.wait(queue, 1).completed == 1
    np.testing.assert_array_equal(reader.values(), A @ B)
    assert violations(device) == 0


def test_work_waits_for_its_signal() -> None:
    device = Instance("mode=async").open()
    queue = device.queue()
    x = put(device, queue, np.ones(4, np.float32))
    device.signal(queue, 1)
    add_plan(device).run(queue, x, x, x)
    device.wait(queue, 1)
    assert device.counter(113) == 1, "the call after the signal was not submitted"


def test_a_forgotten_wait_shows_every_time() -> None:
    device = Instance("mode=async").open()
    producer, consumer = device.queue(), device.queue()
    ones = np.ones(4, np.float32)
    x, out = put(device, producer, ones), Ref(device.alloc(16).memory, 0)
    device.signal(producer, 1)
    add_plan(device).run(consumer, x, x, out)
    stale = Reader(device, consumer, out, ones)
    device.signal(consumer, 1)
    device.wait(consumer, 1)
    assert np.isnan(stale.values()).all(), "the producer has not run: nobody waited for it"
    device.instance.call("queue_wait", consumer, producer, abi.U64(1))
    add_plan(device).run(consumer, x, x, out)
    fresh = Reader(device, consumer, out, ones)
    device.signal(consumer, 2)
    device.wait(consumer, 2)
    np.testing.assert_array_equal(fresh.values(), ones + ones)


def test_waiting_for_what_was_not_submitted_is_a_broken_rule() -> None:
    device = Instance("mode=async").open()
    first, second = device.queue(), device.queue()
    with pytest.raises(Refused, match="not submitted") as refused:
        device.instance.call("queue_wait", first, second, abi.U64(1))
    assert refused.value.status == abi.INVALID
    with pytest.raises(Refused, match="not signalled"):
        device.wait(first, 1)
    assert violations(device) == 2


def test_delay_is_device_time_and_limits_hold() -> None:
    device = Instance("mode=async; delay=40ms").open()
    queue = device.queue()
    x = put(device, queue, np.ones(4, np.float32))
    add_plan(device).run(queue, x, x, x)
    began = time.monotonic()
    device.signal(queue, 1)
    assert time.monotonic() - began < 0.03, "queue_signal does not wait"
    with pytest.raises(Refused) as late:
        device.wait(queue, 1, limit=1_000_000)
    assert late.value.status == abi.TIMEOUT
    device.wait(queue, 1)
    assert time.monotonic() - began >= 0.04


def test_a_hanging_call_times_out_and_is_abandoned() -> None:
    device = Instance("mode=async; hang=binary").open()
    queue = device.queue()
    x = put(device, queue, np.ones(4, np.float32))
    add_plan(device).run(queue, x, x, x)
    device.signal(queue, 1)
    with pytest.raises(Refused) as late:
        device.wait(queue, 1, limit=5_000_000)
    assert late.value.status == abi.TIMEOUT
    with pytest.raises(Refused, match="queued calls use it"):
        device.instance.release(abi.MEMORY, x.memory)
    device.instance.release(abi.MEMORY, x.memory, abandon=True)


@pytest.mark.parametrize("slot", ["memory_alloc", "op_query", "op_prepare", "device_list"])
def test_the_nth_call_of_a_slot_fails_once(slot: str) -> None:
    instance = Instance(f"fail={slot}@2:out_of_memory")
    outcomes = []
    device = instance.open()
    for _ in range(3):
        try:
            if slot == "device_list":
                instance.devices()
            elif slot == "memory_alloc":
                device.alloc(64)
            elif slot == "op_prepare":
                add_plan(device)
            else:
                abi.query(device, add_plan(device).desc)
            outcomes.append(abi.OK)
        except Refused as refused:
            outcomes.append(refused.status)
    assert outcomes == [abi.OK, abi.OUT_OF_MEMORY, abi.OK]


def test_a_lost_device_stays_lost_and_names_the_first_failure() -> None:
    instance = Instance("devices=2; fail=op_enqueue@2/0:device_lost; 0.recovery=reopen")
    lost, other = instance.open(1), instance.open(2)
    queue = lost.queue()
    x, y = (put(device, queue, np.ones(4, np.float32)) for device in (lost, other))
    plans = [add_plan(device) for device in (lost, other)]
    plans[0].run(queue, x, x, x)
    for slot in range(3):
        with pytest.raises(Refused, match="lost at op_enqueue call 2") as refused:
            plans[0].run(queue, x, x, x) if slot == 0 else lost.alloc(16)
        assert refused.value.status == abi.LOST
    plans[1].run(queue, y, y, y)
    instance.release(abi.MEMORY, x.memory, abandon=True)
    instance.release(abi.DEVICE, lost.handle.value or 0, abandon=True)
    instance.open(1).alloc(16)


def test_late_out_of_memory_kills_the_queue_and_loses_in_place_operands() -> None:
    device = Instance("mode=async; late_oom=2").open()
    queue = device.queue()
    ones = np.ones(4, np.float32)
    x, y = put(device, queue, ones), put(device, queue, ones)
    add_plan(device).run(queue, x, x, y)
    add_plan(device, alias=1).run(queue, x, y, x)
    device.signal(queue, 1)
    with pytest.raises(Refused, match="in-place operands are lost") as refused:
        device.wait(queue, 1)
    assert refused.value.status == abi.OUT_OF_MEMORY
    assert (device.last_state.failed_value, device.last_state.failed_tag) == (1, 2)
    with pytest.raises(Refused) as dead:
        device.signal(queue, 2)
    assert dead.value.status == abi.EXECUTION_FAILED
    again = device.queue()
    plain, in_place = Reader(device, again, y, ones), Reader(device, again, x, ones)
    device.signal(again, 1)
    device.wait(again, 1)
    np.testing.assert_array_equal(plain.values(), ones + ones)
    assert np.isnan(in_place.values()).all()


def test_cells_take_whole_writes_and_refuse_parts() -> None:
    device = Instance("mode=sync; memory=cell").open()
    none = device.queue()
    cell = put(device, none, np.ones(8, np.float32))
    staging = device.alloc(32, 1)
    with pytest.raises(Refused, match="PARTIAL_READ"):
        device.copy(none, Ref(staging.memory, 0), cell, 16)
    with pytest.raises(Refused, match="PARTIAL_WRITE"):
        device.copy(none, cell, Ref(staging.memory, 0), 16)
    open_device = Instance("mode=sync; memory=cell; partial=read,write").open()
    cell = put(open_device, none, np.ones(8, np.float32))
    staging = open_device.alloc(32, 1)
    open_device.copy(none, Ref(staging.memory, 0), cell, 16)
    assert violations(device) == 2 and violations(open_device) == 0


def test_an_empty_cell_holds_nothing_worth_reading() -> None:
    device = Instance("mode=sync; memory=cell").open()
    none = device.queue()
    reader = Reader(device, none, Ref(device.alloc(16).memory, 0), np.empty(4, np.float32))
    assert np.isnan(reader.values()).all()


@pytest.mark.parametrize("rule", ["range", "released", "twice", "in place", "cell"])
def test_it_notices_a_core_that_breaks_a_rule(rule: str) -> None:
    script = "memory=cell" if rule == "cell" else ""
    device = Instance(script).open()
    none = device.queue()
    x = put(device, none, np.ones(4, np.float32))
    plan = add_plan(device, alias=1 if rule == "in place" else 0, cell=rule == "cell")
    with pytest.raises(Refused, match="broke the contract") as refused:
        if rule == "range":
            plan.run(none, x, Ref(x.memory, 4), x)
        elif rule == "in place":
            plan.run(none, x, x, put(device, none, np.ones(4, np.float32)))
        elif rule == "cell":
            plan.run(none, x, x, Ref(device.alloc(32).memory, 0))
        else:
            device.instance.release(abi.MEMORY, x.memory)
            if rule == "twice":
                device.instance.release(abi.MEMORY, x.memory)
            plan.run(none, x, x, x)
    assert refused.value.status == abi.INVALID
    assert violations(device) == 1


def test_wrong_answers_are_wrong_and_only_there() -> None:
    device = Instance("wrong=matmul").open()
    none = device.queue()
    out = Ref(device.alloc(24).memory, 0)
    plan = device.prepare(abi.MATMUL, MATMUL_SHAPES, 2)
    plan.run(none, put(device, none, A), put(device, none, B), out)
    got = Reader(device, none, out, np.empty((3, 2), np.float32)).values()
    assert (got != A @ B).sum() == 1 and got[2, 1] != (A @ B)[2, 1]


def test_counters_count_slots_objects_and_bytes() -> None:
    device = Instance("mode=async; devices=2").open(2)
    queue = device.queue()
    before = device.counter(3)
    block = device.alloc(100)
    assert device.counter(3) - before == 1 and device.counter(203) == device.counter(3)
    assert (device.counter(102), device.counter(103), device.counter(112)) == (1, 1, 100)
    device.instance.release(abi.MEMORY, block.memory)
    device.instance.release(abi.QUEUE, queue.value or 0)
    assert (device.counter(102), device.counter(103), device.counter(112)) == (0, 0, 0)


def test_the_heap_is_enforced() -> None:
    device = Instance("heap=1KiB").open()
    device.alloc(1000)
    with pytest.raises(Refused, match="24 of 1024 bytes free") as refused:
        device.alloc(100)
    assert refused.value.status == abi.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("script", "part"),
    [
        ("nonsense=1", "no key is called 'nonsense'"),
        ("fail=op_enqueu@1:internal", "no slot is called 'op_enqueu'"),
        ("refuse=matmul:because", "no reason is called 'because'"),
        ("heap=12parsec", "no unit is called 'parsec'"),
        ("3.heap=1", "there is no such device"),
        ("late_oom=1", "only with mode=async"),
        ("ops=attention", "no kernel for attention"),
    ],
)
def test_a_script_that_makes_no_sense_is_refused(script: str, part: str) -> None:
    with pytest.raises(Refused, match=part) as refused:
        Instance(script)
    assert refused.value.status == abi.INVALID


def test_versions_that_do_not_meet_are_refused_with_both_sides() -> None:
    with pytest.raises(Refused, match=r"contract 0\.3, the core 0\.7 to 0\.9") as refused:
        Instance("", abi=(7, 9))
    assert refused.value.status == abi.ABI_MISMATCH


def test_zero_devices_is_an_answer() -> None:
    assert Instance("devices=0").devices() == []


def test_a_device_says_what_the_script_says() -> None:
    script = (
        "devices=2; name=Big; 1.name=Small; 1.integrated; 1.heap=512MiB; uuid=00ab; own_threads=3"
    )
    first, second = Instance(script).devices()
    assert (first.name, second.name) == (b"Big", b"Small")
    assert (first.flags, second.flags) == (0, 2)
    assert bytes(first.uuid) == bytes([0, 0xAB] + [0] * 14)
    assert second.kinds[0].heap_bytes == 512 << 20 and second.own_threads == 3
