"""Known answers and refusals of each synchronous backend, through its table and nothing else.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from anyhal.ops import BY_NAME

ROOT = Path(__file__).resolve().parents[2]
OPS = {"dayone": 10, "cpu": 37, "cpu_ref": len(BY_NAME)}  # of others: the ten core ops or more

NOT_HERE = 77  # exit of the program for backends that it cannot drive, whose own tests have these


def installed() -> list[Path]:
    """Manifests of the libraries that were built; test equipment and chips in Python have tests of
    their own."""
    spec = importlib.util.find_spec("anyhal")
    places = spec.submodule_search_locations if spec is not None else []
    manifests = [m for place in places or [] for m in Path(place).glob("backends/*/backend.toml")]
    texts = {m: tomllib.loads(m.read_text()) for m in manifests}
    real = (m for m, t in texts.items() if "library" in t and not t.get("test_equipment", False))
    return sorted(real)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that opens a library and asks."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not on the path, so the host program cannot be built")
    program = tmp_path_factory.mktemp("host") / "known_answers"
    source = ROOT / "tests" / "abi" / "known_answers.cc"
    command = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}"]
    subprocess.run([*command, str(source), "-o", str(program), "-ldl"], check=True)
    return program


def test_backends_are_found() -> None:
    assert installed(), "no backend was built: install the package first (pip install .)"


@pytest.mark.parametrize("manifest", installed(), ids=lambda m: m.parent.name)
def test_known_answers(host: Path, manifest: Path) -> None:
    library = manifest.parent / tomllib.loads(manifest.read_text())["library"]
    ops = OPS.get(manifest.parent.name, 0)
    done = subprocess.run(
        [host, library, str(ops)], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode == NOT_HERE:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
