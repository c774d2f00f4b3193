"""Backends that do not fit are refused at the right stage, in one sentence, without a crash.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs import build

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# case in tiny_backend.c -> stage, status, words that the sentence must have
REFUSED = {
    "WRONG_ENTRY": ("entry", "abi_mismatch", ["exports no anyhal_backend_main"]),
    "TOO_NEW": ("negotiate", "abi_mismatch", ["0.9", "0.3", "upgrade the core"]),
    "TOO_OLD": ("negotiate", "abi_mismatch", ["0.0", "0.3", "upgrade the backend"]),
    "CHOSE_NEWER": ("negotiate", "abi_mismatch", ["0.9", "0.3", "upgrade the core"]),
    "ZERO_VERSION": ("negotiate", "abi_mismatch", ["0.0", "upgrade the backend"]),
    "OTHER_RANGE": ("negotiate", "abi_mismatch", ["0.4", "0.9", "0.3"]),
    "SHORT_TABLE": ("fingerprint", "abi_mismatch", ["table", "bytes", "rebuild"]),
    "NULL_SLOT": ("fingerprint", "abi_mismatch", ["required slot op_enqueue"]),
    "NULL_QUEUE": ("fingerprint", "abi_mismatch", ["required slot queue_create"]),
    "RESERVED": ("negotiate", "abi_mismatch", ["reserved"]),
    "UNKNOWN_FLAG": ("negotiate", "abi_mismatch", ["flags"]),
    "NO_TABLE": ("fingerprint", "abi_mismatch", ["no table"]),
    "SHORT_REPLY": ("negotiate", "abi_mismatch", ["size"]),
    "NO_REGISTRY": ("negotiate", "abi_mismatch", ["registry"]),
    "SILENT_FAILURE": ("init", "not_found", ["not_found"]),
    "UNTERMINATED": ("init", "not_found", ["zzz"]),
    "HUGE_TABLE": ("fingerprint", "abi_mismatch", ["table", "4294967292 bytes", "rebuild"]),
    "EMPTY_TABLE": ("fingerprint", "abi_mismatch", ["table", " 0 bytes", "rebuild"]),
    "HUGE_REPLY": ("negotiate", "abi_mismatch", ["reply", "4294967295 bytes", "rebuild"]),
    "TABLE_FLAGS": ("fingerprint", "abi_mismatch", ["flags", "upgrade"]),
    "SHORT_ASYNC": ("fingerprint", "abi_mismatch", ["required slot queue_create"]),
    "ODD_STATUS": ("init", "unknown_status", ["unknown_status"]),
    "OWN_PREFIX": ("init", "not_found", [".so: no card; insert one"]),
    "STRANGE_BYTES": ("init", "not_found", ["card", "insert one"]),
    "NO_PRINT": ("fingerprint", "abi_mismatch", ["no layout fingerprints", "fingerprints.h"]),
    "CUT_PRINT": ("fingerprint", "abi_mismatch", ["end in the middle of a record", "rebuild"]),
    "ODD_PRINT": ("fingerprint", "abi_mismatch", ["a form that this core does not know"]),
    "LONG_PRINT": ("fingerprint", "abi_mismatch", ["a form that this core does not know"]),
    "HALF_SLOT": ("fingerprint", "abi_mismatch", ["table", "204 bytes", "rebuild"]),
    "ODD_SIZE": ("fingerprint", "abi_mismatch", ["anyhal_device_info", "257 bytes", "rebuild"]),
    "SMALL_SIZE": ("fingerprint", "abi_mismatch", ["anyhal_device_info", " 8 bytes", "rebuild"]),
    "GREEDY_PRINT": ("fingerprint", "abi_mismatch", ["end in the middle of a record"]),
    "DISJOINT": ("negotiate", "abi_mismatch", ["0.4 to 0.9", "0.3", "upgrade the core"]),
}
REQUIRED = ["device_list", "device_open", "memory_alloc", "op_query", "op_prepare", "op_enqueue"]
REQUIRED += ["release"]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that loads one backend through the installed core."""
    return build("loader_driver.cc", tmp_path_factory.mktemp("loader"))


