"""Makes tools/ importable for the tests of the contract, and builds what they share once.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from aged import folder_of  # noqa: E402


@pytest.fixture(scope="session")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Headers, cores and backends of several ages; one folder for all test processes."""
    base = tmp_path_factory.getbasetemp()
    return folder_of(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)
