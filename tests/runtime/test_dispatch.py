"""The native call path: plans found again, scopes, aliasing, counters, graphs, processes.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal import _core

A = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_warm_call_prepares_nothing_and_takes_no_memory_from_the_driver() -> None:
    a, out = hal.asarray(A), hal.empty((8, 8))
    hal.matmul(a, a, out=out), hal.matmul(a, a)
    before = hal.counters(), _core.plan_cache_size()
    for _ in range(100_000):
        hal.matmul(a, a, out=out)
        hal.matmul(a, a)
    after = hal.counters(), _core.plan_cache_size()
    for name in ("plans_prepared", "driver_allocs", "driver_frees"):
        assert before[0][name] == after[0][name]
    assert before[1] == after[1]
    np.testing.assert_allclose(out.numpy(), A @ A, rtol=1e-5, atol=1e-5)


def test_ops_that_share_an_id_do_not_share_plans() -> None:
    x = hal.asarray(np.abs(A) + 1)
    for _ in range(3):
        np.testing.assert_allclose(hal.exp(x).numpy(), np.exp(np.abs(A) + 1), rtol=1e-5)
        np.testing.assert_allclose(hal.log(x).numpy(), np.log(np.abs(A) + 1), rtol=1e-5)


def test_attributes_are_part_of_the_key() -> None:
    x = hal.asarray(A)
    for axis in (0, 1, -1, (0, 1), None):
        for keep in (False, True):
            np.testing.assert_allclose(
                hal.sum(x, axis=axis, keepdims=keep).numpy(),
                A.sum(axis=axis, keepdims=keep),
                rtol=1e-4,
                atol=1e-5,
            )


def test_num_22_overlap_is_refused_on_warm_calls_too() -> None:
    x = hal.asarray(np.arange(9, dtype=np.float32))
    hal.cos(x[:-1], out=hal.empty((8,)))
    for _ in range(2):
        with pytest.raises(hal.InvalidArgumentError, match="overlap"):
            hal.cos(x[:-1], out=x[1:])
    hal.cos(x, out=x)
    np.testing.assert_allclose(x.numpy(), np.cos(np.arange(9)), rtol=1e-5, atol=1e-6)
    spread = hal.broadcast_to(hal.asarray([1.0]), (3,))
    with pytest.raises(hal.InvalidArgumentError, match="itself"):
        hal.cos(hal.asarray([1.0, 2.0, 3.0]), out=spread)


def test_scopes_do_not_leak_between_tasks() -> None:
    names = [d.name for d in hal.devices()]

    async def work(name: str) -> list[str]:
        seen = []
        with hal.use(device=name):
            for _ in range(20):
                seen.append(hal.zeros((1,)).device.name)
                await asyncio.sleep(0)
        return seen

    async def both() -> list[list[str]]:
        return await asyncio.gather(*(work(n) for n in names))

    for name, seen in zip(names, asyncio.run(both()), strict=True):
        assert set(seen) == {name}


def test_many_threads_on_one_signature() -> None:
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).integers(-4, 5, (48, 48)).astype(np.float32)
        a, want = hal.asarray(x), x @ x
        for _ in range(200):
            if not np.array_equal(hal.matmul(a, a).numpy(), want):
                wrong.append(seed)
                return

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_graph_replays_with_new_inputs() -> None:
    x = hal.asarray(np.zeros((4,), np.float32))
    with hal.graph() as g:
        y = hal.exp(x + 1)
    assert len(g) >= 2
    for value in (0.0, 1.0, -2.0):
        x.set(value)
        g.launch()
        np.testing.assert_allclose(y.numpy(), np.exp(np.full(4, value + 1)), rtol=1e-5)


def test_graph_errors_leave_the_queue_usable() -> None:
    x = hal.asarray(A)
    with pytest.raises(hal.InvalidArgumentError, match="captured"), hal.graph():
        (x + x).numpy()
    with pytest.raises(hal.InvalidArgumentError), hal.graph():
        hal.matmul(x, hal.zeros((3, 3)))
    with pytest.raises(hal.InvalidArgumentError, match="no call"), hal.graph():
        pass
    np.testing.assert_array_equal((x + x).numpy(), A + A)


def test_explain_and_receipts_agree_with_what_ran() -> None:
    decision = hal.explain("matmul f32[8,8] f32[8,8]")
    with hal.use(receipts=True):
        hal.matmul(hal.asarray(A), hal.asarray(A))
        last = hal.receipts()[-1]
    assert decision.choice == last["device"] and last["op"] == "matmul"
    assert last["status"] == "ok" and last["state"] == "self-tested"
    assert not _core.receipts_on()


def test_fallback_never_refuses_what_would_decompose() -> None:
    x = hal.asarray(A, device="dayone:0")
    np.testing.assert_allclose(hal.softmax(x).numpy().sum(1), 1, rtol=1e-5)
    with hal.use(fallback="never"), pytest.raises(hal.UnsupportedError) as refused:
        hal.softmax(x)
    assert refused.value.reason == "op" and refused.value.refusals


def test_plg_07_import_opens_nothing() -> None:
    program = (
        "import anyhal, sys\n"
        "maps = open('/proc/self/maps').read()\n"
        "print('libanyhal_' in maps, len(anyhal._core.devices()),"
        " 'torch' in sys.modules, 'tokenizers' in sys.modules, 'typer' in sys.modules)"
    )
    assert run(program).stdout.split() == ["False", "0", "False", "False", "False"]


def test_num_32_loading_backends_keeps_denormals() -> None:
    program = (
        "import numpy as np, anyhal as hal, threading\n"
        "tiny = np.array([1e-40], np.float32)\n"
        "hal.devices(); hal.matmul(hal.ones((2, 2)), hal.ones((2, 2)))\n"
        "found = []\n"
        "def look(): found.append(bool((tiny * np.float32(1))[0] != 0))\n"
        "t = threading.Thread(target=look); t.start(); t.join(); look(); print(found)"
    )
    assert run(program).stdout.strip() == "[True, True]"


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "1 / 0"])
def test_plg_09_exit_with_arrays_in_globals(end: str) -> None:
    program = (
        "import anyhal as hal\n"
        "kept = [hal.ones((4, 4), device=d) for d in hal.devices()]\n"
        "out = [k @ k for k in kept]\n" + end
    )
    assert run(program).returncode == {"": 0, "raise SystemExit(3)": 3, "1 / 0": 1}[end]


def test_mem_11_a_forked_child_computes() -> None:
    program = (
        "import os, numpy as np, anyhal as hal\n"
        "x = hal.ones((600, 600)); hal.matmul(x, x)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    y = hal.matmul(x, x).numpy()\n"
        "    os._exit(0 if (y == 600).all() else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    assert run(program).stdout.strip() == "0"


def test_mem_11_children_compute_that_were_forked_while_a_thread_did() -> None:
    program = (
        "import os, signal, threading, time, numpy as np, anyhal as hal\n"
        "x = hal.ones((64, 64)); large = hal.ones((300, 300)); hal.matmul(x, x)\n"
        "stop = False\n"
        "def work():\n"
        "    while not stop: hal.matmul(large, large)\n"
        "thread = threading.Thread(target=work); thread.start()\n"
        "codes = set()\n"
        "for _ in range(20):\n"
        "    time.sleep(0.005)\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        signal.alarm(20)\n"
        "        y = hal.matmul(x, x).numpy()\n"
        "        os._exit(0 if (y == 64).all() else 1)\n"
        "    codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "stop = True; thread.join(); print(codes)"
    )
    assert run(program).stdout.strip() == "{0}"


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_the_thread_budget_changes_no_number(threads: str) -> None:
    program = (
        "import numpy as np, anyhal as hal\n"
        "x = hal.asarray(np.arange(90000, dtype='f4').reshape(300, 300) % 7)\n"
        "print(float(hal.sum(hal.matmul(x, x))))"
    )
    want = float(((np.arange(90000, dtype="f8").reshape(300, 300) % 7) @
                  (np.arange(90000, dtype="f8").reshape(300, 300) % 7)).sum())  # fmt: skip
    got = float(run(program, ANYHAL_THREADS=threads).stdout)
    assert abs(got - want) <= 1e-6 * want


def test_a_graphs_output_is_not_read_before_it_ran() -> None:
    x = hal.asarray(A)
    with hal.graph() as g:
        y = hal.exp(x)
    with pytest.raises(hal.InvalidArgumentError, match="launch it first"):
        y.numpy()
    g.launch()
    np.testing.assert_allclose(y.numpy(), np.exp(A), rtol=1e-5)


def test_the_debug_pool_hands_out_nan_bytes_and_says_what_it_cannot_read() -> None:
    program = "import anyhal as hal\nprint(hal.empty((3,)).numpy())"
    assert run(program, ANYHAL_DEBUG_POOL="1").stdout.strip() == "[nan nan nan]"
    assert "neither yes nor no" in run(program, ANYHAL_DEBUG_POOL="perhaps").stderr
    assert "log level" in run(program, ANYHAL_LOG="loud").stderr


def test_a_route_that_was_not_timed_has_no_time() -> None:
    program = (
        "import anyhal as hal\n"
        "x = hal.ones((4, 4)); hal.exp(x)\n"
        "print([r['time_ms'] for r in hal.routes() if r['op'] == 'unary'])\n"
        "with hal.use(receipts=True): hal.exp(x)\n"
        "print([r['time_ms'] > 0 for r in hal.routes() if r['op'] == 'unary'])"
    )
    assert run(program).stdout.splitlines() == ["[None]", "[True]"]


def test_a_form_that_a_backend_refuses_does_not_cost_it_the_others() -> None:
    with hal.use(device="cpu:0"):
        plain = str(hal.explain("rms_norm f32[2,8] f32[8] absent eps=1e-5"))
        added = str(hal.explain("rms_norm f32[2,8] f32[8] f32[2,8] eps=1e-5"))
    assert "runs fused" in plain and "decomposed" in added


def test_one_array_as_out_is_the_first_of_several_outputs() -> None:
    x = hal.asarray(np.array([[3.0, 1.0, 2.0]], np.float32))
    out = hal.asarray(np.zeros((1, 3), np.float32))
    values, indices = hal.sort(x, out=out)
    assert values is out and indices.numpy().tolist() == [[1, 2, 0]]
    assert hal.rms_norm(x, eps=1e-5, out=out) is out
    total = hal.asarray(np.zeros((1, 3), np.float32))
    assert hal.rms_norm(x, None, x, eps=1e-5, out=(None, total))[1] is total
    assert (total.numpy() == 2 * x.numpy()).all()


def test_a_capture_forbids_reads_to_its_own_thread_and_of_what_it_writes() -> None:
    x, other, out = hal.asarray([1.0, 2.0]), hal.asarray([3.0]), hal.asarray([0.0, 0.0])
    seen: dict[str, object] = {}

    def read(name: str, array: hal.Array) -> None:
        try:
            seen[name] = array.numpy().tolist()
        except hal.HalError as why:
            seen[name] = str(why)

    with hal.Graph() as graph:
        hal.negative(x, out=out)
        with pytest.raises(hal.HalError, match="being captured"):
            other.numpy()
        threads = [threading.Thread(target=read, args=a) for a in (("other", other), ("out", out))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen["other"] == [3.0] and "being captured" in str(seen["out"])
    graph.launch()
    read("out", out)
    assert seen["out"] == [-1.0, -2.0]
