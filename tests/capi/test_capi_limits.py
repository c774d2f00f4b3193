"""At a process's limits: address space, file size, handles. Nothing aborts, each has its status.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from c_programs import Build, Play

SPACE = 300 << 20  # less than the tables of handles take where there is enough


def limited(kind: int, limit: int, *command: str | Path) -> list[str | Path]:
    """The command with a limit that only it has."""
    program = "import os, resource, sys; k, n = map(int, sys.argv[1:3])"
    program += "; resource.setrlimit(k, (n, n)); os.execv(sys.argv[3], sys.argv[3:])"
    return [sys.executable, "-c", program, str(kind), str(limit), *command]


def test_a_program_runs_in_little_address_space(build: Build, play: Play) -> None:
    done = play(limited(resource.RLIMIT_AS, SPACE, build("limits.c"), "cpu_ref", "works"))
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def test_the_module_is_imported_in_little_address_space() -> None:
    command = limited(resource.RLIMIT_AS, SPACE, sys.executable, "-c", "import anyhal._core")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 or "ImportError" in done.stderr, done.stderr


@pytest.mark.parametrize("scenario", ["no_space", "imports", "texts"])
def test_a_limit_has_its_status(build: Build, play: Play, scenario: str) -> None:
    done = play([build("limits.c"), "cpu_ref", scenario])
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stdout + done.stderr


def test_a_library_larger_than_a_file_may_be_is_refused(build: Build, play: Play) -> None:
    done = play(limited(resource.RLIMIT_FSIZE, 10 << 10, build("select.c"), "cpu_ref"))
    assert done.returncode == 0, done.stdout + done.stderr  # no signal
    status, _, text = done.stdout.split("|", 2)
    assert status == "out_of_memory" and "ulimit -f" in text
