"""What the tests of the C interface share: places, warnings, the types of their fixtures.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]

Build = Callable[..., Path]
Play = Callable[..., "subprocess.CompletedProcess[str]"]
Registry = Callable[..., Path]


def package() -> Path:
    """The installed package's folder; without a compiled core in it nothing here can run."""
    import anyhal

    folder = Path(anyhal.__file__).resolve().parent
    if not (folder / "libanyhal.so").is_file():
        pytest.skip("anyhal runs from its source folder, without libanyhal.so; pip install .")
    return folder
