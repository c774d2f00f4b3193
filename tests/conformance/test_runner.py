"""The runner: what a backend does to its process costs a case, never the run.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from anyhal import settings
from anyhal.cli import main
from anyhal.conformance import runner, spool, suite
from anyhal.errors import InvalidArgumentError
from anyhal.records import replace
from one_op import OneOpBackend

COMMAND = [sys.executable, "-P", "-c", "from anyhal.cli import main; main()", "certify"]


@pytest.fixture(scope="module")
def chip(tmp_path_factory: pytest.TempPathFactory) -> OneOpBackend:
    return OneOpBackend(tmp_path_factory.mktemp("chip"))


@pytest.fixture
def environ(chip: OneOpBackend, tmp_path: Path) -> dict[str, str]:
    cache = {settings.CACHE.name: str(tmp_path / "cache")}
    return os.environ | cache | {settings.BACKEND_PATH.name: str(chip.folder)}


def ids() -> tuple[str, ...]:
    """Two cases of the list: of the op that misbehaves, and of one that does not."""
    found = [c.id for c in suite.all_cases()]
    wanted = (
        next(i for i in found if i.startswith(f"numerics/{op}/")) for op in ("binary", "unary")
    )
    return tuple(wanted)


@pytest.mark.parametrize(
    ("deed", "code"),
    [
        ("crash", "crash"),
        ("leave", "crash"),
        ("write_before", "outside_written wrong_value"),  # of a view it may be an element
        ("change_input", "input_changed"),
        ("change_output", "wrong_value"),
    ],
)
def test_a_deed_costs_its_case_alone(
    chip: OneOpBackend, environ: dict[str, str], deed: str, code: str, tmp_path: Path
) -> None:
    chip.build(deed)
    report = runner.certify(
        chip.name, ids=ids(), environ=environ, journal_folder=tmp_path, nonce="ab"
    )
    found = {c["op"]: c for c in report["cases"]}
    assert found["binary"]["outcome"] == "fail" and found["binary"]["code"] in code.split()
    assert found["unary"]["outcome"] == "pass"
    assert f"--case {found['binary']['id']} --seed " in found["binary"]["reproduce"]


def test_what_hangs_is_ended_at_its_limit(
    chip: OneOpBackend, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chip.build("hang")
    quick = [replace(c, seconds=5.0) for c in suite.chosen("quick", ids=ids())]
    monkeypatch.setattr(suite, "chosen", lambda *a, **k: quick)
    started = time.monotonic()
    report = runner.certify(chip.name, ids=ids(), environ=environ, journal_folder=tmp_path)
    found = {c["op"]: (c["outcome"], c["code"]) for c in report["cases"]}
    assert found == {"binary": ("fail", "hang"), "unary": ("pass", "")}
    assert time.monotonic() - started < 60 and report["workers"]["restarts"] == 1


def test_what_eats_memory_is_ended(
    chip: OneOpBackend, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chip.build("eat")
    monkeypatch.setattr(runner, "_MEMORY", 1 << 30)
    report = runner.certify(chip.name, ids=ids(), environ=environ, journal_folder=tmp_path)
    found = {c["op"]: c["code"] for c in report["cases"]}
    assert found == {"binary": "memory", "unary": ""}


def test_a_failure_is_asked_again_by_its_one_line(
    chip: OneOpBackend, environ: dict[str, str], tmp_path: Path
) -> None:
    chip.build("change_output")
    report = runner.certify(
        chip.name, ids=ids(), environ=environ, journal_folder=tmp_path, nonce="ab"
    )
    line = next(c["reproduce"] for c in report["cases"] if c["outcome"] == "fail")
    words = line.split()[2:]
    done = subprocess.run([*COMMAND, *words], env=environ, capture_output=True, text=True)
    assert done.returncode == 1 and "elements are wrong" in done.stdout, done.stderr


def test_no_backend_no_run(tmp_path: Path) -> None:
    with pytest.raises(runner.NotRunError, match="nosuchchip"):
        runner.certify("nosuchchip", "smoke", journal_folder=tmp_path)


def test_an_interrupted_run_resumes_where_it_was(
    environ: dict[str, str], chip: OneOpBackend, tmp_path: Path
) -> None:
    chip.build("nothing")
    command = [*COMMAND, chip.name, "--tier", "smoke"]
    process = subprocess.Popen(command, env=environ, stdout=-1, stderr=-1, start_new_session=True)
    folder = tmp_path / "cache" / "certify"
    until = time.monotonic() + 60
    while time.monotonic() < until:
        files = list(folder.glob("*.jsonl"))
        if files and files[0].read_text().count("\n") > 5:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (file,) = folder.glob("*.jsonl")
    first, *known = file.read_text().split("\n")[:-1]
    file.open("a").write('{"id": "torn')
    written = tmp_path / "report.json"
    done = subprocess.run([*command, "--json", str(written)], env=environ, capture_output=True)
    report = json.loads(written.read_text())
    assert done.returncode == 1, "smoke certifies nothing"
    assert report["suite"]["nonce"] == json.loads(first)["nonce"] and len(known) >= 4
    ids_of = [c["id"] for c in report["cases"]]
    assert sorted(ids_of) == sorted(c.id for c in suite.chosen("smoke"))
    assert not list(folder.glob("*.jsonl")), "what is whole is not resumed"


def test_interrupting_leaves_no_process_and_no_spool(
    environ: dict[str, str], chip: OneOpBackend
) -> None:
    chip.build("nothing")
    process = subprocess.Popen(
        [*COMMAND, chip.name], env=environ, stdout=-1, stderr=-1, start_new_session=True
    )
    children: list[int] = []
    until = time.monotonic() + 60
    while len(children) < 2 and time.monotonic() < until:
        text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        children = [int(pid) for pid in text.split()]
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.communicate()
    assert len(children) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_shards_share_the_list_between_them(
    environ: dict[str, str], chip: OneOpBackend, tmp_path: Path
) -> None:
    chip.build("nothing")
    parts: list[set[str]] = []
    for i in (1, 2):
        report = runner.certify(
            chip.name,
            "smoke",
            groups=["numerics"],
            ops=["binary", "unary", "matmul", "softmax"],
            nonce="cd",
            shard=(i, 2),
            environ=environ,
            journal_folder=tmp_path,
        )
        assert not report["complete"] and not report["certified"]
        parts.append({c["id"] for c in report["cases"]})
    ops = ("binary", "unary", "matmul", "softmax")
    whole = {c.id for c in suite.chosen("smoke", ops) if c.group == "numerics"}
    assert parts[0] | parts[1] == whole and not parts[0] & parts[1]


def test_seeds_and_names_are_stable() -> None:
    cases = list(suite.all_cases())
    names = [c.id for c in cases]
    assert len(set(names)) == len(names) and names == [c.id for c in suite.all_cases()]
    assert suite.seed_of("ab", "x") == suite.seed_of("ab", "x") != suite.seed_of("ac", "x")
    assert suite.digest() == suite.digest()
    for case in cases:
        assert case.id.startswith(case.group + "/") and case.tier in suite.TIERS
        json.dumps(dict(case.given))


def test_wrong_words_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidArgumentError, match="did you mean|certify --list"):
        suite.chosen("quick", ids=["numerics/matmul/nothing"])
    for words, said in (
        (["cpu", "--tier", "long"], "no tier 'long'"),
        (["cpu", "--op", "matmull"], "matmul"),
        (["cpu", "--shard", "3/2"], "--shard"),
        (["cpu", "--group", "colours"], "no group"),
        (["/nowhere/backend.toml"], "nowhere"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["certify", *words])
        assert left.value.code == 2 and said in capsys.readouterr().err, words


# A backend's process that speaks the protocol itself: `ready` and `answer` are its lines.
FORGER = """
import json, sys
name, read, write, folder = sys.argv[1:]
with open(int(read)) as asked, open(int(write), "w") as told:
    def tell(line):
        told.write(line + chr(10))
        told.flush()
    tell(json.dumps(READY))
    for line in asked:
        tell(ANSWER)
