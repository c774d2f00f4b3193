"""certify, bench, diff and report with what is wrong: one sentence and the promised status.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from anyhal import cli, settings
from anyhal.conformance import suite

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))
from report_of import case, report  # noqa: E402

ONE = "numerics/softmax"


def run(*arguments: str) -> int:
    return cli._run(list(arguments))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.CACHE.name, str(tmp_path / "cache"))


@pytest.fixture
def document(tmp_path: Path) -> Path:
    found = report(case(f"{ONE}/fused", "pass"), case(f"{ONE}/fused/big", "fail"), certified=False)
    file = tmp_path / "report.json"
    file.write_text(json.dumps(found))
    return file


def one_case() -> str:
    return next(c.id for c in suite.all_cases() if c.id.startswith("numerics/unary/"))


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["certify", "nosuchchip"], 2, "nosuchchip"),
        (["certify", "cpu:7"], 2, "cpu:7"),
        (["certify", "cpu", "--tier", "ful"], 2, "smoke, quick, full"),
        (["certify", "cpu", "--op", "sofmax"], 2, "softmax"),
        (["certify", "cpu", "--group", "numeric"], 2, "numerics"),
        (["certify", "cpu", "--case", "numerics/nothing"], 2, "no case"),
        (["certify", "cpu", "--shard", "3/2"], 2, "I/N"),
        (["certify", "nowhere/backend.toml"], 2, "nowhere/backend.toml"),
        (["certify", "cpu", "--json", "no/such/folder/r.json"], 2, "there is no folder"),
        (["certify", "cpu", "--html", "/proc/r.html"], 2, "--html /proc/r.html"),
        (["certify", "cpu", "--junit", "."], 2, "it is a folder"),
        (["certify", "cpu", "--json", "-", "--html", "-"], 2, "both name it"),
        (["bench", "nosuchchip", "--op", "add"], 1, "nosuchchip"),
        (["bench", "cpu", "--op", "adds"], 1, "nothing times 'adds'"),
        (["bench", "cpu", "--gate", "release"], 1, "no baseline has that name"),
        (["bench", "cpu", "--save", "../x"], 1, "is no name"),
        (["bench", "cpu", "--save", "a", "--gate", "a"], 1, "first gate, then save"),
        (["bench", "cpu", "--json", "no/such/folder/r.json"], 1, "there is no folder"),
        (["bench", "cpu", "--blocks", "2"], 2, "--blocks"),
        (["diff", "a.json", "b.json"], 1, "no such file"),
        (["diff", "a.json"], 2, "Missing argument"),
        (["report", "a.json"], 1, "no such file"),
        (["report"], 2, "Missing argument"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_what_is_wrong_is_one_sentence(
    arguments: list[str],
    status: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == status
    said = capfd.readouterr()
    assert said.out == "" and words in said.err and "Errno" not in said.err
    assert said.err.count("anyhal: ") == 1 and "Traceback" not in said.err


@pytest.mark.parametrize("command", ["certify", "report"])
@pytest.mark.parametrize("option", ["--html", "--junit"])
def test_a_full_disk_names_the_file(
    command: str, option: str, document: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    what = ["cpu", "--case", one_case()] if command == "certify" else [str(document)]
    assert run(command, *what, option, "/dev/full") == (2 if command == "certify" else 1)
    assert "writing /dev/full: no space left on device" in capfd.readouterr().err


def test_the_report_goes_to_standard_output_alone(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("certify", "cpu", "--case", one_case(), "--json", "-") == 0
    found = json.loads(capfd.readouterr().out)
    assert found["schema"] == 1 and found["outcomes"]["pass"] == 1
    assert not found["certified"]  # of one case


def test_bench_writes_its_snapshot_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("bench", "dayone", "--op", "add", "--blocks", "6", "--json", "-") == 0
    found = json.loads(capfd.readouterr().out)
    assert found["kind"] == "snapshot" and len(found["times"]["add f32"]) == 6


@pytest.mark.parametrize("option", ["--html", "--junit", "--summary"])
def test_pages_of_a_report_go_to_standard_output(
    option: str, document: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("report", str(document), option, "-") == 0
    assert "softmax" in capfd.readouterr().out


def test_two_reports_with_other_outcomes_differ(
    document: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    rows = case(f"{ONE}/fused", "pass"), case(f"{ONE}/fused/big", "pass")
    other.write_text(json.dumps(report(*rows)))
    assert run("diff", str(document), str(document)) == 0
    assert run("diff", str(document), str(other), "--json") == 1
    said = capfd.readouterr().out.splitlines()[-1]
    assert [(c["kind"], c["what"]) for c in json.loads(said)["changes"]] == [
        ("outcome", f"{ONE}/fused/big")
    ]


def _damaged(document: dict[str, Any]) -> list[Any]:
    """Documents that lack something, or hold another kind of it."""
    found: list[Any] = [[], 5, None, {}, {"schema": 2}, {"schema": 1, "device": "x:0"}]
    for name, value in document.items():
        found += [{k: v for k, v in document.items() if k != name}]
        found += [document | {name: other} for other in (None, 5, "x", [5], {"x": 5})]
        if isinstance(value, dict):
            found.append(document | {name: dict.fromkeys(value)})
    return [*found, document | {"cases": [{}]}, document | {"cases": [dict.fromkeys("id op")]}]


def test_a_damaged_document_is_refused_or_read(
    document: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever is in it, never a traceback."""
    file = tmp_path / "damaged.json"
    for text in ("", "{", "\0", "[" * 100_000, '{"schema": NaN}'):
        file.write_text(text)
        for command in (["report", str(file)], ["diff", str(document), str(file)]):
            assert run(*command) == 1, text[:20]
    for damaged in _damaged(json.loads(document.read_text())):
        file.write_text(json.dumps(damaged))
        for command in (["report", str(file)], ["diff", str(document), str(file)]):
            assert run(*command) in (0, 1), damaged
        for option in ("--html", "--junit", "--summary"):
            assert run("report", str(file), option, "-") in (0, 1), damaged
    assert "Traceback" not in capfd.readouterr().err
