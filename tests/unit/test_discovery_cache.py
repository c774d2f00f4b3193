"""Answers from files, kept for the next process: never older than the files, never in the way.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anyhal.runtime import discovery_cache, installed
from anyhal.runtime.discovery_cache import remember, save, stamp_of
from anyhal.runtime.manifest import read_manifest


class Asked:
    """An answer that counts how often it was worked out."""

    def __init__(self, answer: object = "an answer") -> None:
        self.answer, self.times = answer, 0

    def __call__(self) -> object:
        self.times += 1
        return self.answer


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache file of an empty cache folder; files count as settled at once."""
    monkeypatch.setenv("ANYHAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(discovery_cache, "_SETTLED_NS", 0)
    monkeypatch.setattr(discovery_cache, "_kept", None)
    return tmp_path / "cache" / discovery_cache.FILE_NAME


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_text("what the answer is made from")
    return path


def next_process() -> None:
    """What is in memory goes to the file, and the file is read again."""
    save()
    discovery_cache._kept = None


def ask(source: Path, asked: Asked) -> object:
    return remember("key", stamp_of([source]), "question", asked)


def test_the_next_process_does_not_work_it_out_again(kept: Path, source: Path) -> None:
    asked = Asked({"name": ["chip", 1, None]})
    assert ask(source, asked) == ask(source, asked) == asked.answer
    next_process()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert ask(source, asked) == asked.answer and asked.times == 1


def test_a_changed_file_is_looked_at_again(kept: Path, source: Path) -> None:
    asked, times = Asked(), source.stat()
    ask(source, asked)
    next_process()
    source.write_text("what the answer is made FROM")  # as long as before, and as old
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    ask(source, asked)
    assert asked.times == 2
    next_process()
    other = source.with_name("other")
    other.write_text(source.read_text())
    os.replace(other, source)
    ask(source, asked)
    source.unlink()
    ask(source, asked)
    assert asked.times == 4


def test_a_file_that_just_changed_is_not_relied_on(
    kept: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writes within a tick of the file system's clock leave the same stamp."""
    monkeypatch.setattr(discovery_cache, "_SETTLED_NS", 2 * 10**9)
    asked = Asked()
    source.touch()
    ask(source, asked)
    next_process()
    assert not kept.exists()
    ask(source, asked)
    assert asked.times == 2
    later = time.time_ns() + 3 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    ask(source, asked)
    next_process()
    ask(source, asked)
    assert asked.times == 3


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.index(b"an answer")
    data[at] ^= 1
    path.write_bytes(data)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def others(path: Path) -> None:
    path.chmod(0o666)


def another_form(path: Path) -> None:
    head, _, rows = path.read_bytes().partition(b"\n")
    path.write_bytes(head.replace(b"discovery 3", b"discovery 2") + b"\n" + rows)


@pytest.mark.parametrize("harm", [cut, flip, pipe, folder, endless, others, another_form])
def test_a_file_that_is_damaged_or_not_ours_is_ignored(
    kept: Path, source: Path, harm: Callable[[Path], None]
) -> None:
    asked = Asked()
    ask(source, asked)
    next_process()
    harm(kept)
    discovery_cache._kept = None
    assert ask(source, asked) == "an answer" and asked.times == 2
    next_process()
    if harm is not folder:  # which cannot be replaced by a file
        assert ask(source, asked) == "an answer" and asked.times == 2
        assert kept.is_file() and not kept.is_symlink()


def test_where_nothing_can_be_written_it_costs_time_only(
    kept: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked()
    kept.parent.write_text("a file where the folder should be")
    ask(source, asked)
    next_process()
    assert ask(source, asked) == "an answer" and asked.times == 2
    kept.parent.unlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        next_process()
    assert list(kept.parent.iterdir()) == []  # nothing half written stays


def test_it_is_bounded_and_what_is_in_use_stays(
    kept: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery_cache, "_MOST_ROWS", 5)
    for i in range(5):
        remember(f"old {i}", stamp_of([source]), "question", Asked(i))
    next_process()
    for i in range(3):
        remember(f"new {i}", stamp_of([source]), "question", Asked(i))
    next_process()
    assert len(discovery_cache._read(kept)) == 5
    assert {f"new {i}" for i in range(3)} < set(discovery_cache._read(kept))


def test_what_cannot_be_packed_is_not_kept(kept: Path, source: Path) -> None:
    asked = Asked({"date": datetime.date(2026, 1, 1)})
    assert ask(source, asked) == ask(source, asked) == asked.answer
    assert asked.times == 2


def test_plg_07_a_manifest_is_parsed_once_and_its_edits_are_seen(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "backend.toml"
    text = (
        'name = "chip"\nvendor = "v"\nlibrary = "l.so"\nabi = "0.3"\nlicence = "n"\nsummary = "s"'
    )
    file.write_text(text)
    first = read_manifest(file)
    next_process()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tomllib", None)  # cannot be imported
        assert read_manifest(file) == first
    file.write_text(text.replace("chip", "chop"))
    assert read_manifest(file).name == "chop"


def test_an_installed_or_upgraded_distribution_is_seen(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"

    def install(version: str) -> None:
        info = site / f"kit-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kit\nVersion: {version}\n")
        (info / "RECORD").write_text("libkit.so,,\n")
        (info / "entry_points.txt").write_text(
            f"[chips]\nc = os:{'sep' if version == '2.0' else 'curdir'}\n"
        )
        (site / "libkit.so").touch()

    def look() -> tuple[tuple[str, str], list[str]]:
        next_process()
        installed.look_again()
        return installed.file_of("kit", "libkit.so"), [
            e.value for e in installed.entry_points("chips")
        ]

    site.mkdir()
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    assert look() == (("", ""), [])
    install("1.0")
    found = (("1.0", str((site / "libkit.so").resolve())), ["os:curdir"])
    assert look() == found
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "importlib.metadata", None)
        assert look() == found
    (site / "libkit.so").unlink()
    assert look() == (("1.0", ""), ["os:curdir"])
    os.rename(site / "kit-1.0.dist-info", tmp_path / "gone")
    install("2.0")
    (version, _), values = look()
    assert version == "2.0" and values == ["os:sep"]
    assert installed.entry_points("chips")[0].load() == os.sep