"""
PASSED = {"outcome": "pass", "measured": {"calls": 50, "ran": 50, "informative": True}}
SAID = {"kind": "finding", "finding": PASSED, "seconds": 0.1, "unwell": ""}


def forged(
    chip: OneOpBackend, environ: dict[str, str], tmp_path: Path, answer: str, **more: Any
) -> Any:
    """The report on a chip whose process gives that answer to every case."""
    chip.build("nothing")
    honest = runner._Run(chip.name, environ, None, "")
    honest.start()
    honest.stop()
    ready = {"kind": "ready", **honest.described, **more}
    code = FORGER.replace("READY", repr(ready)).replace("ANSWER", repr(answer))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner.working, "COMMAND", code)
        return runner.certify(chip.name, ids=ids(), environ=environ, journal_folder=tmp_path)


def test_another_library_cannot_be_named(
    chip: OneOpBackend, environ: dict[str, str], tmp_path: Path
) -> None:
    """What is judged is what lies on the search path, whatever its process says."""
    answer = json.dumps(SAID)
    with pytest.raises(runner.NotRunError, match="is not judged"):
        forged(chip, environ, tmp_path, answer, library_sha256="ab" * 32)
    with pytest.raises(runner.NotRunError, match="is not judged"):
        forged(chip, environ, tmp_path, answer, library="/usr/lib/libc.so.6")


def test_no_process_passes_what_the_oracle_judges(
    chip: OneOpBackend, environ: dict[str, str], tmp_path: Path
) -> None:
    report = forged(chip, environ, tmp_path, json.dumps(SAID))
    assert {(c["outcome"], c["code"]) for c in report["cases"]} == {("fail", "protocol")}


@pytest.mark.parametrize(
    "answer",
    [
        "hello",
        "[1]",
        '{"kind": "finding"}',
        json.dumps({**SAID, "finding": {"outcome": "waived"}}),
        json.dumps({**SAID, "finding": {"outcome": 3}}),
        json.dumps({**SAID, "seconds": "x"}),
        "[" * 60000,
    ],
    ids=["text", "list", "fields", "waived", "number", "seconds", "deep"],
)
def test_what_is_no_answer_costs_its_case(
    chip: OneOpBackend, environ: dict[str, str], tmp_path: Path, answer: str
) -> None:
    report = forged(chip, environ, tmp_path, answer)
    assert {(c["outcome"], c["code"]) for c in report["cases"]} == {("fail", "protocol")}
    assert report["workers"]["restarts"] == 2


def test_the_oracle_opens_nothing_elsewhere(
    chip: OneOpBackend, environ: dict[str, str], tmp_path: Path
) -> None:
    """A file that the process names outside of the run's folder is neither read nor removed."""
    precious = tmp_path / "precious"
    precious.write_text("keep")
    said = {"kind": "answer", "seconds": 0.1, "unwell": "", "file": str(precious), "rows": []}
    report = forged(chip, environ, tmp_path, json.dumps(said))
    assert {(c["outcome"], c["code"]) for c in report["cases"]} == {("fail", "protocol")}
    assert precious.read_text() == "keep"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_process_and_no_folder(
    how: signal.Signals, environ: dict[str, str]
) -> None:
    """Killed, its processes end with it, and the next run removes its folder."""
    words = [*COMMAND, "cpu_ref", "--fresh"]
    process = subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, start_new_session=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until = time.monotonic() + 60
    while len(found := children.read_text().split()) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    spools = {a for pid in found for a in _words(pid) if spool.PREFIX in a}
    assert len(found) == 2 and len(spools) == 1
    process.send_signal(how)
    assert process.wait(60) in (-how, 128 + how)
    while any(_words(pid) for pid in found) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(_words(pid) for pid in found)
    (folder,) = map(Path, spools)
    assert folder.exists() == (how is signal.SIGKILL)
    if folder.exists():
        os.utime(folder, (1, 1))  # as if some time had gone by
        spool.remove_folder(*spool.make_folder())
        assert not folder.exists()


def _words(pid: str) -> list[str]:
    """The command of a process; [] when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def test_a_path_is_repeated_as_a_path(
    chip: OneOpBackend, environ: dict[str, str], tmp_path: Path
) -> None:
    chip.build("change_output")
    file = chip.folder / "backend.toml"
    report = tmp_path / "report.json"
    words = [str(file), "--json", str(report)]
    for one in ids():
        words += ["--case", one]
    subprocess.run([*COMMAND, *words], env=environ, capture_output=True, check=False)
    lines = [c["reproduce"] for c in json.loads(report.read_text())["cases"]]
    assert all(line.startswith(f"anyhal certify {file} --case ") for line in lines)
