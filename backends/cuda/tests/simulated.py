"""The simulated driver of tests/doubles/cuda: building it, running programs on it, its accounts.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CUDA = ROOT / "backends" / "cuda"
DOUBLE = ROOT / "tests" / "doubles" / "cuda"
sys.path[:0] = [str(ROOT / "tools"), str(DOUBLE.parent)]
import cuda_bundle  # noqa: E402
from accounts import Report, built  # noqa: E402


def need(what: object, why: str) -> None:
    """Skips with the reason, or fails where everything foreign must be there."""
    if what:
        return
    if os.environ.get("TEST_FOREIGN") == "1":
        pytest.fail(why)
    pytest.skip(why)


@dataclass(frozen=True)
class Double:
    """A folder with libcuda.so.1, libcublasLt.so.12 and kernels/."""

    folder: Path
    report_file: Path

    def environment(self, script: str = "", **more: str) -> dict[str, str]:
        script = f"{script}; report={self.report_file}"
        given = {"ANYHAL_CUDA_DRIVER": str(self.folder), "CUDA_DOUBLE": script}
        return {**os.environ, **given, **more}

    def run(
        self, *command: str, script: str = "", timeout: float = 120, **more: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.environment(script, **more),
            capture_output=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )

    def python(self, code: str, script: str = "", **more: str) -> str:
        """What a program prints that must end well."""
        done = self.run(sys.executable, "-c", code, script=script, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def report(self) -> Report:
        return Report.read(self.report_file.read_text())


def build_double(folder: Path) -> None:
    """Compiles the two libraries and puts the kernels beside them, once for all test processes."""
    with built(DOUBLE, folder):
        kernels = folder / "kernels"
        newest = max(f.stat().st_mtime for f in (CUDA / "kernels").iterdir())
        if (kernels / "bundle.json").exists() and kernels.stat().st_mtime > newest:
            return
        if cuda_bundle.find_nvrtc() is not None:
            cuda_bundle.build(kernels)
        else:
            stand_in(kernels)
        (kernels / "done").touch()


def stand_in(kernels: Path) -> None:
    """PTX with the kernels' names and no code, for the double alone: it runs them by name."""
    kernels.mkdir(exist_ok=True)
    for source in (CUDA / "kernels").glob("*.cu"):
        names = re.findall(r"HAL_KERNEL\((\w+),", source.read_text())
        entries = "\n".join(f".visible .entry {name}(" for name in names)
        (kernels / f"{source.stem}.ptx").write_text(f".version 8.1\n.target sm_80\n{entries}\n")
