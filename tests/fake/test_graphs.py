"""Recorded graphs as the backend takes them: compiled, recorded, or replayed by the core.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.runtime.device import ledger

Fake = Callable[..., Any]
ENQUEUED, PREPARED, BLOCKS = 6, 19, 102  # counters: calls of those slots, live blocks
DEVICES = ["mode=sync", "mode=async", "mode=async; memory=cell", "mode=sync; memory=cell"]
FORMS = {
    "compiled": "; graph=compile",
    "recorded": "",
    "replayed": "; absent=graph_prepare",
}


def step(device: Any) -> tuple[Any, Any, Any, Any]:
    """A graph with an input, an in-place state, hidden values, and a result; not launched yet."""
    x = hal.asarray(np.ones((2, 3), np.float32), device=device)
    state = hal.asarray(np.zeros((2, 3), np.float32), device=device)
    with hal.graph(device) as graph:
        hidden = hal.add(hal.multiply(x, x), x)
        hal.add(state, hidden, out=state)
        total = hal.softmax(state, axis=-1)
    del hidden
    return graph, x, state, total


def expected(rounds: int) -> tuple[np.ndarray, np.ndarray]:
    state = np.zeros((2, 3), np.float32)
    for k in range(rounds):
        x = values(k)
        state += x * x + x
    e = np.exp(state - state.max(-1, keepdims=True))
    return state, e / e.sum(-1, keepdims=True)


def values(k: int) -> np.ndarray:
    return np.arange(6, dtype=np.float32).reshape(2, 3) * 0.1 * (k + 1)


@pytest.mark.parametrize("workspace", ["", "; workspace=4KiB"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("script", DEVICES)
def test_each_form_sees_changed_inputs_and_keeps_state(
    fake: Fake, script: str, form: str, workspace: str
) -> None:
    """The fake fills a workspace with NaN before each run, so nothing else may lie there."""
    device = fake(script + FORMS[form] + workspace)
    graph, x, state, total = step(device)
    assert graph.form == form
    for k in range(3):
        x.set(values(k))
        graph.launch()
        want_state, want_total = expected(k + 1)
        np.testing.assert_allclose(state.numpy(), want_state, rtol=1e-6)
        np.testing.assert_allclose(total.numpy(), want_total, rtol=1e-5)


@pytest.mark.parametrize("form", ["compiled", "recorded"])
def test_a_launch_is_one_call(fake: Fake, form: str) -> None:
    device = fake("mode=async" + FORMS[form])
    graph, *_ = step(device)
    assert device.counter(PREPARED) == (1 if form == "compiled" else 2)
    before = device.counter(ENQUEUED)
    graph.launch()
    assert device.counter(ENQUEUED) == before + 1
    assert len(graph) > 3


def test_what_can_be_seen_afterwards_is_kept(fake: Fake) -> None:
    """The compiled form poisons what it was told nobody reads: only what nobody can."""
    device = fake("mode=async; graph=compile")
    x = hal.asarray(np.ones(4, np.float32), device=device)
    with hal.graph(device) as graph:
        middle = hal.add(x, x)
        last = hal.add(middle, x)
    graph.launch()
    assert middle.numpy().tolist() == [2] * 4
    assert last.numpy().tolist() == [3] * 4


@pytest.mark.parametrize("form", ["compiled", "recorded"])
def test_a_launch_gives_one_workspace_and_allocates_nothing(fake: Fake, form: str) -> None:
    device = fake("mode=async; workspace=4KiB" + FORMS[form])
    graph, x, state, _ = step(device)
    graph.launch()
    x.set(values(0))
    before = ledger(device)["arena"], device.counter(BLOCKS)
    for k in range(3):
        x.set(values(k))
        graph.launch()
    assert (ledger(device)["arena"], device.counter(BLOCKS)) == before
    np.testing.assert_allclose(state.numpy(), expected(3)[0] + 2, rtol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_a_graph_without_its_workspace_is_refused_and_cannot_be_launched(
    fake: Fake, form: str
) -> None:
    device = fake("mode=async; heap=8MiB; workspace=6MiB" + FORMS[form])
    x = hal.asarray(np.ones(3, np.float32), device=device)
    taken = hal.empty((1 << 19,), dtype="float32", device=device)
    graph = hal.graph(device)
    with pytest.raises(hal.OutOfMemoryError, match="for arena"), graph:
        hal.add(x, x)
    with pytest.raises(hal.InvalidArgumentError, match="holds no whole recording"):
        graph.launch()
    del taken


@pytest.mark.parametrize("why", ["capture_unsafe=binary", "fail=graph_prepare:out_of_memory"])
def test_what_the_backend_cannot_take_is_replayed(fake: Fake, why: str) -> None:
    device = fake(f"mode=async; {why}")
    graph, x, state, _ = step(device)
    assert graph.form == "replayed"
    for k in range(2):
        x.set(values(k))
        graph.launch()
    np.testing.assert_allclose(state.numpy(), expected(2)[0], rtol=1e-6)


def test_a_defect_of_the_backend_is_not_hidden(fake: Fake) -> None:
    device = fake("mode=async; fail=graph_prepare:internal")
    with pytest.raises(hal.HalError, match="preparing a graph"):
        step(device)
    x = hal.asarray(np.ones(3, np.float32), device=device)  # the queue is usable
    assert hal.add(x, x).numpy().tolist() == [2] * 3


def test_a_late_failure_of_a_launch_reaches_the_reader(fake: Fake) -> None:
    device = fake("mode=async; graph=compile; late_failure=1")
    graph, _, state, _ = step(device)
    graph.launch()
    with pytest.raises(hal.ExecutionFailedError, match="late failure"):
        state.numpy()


def test_cells_at_equal_places_are_not_one_operand(fake: Fake) -> None:
    """A failed call loses what it updates in place, and a copy updates nothing in place."""
    device = fake("mode=async; memory=cell; late_oom=1")
    x = hal.asarray(np.ones(4, np.float32), device=device)
    out = hal.asarray(np.zeros(4, np.float32), device=device)
    hal.copy(x, out=out)
    with pytest.raises(hal.HalError):
        out.numpy()
    assert x.numpy().tolist() == [1] * 4


def test_outputs_in_blocks_of_other_sizes_have_other_plans(fake: Fake) -> None:
    """The fake refuses a call whose cells are not those that the plan was prepared for."""
    device = fake("mode=async; memory=cell")
    x = hal.asarray(np.ones(4, np.float32), device=device)
    for rows in (1, 2, 3):
        frame = hal.asarray(np.zeros((rows, 4), np.float32), device=device)
        hal.copy(x, out=frame[0])
        assert frame.numpy()[0].tolist() == [1] * 4


@pytest.mark.parametrize("workspace", ["", "; workspace=16KiB"])
@pytest.mark.parametrize("form", FORMS)
def test_what_a_launch_reads_stays_until_it_is_over(fake: Fake, form: str, workspace: str) -> None:
    """The fake runs a queue's work when somebody waits for that queue: the other one goes first."""
    device = fake("mode=async; delay=30ms" + FORMS[form] + workspace)
    x = hal.asarray(np.ones(4096, np.float32), device=device)
    fixed = hal.asarray(np.full(4096, 2, np.float32), device=device, constant=True)
    with hal.graph(device) as graph:
        y = hal.add(hal.multiply(x, fixed), fixed)
    device.synchronize()
    graph.launch()
    del graph, fixed
    with hal.use(device=device, queue=hal.Queue(device)):
        with hal.graph() as other:
            z = hal.multiply(x, x)
        other.launch()
        assert (z.numpy() == 1).all()
    assert (y.numpy() == 4).all()
    assert (z.numpy() == 1).all(), "the launch wrote into another graph's memory"


