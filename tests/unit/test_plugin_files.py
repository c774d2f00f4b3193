"""Files of others that a backend opens: what the manifest names, and where they are looked for.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from pathlib import Path

import pytest

from anyhal import settings
from anyhal.runtime import installed, mapped, opening, vendor
from anyhal.runtime.manifest import ManifestError, PluginFiles, VendorLibrary, read_manifest

HEAD = """
name = "bridge"
vendor = "test"
library = "libbridge.so"
abi = "0.3"
licence = "none"
summary = "test"
"""
VARIABLE = settings.PJRT_PLUGINS.name


def manifest(tmp_path: Path, opens: str) -> PluginFiles | None:
    file = tmp_path / "backend.toml"
    file.write_text(HEAD + opens)
    return read_manifest(file).opens


def test_the_table_is_read_and_checked(tmp_path: Path) -> None:
    good = '[opens]\nsetting = "s"\nvariable = "V"\npackages = [{ package = "p", file = "f.so" }]\n'
    found = manifest(tmp_path, good)
    assert found == PluginFiles("s", "V", "", (VendorLibrary("s", "p", "f.so"),))
    assert manifest(tmp_path, "") is None
    for bad, why in (
        ('[opens]\nsetting = "s"\n', "variable"),
        ('[opens]\nsetting = "s"\nvariable = "V"\npackages = ["p"]\n', "packages"),
        ('[opens]\nsetting = "s"\nvariable = "V"\nwhere = "x"\n', "opens.where"),
    ):
        with pytest.raises(ManifestError, match=why):
            manifest(tmp_path, bad)


def test_the_variable_is_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = PluginFiles("s", VARIABLE, "no.such.group")
    monkeypatch.setenv(VARIABLE, "/a/x.so:/b/y.so:/a/x.so")
    paths, (note,) = vendor.plugin_paths(wanted)
    assert paths == ["/a/x.so", "/b/y.so"]
    assert "names /a/x.so more than once" in note
    monkeypatch.setenv(VARIABLE, "none")
    assert vendor.plugin_paths(wanted) == ([], [])


def test_entry_points_give_paths_or_say_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Entry:
        def __init__(self, name: str, value: object) -> None:
            self.name, self.value = name, value

        def load(self) -> object:
            if isinstance(self.value, Exception):
                raise self.value
            return self.value

    here = tmp_path / "plugin.so"
    here.touch()
    entries = [
        Entry("b", lambda: str(here)),
        Entry("a", here),
        Entry("c", ImportError("no module")),
        Entry("d", "plugin.so"),
    ]
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(installed, "entry_points", lambda group: entries)
    paths, notes = vendor.plugin_paths(PluginFiles("s", VARIABLE, "group"))
    assert paths == [str(here.resolve())]
    assert len(notes) == 2 and "no module" in notes[0] and "no absolute path" in notes[1]


def test_a_bridge_without_files_says_what_to_do() -> None:
    known = (VendorLibrary("s", "some-plugin", "f.so"), VendorLibrary("s", "another", "g.so"))
    for packages, advice in ((known, "install some-plugin or name one in V"), ((), "name one")):
        said = opening.without_devices("bridge", PluginFiles("s", "V", "", packages))
        assert f"; {advice}" in said and said.endswith(" in V"), said
    assert opening.without_devices("card", None).endswith("connect one to use it")


def test_a_list_of_files_is_compared_file_by_file(tmp_path: Path) -> None:
    first, second, other = (tmp_path / n for n in ("one/a.so", "two/b.so", "three/b.so"))
    for path in (first, second, other):
        path.parent.mkdir()
        path.write_bytes(b"")
    listed = [f"{first}:{second}"]
    assert mapped.foreign_copies(listed, [str(first), str(second)]) is None
    stop = mapped.foreign_copies(listed, [str(first), str(second), str(other)])
    assert stop is not None and stop.code == "second_copy" and str(other) in stop.detail
