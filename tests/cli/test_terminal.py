"""What files, devices and models say does not drive the terminal.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from anyhal import cli
from anyhal.cli import devices, explain, run, run_tables, version
from anyhal.errors import ExecutionFailedError
from anyhal.printable import printable
from anyhal.routing.facts import (
    Candidate,
    Copy,
    Decision,
    DeviceFact,
    Facts,
    Kernel,
    Refusal,
    RefusedBackend,
    Verdict,
)

EVIL = "a\x1b[2J\x07\x9b\u202e\u2028\ud800[bold]z"
SHOWN = r"a\x1b[2J\x07\x9b\u202e\u2028\ud800[bold]z"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")


def check(out: str) -> None:
    assert SHOWN in out, ascii(out)
    assert printable(out, keep="\n") == out, ascii(out)


def test_printable_keeps_text() -> None:
    for text in ("", "plain", "naïve 漢字 emoji 🙂", r"C:\x"):
        assert printable(text) == text
    assert printable("a\n\tb", keep="\n\t") == "a\n\tb"


def test_devices(capsys: pytest.CaptureFixture[str]) -> None:
    found = DeviceFact("cpu:0" + EVIL, "cpu", arch=EVIL, state=EVIL, note=EVIL, why_not=EVIL)
    refused = RefusedBackend("x", EVIL, "open", EVIL)
    devices._print_devices(Facts((found,), (refused,), (EVIL,), (EVIL,)))
    devices._print_devices(Facts(searched=(EVIL,)))
    row = {
        "op": EVIL,
        "dtypes": [EVIL],
        "strided": True,
        "capture_safe": True,
        "rank_max": 0,
        "dim_max": 0,
        "determinism": EVIL,
    }
    devices._print_capabilities(EVIL, [row])
    devices._print_capabilities(EVIL, [])
    check(capsys.readouterr().out)


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = ((EVIL, Verdict("yes", cost_ns=1)),)
    device = DeviceFact(EVIL, EVIL, state=EVIL)
    candidates = Candidate(device, "fused", verdicts), Candidate(device, "decomposed", verdicts)
    decision = Decision(
        *(EVIL, EVIL, "fused", EVIL, EVIL),
        copies=(Copy(0, EVIL, EVIL, 1, "device"),),
        refusals=(Refusal(EVIL, "decomposed", EVIL, EVIL),),
        considered=candidates,
        kernels=(Kernel(EVIL, EVIL, EVIL, EVIL),),
    )
    explain._print(decision)
    check(capsys.readouterr().out)


def test_tables_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    from anyhal.frontends.gguf.generate import Generation

    row = {"op": EVIL, "backend": EVIL, "device": EVIL, "state": EVIL, "numerics": EVIL}
    outcome = run.Outcome(
        EVIL, False, Generation(), [{**row, "calls": 1, "time_ms": None, "decomposed": False}]
    )
    run_tables.who_ran_what(outcome)
    run_tables.routes_by_op(outcome)
    run_tables.every_device([run_tables.DeviceRow(*(EVIL,) * 7)])
    found = capsys.readouterr()
    for out in (found.out, found.err):  # the cells are cut or folded
        assert SHOWN[:9] in out and printable(out, keep="\n…") == out


def test_text_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    run._write(EVIL + "\n\tnext line")
    check(capsys.readouterr().out.replace("\n\t", ""))


def test_a_failure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def app(_: Any) -> Any:
        raise ExecutionFailedError(EVIL)

    monkeypatch.setattr(cli, "_app", app)
    assert cli._run([]) == cli.FAILED
    said = capsys.readouterr().err
    assert said == f"anyhal: {SHOWN.replace(chr(92) + 'u2028', ' ')}\n"


def test_version(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "lines", lambda: iter([EVIL]))
    assert cli._run(["--version"]) == 0
    check(capsys.readouterr().out)


def test_an_encoding_that_lacks_a_character(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    cli.encode_all()
    print("µs \ud800")
    out.flush()
    assert out.buffer.getvalue() == b"\\xb5s \\ud800\n"  # type: ignore[attr-defined]


def test_no_command_prints_markup_of_its_own_escape() -> None:
    for path in Path(cli.__file__).parent.glob("*.py"):
        assert path.name == "terminal.py" or "rich.markup" not in path.read_text(), path.name