@pytest.mark.parametrize("form", FORMS)
def test_what_the_first_write_leaves_out_is_still_there(fake: Fake, form: str) -> None:
    device = fake("mode=async; memory=cell" + FORMS[form])
    x = hal.asarray(np.arange(4, dtype=np.float32), device=device)
    state = hal.asarray(np.full((2, 4), 7, np.float32), device=device)
    with hal.graph(device) as graph:
        hal.add(x, x, out=state[0])
        doubled = hal.add(state, state)
        del state
    assert graph.form == form
    for _ in range(2):
        graph.launch()
        assert doubled.numpy().tolist() == [[0, 4, 8, 12], [14] * 4]


def test_calls_of_other_threads_stay_out_of_a_capture(fake: Fake) -> None:
    device = fake("mode=async")
    x = hal.asarray(np.ones(3, np.float32), device=device)
    said: list[BaseException] = []

    def call() -> None:
        try:
            hal.add(x, x)
        except hal.HalError as why:
            said.append(why)

    with hal.graph(device) as graph:
        hal.add(x, x)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert len(graph) == 1
    assert isinstance(said[0], hal.InvalidArgumentError) and "another thread" in str(said[0])


def test_copies_between_devices_are_not_recorded(fake: Fake) -> None:
    device = fake("mode=async")
    here = hal.asarray(np.ones(3, np.float32), device=device)
    there = hal.asarray(np.ones(3, np.float32), device="cpu:0")
    with (
        hal.use(device=device, fallback="any", allow_uncertified=(device.name,)),
        pytest.raises(hal.InvalidArgumentError, match="captured"),
        hal.graph(),
    ):
        hal.add(here, there)
