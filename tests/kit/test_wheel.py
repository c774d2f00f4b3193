"""A backend as a wheel of its own: built, installed apart, found by its entry point, and run.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from kit_programs import COMMAND, Program

SAMPLE = Path(__file__).resolve().parent / "sample"
PAGE = SAMPLE.parents[2] / "docs" / "how-to" / "ship-a-backend-as-a-wheel.md"
OFFLINE = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
CODE = """
import anyhal as hal, numpy as np
d = hal.device("samplechip:0")
x = hal.asarray(np.float32([1, 2, 3]), device=d)
print((x + x).numpy().tolist(), d.fact.state)
print([s for s in hal.facts()["searched"] if "samplechip" in s][0])
assert hal.device().name != d.name, "a stranger is not chosen by itself"
"""


def pip(*arguments: str | Path, cwd: Path | None = None) -> None:
    command = [sys.executable, "-m", "pip", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr


def of_the_page(begin: str) -> list[str]:
    """The words behind `begin` in the page's command that begins so."""
    text = PAGE.read_text(encoding="utf-8")
    (line,) = re.findall(rf"^ +{re.escape(begin)} (.*)$", text, re.MULTILINE)
    return shlex.split(line, comments=True)


@pytest.fixture
def wheel(program: Program, tmp_path: Path) -> Path:
    """The sample's wheel, made from what `anyhal new-backend` writes."""
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.fail("scikit-build-core is not installed: pip install '.[test]'")
    source = tmp_path / "source"
    shutil.copytree(SAMPLE, source)
    into = source / "src" / "anyhal_samplechip"
    done = program(COMMAND, "new-backend", "samplechip", "--into", str(into))
    assert done.returncode == 0, done.stderr
    pip("wheel", "--no-index", *of_the_page("pip wheel"), cwd=source)
    (found,) = (source / "dist").glob("*.whl")
    return found


def test_the_pages_program_runs_beside_the_source(wheel: Path, tmp_path: Path) -> None:
    pip("install", *OFFLINE, "--target", tmp_path / "site", wheel)
    paths = filter(None, (str(tmp_path / "site"), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "ANYHAL_BACKEND_PATH": "", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", *of_the_page("python -c")],
        cwd=tmp_path / "source",
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and "samplechip:0" in done.stdout, done.stdout + done.stderr


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
