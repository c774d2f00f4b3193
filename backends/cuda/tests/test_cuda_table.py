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


def test_native_work_and_handles(scenario: Run) -> None:
    scenario("native")


def test_a_module_of_the_users(scenario: Run) -> None:
    assert scenario("module", SCALE).runs["scale"] == 1


def test_an_index_outside_is_a_failure_of_its_queue(scenario: Run) -> None:
    scenario("bad_index")


def test_a_lost_device_says_so_for_good_and_others_go_on(scenario: Run) -> None:
    script = "devices=sm_90,sm_80; fault=anyhal_binary@1:719"
    report = scenario("loss", script=script, clean=False)  # what was abandoned stays
    assert report.left["contexts"] == 1


@pytest.mark.parametrize("growth", [0, 1])
def test_memory_that_ran_out_comes_back(scenario: Run, growth: int) -> None:
    scenario("out_of_memory", script=f"memory=64M; growth={growth}")


@pytest.mark.parametrize("peers", [1])
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
# What these say is no failure: an unreached event, a name for a code.
NO_FAILURE = {"cuGetErrorName", "cuEventElapsedTime"}
# Ways of giving back: when they fail, what they should have ended is still there.
ENDS = {
    "cuMemFree_v2": "memory",
    "cuMemFreeHost": "host",
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


def used_by_everything(double: Double, table: Path, library: Path) -> Report:
    done = double.run(str(table), str(library), "everything")
    assert done.returncode == 0 and "worst 0" in done.stdout, done.stdout + done.stderr
    report = double.report()
    assert not any(report.left.values()) and report.violations == [], report
    return report


def test_every_entry_point_may_fail(double: Double, table: Path, library: Path) -> None:
    """The first and the last call of each function fails with out of memory and with a code that
    nobody expects: a typed status, no crash, nothing left but what could not be given back."""
    calls = used_by_everything(double, table, library).calls
    reached = [name for name in ENTRIES if calls[name] and name not in NO_FAILURE]
    assert len(reached) > 40, reached
    for name in reached:
        for call in sorted({1, calls[name]}):
            for code in (2, 999):
                done = double.run(
                    str(table), str(library), "everything", script=f"fail={name}@{call}:{code}"
                )
                where = (name, call, code, done.stdout, done.stderr)
                assert done.returncode == 0, where
                report = double.report()
                # How often a waiter looks differs from run to run; and what puts back the context
                # that was there has nobody to tell.
                met = report.calls[name] >= call and name != "cuCtxSetCurrent"
                assert re.search(r"worst [1-9]|refused [1-9]", done.stdout) or not met, where
                assert report.violations == [], where
                left = {kind for kind, n in report.left.items() if n and kind != "bytes"}
                allowed = {ENDS[name]} if name in ENDS else set()
                if name in ("cuMemUnmap", "cuMemRelease", "cuMemAddressFree"):
                    allowed |= {"physical", "reserved"}
                if name in ("cuCtxGetCurrent", "cuCtxSetCurrent"):
                    continue  # without a context nothing can be given back
                assert left <= allowed, (*where, report.left)


@pytest.mark.parametrize("name", LIBRARY)
def test_every_library_call_may_fail(double: Double, table: Path, library: Path, name: str) -> None:
    for status in (3, 13, 15):
        done = double.run(
            str(table), str(library), "everything", CUBLASLT_DOUBLE=f"fail={name}@1:{status}"
        )
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
