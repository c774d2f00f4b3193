"""Whatever lies in the cache folder: the self-test starts anew, nothing hangs or breaks.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anyhal as hal
from anyhal.dispatch import lowering
from anyhal.ops import BY_NAME
from anyhal.runtime import registry, verdicts

FINGERPRINT = "0" * 64
ODD: dict[str, Callable[[Path], Any]] = {
    "a pipe": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
    "zeros without end": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a terabyte": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
    "brackets": lambda path: path.write_text("[" * 200_000),
    "objects": lambda path: path.write_text('{"a":' * 200_000),
    "a long number": lambda path: path.write_text("9" * 10_000),
    "bytes": lambda path: path.write_bytes(bytes(range(256))),
    "a list": lambda path: path.write_text("[1]"),
    "a number for a sentence": lambda path: path.write_text('{"a": 1}'),
    "control characters": lambda path: path.write_text('{"a": "\\u001b[2J"}'),
    "half a character": lambda path: path.write_text('{"a": "\\ud800"}'),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = Path(verdicts._path(FINGERPRINT))
    assert tmp_path in path.parents
    path.parent.mkdir(parents=True)
    return path


@pytest.mark.parametrize("kind", ODD)
def test_what_are_no_verdicts(kind: str, place: Path) -> None:
    ODD[kind](place)
    assert verdicts.read(FINGERPRINT) == {}
    verdicts.save(FINGERPRINT, {"a": "wrong"})
    if kind != "a folder":
        assert verdicts.read(FINGERPRINT) == {"a": "wrong"}


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "zeros without end"])
def test_what_lies_where_a_file_is_written(
    kind: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic_ns", lambda: 7)
        part = place.with_suffix(f".{os.getpid()}7.part")
        ODD[kind](part)
        verdicts.save(FINGERPRINT, {"a": ""})  # costs time only
    assert verdicts.read(FINGERPRINT) == {}
    target = place.parent / "registry.tsv"
    ODD[kind](target.parent / f"{target.name}.{os.getpid()}.part")
    with pytest.raises(hal.InvalidArgumentError, match="writing the registry"):
        registry.write_registry(target)


def test_a_verdict_is_written_so_that_it_can_be_read(place: Path) -> None:
    verdicts.save(FINGERPRINT, {"a": "a\x1b[2J\n\ud800", "b": ""})
    assert verdicts.read(FINGERPRINT) == {"a": "a\\x1b[2J\\n\\ud800", "b": ""}
    assert set(json.loads(place.read_text("utf-8").partition("\n")[2])) == {"a", "b"}


@pytest.mark.parametrize("which", ["file", "folder"])
def test_verdicts_that_others_may_write_are_not_read(which: str, place: Path) -> None:
    verdicts.save(FINGERPRINT, {"a": ""})
    assert verdicts.read(FINGERPRINT) == {"a": ""}
    (place if which == "file" else place.parent).chmod(0o777)
    assert verdicts.read(FINGERPRINT) == {}


def test_only_constants_that_do_not_fit_are_said_not_to_fit(monkeypatch: Any) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise MemoryError("of another place")

    with monkeypatch.context() as patch:
        patch.setattr(lowering, "cell_refusal", fail)
        with pytest.raises(MemoryError, match="^of another place$"):
            hal.explain("softmax f32[3,5]")
    with monkeypatch.context() as patch:
        patch.setattr(type(BY_NAME["softmax"]), "decompose_outs", fail)
        with (
            hal.use(device="dayone:0"),
            pytest.raises(hal.OutOfMemoryError, match=r"softmax f32\[3,5\]: the constants"),
        ):
            hal.explain("softmax f32[3,5]")
