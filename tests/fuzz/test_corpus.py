"""What the fuzzers of readers in Python have learnt, once more without them; and the fuzzers fail.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parent
TARGETS = ("manifest", "model_file")


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(HERE))
    yield import_module(request.param)
    sys.modules.pop(request.param)


def test_every_input_that_was_kept_passes(target: ModuleType) -> None:
    kept = sorted((HERE / "corpus" / target.__name__).iterdir())
    assert len(kept) > 20
    for path in kept:
        target.one_input(path.read_bytes())


def test_a_reader_that_raises_something_else_is_found(
    target: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(path: Path) -> None:
        raise IndexError("read past the end")

    monkeypatch.setattr(
        target, "open_gguf" if hasattr(target, "open_gguf") else "read_manifest", wrong
    )
    with pytest.raises(IndexError):
        target.one_input(b"")


def test_every_target_has_a_corpus() -> None:
    assert {p.name for p in (HERE / "corpus").iterdir()} == {
        *TARGETS,
        *(p.stem for p in HERE.glob("*.cc")),
    }
