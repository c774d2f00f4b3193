"""The rule of the draft: another layout needs another version and keeps the old header.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import shutil
from pathlib import Path

import abi_layout
import pytest

ROOT = Path(__file__).resolve().parents[2]

COMMENT = "/* tag of the call that failed; 0 = not known which it was */"
LAST_FIELD = f"  uint64_t failed_tag;   {COMMENT}\n"


@pytest.fixture
def include(tmp_path: Path) -> Path:
    """A copy of the header and its records, free to break."""
    folder = tmp_path / "anyhal"
    shutil.copytree(ROOT / "include/anyhal", folder)
    return folder


def edit(include: Path, old: str, new: str) -> None:
    header = include / "backend.h"
    text = header.read_text()
    assert text.count(old) == 1, old
    header.write_text(text.replace(old, new))


def raise_minor(include: Path) -> str:
    """Raises N and returns the version before."""
    version = abi_layout.parse((include / "backend.h").read_text()).version
    minor = int(version.split(".")[1])
    edit(include, f"#define ANYHAL_ABI_MINOR {minor}u", f"#define ANYHAL_ABI_MINOR {minor + 1}u")
    return version


def keep_old(include: Path, version: str, text: str) -> None:
    folder = include / "history" / version
    folder.mkdir()
    (folder / "backend.h").write_text(text)


def test_the_tree_obeys_the_rule() -> None:
    assert abi_layout.check(ROOT / "include/anyhal").startswith("contract 0.")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LAST_FIELD, LAST_FIELD + "  uint64_t more;\n"),
        ("  uint32_t heap;", "  int32_t heap;"),
        ("  ANYHAL_STATUS_INTERNAL = 10,", "  ANYHAL_STATUS_INTERNAL = 11,"),
        ("enum { ANYHAL_QUEUE_PROFILED = 1u };", "enum { ANYHAL_QUEUE_PROFILED = 2u };"),
        (
            "(*queue_signal)(anyhal_queue* queue, uint64_t value,",
            "(*queue_signal)(anyhal_queue* q,",
        ),
        ("(*anyhal_notify_fn)(void* argument,", "(*anyhal_notify_fn)(const void* argument,"),
    ],
    ids=["field", "type", "number", "flag", "slot", "callback"],
)
def test_a_change_without_a_version_is_refused(include: Path, old: str, new: str) -> None:
    edit(include, old, new)
    with pytest.raises(abi_layout.LayoutError, match="raise ANYHAL_ABI_MINOR"):
        abi_layout.check(include)


def test_a_comment_is_not_layout(include: Path) -> None:
    edit(include, COMMENT, "/* which call it was */")
    abi_layout.check(include)


def test_a_new_version_needs_the_old_header(include: Path) -> None:
    before = (include / "backend.h").read_text()
    kept = sum(1 for path in (include / "history").iterdir() if path.is_dir())
    version = raise_minor(include)
    edit(include, LAST_FIELD, LAST_FIELD + "  uint64_t more;\n")
    with pytest.raises(abi_layout.LayoutError, match=f"header of contract {version} is missing"):
        abi_layout.record(include)
    keep_old(include, version, before)
    abi_layout.record(include)
    assert f"{kept + 1} earlier version(s) kept" in abi_layout.check(include)


def test_a_kept_header_may_not_be_edited(include: Path) -> None:
    version = raise_minor(include)
    edit(include, LAST_FIELD, LAST_FIELD + "  uint64_t more;\n")
    keep_old(include, version, (include / "backend.h").read_text())
    with pytest.raises(abi_layout.LayoutError, match=f"not contract {version} as recorded"):
        abi_layout.record(include)


def test_a_recorded_version_is_never_rewritten(include: Path) -> None:
    edit(include, LAST_FIELD, LAST_FIELD + "  uint64_t more;\n")
    with pytest.raises(abi_layout.LayoutError, match="never rewritten"):
        abi_layout.record(include)


def test_promise_has_a_line_for_every_version() -> None:
    promise = (ROOT / "include/anyhal/ABI.md").read_text()
    for version in abi_layout.recorded(ROOT / "include/anyhal/history"):
        assert f"| {version} |" in promise
