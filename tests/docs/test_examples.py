"""Examples run and print what is written here; the README shows the first one as it is.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Those with a recorded output beside them; tests/training runs the others.
EXAMPLES = sorted(p.with_suffix(".py") for p in (ROOT / "examples").glob("*.txt"))


def output(path: Path) -> str:
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_prints_what_is_recorded_beside_it(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60
    assert output(path) == path.with_suffix(".txt").read_text(encoding="utf-8")


def test_the_front_page_program_is_an_example_with_its_real_output() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    program, shown = re.findall(r"```(?:python)?\n(.*?)```", text, re.DOTALL)[:2]
    example = (ROOT / "examples" / "two_devices.py").read_text(encoding="utf-8")
    assert program.strip() in example
    assert shown == (ROOT / "examples" / "two_devices.txt").read_text(encoding="utf-8")
