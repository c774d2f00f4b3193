"""The plugin of tests/doubles/pjrt, which stands before a real one: building it, running on it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "tests" / "doubles" / "pjrt"
FOLDER = ROOT / "build" / "pjrt-double"


@dataclass
class Report:
    """What the double counted: objects left, calls by function, broken rules."""

    left: dict[str, int] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    executions: int = 0
    violations: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, text: str) -> Report:
        report = cls()
        for line in text.splitlines():
            word, _, rest = line.partition(" ")
            name, _, count = rest.rpartition(" ")
            if word == "left":
                report.left[name] = int(count)
            elif word == "calls":
                report.calls[name] = int(count)
            elif word == "executions":
                report.executions = int(rest)
            else:
                report.violations.append(rest)
        return report


def build_double() -> Path:
    """The library, compiled once for all test processes."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (["cmake", "-S", SOURCE, "-B", FOLDER], ["cmake", "--build", FOLDER]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
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
