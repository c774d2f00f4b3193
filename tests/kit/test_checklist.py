"""Each line of the check list fails for a chip with that defect, and only for such a one.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kit_programs import COMMAND, Program

from anyhal.sdk.scaffold import new_backend

WRONG = "    BINARY[fn](a, b, out=out)"
DEFECTS = {
    "it says what it is": ('arch="pychip1"', 'arch=""'),
    "it declares what it runs": (
        'rows = (\n        Row("copy", FLOATS, copy),',
        'rows = () and (\n        Row("copy", FLOATS, copy),',
    ),
    "every declared op and dtype gives the known answers": (
        WRONG,
        WRONG + "\n    out *= 1 + 1e-6",
    ),
    "a plan runs again with the same bits": (
        "    np.matmul(a, b, out=out)",
        "    global N\n    N = 1 - N\n    np.matmul(a, b, out=out)\n"
        "    np.copyto(out, np.nextafter(out, out.dtype.type(9)) if N else out)",
    ),
}


@pytest.mark.parametrize("line", DEFECTS)
def test_a_defect_fails_its_line(
    program: Program, python_chip: Callable[..., Path], line: str
) -> None:
    folder = python_chip("pychip", DEFECTS[line], ('FLOATS = ("f32"', 'N = 0\nFLOATS = ("f32"'))
    done = program(COMMAND, "check-backend", str(folder))
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"  {line}: failed: " in done.stdout, done.stdout


def test_a_row_that_never_accepts_is_found(
    program: Program, python_chip: Callable[..., Path]
) -> None:
    """What is declared and what is answered come from one list, unless somebody sees to it."""
    never = ("    return None if fn in BINARY else No", "    return No")
    folder = python_chip("pychip", never)
    done = program(COMMAND, "check-backend", str(folder))
    assert "binary f32 is declared, and op_query refuses every sample of it" in done.stdout


IN_C = {
    "what is not declared is refused, with reason and words": (
        "  *bytes = COUNT(rows) * sizeof(anyhal_capability);",
        "  *bytes = (COUNT(rows) - 1) * sizeof(anyhal_capability);",
    ),
    "what this build cannot know is refused": (
        "  for (int i = 0; i < 6; ++i)\n    if (desc->numerics[i] != 0",
        "  for (int i = 0; i < 0; ++i)\n    if (desc->numerics[i] != 0",
    ),
}


@pytest.mark.parametrize("line", IN_C)
def test_a_defect_of_a_table_fails_its_line(program: Program, chips: Path, line: str) -> None:
    folder = new_backend("cchip", "c", chips)
    old, new = IN_C[line]
    text = (folder / "backend.c").read_text()
    assert old in text
    (folder / "backend.c").write_text(text.replace(old, new))
    make = ["make", f"PYTHON={sys.executable}"]
    subprocess.run(make, cwd=folder, check=True, capture_output=True)
    done = program(COMMAND, "check-backend", str(folder))
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"  {line}: failed: " in done.stdout, done.stdout


@pytest.mark.parametrize("text", ["", "name = 3\n"])
def test_a_folder_without_a_good_manifest_is_one_line(
    program: Program, tmp_path: Path, text: str
) -> None:
    folder = tmp_path / "chips" / "one"
    folder.mkdir(parents=True)
    if text:
        (folder / "backend.toml").write_text(text)
    done = program(COMMAND, "check-backend", str(folder))
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"anyhal: checking the backend in {folder}: ")
