"""The probe itself: what it costs, what it keeps, who shares it, and what ends it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from members import ROOT, build_library, folder_of

from anyhal import settings
from anyhal.runtime import kept_file, probe, probing
from anyhal.runtime.kept_json import read_kept_json, write_kept_json
from anyhal.runtime.probe import Stranger, verdict
from anyhal.runtime.stages import CODES

Build = Callable[..., Stranger]


@pytest.fixture
def build(objects: list[Path], tmp_path: Path) -> Build:
    def build(deed: str = "NOTHING", when: str = "AT_INIT", name: str = "hostile") -> Stranger:
        library = folder_of(tmp_path / "backends", name)
        build_library(objects, library, f"-DWHEN={when}", f"-DDEED={deed}")
        return Stranger(library, hashlib.sha256(library.read_bytes()).hexdigest(), name)

    return build


def forget() -> None:
    """As a new process: what this one remembers is gone, the cache folder stays."""
    probe._known.clear()


def probes_that_run() -> list[str]:
    """Of this test: those with its folder in their command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if words and words[0].endswith("anyhal-probe"):
            found.append(" ".join(words))
    return found


def test_a_verdict_is_kept_for_the_library_its_settings_and_its_drivers(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    inner = probing._Run.__post_init__
    monkeypatch.setattr(
        probing._Run, "__post_init__", lambda run: (ran.append(run.key), inner(run))[1]
    )
    stranger = build()
    assert verdict(stranger).code == "" and len(ran) == 1
    assert verdict(stranger).code == "" and len(ran) == 1  # remembered
    forget()
    assert verdict(stranger).code == "" and len(ran) == 1  # kept
    other = Stranger(stranger.library, stranger.sha256, "hostile", (("lie", "honest"),))
    assert verdict(other).code == "" and len(ran) == 2
    cached = Stranger(stranger.library, stranger.sha256, "hostile", (("cache_dir", "/nowhere"),))
    assert verdict(cached).code == "" and len(ran) == 2  # no matter of the library
    forget()
    path = probe.path_of(stranger.key)
    kept = read_kept_json(path, probe._FORM, 1 << 20)
    depends = dict(kept["answer"]["depends"])
    driver = next(path for path in depends if "libc.so" in path)
    kept["answer"]["depends"] = [*(depends | {driver: "1 1 1 1 1"}).items()]  # another was here
    write_kept_json(path, probe._FORM, kept)
    assert verdict(stranger).code == "" and len(ran) == 3


def test_a_refusal_is_kept_for_an_hour(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYHAL_PROBE_SECONDS", "1")
    for deed in ("ABORT", "HANG"):
        stranger = build(deed, name=deed.lower())
        first = verdict(stranger)
        forget()
        assert probe.known(stranger) is not None and verdict(stranger) == first
        forget()
        monkeypatch.setenv("ANYHAL_PROBE_SECONDS", "2")  # it may have been too short
        assert (probe.known(stranger) is not None) is (deed == "ABORT")
        monkeypatch.setenv("ANYHAL_PROBE_SECONDS", "1")
        forget()
        later = time.time() + 4000
        monkeypatch.setattr(time, "time", lambda later=later: later)
        assert probe.known(stranger) is None  # its cause may be mended
        monkeypatch.undo()
        monkeypatch.setenv("ANYHAL_PROBE_SECONDS", "1")
        monkeypatch.setenv("ANYHAL_CACHE", str(probe.path_of("x").parents[1]))


def test_a_verdict_is_kept_only_where_it_is_known_what_was_loaded(
    build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stranger = build()
    later = time.time() + 4000
    for folder, kept in ((tmp_path, True), (tmp_path / "none", False)):
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        assert verdict(stranger).code == ""
        forget()
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: later)
            assert (probe.known(stranger) is not None) is kept
        forget()
        probe.path_of(stranger.key).unlink()
    assert not list(tmp_path.glob("anyhal-probe-*"))


def test_where_the_loaders_words_may_be_cut_off_a_verdict_is_kept_for_an_hour(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = build()
    full = os.statvfs_result((4096, 4096, 9, 1, 1, 9, 9, 9, 0, 255))
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda folder: full)
        assert verdict(stranger).code == ""
    forget()
    answer = probe.known(stranger)
    assert answer is not None and answer.depends == () and answer.kept_seconds() == 3600


CLEAN = '"answer": {"ended": "clean", "stage": "exit"}'
DAMAGES = [
    *("[]", "{", "", "[" * 100_000, "null", '{"answer": {"ended": 5}}', '{"answer": {}}'),
    *(f'{{{CLEAN}, "time": {time}}}' for time in ("NaN", "Infinity", "9" * 400, '"now"', "[]")),
    '{"answer": {"ended": "hung"}, "time": 0, "seconds": {}}',
]


@pytest.mark.parametrize("damage", DAMAGES, ids=range(len(DAMAGES)))
def test_a_damaged_verdict_is_none(build: Build, damage: str) -> None:
    """Also one whose checksum is right."""
    stranger = build()
    path = probe.path_of(stranger.key)
    for head in (b"", kept_file.head_of(probe._FORM, damage.encode()) + b"\n"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(head + damage.encode())
        assert probe.known(stranger) is None and verdict(stranger).code == ""
        forget()
        assert probe.known(stranger) is not None
        forget()


def test_a_verdict_that_others_could_have_written_is_none(build: Build) -> None:
    stranger = build("ABORT")
    assert verdict(stranger).code == "probe_aborted"
    path = probe.path_of(stranger.key)
    kept = read_kept_json(path, probe._FORM, 1 << 20)
    kept |= {"answer": {"ended": "clean", "stage": "exit"}}
    write_kept_json(path, probe._FORM, kept)
    path.chmod(0o666)
    forget()
    assert verdict(stranger).code == "probe_aborted"


def test_a_cache_that_cannot_be_written_costs_only_time(
    build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ANYHAL_CACHE", str(tmp_path / "file" / "cache"))
    stranger = build("ABORT")
    assert verdict(stranger).code == "probe_aborted"
    assert verdict(stranger).code == "probe_aborted"


MEET = """
import sys, pathlib
from anyhal.runtime.probe import Stranger, verdict
library, sha256 = sys.argv[1:]
print(verdict(Stranger(pathlib.Path(library), sha256, "hostile")).code)
"""


def start(stranger: Stranger) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MEET, str(stranger.library), stranger.sha256]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def probes_of(stranger: Stranger) -> list[str]:
    return [words for words in probes_that_run() if str(stranger.library) in words]


def test_processes_at_once_probe_once(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYHAL_PROBE_SECONDS", "2")
    stranger = build("HANG")
    began = time.monotonic()
    several = [start(stranger) for _ in range(3)]
    until(lambda: len(probes_of(stranger)) > 0)
    most = 0
    while any(one.poll() is None for one in several):
        # the watcher, and the process that it watches
        most = max(most, len(probes_of(stranger)))
        time.sleep(0.02)
    assert [one.communicate()[0].strip() for one in several] == ["probe_timeout"] * 3
    assert most <= 2, "two probes ran at once"
    print(f"three processes, one probe of 2 s: {time.monotonic() - began:.1f} s")


def test_a_killed_process_takes_its_probe_along_and_blocks_nobody(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYHAL_PROBE_SECONDS", "30")
    stranger = build("HANG")
    first = start(stranger)
    until(lambda: len(probes_of(stranger)) == 2)
    first.kill()
    first.communicate()
    until(lambda: not probes_of(stranger), 5)
    monkeypatch.setenv("ANYHAL_PROBE_SECONDS", "1")
    assert verdict(stranger).code == "probe_timeout"


def test_an_interrupt_ends_the_probe(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYHAL_PROBE_SECONDS", "30")
    stranger = build("HANG")
    run = start(stranger)
    until(lambda: len(probes_of(stranger)) == 2)
    began = time.monotonic()
    run.send_signal(signal.SIGINT)
    run.communicate()
    assert run.returncode == -signal.SIGINT and time.monotonic() - began < 5
    until(lambda: not probes_of(stranger), 5)


def test_no_probe_leaves_a_zombie_or_a_descriptor(build: Build) -> None:
    stranger = build()
    verdict(stranger)
    before = sorted(os.listdir("/proc/self/fd"))
    for number in range(5):
        verdict(Stranger(stranger.library, stranger.sha256, "hostile", (("n", str(number)),)))
    assert sorted(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_probe_that_cannot_run_says_so(
    build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stranger = build()
    nothing = tmp_path / "anyhal-probe"
    nothing.touch(0o644)
    for program, words in (
        (nothing, "Permission denied"),
        (tmp_path / "none", "No such file"),
        (Path("/bin/false"), "status 1, without an answer"),
    ):
        monkeypatch.setattr(probe, "program", lambda program=program: program)
        monkeypatch.setattr(probing, "program", lambda program=program: program)
        forget()
        found = verdict(stranger)
        assert (found.code, found.stage) == ("probe_impossible", "open")
        assert words in found.sentence and "ANYHAL_PROBE=off" in found.hint
        assert not probe.path_of(stranger.key).exists()


def test_a_library_that_was_changed_since_is_not_opened(build: Build) -> None:
    stranger = build()
    with stranger.library.open("ab") as file:
        file.write(b"more")
    found = verdict(stranger)
    assert (found.code, found.stage) == ("hash_mismatch", "trust")


def test_a_sealed_copy_is_opened_as_it_is(build: Build) -> None:
    import fcntl

    stranger = build()
    memory = os.memfd_create("sealed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(memory, stranger.library.read_bytes())
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
    stranger.library.unlink()
    sealed = Stranger(stranger.library, stranger.sha256, "hostile", descriptor=memory)
    assert verdict(sealed).code == ""
    os.close(memory)


USE = """
from anyhal.runtime import device
facts = device.facts()
print([d.name for d in facts.devices], *[f"{r.stage} {r.sentence}" for r in facts.refused], sep="|")
"""


def test_the_user_may_do_without(build: Build) -> None:
    stranger = build("THREAD", "AT_OPEN")
    said = {}
    for word in ("on", "off"):
        environ = dict(os.environ, ANYHAL_PROBE=word)
        environ["ANYHAL_BACKEND_PATH"] = str(stranger.library.parent)
        command = [sys.executable, "-c", USE]
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        said[word] = ran.stdout
    assert "|open backend 'hostile' was not opened from" in said["on"]
    assert "hostile:0" in said["off"] and "not opened" not in said["off"]


def test_first_contact_is_short_and_a_kept_verdict_shorter(build: Build) -> None:
    stranger = build()
    verdict(stranger)
    cold, warm = [], []
    for number in range(7):
        one = Stranger(stranger.library, stranger.sha256, "hostile", (("n", str(number)),))
        began = time.perf_counter()
        verdict(one)
        cold.append(time.perf_counter() - began)
        forget()
        began = time.perf_counter()
        verdict(one)
        warm.append(time.perf_counter() - began)
    print(f"first contact {min(cold) * 1e3:.1f} ms, kept {min(warm) * 1e3:.2f} ms (best of 7)")
    assert min(cold) < 0.1 and min(warm) < 0.001


def test_every_backend_of_this_build_would_pass() -> None:
    """They are not met in a probe, but vendors copy them. Those whose driver is not here pass as
    well: the core's own refusal is no matter of the probe."""
    from anyhal.runtime.discovery import discover

    wanted = [r for r in discover(test_script="1").backends if r.error is None]
    assert len(wanted) >= 5
    found = probe.verdicts(
        Stranger(
            Path(r.library),
            r.sha256,
            r.name,
            r.settings,
            bool(r.manifest and r.manifest.own_threads),
        )
        for r in wanted
        if r.library
    )
    for record, one in zip(wanted, found, strict=True):
        print(record.name, one.code or "may be opened", *one.notes, sep="\n    ")
    assert [one.sentence for one in found if one.code] == []
    assert settings.PROBE.read() is True


def test_the_page_has_every_code() -> None:
    page = (ROOT / "docs" / "explanation" / "first-contact.md").read_text(encoding="utf-8")
    rows = {row.split("|")[1].strip(" `"): row.split("|")[2].strip() for row in page.splitlines()
            if row.startswith("| `")}  # fmt: skip
    assert rows == {
        code: why
        for code, why in CODES.items()
        if code.startswith("probe_") or code == "hash_mismatch"
    }
