"""Discovery on made-up folders: order, trust, refusals, vendor libraries.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from elf_writer import MACHINE, elf_library

from anyhal.runtime import discovery, manifest, versions
from anyhal.runtime.discovery import Root, discover, hash_of
from anyhal.runtime.file_rights import writable_by_others
from anyhal.runtime.stages import STAGES

OTHER_MACHINE = 245 - MACHINE


def toml(name: str, extra: str = "") -> str:
    return (
        f'name = "{name}"\nvendor = "tests"\nlibrary = "libanyhal_{name}.so"\nabi = "0.3"\n'
        f'licence = "Apache-2.0"\nsummary = "made by a test"\nrank = 1\n{extra}'
    )


def make(root: Path, name: str, text: str | None = None, body: bytes | None = None) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "backend.toml").write_text(toml(name) if text is None else text)
    (folder / f"libanyhal_{name}.so").write_bytes(
        elf_library(tail=name.encode()) if body is None else body
    )
    return folder


def one(tmp_path: Path, **options: object) -> discovery.BackendRecord:
    (record,) = discover(roots=[Root(tmp_path, "a test")], hashes={}, **options).backends  # type: ignore[arg-type]
    return record


def test_a_backend_walks_all_five_stages(tmp_path: Path) -> None:
    folder = make(tmp_path, "chip")
    record = one(tmp_path)
    assert record.error is None and record.name == "chip" and record.path == str(folder)
    assert [s.stage for s in record.stages] == list(STAGES)
    assert [s.status for s in record.stages] == ["ok"] * 5 + ["waiting"] * 7
    assert record.state == "uncertified" and len(record.sha256) == 64
    assert record.library == str(folder / "libanyhal_chip.so")


def test_a_folder_may_be_a_backend_itself(tmp_path: Path) -> None:
    folder = make(tmp_path, "chip")
    found = discover(roots=[Root(folder, "a test")], hashes={})
    assert [r.name for r in found.backends] == ["chip"]
    assert found.searched == (f"{folder} (a test)",)


@pytest.mark.parametrize(
    ("text", "why", "hint"),
    [
        ("not toml at all [[[", "it is not TOML", "as the guide shows"),
        ('name = "chip"', "key vendor is missing", "add it"),
        (toml("chip", "rnk = 1"), "key rnk is not known", "did you mean rank?"),
        (toml("chip").replace("rank = 1", 'rank = "high"'), "rank is str, not int", "correct it"),
        (toml("chip").replace("rank = 1", "rank = true"), "rank is bool, not int", "correct it"),
        (toml("Chip"), "not one lower-case word", "rename it"),
        (
            toml("chip").replace('"libanyhal', '"../libanyhal'),
            "not a file name",
            "without a folder",
        ),
        (toml("chip").replace('"0.3"', '"new"'), "neither a version nor a range", "like 0.3 or"),
        (toml("chip", "[hardware]\nmachin = []"), "hardware.machin is not known", "machine?"),
        (toml("chip", "[hardware]\nmachine = [1]"), "other than text", "correct it"),
        (toml("chip", "[[libraries]]\nfile = 'x'"), "libraries.setting is missing", "add it"),
        (toml("chip", "[settings]\ndriver = 1"), "settings.driver is no text", "variable's name"),
        (toml("chip", "#" * manifest.MAX_BYTES), "larger than", "a page of text"),
        (toml("chip", "x = " + "[" * 5000), "it is not TOML", "as the guide shows"),
        (toml("chip", "x = " + "{a=" * 5000), "it is not TOML", "as the guide shows"),
        (toml("chip").replace("rank = 1", "rank = " + "9" * 5000), "not TOML", "guide shows"),
        (toml("chip").replace("rank = 1", "rank = 99999999999"), "32 bits", "a small number"),
        (toml("chip").replace("rank = 1", "rank = nan"), "rank is float, not int", "correct it"),
        (toml("chip").replace("rank = 1", "rank = [1]"), "rank is list, not int", "correct it"),
        (toml("chip").replace('"chip"', '"ch\\u0000ip"', 1), "holds a zero byte", "take it out"),
        (toml("chip", "libraries = [1]"), "other than tables", "write [[libraries]]"),
        (
            toml("chip", "[[libraries]]\nsetting = 'a'\npackage = ''\nfile = 'f'"),
            "libraries.package '' is no distribution",
            "correct it",
        ),
        ("", "is missing", "add it"),
    ],
)
def test_a_bad_manifest_is_refused_by_key(tmp_path: Path, text: str, why: str, hint: str) -> None:
    make(tmp_path, "chip", text)
    record = one(tmp_path)
    failed = record.stages[1]
    assert (failed.stage, failed.status) == ("manifest", "failed")
    assert why in failed.detail and hint in failed.hint, failed
    assert [s.status for s in record.stages[2:]] == ["skipped"] * 10
    assert failed.code == "bad_manifest"
    assert record.error is not None and "refused at stage manifest" in record.error


def test_bytes_that_are_not_text_are_a_bad_manifest(tmp_path: Path) -> None:
    (make(tmp_path, "chip") / "backend.toml").write_bytes(b"\xff\xfe\0")
    assert one(tmp_path).failed_stage == "manifest"


def test_a_library_that_was_cut_off_is_refused_before_it_is_mapped(tmp_path: Path) -> None:
    import _ctypes

    whole = Path(_ctypes.__file__).read_bytes()
    for name, body in (("whole", whole), ("part", whole[:4096]), ("head", whole[:64])):
        make(tmp_path / name, "chip", body=body)
    assert one(tmp_path / "whole").stages[2].status == "ok"
    assert "was cut off" in one(tmp_path / "part").stages[2].detail
    assert one(tmp_path / "head").stages[2].code == "cut_off"


def test_another_machine_and_junk_are_refused_before_code(tmp_path: Path) -> None:
    make(tmp_path / "a", "chip", body=elf_library(machine=OTHER_MACHINE))
    make(tmp_path / "b", "chip", body=os.urandom(64))
    make(tmp_path / "c", "chip", toml("chip", '[hardware]\nmachine = ["z80"]'))
    reasons = [one(tmp_path / d).stages[2].detail for d in "abc"]
    assert "it is built for" in reasons[0] and "not an ELF" in reasons[1]
    assert "it is for z80" in reasons[2]


def test_sec_02_folders_that_others_can_write_are_refused(tmp_path: Path) -> None:
    folder = make(tmp_path, "chip")
    tmp_path.chmod(0o777)
    record = one(tmp_path)
    assert record.failed_stage == "found" and "written by everybody" in record.stages[0].detail
    tmp_path.chmod(0o755)
    (folder / "libanyhal_chip.so").chmod(0o666)
    assert one(tmp_path).failed_stage == "trust"
    (folder / "libanyhal_chip.so").chmod(0o644)
    assert one(tmp_path).error is None


def test_sec_02_a_link_counts_with_the_folder_that_it_lies_in(tmp_path: Path) -> None:
    real, shared, mine = tmp_path / "real", tmp_path / "shared", tmp_path / "mine"
    for folder in (real, shared, mine):
        folder.mkdir()
    (real / "file").write_text("x")
    (shared / "link").symlink_to("../real/./file")
    (mine / "link").symlink_to(shared / "link")
    (mine / "way").symlink_to(shared)
    ways = [shared / "link", mine / "link", mine / "way" / "link", mine / ".." / "shared" / "link"]
    assert [writable_by_others(way) for way in ways] == [""] * 4
    shared.chmod(0o777)
    assert [writable_by_others(way) for way in ways] == [
        f"{shared} can be written by everybody"
    ] * 4
    assert writable_by_others(real / "file") == ""
    (real / "round").symlink_to("round")
    with pytest.raises(OSError, match="symbolic links"):
        writable_by_others(real / "round")


def test_sec_02_the_current_directory_is_never_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "planted")
    make(tmp_path / "backends", "planted2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANYHAL_BACKEND_PATH", raising=False)
    found = discover(hashes={})
    assert not any(r.name.startswith("planted") for r in found.backends)
    assert not any(str(tmp_path) in place for place in found.searched)


def test_the_environment_comes_first_and_the_first_name_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (
        make(tmp_path / "1", "chip"),
        make(tmp_path / "2", "chip", body=elf_library(tail=b"2")),
    )
    path = os.pathsep.join((str(tmp_path / "1"), str(tmp_path / "2")))
    monkeypatch.setenv("ANYHAL_BACKEND_PATH", path)
    records = [r for r in discover(hashes={}).backends if r.name == "chip"]
    assert [r.path for r in records] == [str(first), str(second)]
    assert records[0].error is None
    assert records[1].error is not None and f"taken by {first}" in records[1].error


def test_a_refused_backend_does_not_take_the_name(tmp_path: Path) -> None:
    make(tmp_path / "1", "chip", body=b"junk")
    good = make(tmp_path / "2", "chip")
    roots = [Root(tmp_path / "1", "a"), Root(tmp_path / "2", "b")]
    records = discover(roots=roots, hashes={}).backends
    assert [r.error is None for r in records] == [False, True] and records[1].path == str(good)


def test_the_same_file_twice_is_one_backend(tmp_path: Path) -> None:
    original = make(tmp_path / "1", "chip")
    copy = make(tmp_path / "2", "other", toml("other").replace("libanyhal_other", "libanyhal_chip"))
    os.link(original / "libanyhal_chip.so", copy / "libanyhal_chip.so")
    roots = [Root(tmp_path / "1", "a"), Root(tmp_path / "2", "b")]
    records = discover(roots=roots, hashes={}).backends
    assert records[0].error is None and records[1].failed_stage == "trust"
    assert "the same file as" in records[1].stages[3].detail


def test_what_the_build_made_is_self_tested_and_a_changed_byte_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "backends", "chip")
    monkeypatch.setattr(discovery, "package_folder", lambda: str(tmp_path))
    key = "backends/chip/libanyhal_chip.so"
    good = {key: hash_of(tmp_path / key)}
    roots = [Root(tmp_path / "backends", "the package itself")]
    assert discover(roots=roots, hashes=good).backends[0].state == "self-tested"
    with (folder / "libanyhal_chip.so").open("ab") as stream:
        stream.write(b"x")
    (record,) = discover(roots=roots, hashes=good).backends
    assert record.failed_stage == "trust" and record.error is not None
    assert "hash" in record.error and "install anyhal again" in record.error


def test_test_equipment_is_hidden_unless_asked_for(tmp_path: Path) -> None:
    make(tmp_path, "prop", toml("prop", "test_equipment = true"))
    assert one(tmp_path).hidden
    assert not one(tmp_path, asked=["prop"]).hidden
    shown = one(tmp_path, test_script="lose device 0")
    assert not shown.hidden and dict(shown.settings)["script"] == "lose device 0"
    assert dict(one(tmp_path, test_script="1").settings) == {}


LIBRARIES = """
[[libraries]]
setting = "kernels"
package = "{package}"
file = "{file}"
versions = "{versions}"
required = {required}
missing = "big products are slow; pip install it"
"""


def with_library(tmp_path: Path, **given: str) -> discovery.BackendRecord:
    filled = {"package": "vendorkit", "file": "libkit.so.3", "versions": "", "required": "false"}
    make(tmp_path, "chip", toml("chip", LIBRARIES.format(**(filled | given))))
    return one(tmp_path)


@pytest.fixture
def vendorkit(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed distribution vendorkit 3.2.0 that carries libkit.so.3."""
    site = tmp_path_factory.mktemp("site")
    info = site / "vendorkit-3.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendorkit\nVersion: 3.2.0\n")
    (info / "RECORD").write_text("kit/libkit.so.3,,\nkit/gone.so.1,,\n")
    (site / "kit").mkdir()
    (site / "kit" / "libkit.so.3").write_bytes(elf_library())
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    return site


