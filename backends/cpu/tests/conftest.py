"""The cpu library opened directly, once per instruction set.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from contract_client import Cpu, onednn_path  # noqa: E402

LEVELS = ("baseline", "avx2", "avx512", "avx512_bf16")


@pytest.fixture(scope="session", params=LEVELS)
def cpu(request: pytest.FixtureRequest) -> Cpu:
    """The library without oneDNN, capped at one instruction set."""
    device = Cpu(isa=request.param)
    if f"code for {request.param};" not in device.notes():
        pytest.skip(f"this processor has no {request.param}")
    return device


@pytest.fixture(scope="session")
def onednn() -> str:
    """Path of oneDNN, from the installed package's file list."""
    path = onednn_path()
    if not path:
        pytest.skip("onednn-cpu-gomp is not installed")
    return path
