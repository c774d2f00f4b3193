"""Builds the hostile set once. SPDX-License-Identifier: Apache-2.0"""

from __future__ import annotations

from pathlib import Path

import pytest
from members import build_objects

from anyhal.runtime import probe


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build_objects(tmp_path_factory.mktemp("hostile") / "objects")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No verdict of an earlier run, and none for later ones."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("ANYHAL_CACHE", str(cache))
    probe._known.clear()
    return cache
