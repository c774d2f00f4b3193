"""Builds the programs of this folder against the installed core.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def installed(name: str) -> Path:
    """A file of the installed package; the test is skipped where there is none."""
    spec = importlib.util.find_spec("anyhal")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    pytest.skip(f"anyhal is not installed with its {name}: run pip install .")


def build(source: str, folder: Path) -> Path:
    """The program made of one source file and the core."""
    program, core = folder / Path(source).stem, installed("libanyhal.so")
    command = ["g++", "-std=c++20", f"-I{ROOT}", f"-I{ROOT / 'include'}"]
    command += [str(HERE / source), str(core), f"-Wl,-rpath,{core.parent}"]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program
