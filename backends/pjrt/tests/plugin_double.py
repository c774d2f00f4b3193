"""The plugin of tests/doubles/pjrt, which stands before a real one: building it, running on it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "tests" / "doubles" / "pjrt"
FOLDER = ROOT / "build" / "pjrt-double"
sys.path.insert(0, str(SOURCE.parent))

from accounts import Report, built  # noqa: E402


def build_double() -> Path:
    """The library, compiled once for all test processes."""
    with built(SOURCE, FOLDER):
        return FOLDER / "libpjrt_double.so"


@dataclass(frozen=True)
class Double:
    """The double before one real plugin; `beside` are plugins that stand for themselves."""

    library: Path
    real: Path
    folder: Path  # of this test
    beside: tuple[Path, ...] = ()

    def run(
        self, *command: str, script: str = "", timeout: float = 240, **more: str
    ) -> subprocess.CompletedProcess[str]:
        listed = ":".join(map(str, (self.library, *self.beside)))
        given = {
            "PJRT_DOUBLE": f"{script}; report={self.folder / 'report.txt'}",
            "PJRT_DOUBLE_PLUGIN": str(self.real),
            "ANYHAL_PJRT_PLUGINS": listed,
            "ANYHAL_CACHE": str(self.folder / "cache"),  # the double's hash names no real plugin
        }
        return subprocess.run(
            [sys.executable, *command],
            env={**os.environ, **given, **more},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def python(self, code: str, script: str = "", **more: str) -> str:
        """What a program prints that must end well, having broken no rule of the plugin's."""
        done = self.run("-c", code, script=script, **more)
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        assert self.report().violations == []
        return done.stdout

    def report(self) -> Report:
        return Report.read((self.folder / "report.txt").read_text())
