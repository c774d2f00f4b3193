"""Backends that their manifest defers cost nothing until somebody names or lists them.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from anyhal.runtime.discovery import package_folder

BEGIN = """
import anyhal as hal
def loaded(): return "/later/" in open("/proc/self/maps").read()
x = hal.asarray([1.0, 2.0], device="cpu")
assert hal.add(x, x).numpy().tolist() == [2, 4]
assert not loaded(), "a program that uses the processor alone"
"""


def run(folder: Path, code: str, rank: int = 1, **more: str) -> None:
    """`code` beside a backend named later, which is dayone with another manifest."""
    later = folder / "backends" / "later"
    later.mkdir(parents=True, mode=0o755)
    later.parent.chmod(0o755)
    source = Path(package_folder()) / "backends" / "dayone"
    text = (source / "backend.toml").read_text()
    lines = [n for n in text.splitlines() if not n.startswith(("name", "rank", "deferred"))]
    head = ['name = "later"', f"rank = {rank}", "deferred = true"]
    (later / "backend.toml").write_text("\n".join([*head, *lines, ""]))
    for library in source.glob("*.so"):
        shutil.copy(library, later)
    env = {**os.environ, "ANYHAL_BACKEND_PATH": str(later.parent), **more}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "asks",
    [
        'assert hal.device("later").name == "later:0"',
        'assert hal.device("later:0").name == "later:0"',
        'assert hal.select_backend("nothing|later|cpu").name == "later:0"',
        'assert "later:0" in [d.name for d in hal.devices()]',
        'y = hal.asarray([3.0], device="later")',
        "assert 'later' in str(hal.explain('matmul f32[8,8] f32[8,8]'))",
        "from anyhal.runtime.device import facts\n"
        'assert "later" in [d.backend for d in facts().devices]',
    ],
)
def test_who_asks_for_it_gets_it(tmp_path: Path, asks: str) -> None:
    run(tmp_path, f"{BEGIN}{asks}\nassert loaded()\n")


@pytest.mark.parametrize(
    "uses",
    [
        "hal.device()",
        "hal.zeros((3,))",
        'hal.select_backend("cpu")',
        'hal.matmul(hal.ones((2, 2), device="cpu"), hal.ones((2, 2), device="cpu")).numpy()',
        'with hal.graph("cpu") as g:\n    y = hal.add(x, x)\ng.launch()',
        "hal.synchronize()",
    ],
)
def test_who_does_not_ask_pays_nothing(tmp_path: Path, uses: str) -> None:
    run(tmp_path, f"{BEGIN}{uses}\nassert not loaded()\n")


def test_another_deferred_backend_is_not_loaded_with_it(tmp_path: Path) -> None:
    maps = 'open("/proc/self/maps").read()'
    run(tmp_path, f'{BEGIN}hal.device("later")\nassert "backends/pjrt/" not in {maps}\n')


def test_a_name_that_nothing_has_is_looked_for_everywhere(tmp_path: Path) -> None:
    code = """
try:
    hal.device("latr")
except hal.NotFoundError as why:
    assert "later" in str(why), why
assert loaded()
"""
    run(tmp_path, BEGIN + code)


def test_it_is_chosen_unnamed_where_it_would_have_been(tmp_path: Path) -> None:
    code = """
with hal.use(allow_uncertified=("later",)):
    assert hal.device().name == "later:0"
"""
    run(tmp_path, BEGIN + code, rank=1000)


def test_a_list_of_what_is_visible_names_it(tmp_path: Path) -> None:
    code = """
import anyhal as hal
assert hal.device("later").name == "later:0"
"""
    run(tmp_path, code, ANYHAL_VISIBLE_DEVICES="later:0")
    run(tmp_path / "b", BEGIN, ANYHAL_VISIBLE_DEVICES="cpu:0")


def test_the_instance_name_is_still_its_own(tmp_path: Path) -> None:
    code = """
try:
    hal.load_backend("later")
    raise AssertionError
except hal.InvalidArgumentError as why:
    assert "taken" in str(why)
assert hal.load_backend("later", instance="mine")[0].name == "mine:0"
"""
    run(tmp_path, BEGIN + code)