def test_plg_12_the_library_comes_from_the_distributions_file_list(
    tmp_path: Path, vendorkit: Path
) -> None:
    record = with_library(tmp_path, versions=">=3,<4")
    assert dict(record.settings) == {"kernels": str(vendorkit / "kit" / "libkit.so.3")}
    assert record.notes == ()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"package": "no-such-kit"}, "no-such-kit is not installed"),
        ({"versions": ">=4"}, "vendorkit 3.2.0 is installed, >=4 is needed"),
        ({"file": "libkit.so.4"}, "vendorkit 3.2.0 has no file libkit.so.4"),
        ({"file": "gone.so.1"}, "has no file gone.so.1"),
    ],
)
@pytest.mark.usefixtures("vendorkit")
def test_plg_10_a_missing_library_is_a_sentence_and_only_stops_when_required(
    tmp_path: Path, given: dict[str, str], why: str
) -> None:
    optional = with_library(tmp_path / "a", **given)
    assert optional.error is None and dict(optional.settings) == {"kernels": ""}
    assert "big products are slow" in optional.notes[0] and why in optional.notes[0]
    required = with_library(tmp_path / "b", required="true", **given)
    assert required.failed_stage == "dependencies" and why in str(required.error)


@pytest.mark.parametrize(
    ("version", "clauses", "fits"),
    [
        ("2023.2.0", ">=2023.2,<2024", True),
        ("2024.0", ">=2023.2,<2024", False),
        ("2.0", "==2", True),
        ("2.0.1", "==2", False),
        ("10.0", ">9", True),
        ("3.1rc1", "<=3.1", True),
        ("3", "!=3", False),
        ("3", "~=3", False),
    ],
)
def test_versions(version: str, clauses: str, fits: bool) -> None:
    assert versions.version_matches(version, clauses) is fits


