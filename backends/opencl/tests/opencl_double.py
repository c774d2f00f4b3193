"""The loader of tests/doubles/opencl: building it, its script and its accounts in this process.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


@dataclass
class Report:
    """What the double counted: objects left by kind, calls by function, broken rules."""

    left: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, text: str) -> Report:
        report = cls()
        for line in text.splitlines():
            word, _, rest = line.partition(" ")
            if word == "violation":
                report.violations.append(rest)
            elif word == "calls":
                name, _, count = rest.rpartition(" ")
                report.calls[name] = int(count)
            else:
                report.left[word] = int(rest)
        return report


class Double:
    """The built library, as this process has opened it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._library = c.CDLL(self.path)
        self._library.opencl_double_report.restype = c.c_char_p

    def script(self, text: str = "") -> None:
        """Replaces the script; counts begin again, and no device is gone."""
        self._library.opencl_double_script(text.encode())

    def report(self) -> Report:
        return Report.read(self._library.opencl_double_report().decode())


def build(folder: Path) -> Path:
    library, backend = folder / "libOpenCL_double.so", ROOT / "backends/opencl"
    sources = [ROOT / "tests/doubles/opencl/opencl_double.cc", backend / "opencl_api.cc"]
    command = ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(
        [*command, f"-I{backend}", f"-I{ROOT / 'include'}", *map(str, sources), "-o", str(library),
         "-Wl,--no-as-needed", "-l:libOpenCL.so.1", "-ldl"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return library
