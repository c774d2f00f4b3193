"""The symbol rule on libraries built here: the good one passes, each kind of bad one is named.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import symbols


def built(tmp_path: Path, source: str) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    code, library = tmp_path / "x.cc", tmp_path / "libx.so"
    code.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, code], check=True)
    return library


GOOD = 'extern "C" int anyhal_backend_main() { return 0; }\n'


def test_one_symbol_out_and_none_of_ours_in_passes(tmp_path: Path) -> None:
    assert symbols.violations(built(tmp_path, GOOD)) == []


def test_a_second_export_is_named(tmp_path: Path) -> None:
    (found,) = symbols.violations(built(tmp_path, GOOD + "int leaked;\n"))
    assert "exports 2 symbols" in found and "leaked" in found


def test_a_missing_entry_is_named(tmp_path: Path) -> None:
    (found,) = symbols.violations(built(tmp_path, "static int inside;\n"))
    assert "exports 0 symbols" in found


def test_a_symbol_of_the_core_is_named(tmp_path: Path) -> None:
    calls = 'extern "C" void hal_open();\n' + GOOD.replace("return", "hal_open(); return")
    (found,) = symbols.violations(built(tmp_path, calls))
    assert "needs hal_open of ours" in found


def test_installed_backends_export_one_symbol() -> None:
    spec = importlib.util.find_spec("anyhal")
    assert spec is not None and spec.origin is not None
    libraries = sorted((Path(spec.origin).parent / "backends").glob("*/*.so"))
    if not libraries:
        pytest.skip("the package runs from its source folder, without built libraries")
    assert len(libraries) >= 3
    assert [v for path in libraries for v in symbols.violations(path)] == []