def test_dev_12_empty_and_absent_folders_are_still_listed_as_searched(tmp_path: Path) -> None:
    roots = [Root(tmp_path / "absent", "a"), Root(tmp_path, "b")]
    found = discover(roots=roots, hashes={})
    assert found.backends == ()
    assert found.searched == (f"{tmp_path / 'absent'} (a)", f"{tmp_path} (b)")


def test_discovery_opens_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    def opened(*args: object, **options: object) -> None:
        raise AssertionError("a library was opened")

    monkeypatch.setattr(ctypes, "CDLL", opened)
    make(tmp_path, "chip")
    before = Path("/proc/self/maps").read_text().count(".so")
    assert one(tmp_path).error is None
    assert Path("/proc/self/maps").read_text().count(".so") == before


def notes_of(*roots: Path) -> dict[str, str]:
    """The discovery's notes, by the path that each is about."""
    found = discover(roots=[Root(path, "a test") for path in roots], hashes={})
    return {note.split(" (a test)")[0].removeprefix("looking for backends in "): note
            for note in found.notes}  # fmt: skip


def test_places_that_give_nothing_are_noted(tmp_path: Path) -> None:
    loop, file, empty, gone = (tmp_path / name for name in ("loop", "file", "empty", "gone"))
    loop.symlink_to(loop)
    file.touch()
    empty.mkdir()
    notes = notes_of(loop, file, empty, gone)
    assert "symbolic links" in notes[str(loop)]
    assert "Not a directory" in notes[str(file)]
    assert "holds a backend.toml" in notes[str(empty)]
    assert "No such file" in notes[str(gone)]
    assert all("; " in note for note in notes.values())


