"""Chips made for a test, and programs that see them and nothing else of this tree.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kit_programs import Program

from anyhal.sdk.scaffold import new_backend


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """program(code, *arguments, **environment): Python code in a process of its own, in an empty
    folder, with the backends of the test's folder `chips`."""

    def run(code: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        apart = tmp_path / "apart"
        apart.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "ANYHAL_BACKEND_PATH": str(tmp_path / "chips"),
            "ANYHAL_CACHE": str(tmp_path / "cache"),
            **more,
        }
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=apart,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@pytest.fixture
def chips(tmp_path: Path) -> Path:
    """The folder that `program` looks into."""
    folder = tmp_path / "chips"
    folder.mkdir(mode=0o755)
    return folder


@pytest.fixture
def python_chip(chips: Path) -> Callable[..., Path]:
    """python_chip(name, (old, new), ...): the Python template with parts replaced."""

    def make(name: str, *changes: tuple[str, str]) -> Path:
        folder = new_backend(name, "python", chips)
        file = folder / "chip.py"
        text = file.read_text()
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        file.write_text(text)
        return folder

    return make
