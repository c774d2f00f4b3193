"""The C interface on every device: results, order, graphs, threads, wrong arguments.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import shutil

import pytest
from c_programs import ROOT, Build, Play, Registry

DEVICES = ["cpu", "cpu_ref", "dayone"]
SCRIPTS = ["mode=sync", "mode=async", "memory=cell", "mode=async; memory=cell"]
SCENARIOS = ["ops", "frozen", "two_queues", "graphs", "copies", "explain", "threads"]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("device", DEVICES)
def test_a_scenario_on_a_device(build: Build, play: Play, device: str, scenario: str) -> None:
    done = play([build("scenarios.c"), device, scenario])
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_scenario_on_any_kind_of_device(
    build: Build, play: Play, registry: Registry, script: str, scenario: str
) -> None:
    done = play([build("scenarios.c"), "fake", scenario], registry(script))
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_frozen_is_not_written_by_a_replay(build: Build, play: Play, device: str) -> None:
    done = play([build("frozen.c"), device])
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_is_frozen_is_not_written_on_any_kind_of_device(
    build: Build, play: Play, registry: Registry, script: str
) -> None:
    done = play([build("frozen.c"), "fake"], registry(script))
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def test_the_plan_table_is_emptied_while_threads_read_it(build: Build, play: Play) -> None:
    done = play([build("scenarios.c"), "cpu", "eviction"])
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


# scenario -> the devices that lack what it asks for, with the reason
LACKING = {
    "native": {"mode=async": "none"},
    "handles": {"cpu": "none", "cpu_ref": "none", "dayone": "none"}
    | dict.fromkeys(["mode=sync", "mode=sync; addresses=off", "memory=cell"], "none"),
    "import": dict.fromkeys(["mode=async", "memory=cell"], "memory_kind"),
    "capture": {},
}


@pytest.mark.parametrize("scenario", LACKING)
@pytest.mark.parametrize("device", DEVICES)
def test_the_way_around_on_a_device(build: Build, play: Play, device: str, scenario: str) -> None:
    done = play([build("native.c"), device, scenario])
    lacks = LACKING[scenario].get(device)
    wanted = f"unsupported {lacks}\n" if lacks else "ok\n"
    assert (done.stdout, done.returncode) == (wanted, 0), done.stderr


@pytest.mark.parametrize("scenario", LACKING)
@pytest.mark.parametrize(
    "script", ["mode=sync", "mode=sync; addresses=off", "mode=async", "memory=cell"]
)
def test_the_way_around_on_any_kind_of_device(
    build: Build, play: Play, registry: Registry, script: str, scenario: str
) -> None:
    done = play([build("native.c"), "fake", scenario], registry(script))
    lacks = LACKING[scenario].get(script)
    wanted = f"unsupported {lacks}\n" if lacks else "ok\n"
    assert (done.stdout, done.returncode) == (wanted, 0), done.stderr


RACES = {"cpu": 400, "cpu_ref": 200}


@pytest.mark.parametrize("race", ["queues", "buffers", "graphs"])
@pytest.mark.parametrize("device", RACES)
def test_a_handle_released_during_calls_is_refused(
    build: Build, play: Play, device: str, race: str
) -> None:
    done = play([build("races.c"), device, race, str(RACES[device])])
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 0


@pytest.mark.parametrize("race", ["queues", "buffers", "graphs"])
@pytest.mark.parametrize("script", ["mode=async", "mode=async; delay=20us", "memory=cell"])
def test_a_handle_released_during_queued_calls_is_refused(
    build: Build, play: Play, registry: Registry, script: str, race: str
) -> None:
    done = play([build("races.c"), "fake", race, "100"], registry(script))
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 0


@pytest.mark.parametrize("device", DEVICES)
def test_children_forked_while_a_thread_computes_go_on(
    build: Build, play: Play, device: str
) -> None:
    done = play([build("forks.c"), device, "40"])
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


@pytest.mark.parametrize("device", DEVICES)
def test_wrong_arguments_have_their_status(build: Build, play: Play, device: str) -> None:
    done = play([build("bad_input.c"), device])
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


@pytest.mark.parametrize("device", DEVICES)
def test_random_calls_end_in_a_status(build: Build, play: Play, device: str) -> None:
    program = build("random_calls.cc", f"-I{ROOT}")
    for seed in (3, 4):
        done = play([program, device, str(seed), "20000"])
        assert done.returncode == 0, done.stdout + done.stderr
        words = done.stdout.split()
        assert int(words[1].strip(",")) > 100 and int(words[3]) > 100


@pytest.mark.parametrize("scenario", ["ops", "graphs", "two_queues", "explain"])
def test_a_scenario_under_valgrind(build: Build, play: Play, scenario: str) -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("valgrind is not installed: apt-get install valgrind")
    command = [valgrind, "-q", "--error-exitcode=9", build("scenarios.c"), "cpu_ref", scenario]
    # Drivers of others stay closed: what they do in their own memory is not judged here.
    done = play(command, OCL_ICD_VENDORS=str(ROOT / "no-such-folder"))
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def test_reading_no_bytes_of_what_failed_is_told(
    build: Build, play: Play, registry: Registry
) -> None:
    done = play([build("nothing.c")], registry("mode=async; late_failure=1"))
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr
