"""A new backend begins as one that builds with one command and passes its own check list.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kit_programs import COMMAND, Program

import anyhal
from anyhal.sdk.scaffold import LANGUAGES, TEMPLATES

MOST_LINES = 420  # of its one source file


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_builds_with_one_command_and_passes_its_list(
    program: Program, tmp_path: Path, language: str
) -> None:
    """With the installed package alone: nothing of this tree is seen."""
    name = f"fresh{language}"
    done = program(COMMAND, "new-backend", name, "--language", language, "--into", str(tmp_path))
    assert done.returncode == 0, done.stderr
    folder = tmp_path / name
    texts = [path.read_text() for path in folder.iterdir()]
    assert all("SPDX-License-Identifier" in t for t in texts if not t.startswith("# fresh"))
    assert not any("mychip" in text for text in texts)
    if language != "python":
        make = shutil.which("make")
        assert make is not None, "apt-get install make"
        env = os.environ | {"PYTHON": sys.executable}
        made = subprocess.run([make], cwd=folder, env=env, capture_output=True, text=True)
        assert made.returncode == 0 and "warning" not in made.stderr, made.stderr
        symbols = subprocess.run(
            ["nm", "-D", "--defined-only", str(folder / f"libanyhal_{name}.so")],
            capture_output=True,
            text=True,
            check=True,
        )
        assert [line.split()[-1] for line in symbols.stdout.splitlines()] == ["anyhal_backend_main"]
    checked = program(COMMAND, "check-backend", str(folder))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count(": ok (") == 7 and "all hold" in checked.stdout
    assert "(0)" not in checked.stdout, "a line that looked at nothing"
    readme = (folder / "README.md").read_text()
    for line in checked.stdout.splitlines():
        if ": ok" in line:  # its own list is in its README
            assert line.strip().partition(": ok")[0].partition(",")[0] in readme, line


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_make_builds_it_anew_when_the_headers_are_newer(
    program: Program, tmp_path: Path, language: str
) -> None:
    done = program(COMMAND, "new-backend", "fresh", "--language", language, "--into", str(tmp_path))
    assert done.returncode == 0, done.stderr
    headers = tmp_path / "headers"
    shutil.copytree(anyhal.get_include(), headers)
    make = ["make", f"HEADERS={headers}"]
    subprocess.run(make, cwd=tmp_path / "fresh", check=True, capture_output=True)
    library = tmp_path / "fresh" / "libanyhal_fresh.so"
    for changed in (False, True):
        os.utime(library, (1e9, 1e9) if changed else None)
        before = library.stat().st_mtime
        for header in headers.rglob("*.h*"):  # an upgrade of anyhal writes them all
            os.utime(header, (1.1e9, 1.1e9))
        os.utime(tmp_path / "fresh" / f"backend.{'c' if language == 'c' else 'cc'}", (9e8, 9e8))
        subprocess.run(make, cwd=tmp_path / "fresh", check=True, capture_output=True)
        assert (library.stat().st_mtime != before) is changed


def test_it_is_few_and_small_files() -> None:
    for language in LANGUAGES:
        files = [p for p in (TEMPLATES / language).iterdir() if p.is_file()]
        assert len(files) <= 4
        assert all(len(p.read_text().splitlines()) <= MOST_LINES for p in files)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["My-Chip"], "not one lower-case word"),
        (["../up"], "not one lower-case word"),
        (["a" * 40], "not one lower-case word"),
        (["auto"], "the name is reserved; take another"),
        (["int"], "the name is reserved"),
        (["dayone"], "the name is taken by the backend in"),
        (["fresh", "--language", "rust"], "choose c, cpp, python"),
        (["fresh", "--into", "/nowhere/here"], "cannot take it: no such file or directory"),
        (["there"], "is there already"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    program: Program, tmp_path: Path, arguments: list[str], words: str
) -> None:
    there = tmp_path / "apart" / "there"
    there.mkdir(parents=True)
    (there / "mine").write_text("kept")
    done = program(COMMAND, "new-backend", *arguments)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("anyhal: making the backend") and words in done.stderr
    assert [p.name for p in (tmp_path / "apart").rglob("*")] == ["there", "mine"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(program: Program, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    done = program(COMMAND, "new-backend", "fresh", "--into", str(closed))
    assert done.returncode == 1 and "permission denied" in done.stderr


def test_what_others_may_write_by_umask_is_taken_back(program: Program, tmp_path: Path) -> None:
    code = "import os; os.umask(0)\n" + COMMAND
    assert program(code, "new-backend", "fresh", "--into", str(tmp_path)).returncode == 0
    made = [tmp_path / "fresh", *(tmp_path / "fresh").iterdir()]
    assert all(path.stat().st_mode & 0o022 == 0 for path in made)
