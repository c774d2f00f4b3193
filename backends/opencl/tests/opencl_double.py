"""The loader of tests/doubles/opencl: building it, its script and its accounts in this process.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "doubles"))

from accounts import Report  # noqa: E402


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
