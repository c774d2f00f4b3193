"""Environment variables: one table, typed, refused with a sentence.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from anyhal import settings
from anyhal.errors import InvalidArgumentError, NotFoundError


@pytest.mark.parametrize("row", settings.TABLE, ids=lambda row: row.name)
def test_unset_and_empty_give_the_default(row: settings.Setting[object]) -> None:
    assert row.read({}) == row.default
    assert row.read({row.name: " "}) == row.default


def test_values_are_typed() -> None:
    two = os.pathsep.join(("/opt/a", "/opt/b"))
    assert settings.BACKEND_PATH.read({"ANYHAL_BACKEND_PATH": two}) == ("/opt/a", "/opt/b")
    assert settings.THREADS.read({"ANYHAL_THREADS": "3"}) == 3
    assert settings.DEBUG_POOL.read({"ANYHAL_DEBUG_POOL": "ON"}) is True
    assert settings.LOG.read({"ANYHAL_LOG": "Debug"}) == "debug"
    assert settings.VISIBLE_DEVICES.read({"ANYHAL_VISIBLE_DEVICES": "a:0, b,"}) == ("a:0", "b")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("ANYHAL_THREADS", "0", "at least 1"),
        ("ANYHAL_THREADS", "two", "at least 1"),
        ("ANYHAL_THREADS", "-1", "at least 1"),
        ("ANYHAL_THREADS", "99999999999999999999", "above 65536"),
        ("ANYHAL_DEBUG_POOL", "perhaps", "neither yes nor no"),
        ("ANYHAL_LOG", "warnings", "did you mean 'warning'?"),
        ("ANYHAL_CACHE", "here", "relative path"),
    ],
)
def test_bad_text_names_variable_value_reason_and_cure(name: str, text: str, why: str) -> None:
    row = settings.setting(name)
    with pytest.raises(InvalidArgumentError) as caught:
        row.read({name: text})
    message = str(caught.value)
    assert name in message and repr(text) in message and why in message
    assert message.endswith(row.advice)


def test_sec_03_library_path_from_the_environment_must_be_absolute() -> None:
    with pytest.raises(InvalidArgumentError, match="relative path"):
        settings.BACKEND_PATH.read({"ANYHAL_BACKEND_PATH": f"/opt/a{os.pathsep}plugins"})


def test_sec_03_more_rights_than_the_user_ignores_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANYHAL_BACKEND_PATH", "/opt/a")
    assert settings.BACKEND_PATH.read() == ("/opt/a",)
    monkeypatch.setattr(os, "getresuid", lambda: (1000, 0, 0))
    assert not settings.environment_is_trusted()
    assert settings.BACKEND_PATH.read() == ()


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="did you mean ANYHAL_THREADS"):
        settings.setting("ANYHAL_THREAD")
    (sentence,) = settings.unknown_names({"ANYHAL_BACKENDS_PATH": "/x", "HOME": "/root"})
    assert "ANYHAL_BACKENDS_PATH" in sentence and "did you mean ANYHAL_BACKEND_PATH?" in sentence


@pytest.mark.parametrize("home", ["relative", "~", "~nobody-of-this-name"])
def test_who_has_no_home_is_told_what_to_set(home: str) -> None:
    """Never below the current directory."""
    with pytest.raises(NotFoundError, match="set ANYHAL_CACHE to a folder"):
        settings.cache_folder({"HOME": home})
    assert settings.cache_folder({"HOME": home, "ANYHAL_CACHE": "/c"}) == "/c"


def test_paths_are_told_apart_however_they_are_written() -> None:
    given = {"ANYHAL_BACKEND_PATH": "/opt//a/:/opt/./a:/opt/b/../a:/"}
    assert settings.BACKEND_PATH.read(given) == ("/opt/a", "/opt/a", "/opt/b/../a", "/")


def test_cache_folder_follows_the_platform() -> None:
    assert settings.cache_folder({"ANYHAL_CACHE": "/c"}) == "/c"
    assert settings.cache_folder({"XDG_CACHE_HOME": "/x"}) == "/x/anyhal"
    assert settings.cache_folder({"XDG_CACHE_HOME": "rel"}) == os.path.expanduser("~/.cache/anyhal")


def test_a_user_without_home_and_name_has_a_cache_folder_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody(number: int) -> None:
        raise KeyError(number)

    assert settings.cache_folder({"HOME": "/h"}) == "/h/.cache/anyhal"
    monkeypatch.setattr(settings.pwd, "getpwuid", nobody)
    assert settings.cache_folder({"HOME": "/h"}) == "/h/.cache/anyhal"
    assert settings.cache_folder({}) == "/dev/null/.cache/anyhal"


def test_table_is_sorted_and_complete() -> None:
    names = [row.name for row in settings.TABLE]
    assert names == sorted(names) and len(set(names)) == len(names)
    rows = [value for value in vars(settings).values() if isinstance(value, settings.Setting)]
    assert len(rows) == len(names)


def test_nothing_else_reads_our_variables() -> None:
    root = Path(__file__).parents[2]
    known = {row.name for row in settings.TABLE}
    reader = re.compile(r"(?:getenv|environ(?:\.get)?)\s*[\[(]\s*['\"](ANYHAL_\w+)['\"]")
    strangers = [
        f"{path.relative_to(root)}: {name}"
        for folder in ("src", "core", "backends")
        for path in sorted((root / folder).rglob("*"))
        if path.suffix in {".py", ".cc", ".c", ".h", ".hpp"} and "tests" not in path.parts
        for name in reader.findall(path.read_text(encoding="utf-8"))
        if path.suffix == ".py" or name not in known  # C++ reads the rows it needs itself
    ]
    assert strangers == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a:0,b", ("a:0", "b")),
        ("a:0 , b", ("a:0", "b")),
        ("a:0,,b,", ("a:0", "b")),
        ("a:0\n", ("a:0\n",)),
        (" a:0", (" a:0",)),
        ("a:0,\tb", ("a:0", "\tb")),
        (" \n", None),
    ],
)
def test_names_are_taken_as_they_are_written(text: str, names: tuple[str, ...] | None) -> None:
    assert settings.VISIBLE_DEVICES.read({"ANYHAL_VISIBLE_DEVICES": text}) == names
