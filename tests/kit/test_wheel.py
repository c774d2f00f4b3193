"""A backend as a wheel of its own: built, installed apart, found by its entry point, and run.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from kit_programs import COMMAND, Program

SAMPLE = Path(__file__).resolve().parent / "sample"
OFFLINE = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
CODE = """
import anyhal as hal, numpy as np
d = hal.device("samplechip:0")
x = hal.asarray(np.float32([1, 2, 3]), device=d)
print((x + x).numpy().tolist(), d.fact.state)
print([s for s in hal.facts()["searched"] if "samplechip" in s][0])
assert hal.device().name != d.name, "a stranger is not chosen by itself"
"""


def pip(*arguments: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def wheel(program: Program, tmp_path: Path) -> Path:
    """The sample's wheel, made from what `anyhal new-backend` writes."""
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.fail("scikit-build-core is not installed: pip install '.[test]'")
    source = tmp_path / "source"
    shutil.copytree(SAMPLE, source)
    into = source / "anyhal_samplechip"
    done = program(COMMAND, "new-backend", "samplechip", "--into", str(into))
    assert done.returncode == 0, done.stderr
    pip("wheel", *OFFLINE, "--no-build-isolation", "-w", tmp_path / "dist", source)
    (found,) = (tmp_path / "dist").glob("*.whl")
    return found


def test_it_is_installed_found_and_run(wheel: Path, program: Program, tmp_path: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {n for n in names if n.startswith("anyhal_samplechip/")} == {
        "anyhal_samplechip/__init__.py",
        "anyhal_samplechip/samplechip/backend.toml",
        "anyhal_samplechip/samplechip/libanyhal_samplechip.so",
    }
    assert "py3-none-linux" in wheel.name
    site = tmp_path / "site"
    pip("install", *OFFLINE, "--target", site, wheel)
    begin = f"import sys; sys.path.insert(0, {str(site)!r})\n"
    done = program(begin + CODE, ANYHAL_BACKEND_PATH="")
    assert done.returncode == 0, done.stderr
    answer, place = done.stdout.splitlines()
    assert answer == "[2.0, 4.0, 6.0] uncertified"
    assert place == f"{site}/anyhal_samplechip/samplechip (entry point samplechip)"


def test_a_plugin_whose_entry_point_fails_costs_only_itself(
    wheel: Path, program: Program, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    pip("install", *OFFLINE, "--target", site, wheel)
    (site / "anyhal_samplechip" / "__init__.py").write_text("raise OSError('no driver')\n")
    code = "import anyhal as hal\nprint(hal.asarray([1.0]).numpy(), hal.facts()['searched'])"
    begin = f"import sys; sys.path.insert(0, {str(site)!r})\n"
    done = program(begin + code, ANYHAL_BACKEND_PATH="")
    assert done.returncode == 0, done.stderr
    assert "entry point samplechip, which failed: no driver" in done.stdout
