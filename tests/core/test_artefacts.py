"""What backends compile, kept by the core: a write that fails or is cut off costs only time, which
is said. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import HERE, ROOT, build

Load = Callable[..., subprocess.CompletedProcess[str]]
DIES = """
#include <signal.h>
#include <unistd.h>
int rename(const char* from, const char* to) { (void)from, (void)to; return kill(getpid(), 9); }
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A program, and a backend that keeps one artefact and says whether it found it."""
    folder = tmp_path_factory.mktemp("artefacts")
    library = folder / "libanyhal_cached.so"
    command = ["gcc", "-std=c11", "-shared", "-fPIC", "-fvisibility=hidden", "-DCASE=CACHED"]
    command += [f"-I{ROOT / 'include'}", str(HERE / "tiny_backend.c"), "-o", str(library)]
    subprocess.run(command, check=True)
    return [str(build("loader_driver.cc", folder)), str(library)]


@pytest.fixture
def load(programs: list[str], tmp_path: Path) -> Load:
    def play(**options: object) -> subprocess.CompletedProcess[str]:
        variables = {"CACHE_DIR": str(tmp_path / "cache")} | options.pop("variables", {})  # type: ignore[operator]
        return subprocess.run(
            programs,
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | variables,
            **options,  # type: ignore[call-overload]
        )

    return play


def words_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return "kept" if "kept" in done.stdout else "made" if "made" in done.stdout else ""


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4))


def test_a_place_that_cannot_be_written_is_said(load: Load, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = load(variables={"CACHE_DIR": str(tmp_path / "file" / "cache")})
    assert words_of(done) == "made"
    assert "cannot be kept" in done.stderr and "Not a directory" in done.stderr
    assert "ANYHAL_CACHE" in done.stderr
    done = load(variables={"CACHE_DIR": ""})
    assert words_of(done) == "made" and "no folder is safe" in done.stderr


def test_a_write_that_is_cut_off_leaves_nothing(load: Load, tmp_path: Path) -> None:
    done = load(preexec_fn=small_files)
    assert words_of(done) == "made" and "File too large" in done.stderr
    assert list((tmp_path / "cache").iterdir()) == []
    assert [words_of(load()) for _ in range(2)] == ["made", "kept"]


def test_where_a_folder_has_the_name_nothing_is_left(load: Load, tmp_path: Path) -> None:
    load()
    (file,) = (tmp_path / "cache").iterdir()
    file.unlink()
    file.mkdir()
    done = load()
    assert words_of(done) == "made" and "Is a directory" in done.stderr
    assert [*(tmp_path / "cache").iterdir()] == [file]


def test_a_writer_that_is_killed_leaves_what_counts_for_nothing(load: Load, tmp_path: Path) -> None:
    source, dies = tmp_path / "dies.c", tmp_path / "dies.so"
    source.write_text(DIES)
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(dies)], check=True)
    assert load(variables={"LD_PRELOAD": str(dies)}).returncode == -9
    assert [words_of(load()) for _ in range(2)] == ["made", "kept"]
    assert len(list((tmp_path / "cache").glob("*.part*"))) == 1  # `anyhal cache` takes it away
