"""The CUDA backend's table on the simulated driver: each slot, each failure, nothing left behind.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated import CUDA, Double, Report

Run = Callable[..., Report]
SCALE = ".version 8.1\n.target sm_80\n.visible .entry scale(\n"


@pytest.mark.parametrize("growth", [0, 1])
def test_a_round_trip(scenario: Run, growth: int) -> None:
    report = scenario("round_trip", script=f"growth={growth}; seed=3")
    assert report.runs["anyhal_binary"] == 1 and report.calls["cuMemcpyAsync"] == 3


def test_a_graph_is_replayed_with_new_values_operands_and_queue(scenario: Run) -> None:
    report = scenario("graph", script="seed=5")
    # Captured once for each new set of operands, workspace and queue; made once, updated after.
    assert report.calls["cuGraphLaunch"] == 5
    assert report.calls["cuStreamBeginCapture_v2"] == 4
    assert report.calls["cuGraphInstantiateWithFlags"] == 1
    assert report.calls["cuGraphExecUpdate_v2"] == 3


@pytest.mark.parametrize("seed", [0, 8])
def test_native_work_and_handles(scenario: Run, seed: int) -> None:
    scenario("native", script=f"seed={seed}")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_positions_beyond_the_ring_of_events(scenario: Run, seed: int) -> None:
    report = scenario("many_positions", script=f"seed={seed}")
    assert report.calls["cuEventCreate"] <= 64 + 3


def test_a_module_of_the_users(scenario: Run) -> None:
    assert scenario("module", SCALE).runs["scale"] == 1


@pytest.mark.parametrize("seed", range(5))
def test_an_index_outside_is_a_failure_of_its_queue(scenario: Run, seed: int) -> None:
    scenario("bad_index", script=f"seed={seed}")


def test_a_lost_device_says_so_for_good_and_others_go_on(scenario: Run) -> None:
    script = "devices=sm_90,sm_80; fault=anyhal_binary@1:719"
    report = scenario("loss", script=script, clean=False)  # what was abandoned stays
    assert report.left["contexts"] == 1


@pytest.mark.parametrize("growth", [0, 1])
def test_memory_that_ran_out_comes_back(scenario: Run, growth: int) -> None:
    scenario("out_of_memory", script=f"memory=64M; growth={growth}")


@pytest.mark.parametrize("peers", [0, 1])
def test_mem_between_two_devices(scenario: Run, peers: int) -> None:
    report = scenario("peers", script=f"devices=sm_90,sm_90; peers={peers}; seed=2")
    assert report.calls["cuMemcpyPeerAsync"] == 2


@pytest.mark.parametrize("seed", range(1, 9))
def test_producer_and_consumer_under_hostile_timing(scenario: Run, seed: int) -> None:
    scenario("schedule", "60", script=f"seed={seed}")


def test_the_double_catches_a_wait_that_is_missing(
    double: Double, table: Path, library: Path
) -> None:
    """The schedule with the waits answered but not made must be seen to fail."""
    wrong = 0
    for seed in range(1, 6):
        done = double.run(
            str(table), str(library), "schedule", "60", script=f"seed={seed}; nowait=1", timeout=60
        )
        wrong += done.returncode != 0
    assert wrong > 0


ENTRIES = re.findall(r"X\((cu\w+),", (CUDA / "cuda_api.h").read_text())
LIBRARY = [
    "cublasLtCreate",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmul",
]
# Ways of giving back: when they fail, what they should have ended is still there.
ENDS = {
    "cuMemFree_v2": "memory",
    "cuMemFreeHost": "host",
    "cuMemHostUnregister": "registered",
    "cuMemUnmap": "physical",
    "cuMemRelease": "physical",
    "cuMemAddressFree": "reserved",
    "cuStreamDestroy_v2": "streams",
    "cuEventDestroy_v2": "events",
    "cuModuleUnload": "modules",
    "cuGraphDestroy": "graphs",
    "cuGraphExecDestroy": "execs",
    "cuDevicePrimaryCtxRelease_v2": "contexts",
}


# What has failed when these fail cannot be given back at all.
NO_WAY_BACK = {"cuCtxGetCurrent", "cuCtxSetCurrent"}
MAPPED = {"cuMemUnmap", "cuMemRelease", "cuMemAddressFree"}
TWO = "devices=sm_90,sm_80"


def used_by_everything(double: Double, table: Path, library: Path) -> Report:
    done = double.run(str(table), str(library), "everything", script=TWO)
    assert done.returncode == 0 and "worst 0" in done.stdout, done.stdout + done.stderr
    report = double.report()
    assert not any(report.left.values()) and report.violations == [], report
    return report


def test_one_run_uses_every_entry_point(double: Double, table: Path, library: Path) -> None:
    calls = used_by_everything(double, table, library).calls
    assert {name for name in ENTRIES if not calls[name]} == {"cuGetErrorName"}


def judge_failure(done: subprocess.CompletedProcess[str], report: Report, name: str) -> str:
    """What is wrong with a run in which `name` failed; empty when nothing is."""
    if done.returncode != 0:
        return f"exit {done.returncode}: {done.stdout}{done.stderr}"
    if report.violations:
        return f"broken rules: {report.violations}"
    # What puts back the context that was there has nobody to tell.
    if name != "cuCtxSetCurrent" and not re.search(r"worst [1-9]|refused [1-9]", done.stdout):
        return f"silent: {done.stdout}"
    left = {kind for kind, n in report.left.items() if n and kind != "bytes"}
    allowed = {ENDS[name]} if name in ENDS else set()
    allowed |= {"physical", "reserved"} if name in MAPPED else set()
    return "" if name in NO_WAY_BACK or left <= allowed else f"left: {report.left}"


# Out of memory; a code that nobody expects.
@pytest.mark.parametrize("code", [2, 999])
def test_every_call_of_every_entry_point_may_fail(
    double: Double, table: Path, library: Path, code: int
) -> None:
    """A typed status, no crash, no hang, nothing left but what could not be given back."""
    calls = used_by_everything(double, table, library).calls
    wrong = []
    for name in (name for name in ENTRIES if name != "cuGetErrorName"):
        for call in range(1, calls[name] + 1):
            script = f"{TWO}; fail={name}@{call}:{code}"
            done = double.run(str(table), str(library), "everything", script=script, timeout=30)
            report = double.report()
            if report.calls[name] < call:
                continue  # how often a waiter looks differs from run to run
            if problem := judge_failure(done, report, name):
                wrong.append((script, problem))
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"


def test_a_sticky_failure_of_any_call_is_a_lost_device(
    double: Double, table: Path, library: Path
) -> None:
    """Nothing can be given back then: what counts is that all ends, and says so."""
    calls = used_by_everything(double, table, library).calls
    wrong = []
    for name in (name for name in ENTRIES if name not in ("cuGetErrorName", "cuCtxSetCurrent")):
        for call in range(1, calls[name] + 1):
            script = f"{TWO}; fail={name}@{call}:700"
            done = double.run(str(table), str(library), "everything", script=script, timeout=30)
            if double.report().calls[name] < call:
                continue
            if done.returncode != 0 or not re.search(r"worst 4|refused 4", done.stdout):
                wrong.append((script, done.returncode, done.stdout[-200:] + done.stderr[-200:]))
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"


@pytest.mark.parametrize("name", LIBRARY)
def test_every_library_call_may_fail(double: Double, table: Path, library: Path, name: str) -> None:
    for status in (3, 13, 15):
        done = double.run(
            str(table), str(library), "everything", script=TWO,
            CUBLASLT_DOUBLE=f"fail={name}@1:{status}",
        )  # fmt: skip
        assert done.returncode == 0, (name, status, done.stdout, done.stderr)
        report = double.report()
        assert report.violations == [] and not any(report.left.values()), (name, report.left)
        answered = re.search(r"worst (\d+)", done.stdout)
        assert answered is not None
        # Not supported is what a library says of a shape: the plain kernel takes it.
        assert answered[1] != "0" or status == 15, (name, status, done.stdout)


def test_the_programs_exit_leaves_the_double_in_peace(double: Double) -> None:
    code = (
        "import anyhal as hal; x = hal.ones((4, 4), device='cuda:0'); print((x @ x).numpy()[0, 0])"
    )
    assert double.python(code) == "4.0\n"
    assert double.report().violations == []


def test_nothing_of_the_double_is_installed(library: Path) -> None:
    found = subprocess.run(
        ["find", str(library.parents[2]), "-name", "libcuda*"], capture_output=True, text=True
    )
    assert found.stdout == ""