def test_a_bad_entry_costs_only_itself_and_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("chip", "locked"):
        make(tmp_path, name)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "readme.txt").touch()
    (tmp_path / "no_backend").mkdir()
    inside = discovery._holds_manifest

    def refuse(folder: str) -> bool:  # root reads everything, so the refusal is made here
        if folder.endswith("/locked"):
            raise PermissionError(13, "Permission denied", folder)
        return inside(folder)

    monkeypatch.setattr(discovery, "_holds_manifest", refuse)
    found = discover(roots=[Root(tmp_path, "a test")], hashes={})
    assert [record.name for record in found.backends] == ["chip"]
    notes = notes_of(tmp_path)
    assert {Path(path).name for path in notes} == {"loop", "dangling", "locked"}
    assert "Permission denied" in notes[str(tmp_path / "locked")]


def test_rows_of_one_setting_are_alternatives(tmp_path: Path, vendorkit: Path) -> None:
    missing = LIBRARIES.format(package="otherkit", file="x.so.1", versions="", required="false")
    found = LIBRARIES.format(package="vendorkit", file="libkit.so.3", versions="", required="false")
    for folder, text in (("last", missing + found), ("first", found + missing)):
        make(tmp_path / folder, "chip", toml("chip", text))
        record = one(tmp_path / folder)
        assert dict(record.settings)["kernels"].endswith("libkit.so.3"), record
        assert record.notes == ()


