"""Memory, order, capture and faults of the core, played on the scriptable backend.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from programs import build, installed

Play = Callable[[str, str], str]
MODES = ["mode=sync", "mode=async", "memory=cell", "mode=async; memory=cell"]


@pytest.fixture(scope="session")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Runs a scenario of runtime_driver.cc with a script; its last line of output."""
    program = build("runtime_driver.cc", tmp_path_factory.mktemp("runtime"))
    library = installed("backends/fake/libanyhal_fake.so")

    def run(scenario: str, script: str) -> str:
        command = [str(program), str(library), scenario, script]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return ran.stdout.strip() or f"exit {ran.returncode}: {ran.stderr}"

    return run


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", ["chain", "hazards", "failed_capture", "plan_release"])
def test_every_mode(play: Play, scenario: str, mode: str) -> None:
    assert play(scenario, mode) == "ok"


@pytest.mark.parametrize("mode", MODES)
def test_mem_04_no_reuse_while_another_queue_reads(play: Play, mode: str) -> None:
    assert play("reuse", mode) == "ok"


@pytest.mark.parametrize("mode", MODES)
def test_mem_05_staging_outlives_its_copy(play: Play, mode: str) -> None:
    assert play("staging", mode) == "ok"


@pytest.mark.parametrize("mode", MODES)
def test_str_03_str_04_a_recording_keeps_its_memory_and_sees_new_values(
    play: Play, mode: str
) -> None:
    assert play("graph", mode) == "ok"


@pytest.mark.parametrize("missing", ["absent=queue_wait", "edge=none"])
def test_the_core_waits_where_the_backend_cannot(play: Play, missing: str) -> None:
    assert play("hazards", f"mode=async; {missing}") == "ok"


@pytest.mark.parametrize("how", ["late_failure", "late_oom"])
def test_a_late_failure_spoils_what_follows_and_nothing_else(play: Play, how: str) -> None:
    assert play("late", f"mode=async; {how}=2") == "ok"


@pytest.mark.parametrize("mode", ["mode=sync", "mode=async"])
def test_str_09_a_lost_device_names_the_first_failure(play: Play, mode: str) -> None:
    assert play("lost", f"{mode}; fail=op_enqueue@3:device_lost") == "ok"


@pytest.mark.parametrize("mode", MODES)
def test_mem_01_mem_02_trim_before_failing_and_keep_nothing(play: Play, mode: str) -> None:
    assert play("trim", f"heap=100MiB; {mode}") == "ok"


@pytest.mark.parametrize("mode", MODES)
def test_mem_09_nothing_leaks_over_1e5_calls(play: Play, mode: str) -> None:
    assert play("leaks", mode) == "ok"


def test_a_declared_depth_is_kept(play: Play) -> None:
    assert play("depth", "mode=async; queue_depth=32") == "ok"


@pytest.mark.parametrize("mode", MODES)
def test_workspace_is_never_shared_by_calls_in_flight(play: Play, mode: str) -> None:
    assert play("workspace", f"workspace=4KiB; {mode}") == "ok"