def load(
    driver: Path, case: str, folder: Path, *options: str, op: str = ""
) -> tuple[int, list[list[str]]]:
    """Builds the case and loads it; exit code and the lines' fields."""
    library = folder / f"libanyhal_{case.lower()}.so"
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command += ["-fvisibility=hidden", f"-I{ROOT / 'include'}", f"-DCASE={case}", *options]
    subprocess.run([*command, str(HERE / "tiny_backend.c"), "-o", str(library)], check=True)
    ran = subprocess.run(
        [str(driver), str(library), *([op] if op else [])],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=30,
        check=False,
    )
    return ran.returncode, [line.split("|", 2) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize("case", REFUSED)
def test_a_backend_that_does_not_fit_is_refused(driver: Path, case: str, tmp_path: Path) -> None:
    code, lines = load(driver, case, tmp_path)
    stage, status, words = REFUSED[case]
    assert code == 3 and len(lines) == 1, f"it crashed or loaded: {code} {lines}"
    assert lines[0][:2] == [stage, status]
    text = lines[0][2]
    assert text.startswith("backend 'tiny' was not loaded from ") and "\n" not in text
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("slot", REQUIRED)
def test_every_required_slot_is_asked_for_by_name(driver: Path, slot: str, tmp_path: Path) -> None:
    code, lines = load(driver, "RIGHT", tmp_path, f"-DWITHOUT={slot}")
    assert code == 3 and lines[0][:2] == ["fingerprint", "abi_mismatch"]
    assert f"required slot {slot};" in lines[0][2]


def test_no_build_name_is_an_answer(driver: Path, tmp_path: Path) -> None:
    code, lines = load(driver, "NO_BUILD", tmp_path)
    assert (code, lines[0]) == (0, ["loaded", "1", ""])


# what a backend says of a refused op -> how its message reads on
SAID = {
    "it can do nothing; get another": "it can do nothing; get another",
    "op_prepare on tiny: it can do nothing; get another": "it can do nothing; get another",
    "copy on tiny:7: it can do nothing; get another": "it can do nothing; get another",
    "copy on right:7: it can do nothing; get another": "it can do nothing; get another",
    "tiny: it can do nothing; get another": "it can do nothing; get another",
    "copy on card 7: it can do nothing": "copy on card 7: it can do nothing",
    "no word on tinyfoil: none": "no word on tinyfoil: none",
    "": "the backend answered unsupported",
}


@pytest.mark.parametrize("says", SAID)
def test_a_message_has_one_beginning(driver: Path, says: str, tmp_path: Path) -> None:
    """The core says what failed and where, once, whatever a backend begins with."""
    code, lines = load(driver, "RIGHT", tmp_path, f'-DSAYS="{says}"', op="move (copy)")
    assert code == 3 and lines[-1][1] == "unsupported"
    assert lines[-1][2] == f"preparing move (copy) on card:3: {SAID[says]}"


def test_a_status_that_does_not_exist_is_a_defect_of_the_backend(
    driver: Path, tmp_path: Path
) -> None:
    code, lines = load(driver, "ODD_PREPARE", tmp_path, op="copy")
    assert code == 3 and lines[-1][1] == "internal"
    assert "copy on card:3" in lines[-1][2] and "4711" in lines[-1][2]


def test_a_backend_that_fits_is_loaded(driver: Path, tmp_path: Path) -> None:
    code, lines = load(driver, "RIGHT", tmp_path)
    assert (code, lines) == (0, [["loaded", "1", "tiny 1"], ["device", "Tiny", ""]])


def test_no_device_is_an_answer(driver: Path, tmp_path: Path) -> None:
    code, lines = load(driver, "NO_DEVICES", tmp_path)
    assert (code, lines) == (0, [["loaded", "0", "tiny 1"]])


def test_plg_11_a_longer_table_is_used_as_far_as_it_is_known(driver: Path, tmp_path: Path) -> None:
    code, lines = load(driver, "LONGER_TABLE", tmp_path)
    assert (code, lines[0]) == (0, ["loaded", "1", "tiny 1"])


@pytest.mark.parametrize("case", ["MANY_DEVICES", "NO_KINDS"])
def test_lies_about_devices_are_an_error_of_that_backend(
    driver: Path, case: str, tmp_path: Path
) -> None:
    code, lines = load(driver, case, tmp_path)
    assert code == 3 and lines[0][1] == "internal"
    assert "backend 'tiny'" in lines[0][2] and "it is not used" in lines[0][2]


def test_texts_without_an_end_are_cut(driver: Path, tmp_path: Path) -> None:
    code, lines = load(driver, "ENDLESS_TEXT", tmp_path)
    assert (code, lines[1]) == (0, ["device", "x" * 63, "y" * 31])


def test_a_file_that_is_no_library_is_refused(driver: Path, tmp_path: Path) -> None:
    library = tmp_path / "libanyhal_text.so"
    library.write_text("this is no library")
    ran = subprocess.run(
        [str(driver), str(library)], capture_output=True, text=True, timeout=30, check=False
    )
    assert ran.returncode == 3 and ran.stdout.startswith("open|not_found|backend 'tiny'")


def test_a_library_that_lacks_a_symbol_is_refused_when_it_is_opened(
    driver: Path, tmp_path: Path
) -> None:
    source, library = tmp_path / "lacks.c", tmp_path / "libanyhal_lacks.so"
    source.write_text("void nowhere(void);\nvoid anyhal_backend_main(void) { nowhere(); }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    ran = subprocess.run(
        [str(driver), str(library)], capture_output=True, text=True, timeout=30, check=False
    )
    assert (
        ran.returncode == 3 and ran.stdout.startswith("open|not_found|") and "nowhere" in ran.stdout
    )


ODD_ARTEFACTS: dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo,
    "zeros without end": lambda path: path.symlink_to("/dev/zero"),
    "empty": lambda path: path.touch(),
    "other key": lambda path: path.write_bytes(b"kez\0kept\0"),
}


@pytest.mark.parametrize("kind", ODD_ARTEFACTS)
def test_what_is_no_artefact_is_made_anew(
    driver: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("CACHE_DIR", str(cache))
    assert load(driver, "CACHED", tmp_path)[1][1][1] == "made"
    assert load(driver, "CACHED", tmp_path)[1][1][1] == "kept"
    (kept,) = cache.iterdir()
    kept.unlink()
    ODD_ARTEFACTS[kind](kept)
    assert load(driver, "CACHED", tmp_path)[1][1][1] == "made"