def test_a_setting_may_come_from_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "chip", toml("chip", "[settings]\nplace = 'ANYHAL_CACHE'"))
    monkeypatch.delenv("ANYHAL_CACHE", raising=False)
    assert dict(one(tmp_path).settings) == {}
    monkeypatch.setenv("ANYHAL_CACHE", "/var/cache/chip")
    assert dict(one(tmp_path).settings) == {"place": "/var/cache/chip"}


def test_a_variable_that_nothing_reads_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "chip", toml("chip", "[settings]\nplace = 'ANYHAL_CASH'"))
    record = one(tmp_path)
    assert record.failed_stage == "dependencies" and "ANYHAL_CACHE" in str(record.error)


@pytest.mark.parametrize(("version", "who"), [("0.1", "backend"), ("0.9", "core"), ("1.0", "core")])
def test_another_draft_of_the_contract_is_refused_before_opening(
    tmp_path: Path, version: str, who: str
) -> None:
    make(tmp_path, "chip", toml("chip").replace('abi = "0.3"', f'abi = "{version}"'))
    record = one(tmp_path)
    assert record.error is not None
    assert "refused at stage manifest" in record.error
    assert f"{version} of the contract" in record.error and "this core has 0.3" in record.error
    assert record.error.endswith(f"upgrade the {who}")


def test_a_missing_library_is_not_another_architecture(tmp_path: Path) -> None:
    (make(tmp_path, "chip") / "libanyhal_chip.so").unlink()
    record = one(tmp_path)
    assert record.error is not None
    assert "refused at stage manifest: there is no such file" in record.error


class Panic(BaseException):
    """What is no Exception, and has no text, as other languages' bindings raise it."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Plugin:
    name = "chip"

    def __init__(self, value: object) -> None:
        self.value = value

    def load(self) -> object:
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (SystemExit(3), "3"),
        (RuntimeError("no"), "no"),
        (Panic(), "Panic"),
        ("relative/folder", "relative/folder is no absolute path"),
        ("/tmp/a\0b", "its path holds a zero byte"),
        (3, "int"),
        ("/tmp/\udcff\ud800", "surrogates not allowed"),
    ],
)
def test_a_plugin_that_fails_when_it_is_asked_costs_only_itself(value: object, said: str) -> None:
    (root,) = discovery._plugin_root(Plugin(value))  # type: ignore[arg-type]
    assert root.origin.startswith("entry point chip, which failed: ") and said in root.origin


def test_ctrl_c_while_a_plugin_is_asked_is_the_users() -> None:
    with pytest.raises(KeyboardInterrupt):
        list(discovery._plugin_root(Plugin(KeyboardInterrupt())))  # type: ignore[arg-type]
