"""The command line's frame: one line on stderr per failure, exit status, nothing on stdout.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import get_args, get_type_hints

import pytest

from anyhal import cli
from anyhal.cli import devices, run_tables
from anyhal.cli.run import Outcome
from anyhal.routing.facts import DeviceFact, Facts, RefusedBackend


def anyhal(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from anyhal.cli import main; main(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["devics"], "Did you mean 'devices'"),
        (["explain"], "Missing argument"),
        (["devices", "--jsn"], "--jsn"),
        (["devices", "extra"], "unexpected extra argument"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_exit_2(
    arguments: list[str], words: str
) -> None:
    done = anyhal(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("anyhal: ") and done.stderr.count("\n") == 1
    known = [word for word in arguments[:1] if word in cli.COMMANDS]
    assert words in done.stderr and " ".join(["see anyhal", *known, "--help"]) in done.stderr


def test_no_arguments_show_the_commands() -> None:
    done = anyhal()
    assert done.returncode == 2
    for command in ("devices", "explain", "run"):
        assert command in done.stdout + done.stderr


@pytest.mark.parametrize("command", [[], ["run"], ["devices"], ["explain", "--json"]])
def test_help_shows_values_only_of_options_that_take_one(command: list[str]) -> None:
    shown = anyhal(*command[:1], "--help").stdout
    assert "--help" in shown and "<bool>" not in shown and "BOOL" not in shown


def test_one_command_does_not_import_the_others() -> None:
    code = (
        "import sys; from anyhal import cli; cli._app(['devices']);"
        "print([c for c in cli.COMMANDS if f'anyhal.cli.{cli.file_of(c)}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['devices']"


FACTS = Facts(
    (DeviceFact("chip:0", "chip", 50, "self-tested", "id-1", "v1", memory_bytes=2**30),),
    (
        RefusedBackend("other", "/opt/other", "manifest", "key vendor is missing; add it"),
        RefusedBackend(
            "card",
            "/opt/card",
            "init",
            "backend 'card' was not loaded from /opt/card/lib.so: the driver is not there"
            " (libcard.so.1: cannot open shared object file); install it to use its devices",
            absent=True,
        ),
        RefusedBackend(
            "net",
            "/opt/net",
            "devices",
            "backend 'net' was loaded and found no device; connect one to use it",
            absent=True,
        ),
    ),
    ("/opt (a test)",),
)


def test_devices_json_has_the_promised_keys() -> None:
    document = json.loads(json.dumps(devices._document(FACTS, {})))
    assert document["schema"] == 1
    assert document["devices"] == [
        {
            "rank": 1,
            "chosen": True,
            "why": "chosen: the only device that may be chosen",
            "name": "chip:0",
            "backend": "chip",
            "identity": "id-1",
            "address": "",
            "routes": ["chip:0"],
            "arch": "v1",
            "memory_bytes": 2**30,
            "memory_kinds": [],
            "state": "self-tested",
            "state_code": "",
            "state_why": "",
            "driver": "",
            "own_threads": 0,
            "simulated": False,
            "note": "",
        }
    ]
    assert document["refused"][0]["sentence"] == "key vendor is missing; add it"
    assert [(r["name"], r["absent"]) for r in document["refused"]] == [
        ("other", False),
        ("card", True),
        ("net", True),
    ]


def test_devices_table_shows_order_refusals_and_an_empty_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    devices._print_devices(FACTS)
    shown = " ".join(capsys.readouterr().out.split())
    assert "chip:0 self-tested v1 1.0 GiB chosen: the only device" in shown
    assert "card id-1: chip:0" in shown
    assert "refused: key vendor is missing; add it" in shown and shown.count("refused") == 1
    assert "not here: card (the driver is not there), net (found no device)" in shown
    devices._print_devices(Facts(searched=("/opt (a test)",)))
    assert "no device; searched /opt (a test)" in capsys.readouterr().out


def test_a_simulated_device_is_marked_in_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    fact = replace(FACTS.devices[0], simulated=True, note="it is a simulated chip")
    devices._print_devices(replace(FACTS, devices=(fact,)))
    shown = " ".join(capsys.readouterr().out.split())
    assert "chip:0 self-tested, simulated v1" in shown and "it is a simulated chip" in shown
    assert devices._document(replace(FACTS, devices=(fact,)), {})["devices"][0]["simulated"] is True


def test_a_closed_stdout_is_no_traceback() -> None:
    code = "import sys; from anyhal.cli import main; main(['devices', '--json'])"
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, code],
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr


PROGRAM = "from anyhal_command import main; main()"


def interrupted_at(module: str, folder: Path, after: str = "") -> subprocess.CompletedProcess[str]:
    """The command, with Ctrl-C arriving while `module` is imported by somebody who swallows it."""
    (folder / f"{module}.py").write_text(
        "import os, signal\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    for _ in range(1000): pass\n"
        f"except BaseException:\n    pass\n{after}"
    )
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "devices"],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"},
    )


@pytest.mark.parametrize("module", ["numpy", "typer"])
def test_ctrl_c_while_the_command_loads_is_one_line(module: str, tmp_path: Path) -> None:
    done = interrupted_at(module, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "anyhal: interrupted\n")


def test_an_ignored_ctrl_c_stays_ignored_while_the_command_loads(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for a background job
    try:
        done = interrupted_at("numpy", tmp_path, "os._exit(7)\n")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.returncode == 7, done.stderr


def test_the_console_script_loads_nothing_before_it_guards_against_ctrl_c() -> None:
    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, function = project["project"]["scripts"]["anyhal"].partition(":")
    code = (
        f"import sys; from {module} import {function};"
        "print(sorted({'anyhal', 'numpy', 'typer', 'typing', 'inspect'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert f"src/{module}" in project["tool"]["scikit-build"]["wheel"]["packages"]


COMMANDS = [
    [],
    ["--help"],
    ["--version"],
    ["devices"],
    ["devices", "--json"],
    ["devices", "--capabilities"],
    ["devices", "--help"],
    ["explain", "matmul f32[4,8] f32[8,16]"],
    ["explain", "matmul f32[4,8] f32[8,16]", "--json"],
    ["run", "--help"],
]


def into(output: int, *arguments: str, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_full_disk_is_one_line_that_says_so(arguments: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = into(full.fileno(), *arguments, unbuffered=unbuffered)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "writing the output: no space left on device" in done.stderr
    assert "Errno" not in done.stderr


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_reader_that_has_left_is_no_news(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = into(writing, *arguments)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def text_options() -> list[tuple[str, str]]:
    """Every option of every command that takes a text."""
    found = []
    for name in cli.COMMANDS:
        file = cli.file_of(name)
        function = getattr(import_module(f"anyhal.cli.{file}"), file)
        for parameter, hint in get_type_hints(function, include_extras=True).items():
            kind, *about = get_args(hint) or (hint,)
            is_option = any(type(each).__name__ == "OptionInfo" for each in about)
            if is_option and str in (kind, *get_args(kind)):
                found.append((name, f"--{parameter.replace('_', '-')}"))
    return found


def test_the_commands_have_options_that_take_a_text() -> None:
    assert {("explain", "--device"), ("run", "--fallback")} <= set(text_options())


@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize(("command", "option"), text_options())
def test_an_empty_option_is_refused_and_not_taken_for_none(
    command: str, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    operands = {"explain": ["softmax f32[4]"], "run": ["model", "prompt"]}
    operands |= {"new-backend": ["fresh"], "certificate": ["show"]}
    status = cli._run([command, *operands.get(command, []), option, value])
    said = capsys.readouterr()
    assert (status, said.out) == (1, "")
    assert said.err.count("\n") == 1 and f"{option} is empty" in said.err


def test_an_empty_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["run", "", "prompt"]) == 1
    assert "the model's name is empty" in capsys.readouterr().err


def test_devices_shows_what_was_asked_for_and_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    noted = Facts(FACTS.devices, notes=("V names 'x', which no device here has",))
    assert devices._document(noted, {})["notes"] == ["V names 'x', which no device here has"]
    devices._print_devices(noted)
    assert "note: V names 'x'" in " ".join(capsys.readouterr().out.split())


def test_what_was_not_timed_is_no_zero(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"op": "copy", "backend": "chip", "device": "chip:0", "state": "self-tested"}
    row |= {"calls": 2, "decomposed": False, "numerics": "strict"}
    generation = SimpleNamespace(token_ids=[1], prefill_tokens_per_s=None, decode_tokens_per_s=None)
    for time_ms, shown in ((None, "not timed"), (3.0, "3.0")):
        routes = [row | {"time_ms": time_ms}]
        outcome = Outcome("chip:0", False, generation, routes)  # type: ignore[arg-type]
        run_tables.who_ran_what(outcome)
        run_tables.routes_by_op(outcome)
        first, second = capsys.readouterr().err.split("routes on")
        assert shown in first and shown in second
        assert "self-tested" in first and "chip:0, " in second and "self-tested" in second
        assert " 0.0 " not in first + second


def test_the_tables_of_a_run_cut_no_name_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    row = {"op": "quant_matmul", "backend": "chip", "device": "chip:0", "state": "self-tested"}
    row |= {"calls": 2, "decomposed": False, "numerics": "strict", "time_ms": 3.0}
    generation = SimpleNamespace(token_ids=[1], prefill_tokens_per_s=None, decode_tokens_per_s=None)
    routes = [row, row | {"op": "cache_append"}]
    outcome = Outcome("chip:0", False, generation, routes)  # type: ignore[arg-type]
    run_tables.who_ran_what(outcome)
    run_tables.routes_by_op(outcome)
    run_tables.every_device([run_tables.DeviceRow("averylongnameofachip:0", *("text",) * 6)])
    shown = "".join(capsys.readouterr())
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 80
    assert shown.count("quant_matmul") == 2 and shown.count("cache_append") == 2


def test_a_simulated_device_shows_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    generation = SimpleNamespace(token_ids=[1], prefill_tokens_per_s=7.25, decode_tokens_per_s=7.25)
    for simulated in (False, True):
        run_tables.who_ran_what(Outcome("chip:0", simulated, generation, []))  # type: ignore[arg-type]
        shown = capsys.readouterr().err
        assert ("7.2" in shown) is not simulated
        assert ("simulated, so no figure of it counts" in shown) is simulated
