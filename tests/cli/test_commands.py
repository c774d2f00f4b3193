"""`anyhal devices`, `explain`, `--version` on this machine's devices, as a person calls them.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from anyhal import ops

KEYS = {
    *("name", "backend", "identity", "arch", "memory_bytes", "memory_kinds", "state"),
    *("own_threads", "simulated", "note", "address", "routes", "rank", "chosen", "why"),
    *("state_code", "state_why", "driver"),
}


def anyhal(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).parent / "anyhal"
    assert command.exists(), f"{command} is missing: anyhal is not installed in this environment"
    return subprocess.run(
        [command, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def read(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    return document


def broken(document: dict[str, object]) -> list[dict[str, str]]:
    """What was refused, but for chips whose driver this machine lacks."""
    refused: list[dict[str, str]] = document["refused"]  # type: ignore[assignment]
    return [row for row in refused if not row["absent"]]


def test_devices_json() -> None:
    document = read(anyhal("devices", "--json"))
    rows = document["devices"]
    assert {row["name"] for row in rows} >= {"cpu:0", "cpu_ref:0", "dayone:0"}
    assert all(set(row) == KEYS and row["state"] == "self-tested" for row in rows)
    assert all(row["memory_bytes"] > 0 and row["memory_kinds"] for row in rows)
    assert broken(document) == []


def test_devices_json_has_the_choice() -> None:
    rows = read(anyhal("devices", "--json", ANYHAL_VISIBLE_DEVICES="cpu_ref,dayone"))["devices"]
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["name"] for row in rows if row["chosen"]] == [rows[0]["name"]] == ["cpu_ref:0"]
    why = {row["name"]: row["why"] for row in rows}
    assert why["cpu:0"] == "not chosen: ANYHAL_VISIBLE_DEVICES leaves it out"
    assert why["cpu_ref:0"].startswith("chosen: ") and "rank is lower" in why["dayone:0"]


@pytest.mark.parametrize("columns", [70, 80])
def test_no_word_of_the_devices_is_cut_off(columns: int, tmp_path: Path) -> None:
    found = anyhal("new-backend", "stranger", "--into", str(tmp_path), "--language", "python")
    assert found.returncode == 0, found.stderr
    shown = anyhal("devices", COLUMNS=str(columns), ANYHAL_BACKEND_PATH=str(tmp_path)).stdout
    assert "…" not in shown and "stranger:0" in shown
    assert columns < 80 or "allow_uncertified" in shown
    table = shown.partition("not here:")[0]
    assert max(map(len, table.splitlines())) <= columns


def test_who_is_not_here_is_said_once() -> None:
    (line,) = anyhal("devices", COLUMNS="500").stdout.splitlines()[-1:]
    assert line.startswith("not here: ") and "is not used here" not in line


def test_devices_table_is_ranked() -> None:
    done = anyhal("devices", COLUMNS="200")
    assert done.returncode == 0, done.stderr
    order = [done.stdout.index(f"{name} ") for name in ("cpu:0", "cpu_ref:0", "dayone:0")]
    assert order == sorted(order) and "chosen: first of " in done.stdout


def test_capabilities_of_the_reference_are_every_op_of_the_registry() -> None:
    document = read(anyhal("devices", "--capabilities", "--json"))
    declared = {d["name"]: {row["op"] for row in d["capabilities"]} for d in document["devices"]}
    assert declared["cpu_ref:0"] == set(ops.BY_NAME) and declared["cpu:0"] < set(ops.BY_NAME)
    shown = anyhal("devices", "--capabilities", COLUMNS="200")
    assert shown.returncode == 0 and "scatter_add" in shown.stdout
    assert len(declared["dayone:0"]) == 10 and "declares nothing" not in shown.stdout
    narrow = anyhal("devices", "--capabilities", COLUMNS="80")
    assert narrow.returncode == 0 and "…" not in narrow.stdout
    assert max(map(len, narrow.stdout.splitlines())) <= 80


def test_test_equipment_shows_only_when_asked_for() -> None:
    hidden = read(anyhal("devices", "--json", ANYHAL_FAKE=""))
    shown = read(anyhal("devices", "--json", ANYHAL_FAKE="1"))
    added = {d["backend"] for d in shown["devices"]} - {d["backend"] for d in hidden["devices"]}
    assert added == {"fake"}


def test_explain_names_the_choice_and_every_refusal() -> None:
    document = read(anyhal("explain", "softmax f32[4,16]", "--device", "dayone:0", "--json"))
    assert (document["choice"], document["form"]) == ("dayone:0", "decomposed")
    assert document["refusals"][0]["reason"] == "op"
    fused = read(anyhal("explain", "matmul f32[4,8] f32[8,16]", "--json"))
    assert (fused["choice"], fused["form"]) == ("cpu:0", "fused")
    table = anyhal("explain", "matmul", "f32[4,8]", "f32[8,16]", COLUMNS="200")
    assert table.returncode == 0 and "chosen" in table.stdout


def test_explain_exits_1_when_nothing_may_run_it() -> None:
    done = anyhal("explain", "softmax f32[4]", "--device", "dayone:0", "--fallback", "never")
    assert done.returncode == 1 and "no route can run it" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["explain", "matmull f32[1,1] f32[1,1]"], "did you mean matmul"),
        (["explain", "matmul f32[2,3] f32[4,5]"], "matmul"),
        (["explain", "softmax f32[4]", "--device", "cpux:0"], "did you mean cpu"),
        (["explain", "softmax f32[4]", "--fallback", "nevr"], "did you mean 'never'"),
        (["devices"], "relative path"),
    ],
)
def test_refusals_are_one_line_and_exit_1(arguments: list[str], words: str) -> None:
    path = "plugins" if words == "relative path" else ""
    done = anyhal(*arguments, ANYHAL_BACKEND_PATH=path)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and words in done.stderr, done.stderr


def test_version_names_core_contract_and_backends() -> None:
    done = anyhal("--version")
    assert done.returncode == 0, done.stderr
    first, core, abi, *backends = done.stdout.splitlines()
    assert first.startswith("anyhal 0.") and core.startswith("core ") and abi == "ABI 0.3"
    named = {line.split()[1] for line in backends}
    assert named >= {"cpu", "cpu_ref", "cuda", "dayone", "opencl", "pjrt"}
    for line in backends:  # nothing was opened, so nothing says that a device is here
        assert "self-tested, not opened, " in line or "not here: " in line, line


def test_version_says_what_a_bridge_lacks() -> None:
    for plugins, lacks in (("none", True), ("/no/such/plugin.so", False)):
        done = anyhal("--version", ANYHAL_PJRT_PLUGINS=plugins)
        (line,) = [row for row in done.stdout.splitlines() if row.startswith("backend pjrt ")]
        assert line.endswith("none of the files that it opens is here") is lacks, line


def test_dev_12_a_junk_plugin_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "backend.toml").write_text("not toml at all [[[")
    document = read(anyhal("devices", "--json", ANYHAL_BACKEND_PATH=str(tmp_path)))
    assert {d["name"] for d in document["devices"]} >= {"cpu:0", "cpu_ref:0", "dayone:0"}
    (refused,) = broken(document)
    assert refused["stage"] == "manifest" and "it is not TOML" in refused["sentence"]


def test_a_changed_library_is_refused_by_hash(tmp_path: Path) -> None:
    code = "import anyhal, os; print(os.path.dirname(anyhal.__file__))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    package = Path(found.stdout.strip())
    shutil.copytree(package, tmp_path / "anyhal")
    with (tmp_path / "anyhal/backends/cpu_ref/libanyhal_cpu_ref.so").open("ab") as stream:
        stream.write(b"x")
    code = "import anyhal as hal; print(hal.__file__); hal.select_backend('cpu_ref')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert str(tmp_path) in done.stdout and done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "BackendLoadError" in last and "hash" in last


def test_visible_devices_that_are_not_here_are_named() -> None:
    done = anyhal("devices", "--json", ANYHAL_VISIBLE_DEVICES="cpu,cpu_reff:0")
    (note,) = read(done)["notes"]
    assert "'cpu_reff:0'" in note and "did you mean cpu_ref:0?" in note
    assert done.stderr == f"anyhal: warning: {note}\n"
    quiet = anyhal("devices", "--json", ANYHAL_VISIBLE_DEVICES="cpu,cpu_reff:0", ANYHAL_LOG="error")
    assert quiet.stderr == "" and read(quiet)["notes"] == [note]
    assert read(anyhal("devices", "--json"))["notes"] == []


@pytest.mark.parametrize("names", ["cpux:0,other", ","])
def test_nothing_left_visible_is_an_error(names: str) -> None:
    for arguments in (["devices"], ["explain", "softmax f32[4]"]):
        done = anyhal(*arguments, ANYHAL_VISIBLE_DEVICES=names)
        assert (done.returncode, done.stdout) == (1, "")
        assert "no device is left visible" in done.stderr


def test_a_misspelt_variable_and_a_missing_folder_are_noted(tmp_path: Path) -> None:
    done = anyhal(
        "devices", "--json", ANYHAL_BACKEND_PATH=str(tmp_path / "gone"), ANYHAL_BACKENDS_PATH="/x"
    )
    folder, variable = read(done)["notes"]
    assert str(tmp_path / "gone") in folder and "No such file" in folder
    assert "did you mean ANYHAL_BACKEND_PATH?" in variable


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_an_explanation_breaks_no_word(columns: int) -> None:
    call = ("explain", "softmax f32[4,16]", "--device", "dayone:0")
    shown = anyhal(*call, COLUMNS=str(columns)).stdout
    told = " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= columns and "…" not in shown
    assert "self-tested" in told and "decomposed" in told
    if columns < 80:
        return  # the names alone take most of the line
    words = {word for line in shown.splitlines() for word in line.split()}
    for refusal in read(anyhal(*call, "--json"))["refusals"]:
        assert set(refusal["sentence"].split()) <= words
    assert "cost" not in told.partition("work:")[0], "no candidate states one"


def test_a_cost_that_is_stated_has_its_column() -> None:
    call = ("explain", "matmul f32[4,8] f32[8,16]", "--device", "fake:0")
    head = anyhal(*call, COLUMNS="80", ANYHAL_FAKE="1").stdout.partition("work:")[0]
    assert "cost" in head and " µs" in head and "…" not in head


def test_explain_states_the_work_and_that_no_cost_was_stated() -> None:
    document = read(anyhal("explain", "matmul f32[4,8] f32[8,16]", "--json"))
    assert document["work"] == {"flops": 2 * 4 * 8 * 16, "bytes": 4 * (4 * 8 + 8 * 16 + 4 * 16)}
    costs = [document["cost_ns"], *(c["cost_ns"] for c in document["candidates"])]
    assert 0 not in costs
    if document["cost_ns"] is None:
        table = anyhal("explain", "matmul", "f32[4,8]", "f32[8,16]", COLUMNS="200").stdout
        assert "work: 1024 flops, 896 bytes; cost: not stated by the backend" in table
