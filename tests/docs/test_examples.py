"""Examples run and print what is written here; the README shows the first one as it is.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Those with a recorded output beside them; tests/training runs the others.
EXAMPLES = sorted(p.with_suffix(".py") for p in (ROOT / "examples").glob("*.txt"))


NUMBA, OPENCL = "own_numba_kernel", "own_opencl_kernel"


def require(path: Path) -> None:
    """Skips an example whose library or device is not here; CI names those that must be."""
    if path.stem == NUMBA and not os.environ.get("TEST_NUMBA"):
        pytest.importorskip("numba", reason='numba is not installed: pip install ".[numba-test]"')
    if path.stem == OPENCL and not int(os.environ.get("TEST_OPENCL", "0")):
        import anyhal as hal

        if not any(d.fact.backend == "opencl" for d in hal.devices()):
            pytest.skip("there is no OpenCL device: apt-get install pocl-opencl-icd")


def output(path: Path) -> str:
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_prints_what_is_recorded_beside_it(path: Path) -> None:
    require(path)
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60
    assert output(path) == path.with_suffix(".txt").read_text(encoding="utf-8")


def test_the_front_page_program_is_an_example_with_its_real_output() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    program, shown = re.findall(r"```(?:python)?\n(.*?)```", text, re.DOTALL)[:2]
    example = (ROOT / "examples" / "two_devices.py").read_text(encoding="utf-8")
    assert program.strip() in example
    assert shown == (ROOT / "examples" / "two_devices.txt").read_text(encoding="utf-8")
