"""`anyhal cache`: shows what anyhal wrote and clears that alone, while others use it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anyhal.errors import NotFoundError
from anyhal.frontends.gguf.fetch import MODELS
from anyhal.runtime import kept, registry, verdicts
from anyhal.settings import CACHE

MODEL = Path(MODELS["smollm2"].member).name
OURS = {
    "artefacts": "artefacts/cpu/0123456789abcdef.bin",
    "baselines": f"baselines/{'0' * 64}.so",
    "certify": f"certify/{'0' * 32}.jsonl",
    "discovery": "discovery.bin",
    "models": f"models/{MODEL}",
    "probe": f"probe/{'0' * 32}.json",
    "registry": "registry.tsv",
    "selftest": f"selftest/{'0' * 32}.json",
    "smoke": f"smoke/{'0' * 32}.json",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with one file of each part, 25 bytes each."""
    beginnings = {"registry": "anyhal-registry\t", "discovery": "anyhal-discovery "}
    monkeypatch.setenv(CACHE.name, str(tmp_path / "cache"))
    for part, name in OURS.items():
        file = tmp_path / "cache" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(beginnings.get(part, "anyhal").ljust(25))
    return tmp_path / "cache"


def files(folder: Path) -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {str(path.relative_to(folder)) for path in found}


def anyhal(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "anyhal"), "cache", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )


