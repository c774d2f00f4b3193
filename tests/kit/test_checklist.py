"""Each line of the check list fails for a chip with that defect, and only for such a one.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kit_programs import COMMAND, Program

import anyhal
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


def kernel(what: str) -> tuple[str, str]:
    return "    np.matmul(a, b, out=out)", f"    {what}\n    np.matmul(a, b, out=out)"


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("import os; os.abort()", "it crashed with signal 6 (SIGABRT)"),
        ("import os; os._exit(3)", "it ended the process with exit status 3"),
        ("import time; time.sleep(600)", "it did not answer within 5 s"),
        ("np.core; import ctypes; ctypes.string_at(8)", "it crashed with signal 11 (SIGSEGV)"),
    ],
)
def test_a_kernel_that_does_not_return_is_a_failed_line(
    program: Program, python_chip: Callable[..., Path], what: str, words: str
) -> None:
    folder = python_chip("pychip", kernel(what))
    done = program(COMMAND, "check-backend", str(folder), "--seconds", "5")
    assert done.returncode == 1, done.stdout + done.stderr
    line = "  every declared op and dtype gives the known answers: failed: matmul f32 ("
    (found,) = (text for text in done.stdout.splitlines() if text.startswith(line))
    assert found.endswith(f"): {words}"), found
    assert "pychip_checked" not in done.stdout + done.stderr
    assert done.stdout.endswith("1 failed\n")


def test_an_interrupt_ends_it(
    python_chip: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = python_chip("pychip", kernel("import time; time.sleep(600)"))
    monkeypatch.setenv("ANYHAL_CACHE", str(tmp_path / "cache"))
    run = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "check-backend", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    while "it declares" not in run.stdout.readline():
        assert run.poll() is None
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=30)
    assert run.returncode == 130 and "interrupted" in said, said


def test_a_backend_that_is_not_loaded_is_told_to_its_author(
    program: Program, python_chip: Callable[..., Path]
) -> None:
    folder = python_chip("pychip", ("import numpy as np", "import numpy as np\nprint('x')"))
    done = program(COMMAND, "check-backend", str(folder))
    assert done.returncode == 1 and "it printed 'x'" in done.stderr, done.stderr
    assert "vendor" not in done.stderr and "pychip_checked" not in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["cpu_ref", "dayone"])
def test_backends_of_this_build_pass(program: Program, name: str) -> None:
    folder = Path(anyhal.__file__).parent / "backends" / name
    done = program(COMMAND, "check-backend", str(folder))
    assert done.returncode == 0 and "all hold" in done.stdout, done.stdout + done.stderr
