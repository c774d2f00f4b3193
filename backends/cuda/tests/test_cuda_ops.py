"""The ops on the simulated driver: the ten kernels against their references, and what they carry.
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
from simulated import ROOT, Double, Report

import anyhal as hal
from anyhal.conformance.cases import CASES, random_case
from anyhal.ops import BY_NAME

sys.path.insert(0, str(ROOT / "tests" / "ops"))
sys.path.insert(0, str(ROOT / "tests"))
import test_property as cases  # noqa: E402

from positions import OUTSIDE, positions_outside  # noqa: E402

CORE = [name for name in CASES if BY_NAME[name].is_core]  # fill has no function of its own
COMPOSED = ["softmax", "rms_norm", "quant_matmul", "attention", "conv", "topk"]


@pytest.mark.parametrize("op", CORE + COMPOSED)
def test_samples_meet_their_reference(simulated: Any, op: str) -> None:
    spec = BY_NAME[op]
    found = [
        cases.outcome(spec, case, simulated.name, "chosen", i)
        for i, case in enumerate(cases.samples(op))
    ]
    wrong = [text for text in found if text is not None]
    assert not wrong, f"{len(wrong)} of {len(found)} cases are wrong\n" + "\n".join(wrong[:6])


@pytest.mark.parametrize("op", CORE)
def test_random_cases_meet_their_reference(simulated: Any, op: str) -> None:
    spec = BY_NAME[op]
    for seed in range(20):
        case = cases.judged(op, random_case(op, seed))
        assert cases.outcome(spec, case, simulated.name, "chosen", seed) is None


@pytest.fixture
def runs(double_folder: Path) -> Callable[[str], int]:
    """How often the double has run a kernel in this process."""
    driver = ctypes.CDLL(str(double_folder / "libcuda.so.1"))
    driver.cuda_double_report.restype = ctypes.c_char_p
    return lambda name: Report.read(driver.cuda_double_report().decode()).runs[name]


def test_products_are_the_librarys_where_it_takes_them(
    simulated: Any, runs: Callable[[str], int]
) -> None:
    with hal.use(device=simulated.name):
        a, b = (hal.asarray(np.ones(s, np.float32)) for s in ((3, 5), (5, 7)))
        turned = hal.asarray(np.ones((5, 3), np.float32)).T
        np.testing.assert_array_equal((a @ b).numpy(), np.full((3, 7), 5))
        before = runs("cublasLtMatmul"), runs("anyhal_matmul")
        for x in (a, turned):
            np.testing.assert_array_equal((x @ b).numpy(), np.full((3, 7), 5))
        assert (runs("cublasLtMatmul"), runs("anyhal_matmul")) == (before[0] + 2, before[1])
        whole = hal.asarray(np.ones((3, 5), np.int32))
        np.testing.assert_array_equal((whole @ whole.T).numpy(), np.full((3, 3), 5))
        assert runs("anyhal_matmul") > before[1]


@pytest.mark.parametrize(("accumulate", "least"), [("strict", 0), ("tf32", 1e-5), ("bf16", 1e-4)])
def test_relaxed_products_are_relaxed(simulated: Any, accumulate: str, least: float) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 64, 64)).astype(np.float32)
    with hal.use(device=simulated.name, numerics=accumulate):
        made = (hal.asarray(x) @ hal.asarray(y)).numpy()
    off = np.abs(made - x.astype(np.float64) @ y).max()
    assert least < off < 1 if least else off < 3e-5, off


def test_two_devices_of_the_double_work_together(simulated: Any) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    a = hal.asarray(x, device=simulated.name)
    b = hal.asarray(hal.add(a, a), device="cudasim:1")
    np.testing.assert_array_equal(hal.add(b, b).numpy(), 4 * x)


def test_a_product_there_and_attention_here(simulated: Any) -> None:
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((2, 16, 16)).astype(np.float32)
    q = hal.asarray(x, device=simulated.name) @ hal.asarray(w, device=simulated.name)
    assert q.device.name == simulated.name
    here = hal.asarray(q, device="cpu:0").reshape(1, 2, 8, 16)
    made = hal.attention(here, here, here, scale=0.25, causal="none")
    there = q.reshape(1, 2, 8, 16)
    same = hal.attention(there, there, there, scale=0.25, causal="none")
    assert (made.device.name, same.device.name) == ("cpu:0", simulated.name)
    np.testing.assert_allclose(made.numpy(), same.numpy(), rtol=2e-5, atol=2e-6)


def test_producer_and_consumer_over_two_backends(simulated: Any) -> None:
    """A value goes round between the double and the processor; every step must be seen."""
    x = hal.asarray(np.zeros(300, np.float32), device=simulated.name)
    for step in range(1, 41):
        x = hal.add(x, 1.0)
        there = hal.asarray(x.numpy(), device="cpu:0")
        x = hal.asarray(hal.add(there, 1.0).numpy(), device=simulated.name)
        if step % 5 == 0:
            np.testing.assert_array_equal(x.numpy(), np.full(300, 2 * step, np.float32))


def gathers(x: Any, at: Any) -> Any:
    return hal.take(x, at, axis=0)


def adds(x: Any, at: Any) -> Any:
    return hal.scatter_add(x, at, hal.asarray(np.ones(at.shape, np.float32)), axis=0)


@pytest.mark.parametrize("at", [[9], [3, -1, 5]])
@pytest.mark.parametrize("op", [gathers, adds])
def test_a_bad_index_is_the_callers_mistake_and_costs_no_input(
    simulated: Any, op: Callable[..., Any], at: list[int]
) -> None:
    with hal.use(device=simulated.name):
        # Nothing is waited for before the failure, so only the call's number says what is good.
        x = hal.asarray(np.arange(8, dtype=np.float32))
        bad = op(x, hal.asarray(np.array(at)))
        with pytest.raises(hal.InvalidArgumentError, match=r"index (9|-1) is outside \[0, 8\)"):
            bad.numpy()
        np.testing.assert_array_equal(x.numpy(), np.arange(8))
        good = gathers(x, hal.asarray(np.array([7])))  # the queue was made anew
        assert good.numpy()[0] == 7


@pytest.mark.parametrize(("shape", "at"), OUTSIDE)
@pytest.mark.parametrize("op", ["take", "scatter_add"])
def test_a_position_outside_where_there_is_nothing_to_read(
    simulated: Any, op: str, shape: tuple[int, int], at: int
) -> None:
    positions_outside(simulated.name, op, shape, at)


def test_a_bad_index_in_a_graph_is_the_callers_mistake(simulated: Any) -> None:
    with hal.use(device=simulated.name):
        x, at = hal.asarray(np.arange(8, dtype=np.float32)), hal.asarray(np.array([2]))
        with hal.graph() as graph:
            y = hal.add(hal.take(x, at, axis=0), 1.0)
        assert graph.form == "recorded"
        graph.launch()
        assert y.numpy()[0] == 3
        at.set(np.array([8]))
        graph.launch()
        with pytest.raises(
            hal.InvalidArgumentError, match=r"\(gather\): index 8 is outside \[0, 8\)"
        ):
            y.numpy()
        at.set(np.array([5]))
        graph.launch()  # on a queue of its own making
        assert y.numpy()[0] == 6
        np.testing.assert_array_equal(x.numpy(), np.arange(8))


def test_memory_mem_12_exhaustion_is_an_error(simulated: Any) -> None:
    with hal.use(device=simulated.name), pytest.raises(hal.OutOfMemoryError):
        hal.empty((1 << 40,), dtype="float32")


def test_recorded_calls_are_replayed_with_new_values(simulated: Any) -> None:
    with hal.use(device=simulated.name):
        x = hal.asarray(np.ones(64, np.float32))
        with hal.graph() as graph:
            y = hal.add(hal.multiply(x, x), 1.0)
        for value in (2.0, 3.0):
            x.set(np.full(64, value, np.float32))
            graph.launch()
            np.testing.assert_array_equal(y.numpy(), np.full(64, value * value + 1, np.float32))


def test_the_model_on_every_device_has_the_same_tokens_and_names_the_double(
    double: Double,
) -> None:
    pytest.importorskip("tokenizers", reason="the extra llm is not installed")
    from anyhal.frontends.gguf.fetch import FetchError, locate_model

    try:
        locate_model("smollm2")
    except FetchError as error:
        pytest.skip(f"the model is not here: {error}")
    command = ["-c", "from anyhal_command import main; main()", "run", "smollm2", "The capital of"]
    command += ["--raw", "--max-tokens", "4", "--every-device"]
    done = double.run(sys.executable, *command, timeout=300, COLUMNS="200")
    assert done.returncode == 0, done.stderr
    rows = [
        re.split(r"  +", line.strip())
        for line in done.stdout.splitlines()
        if re.match(r" *[a-z0-9_]+:[0-9]+  ", line)
    ]
    (ours,) = [row for row in rows if row[0] == "cuda:0"]
    assert "simulated" in ours[2] and ours[4:6] == ["-", "-"]  # no figure of it
    assert {row[3] for row in rows} == {"the first", "yes"} and len(rows) >= 4
    assert "cuda:0" in {row[0] for row in rows} and double.report().violations == []