def test_every_part_is_shown_with_its_size(folder: Path) -> None:
    done = anyhal("--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == 1 and document["folder"] == str(folder)
    rows = {row["name"]: row for row in document["parts"]}
    assert set(rows) == set(OURS) == {part.name for part in kept.PARTS}
    for row in rows.values():
        assert (row["files"], row["bytes"], row["notes"]) == (1, 25, [])
        assert row["purpose"] and row["cost"] and row["path"].startswith(str(folder))
    table = anyhal()
    assert table.returncode == 0 and all(re.search(rf"{n} +1 +25 B", table.stdout) for n in OURS)


@pytest.mark.parametrize("name", [*OURS, "all"])
def test_what_is_named_is_cleared_and_nothing_else(name: str, folder: Path) -> None:
    done = anyhal("--clear", name, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    gone = set(OURS.values()) if name == "all" else {OURS[name]}
    assert files(folder) == set(OURS.values()) - gone
    document = json.loads(done.stdout)
    assert sum(row["files"] for row in document["cleared"]) == len(gone)
    assert all(row["files"] == 0 for row in document["parts"])


def test_nobody_to_ask_is_a_refusal(folder: Path) -> None:
    done = anyhal("--clear", "all")
    assert done.returncode == 1 and "--yes" in done.stderr and not done.stdout
    assert files(folder) == set(OURS.values())
    wrong = anyhal("--clear", "selftests", "--yes")
    assert wrong.returncode == 1 and "did you mean 'selftest'" in wrong.stderr
    assert anyhal("--yes").returncode == 2


@pytest.mark.parametrize(("answer", "gone"), [("y", True), ("n", False), ("", False)])
def test_a_person_is_asked(answer: str, gone: bool, folder: Path) -> None:
    command = [str(Path(sys.executable).parent / "anyhal"), "cache", "--clear", "selftest"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    try:
        _, said = process.communicate(timeout=120)
    finally:
        os.close(ours)
    assert "selftest: 1 file, 25 B" in said and "[y/N]" in said
    assert process.returncode == (0 if gone else 130)
    assert (OURS["selftest"] in files(folder)) != gone


def test_what_anyhal_did_not_write_stays(folder: Path, tmp_path: Path) -> None:
    """Other names, links of our names, a file of our name with other content, other folders."""
    elsewhere = tmp_path / "precious"
    elsewhere.mkdir()
    (elsewhere / f"{'1' * 32}.json").write_text("mine")
    theirs = {"models/mine.gguf", "selftest/notes.txt", "artefacts/cpu/sub/0123456789abcdef.bin"}
    theirs |= {"photos/holiday.bin", "selftest/archive/" + "0" * 32 + ".json"}
    for name in theirs:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    (folder / "registry.tsv").write_text("name\tprice\n")
    (folder / "discovery.bin").write_text('{"planets": 2}')
    (folder / "selftest" / f"{'2' * 32}.json").symlink_to(elsewhere / f"{'1' * 32}.json")
    (folder / "artefacts" / "linked").symlink_to(elsewhere)
    os.mkfifo(folder / "selftest" / f"{'3' * 32}.json")
    stays = files(folder) - set(OURS.values()) | {"registry.tsv", "discovery.bin"}
    done = anyhal("--clear", "all", "--yes")
    assert done.returncode == 0, done.stderr
    assert files(folder) == stays
    assert (elsewhere / f"{'1' * 32}.json").read_text() == "mine"
    for said in ("a link", "no regular file", "which anyhal did not write"):
        assert said in done.stderr


def test_a_part_that_is_a_link_is_left_alone(folder: Path, tmp_path: Path) -> None:
    (folder / "selftest").rename(tmp_path / "moved")
    (folder / "selftest").symlink_to(tmp_path / "moved")
    found = kept.content(kept.part("selftest"))
    assert found.files == [] and "it is a link or no folder" in found.notes[0]
    assert kept.clear(kept.part("selftest")) == (0, 0, [])
    assert files(tmp_path / "moved")


def test_the_cache_folder_itself_may_be_a_link(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setenv(CACHE.name, str(tmp_path / "link"))
    assert kept.clear(kept.part("selftest")) == (1, 25, [])


def test_what_is_being_written_stays(folder: Path) -> None:
    """A temporary name is a live writer's; one that is hours old is what a dead one left."""
    part = folder / "selftest" / f"{'0' * 32}.4711.part"
    part.write_text("{")
    assert kept.clear(kept.part("selftest"))[0] == 1 and part.exists()
    old = time.time() - 7200
    os.utime(part, (old, old))
    assert kept.clear(kept.part("selftest"))[0] == 1 and not part.exists()


def test_a_fetch_that_runs_keeps_its_models(folder: Path) -> None:
    lock = folder / "models" / ".lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = anyhal("--clear", "models", "--yes")
        assert done.returncode == 1 and "another process is writing there" in done.stderr
        assert OURS["models"] in files(folder)
    assert kept.clear(kept.part("models"))[0] == 1
    assert lock.exists(), "who waits for the lock waits on this file"


def test_what_another_process_has_mapped_keeps_its_content(folder: Path) -> None:
    with (folder / OURS["models"]).open("rb") as stream:
        view = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    kept.clear(kept.part("models"))
    assert not (folder / OURS["models"]).exists() and view[:6] == b"anyhal"


WRITER = """
import sys
from anyhal.runtime import verdicts
print("ready", flush=True)
for i in range(10**9):
    verdicts.save(f"{i % 7:064x}", {"a": ""})
    if i % 50 == 0: print(i, flush=True)
"""


@pytest.fixture
def writer(folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline()
    yield process
    process.kill()
    process.wait()


def test_clearing_and_writing_at_once(folder: Path, writer: subprocess.Popen[str]) -> None:
    """A process that writes verdicts while another clears them neither fails nor stops."""
    removed, start = 0, time.monotonic()
    while removed < 50 and time.monotonic() - start < 100:
        count, _, failures = kept.clear(kept.part("selftest"))
        removed += count
        assert failures == []
    assert removed >= 50
    assert writer.poll() is None and writer.stdout is not None
    while select.select([writer.stdout], [], [], 0)[0]:
        writer.stdout.readline()
    assert select.select([writer.stdout], [], [], 60)[0], "the writer stopped"


def test_the_table_knows_the_names_that_are_really_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part's writer, then the table: one file each. A renamed file would be forgotten here."""
    monkeypatch.setenv(CACHE.name, str(tmp_path))
    verdicts.save("f" * 64, {"a": ""})
    assert registry.write_registry() == tmp_path / "registry.tsv"
    for name in ("selftest", "registry"):
        found = kept.content(kept.part(name))
        assert (len(found.files), found.notes) == (1, []), name
    pattern = kept.part("models").names
    assert all(re.fullmatch(pattern, Path(m.member).name) for m in MODELS.values())
    with pytest.raises(NotFoundError, match="known: artefacts"):
        kept.part("everything")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away or become another")
def test_files_of_others_and_folders_without_rights(folder: Path) -> None:
    os.chown(folder / OURS["selftest"], 65534, 65534)
    found = kept.content(kept.part("selftest"))
    assert found.files == [] and "which belongs to user 65534" in found.notes[0]
    # The owner of the file, in a folder of root's: the file is his, its place is not.
    script = (
        "import os; from anyhal.runtime import kept; kept.content(kept.part('selftest'))\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "print(kept.clear(kept.part('selftest')))"
    )
    for place in folder.parents:
        if place != Path("/tmp") and place != Path("/"):
            place.chmod(place.stat().st_mode | 0o055)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("(0, 0, ["), done.stderr
    assert "permission denied" in done.stdout and OURS["selftest"] in files(folder)
