"""Order, capture, loss and late failure on the scriptable backend.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.runtime.device import facts as device_facts

Fake = Callable[..., Any]
MODES = ["mode=sync", "mode=async", "memory=cell", "mode=async; memory=cell"]
ENQUEUE, PREPARE, QUERY, ALLOC = 6, 5, 4, 3


def vector(value: float, n: int = 64) -> np.ndarray:
    return np.full(n, value, np.float32)


@pytest.mark.parametrize("mode", MODES)
def test_program_order_holds_across_queues(fake: Fake, on: Fake, mode: str) -> None:
    device = fake(mode)
    with on(device):
        first, second = hal.Queue(device), hal.Queue(device)
        x = hal.asarray(vector(1))
        for _ in range(6):
            with hal.use(queue=first):
                y = hal.add(x, x)
            with hal.use(queue=second):
                x = hal.subtract(y, 1.0)
        np.testing.assert_array_equal(x.numpy(), vector(1))


def test_queues_that_wait_for_each_other_in_turns(fake: Fake, on: Fake) -> None:
    device = fake("mode=async; delay=50us")
    with on(device):
        queues = [hal.Queue(device), hal.Queue(device)]
        x = hal.asarray(vector(1, 96))
        for step in range(400):
            with hal.use(queue=queues[step % 2]):
                hal.add(x, 1.0, out=x)
            if step % 7 == 0:
                np.testing.assert_array_equal(x.numpy(), vector(2 + step, 96))
        np.testing.assert_array_equal(x.numpy(), vector(401, 96))


def test_a_constant_is_packed_behind_what_writes_it(fake: Fake, on: Fake) -> None:
    device = fake("mode=async; delay=20ms; pack=matmul")
    with on(device):
        first, second = hal.Queue(device), hal.Queue(device)
        x = hal.asarray(np.ones((2, 4), np.float32))
        values = np.arange(12, dtype=np.float32).reshape(4, 3)
        before = hal.asarray(values, constant=True)
        hal.synchronize(device)
        with hal.use(queue=first):
            weight = [copy.deepcopy(before) for _ in range(3)][-1]
        with hal.use(queue=second):
            y = hal.matmul(x, weight)
        np.testing.assert_array_equal(y.numpy(), np.ones((2, 4)) @ values)


def test_a_constant_stays_until_it_was_packed(fake: Fake, on: Fake) -> None:
    device = fake("mode=async; delay=20ms; pack=matmul")
    with on(device):
        first, second = hal.Queue(device), hal.Queue(device)
        x = hal.asarray(np.ones((2, 4), np.float32))
        values = np.arange(12, dtype=np.float32).reshape(4, 3)
        weight, other = (hal.asarray(v, constant=True) for v in (values, values + 7))
        hal.synchronize(device)
        with hal.use(queue=second):
            held = [hal.add(x, x) for _ in range(3)]
            y = hal.matmul(x, weight)
        del weight
        with hal.use(queue=first):
            held += [copy.deepcopy(other) for _ in range(4)]  # in its memory, were it free
        np.testing.assert_array_equal(y.numpy(), np.ones((2, 4)) @ values)


def test_what_a_recording_computes_is_no_constant_yet(fake: Fake, on: Fake) -> None:
    with on(fake("pack=matmul")):
        weight = hal.asarray(np.ones((4, 3), np.float32), constant=True)
        with (
            pytest.raises(hal.InvalidArgumentError, match="the graph that is being recorded"),
            hal.graph(),
        ):
            copy.deepcopy(weight)


def test_str_01_without_a_queue_the_scopes_is_used(fake: Fake, on: Fake) -> None:
    device = fake("mode=async; delay=1ms")
    side = hal.Queue(device)
    with on(device), hal.use(queue=side):
        x = hal.full((64,), 1.0, dtype="float32")
        y = hal.add(x, x)
        assert not side.signal().done(), "the work is on the scope's queue"
        np.testing.assert_array_equal(y.numpy(), vector(2))


def test_a_call_returns_before_its_work_is_done(fake: Fake, on: Fake) -> None:
    device = fake("mode=async; delay=100ms")
    with on(device):
        x = hal.asarray(vector(1))
        hal.synchronize(device)
        began = time.monotonic()
        y = hal.add(x, x)
        assert time.monotonic() - began < 0.05
        np.testing.assert_array_equal(y.numpy(), vector(2))
        assert time.monotonic() - began >= 0.1


def test_str_03_memory_handed_out_later_is_not_the_graphs(fake: Fake, on: Fake) -> None:
    device = fake("mode=async")
    with on(device):
        x, one = hal.asarray(vector(1)), hal.asarray(vector(1))
        graph = hal.graph()
        with graph:
            temporary = hal.add(x, one)
            out = hal.multiply(temporary, temporary)
        others = [hal.asarray(vector(42)) for _ in range(32)]
        for _ in range(3):
            graph.launch()
        np.testing.assert_array_equal(out.numpy(), vector(4))
        for other in others:
            np.testing.assert_array_equal(other.numpy(), vector(42))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [1, 50, 200, 500])
def test_str_04_a_replay_sees_new_values(fake: Fake, on: Fake, mode: str, length: int) -> None:
    device = fake(mode)
    with on(device):
        step = hal.asarray(vector(1, 8))
        total = hal.asarray(vector(0, 8))
        with hal.graph() as graph:
            for _ in range(length):
                hal.add(total, step, out=total)
        want = 0.0
        for replay in range(1, 6):
            step.set(vector(replay, 8))
            graph.launch()
            want += length * replay
        np.testing.assert_array_equal(total.numpy(), vector(want, 8))


@pytest.mark.parametrize("mode", MODES)
def test_str_05_a_failed_capture_leaves_the_queue_usable(fake: Fake, on: Fake, mode: str) -> None:
    device = fake(mode)
    with on(device):
        x = hal.asarray(vector(1))
        with pytest.raises(hal.InvalidArgumentError), hal.graph():
            hal.add(x, x)
            hal.add(x, hal.asarray(vector(1, 3)))
        np.testing.assert_array_equal(hal.add(x, x).numpy(), vector(2))
        with hal.graph() as graph:
            y = hal.add(x, x)
        graph.launch()
        np.testing.assert_array_equal(y.numpy(), vector(2))


@pytest.mark.parametrize("mode", ["mode=sync", "mode=async"])
def test_str_09_loss_is_sticky_on_that_device_alone(fake: Fake, on: Fake, mode: str) -> None:
    lost, other = fake(f"devices=2; {mode}; fail=op_enqueue@5/0:device_lost")
    with on(lost):
        x, y = hal.asarray(vector(1)), hal.asarray(vector(1), device=other)
        texts = set()
        for _ in range(200):
            try:
                hal.add(x, x)
            except hal.DeviceLostError as why:
                texts.add(str(why))
        assert texts and all("op_enqueue call 5" in text for text in texts)
        assert lost.counter(ENQUEUE + 200) == 5, "a lost device is not asked again"
        np.testing.assert_array_equal(hal.add(y, y).numpy(), vector(2))
        with pytest.raises(hal.DeviceLostError, match="op_enqueue call 5"):
            x.numpy()
    assert lost.name not in [d.name for d in hal.devices() if not d.fact.why_not] or any(
        f.why_not and f.name == lost.name for f in device_facts().devices
    )


def test_late_out_of_memory_names_what_is_lost_and_spares_the_rest(fake: Fake, on: Fake) -> None:
    device = fake("mode=async; late_oom=3")
    with on(device):
        x, kept = hal.asarray(vector(1)), hal.asarray(vector(5))
        hal.add(x, kept).numpy()
        hal.multiply(x, kept).numpy()
        hal.add(x, kept, out=x)
        with pytest.raises((hal.OutOfMemoryError, hal.ExecutionFailedError), match="are lost"):
            x.numpy()
        with pytest.raises((hal.OutOfMemoryError, hal.ExecutionFailedError)):
            hal.add(x, x).numpy()
        np.testing.assert_array_equal(kept.numpy(), vector(5))
        np.testing.assert_array_equal(hal.add(kept, kept).numpy(), vector(10))
        x.set(vector(7))
        np.testing.assert_array_equal(hal.add(x, kept).numpy(), vector(12))


def test_a_late_failure_reaches_whoever_reads_it(fake: Fake, on: Fake) -> None:
    device = fake("mode=async; late_failure=2")
    with on(device):
        x = hal.asarray(vector(1))
        good = hal.add(x, x)
        assert good.numpy()[0] == 2
        bad = hal.multiply(x, x)
        worse = hal.add(bad, x)
        with pytest.raises(hal.ExecutionFailedError, match=r"multiply \(binary\), call \d+ of"):
            worse.numpy()
        with pytest.raises(hal.ExecutionFailedError):
            bad.numpy()
        np.testing.assert_array_equal(good.numpy(), vector(2))


def test_a_value_that_only_the_device_saw_is_the_callers_mistake(fake: Fake, on: Fake) -> None:
    device = fake("mode=async")
    with on(device):
        for bad in (3, -1):  # the second time with buffers that the first one left
            x, indices = hal.asarray(vector(1)[:3]), hal.asarray(np.array([0, bad]))
            with pytest.raises(hal.InvalidArgumentError, match=f"index {bad}"):
                hal.take(x, indices, axis=0).numpy()
            good = hal.take(hal.asarray(vector(2)), hal.asarray(np.array([0])), axis=0)
            assert good.numpy()[0] == 2
        bad_one = hal.take(x, indices, axis=0)
        with pytest.raises(hal.InvalidArgumentError, match="index 3"):  # the first not reported
            hal.synchronize(device)
        with pytest.raises(hal.InvalidArgumentError, match="index -1"):
            bad_one.numpy()
        np.testing.assert_array_equal(hal.asarray(vector(3)).numpy(), vector(3))


def test_what_a_failure_touched_is_new_when_it_is_used_again(fake: Fake, on: Fake) -> None:
    device = fake("mode=async; late_failure=1")
    with on(device):
        x = hal.asarray(np.ones((2, 2, 3, 8), np.float32))
        y = hal.rms_norm(x, eps=1e-5)  # in parts, with constants; the first part fails
        with pytest.raises(hal.ExecutionFailedError):
            y.numpy()
        del x, y
        for n in (1, 2, 16, 96, 160, 200, 300, 1000):  # staging memory is handed out again
            np.testing.assert_array_equal(hal.asarray(vector(n, n)).numpy(), vector(n, n))
        x = hal.asarray(np.ones((2, 2, 3, 8), np.float32))
        again = hal.rms_norm(x, eps=1e-5)  # the same plan with the same constants
        np.testing.assert_allclose(again.numpy(), np.ones((2, 2, 3, 8)), rtol=1e-4)


def test_a_wait_has_a_limit(fake: Fake, on: Fake) -> None:
    device = fake("mode=async; hang=binary")
    with on(device):
        queue = hal.Queue(device)
        x = hal.asarray(vector(1))
        with hal.use(queue=queue):
            held = hal.add(x, x)
        began = time.monotonic()
        with pytest.raises(hal.HalTimeoutError):
            queue.wait(0.05)
        assert time.monotonic() - began < 2
        del held


def test_a_hanging_device_does_not_keep_the_process(tmp_path: Any) -> None:
    program = (
        "import anyhal as hal, numpy as np\n"
        "d = hal.load_backend('fake', instance='h', settings={'script': 'mode=async; hang=*'})[0]\n"
        "with hal.use(device=d, allow_uncertified=('h',)):\n"
        "    x = hal.empty((4,), dtype='float32')\n"
        "    with hal.graph() as g:\n        y = hal.add(x, x)\n"
        "    g.launch()\nprint('end')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "end\n"), ran.stderr


@pytest.mark.parametrize("missing", ["queue_wait", "queue_fill", "device_query", "graph_prepare"])
def test_absent_slots_are_not_missed(fake: Fake, on: Fake, missing: str) -> None:
    device = fake(f"mode=async; absent={missing}")
    with on(device):
        x = hal.asarray(vector(1))
        with hal.use(queue=hal.Queue(device)):
            y = hal.add(x, x)
        np.testing.assert_array_equal(
            (y + hal.full((64,), 1.0, dtype="float32")).numpy(), vector(3)
        )


@pytest.mark.parametrize("mode", MODES)
def test_views_of_every_memory_are_read_and_written(fake: Fake, on: Fake, mode: str) -> None:
    device = fake(mode)
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    with on(device):
        x = hal.asarray(values)
        np.testing.assert_array_equal(x[1:3, 2:5].numpy(), values[1:3, 2:5])
        np.testing.assert_array_equal((x.T + x.T).numpy(), values.T * 2)
        hal.add(x[0], x[3], out=x[2])
        want = values.copy()
        want[2] = want[0] + want[3]
        np.testing.assert_array_equal(x.numpy(), want)


@pytest.mark.parametrize("mode", MODES)
def test_the_host_writes_parts_where_memory_has_parts(fake: Fake, on: Fake, mode: str) -> None:
    device = fake(mode)
    with on(device):
        x = hal.asarray(np.ones((4, 6), np.float32))
        if "cell" in mode:
            with pytest.raises(hal.UnsupportedError, match="whole") as refused:
                x[1:3].set(np.zeros((2, 6), np.float32))
            assert refused.value.reason == "memory_kind"
            return
        x[1:3].set(np.zeros((2, 6), np.float32))
        assert x.numpy().sum(1).tolist() == [6, 0, 0, 6]


def test_a_declared_depth_is_never_exceeded(fake: Fake, on: Fake) -> None:
    device = fake("mode=async; queue_depth=4")
    with on(device):
        x = hal.asarray(vector(0))
        for _ in range(50):
            x = hal.add(x, 1.0)
        np.testing.assert_array_equal(x.numpy(), vector(50))


@pytest.mark.parametrize("mode", ["mode=sync", "mode=async"])
def test_prf_01_a_warm_call_is_one_call_of_the_driver(fake: Fake, on: Fake, mode: str) -> None:
    device = fake(f"{mode}; compute=off")
    calls = 20000
    with on(device):
        x = hal.asarray(vector(1, 256))
        out = hal.empty((256,), dtype="float32")
        hal.add(x, x, out=out)
        device.synchronize()
        before = [device.counter(slot) for slot in range(26)]
        for i in range(calls):
            hal.add(x, x, out=out)
            if i % 1000 == 999:
                device.synchronize()
        used = {slot: device.counter(slot) - before[slot] for slot in range(1, 26)}
    assert used[ENQUEUE] == calls
    others = {slot: n for slot, n in used.items() if n and slot not in (ENQUEUE, 13)}
    assert set(others) <= {9, 11} and sum(others.values()) <= 4 * calls // 1000, others


def test_prf_07_reading_is_the_only_wait(fake: Fake, on: Fake) -> None:
    device = fake("mode=async")
    with on(device):
        x = hal.asarray(vector(1))
        hal.add(x, x)
        waits = hal.counters(device)["host_waits"]
        for _ in range(20):
            x = hal.add(x, x)
            x = hal.softmax(x[:32].reshape(4, 8)).reshape(32)
            x = hal.concat([x, x])
        assert hal.counters(device)["host_waits"] == waits
        x.numpy()
        assert hal.counters(device)["host_waits"] > waits


@pytest.mark.parametrize("mode", ["mode=async; delay=30us", "mode=async; memory=cell; delay=30us"])
def test_threads_on_queues_of_their_own_may_share_an_array(fake: Fake, on: Fake, mode: str) -> None:
    device = fake(mode)
    with on(device):
        shared = hal.asarray(vector(0))
    wrong: list[np.ndarray] = []
    errors: list[BaseException] = []

    def work(reads: bool) -> None:
        try:
            with on(device), hal.use(queue=hal.Queue(device)):
                for _ in range(60):
                    if not reads:
                        hal.add(shared, 1.0, out=shared)
                    elif len(set((seen := hal.add(shared, 0.0).numpy()).tolist())) != 1:
                        wrong.append(seen)
        except BaseException as why:
            errors.append(why)

    threads = [threading.Thread(target=work, args=(reads,)) for reads in (False, False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and not wrong
    np.testing.assert_array_equal(shared.numpy(), vector(120))


def test_queues_that_nobody_holds_are_used_again(fake: Fake, on: Fake) -> None:
    device = fake("mode=async; queue_count=3; late_failure=4")
    with on(device):
        x = hal.asarray(vector(1))
        for _ in range(20):
            queue = hal.Queue(device)
            with hal.use(queue=queue):
                hal.add(x, x)
            del queue
        again = hal.Queue(device)
        again.wait()  # nothing of this holder was lost
    live = device.counter(103)
    assert live <= 3
