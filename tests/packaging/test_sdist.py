"""The source archive holds what a build needs and nothing that is not the project's.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 5_000_000
# Folders whose every file under version control a build or an installation needs.
NEEDED = ("cmake", "core", "backends", "include", "src")
FILES = ("CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
SCRIPTS = ("tools/build_hashes.cmake", "tools/contents.cmake", "tools/cuda_bundle.py")
FOREIGN = ("build", "dist", ".ci", ".git", ".github", ".venv", "shared")
MAKE = """
import sys
from scikit_build_core.build import build_sdist
print(build_sdist(sys.argv[1]))
"""


def tracked() -> set[str]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("this tree is not under version control")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.skip("scikit-build-core is not installed here; pip install scikit-build-core")
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-c", MAKE, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def names(archive: Path) -> set[str]:
    """What is in it, without the folder that holds all."""
    with tarfile.open(archive) as packed:
        members = [member for member in packed.getmembers() if not member.isdir()]
    assert all(member.isfile() for member in members), "a link or a device in the archive"
    return {str(PurePosixPath(*PurePosixPath(member.name).parts[1:])) for member in members}


def test_it_holds_what_a_build_needs(names: set[str]) -> None:
    wanted = {name for name in tracked() if name.startswith(tuple(f"{n}/" for n in NEEDED))}
    assert wanted and wanted - names == set()
    assert {*FILES, *SCRIPTS} <= names


def test_it_holds_nothing_else(names: set[str], archive: Path) -> None:
    assert names - tracked() <= {"PKG-INFO"}
    assert not [name for name in names if name.split("/")[0] in FOREIGN]
    assert not [name for name in names if name.endswith((".so", ".pyc", ".whl"))]
    assert archive.stat().st_size <= MOST_BYTES


def test_what_it_holds_can_be_configured(archive: Path, tmp_path: Path) -> None:
    """From the archive alone, in another place; compiling it is the heavy family `wheel`."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("cmake is not on PATH")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    command = [cmake, "-S", str(source), "-B", str(tmp_path / "build"), "-DANYHAL_PYTHON=OFF"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
