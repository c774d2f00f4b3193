"""Threads that compute, allocate, free, copy and wait at once get right results.

SPDX-License-Identifier: Apache-2.0

The same program under the sanitizers: CONTRIBUTING.md.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from programs import build, installed

# backend -> script, rounds
CASES = [
    ("cpu", "", 300),
    ("cpu_ref", "", 10),
    ("dayone", "", 5),
    ("fake", "mode=sync", 50),
    ("fake", "mode=async", 50),
    ("fake", "mode=async; delay=20us", 25),
    ("fake", "mode=async; memory=cell", 25),
    ("fake", "mode=async; pack=matmul", 50),
]


@pytest.fixture(scope="session")
def stress(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("stress_driver.cc", tmp_path_factory.mktemp("stress"))


@pytest.mark.parametrize(("backend", "script", "rounds"), CASES)
def test_threads_share_a_device(stress: Path, backend: str, script: str, rounds: int) -> None:
    library = installed(f"backends/{backend}/libanyhal_{backend}.so")
    ran = subprocess.run(
        [str(stress), str(library), script, str(rounds)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "ok\n"), ran.stdout + ran.stderr


def test_threads_that_wait_on_a_dying_queue_are_all_told(tmp_path: Path) -> None:
    library = installed("backends/fake/libanyhal_fake.so")
    program = build("dying_queue_driver.cc", tmp_path)
    command = [str(program), str(library), "40"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, "ok\n"), ran.stdout + ran.stderr
