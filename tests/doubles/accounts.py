"""What all doubles share towards the tests: how they are built, and how their accounts are read.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import fcntl
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Report:
    """What a double counted: objects left by kind, calls by function, runs by kernel, broken
    rules. Its text has a line for each: "KIND N", "calls NAME N", "runs NAME N", "violation WORDS".
    """

    left: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, text: str) -> Report:
        report = cls()
        for line in text.splitlines():
            word, _, rest = line.partition(" ")
            if word == "violation":
                report.violations.append(rest)
            elif word in ("calls", "runs"):
                name, _, count = rest.rpartition(" ")
                getattr(report, word)[name] = int(count)
            else:
                report.left[word] = int(rest)
        return report


@contextmanager
def built(source: Path, folder: Path) -> Iterator[None]:
    """Builds a double with CMake, once for all test processes; the folder stays locked inside."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (["cmake", "-S", source, "-B", folder], ["cmake", "--build", folder]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
        yield
