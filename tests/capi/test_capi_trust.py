"""What a C program opens: files of the right kind and owner, once, and exactly what was hashed.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from c_programs import ROOT, Build, Play, Registry, package

NOBODY = 65534


def select(build: Build, play: Play, file: Path, names: str, **environment: str) -> list[str]:
    """status, reason and sentence (or the device) of hal_select_backend."""
    done = play([build("select.c"), names], file, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n").split("|", 2)


def row_of(library: Path, name: str) -> str:
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    return f"backend\t{name}\t0.3\tuncertified\tno\t99\t{digest}\t{library}\n"


def file_of(folder: Path, *rows: str) -> Path:
    path = folder / "registry.tsv"
    path.write_text("anyhal-registry\t2\n" + "".join(rows) + f"end\t{len(rows)}\n")
    return path


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "libanyhal_stranger.so"
    shutil.copy(package() / "backends/cpu_ref/libanyhal_cpu_ref.so", path)
    return path


# ------------------------------------------------------------------------------------- the kinds


def _odd(folder: Path, kind: str) -> Path:
    path = folder / kind.replace(" ", "_")
    if kind == "named pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(path))
    elif kind == "device":
        path.symlink_to("/dev/tty")  # as a terminal it could become the program's own
    else:
        path.mkdir()
    return path


@pytest.mark.parametrize("kind", ["named pipe", "socket", "device", "folder"])
def test_what_is_no_file_is_refused_at_once(
    build: Build, play: Play, library: Path, tmp_path: Path, kind: str
) -> None:
    odd = _odd(tmp_path, kind)
    status, reason, text = select(build, play, odd, "cpu")
    assert (status, reason) == ("not_found", "registry") and f"a {kind}, not a regular" in text
    file = file_of(tmp_path, row_of(library, "stranger").replace(str(library), str(odd)))
    status, reason, text = select(build, play, file, "stranger")
    assert (status, reason) == ("not_found", "none") and f"a {kind}, not a regular" in text


def test_a_registry_is_read_to_its_limit(build: Build, play: Play, tmp_path: Path) -> None:
    file = tmp_path / "r.tsv"
    with file.open("wb") as stream:
        stream.truncate(1 << 40)  # nothing but a hole: reading it whole would take hours
    status, reason, text = select(build, play, file, "cpu")
    assert (status, reason) == ("invalid_argument", "registry") and "larger than a megabyte" in text


def test_links_in_a_circle_end(build: Build, play: Play, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to("a")
    assert select(build, play, tmp_path / "a", "cpu")[:2] == ["not_found", "registry"]


# ------------------------------------------------------------------------------------ the owners


def test_a_link_counts_with_the_folder_that_it_lies_in(
    build: Build, play: Play, registry: Registry, tmp_path: Path
) -> None:
    shared, mine = tmp_path / "shared", tmp_path / "mine"
    shared.mkdir(), mine.mkdir()
    (shared / "r.tsv").symlink_to(os.path.relpath(registry(), shared))
    (mine / "r.tsv").symlink_to(shared / "r.tsv")
    (mine / "way").symlink_to(shared)
    for path in (shared / "r.tsv", mine / "r.tsv", mine / "way" / "r.tsv"):
        assert select(build, play, path, "cpu")[0] == "ok"
    shared.chmod(0o777)  # now anybody can point the link elsewhere
    for path in (shared / "r.tsv", mine / "r.tsv", mine / "way" / "r.tsv"):
        status, reason, text = select(build, play, path, "cpu")
        assert (status, reason) == ("abi_mismatch", "untrusted") and f"{shared} can be" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_others_is_refused(
    build: Build, play: Play, registry: Registry, library: Path, tmp_path: Path
) -> None:
    link = tmp_path / "r.tsv"
    link.symlink_to(registry())
    os.lchown(link, NOBODY, NOBODY)
    status, reason, text = select(build, play, link, "cpu")
    assert (status, reason) == ("abi_mismatch", "untrusted") and f"user {NOBODY}" in text
    file = file_of(tmp_path, row_of(library, "stranger"))
    os.chown(library, NOBODY, 0)
    status, reason, text = select(build, play, file, "stranger")
    assert (status, reason) == ("abi_mismatch", "untrusted") and f"user {NOBODY}" in text
    os.chown(library, 0, NOBODY)
    library.chmod(0o775)
    status, reason, text = select(build, play, file, "stranger")
    assert (status, reason) == ("abi_mismatch", "untrusted") and f"group {NOBODY}" in text


# -------------------------------------------------------------------------------------- the copy


def test_what_was_hashed_is_what_runs(
    build: Build, play: Play, library: Path, tmp_path: Path
) -> None:
    file = file_of(tmp_path, row_of(library, "stranger"))
    done = play([build("cut_off.c"), "stranger", library], file)
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr
    assert library.stat().st_size == 0


def test_a_refused_library_is_not_mistaken_for_the_next(
    build: Build, play: Play, library: Path, tmp_path: Path
) -> None:
    other = tmp_path / "libother.so"
    source = tmp_path / "other.c"
    source.write_text("int other(void) { return 1; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", other], check=True)
    file = file_of(tmp_path, row_of(other, "other"), row_of(library, "stranger"))
    assert select(build, play, file, "other|stranger")[2] == "stranger:0 uncertified"
    status, _, text = select(build, play, file, "other")
    assert status == "abi_mismatch" and f"not loaded from {other}" in text


@pytest.fixture
def dependent(tmp_path: Path) -> Path:
    """A backend that needs a library which lies in a folder beside it."""
    folder = tmp_path / "plugin"
    (folder / "libs").mkdir(parents=True)
    source = tmp_path / "near.c"
    source.write_text("int near_answer(void) { return 42; }\n")
    near = folder / "libs" / "libnear_of_test.so"
    name = f"-Wl,-soname,{near.name}"
    subprocess.run(["gcc", "-shared", "-fPIC", source, name, "-o", near], check=True)
    backend = folder / "libanyhal_tiny.so"
    command = ["gcc", "-shared", "-fPIC", f"-I{ROOT / 'include'}", "-DCASE=RIGHT"]
    command += [str(ROOT / "tests/core/tiny_backend.c"), "-Wl,--no-as-needed", str(near)]
    subprocess.run([*command, "-Wl,-rpath,$ORIGIN/libs", "-o", backend], check=True)
    return backend


def test_a_library_beside_it_is_found(
    build: Build, play: Play, dependent: Path, tmp_path: Path
) -> None:
    file = file_of(tmp_path, row_of(dependent, "tiny"))
    assert select(build, play, file, "tiny")[2].startswith("tiny:0")
    near = dependent.parent / "libs" / "libnear_of_test.so"
    near.chmod(0o666)
    status, reason, text = select(build, play, file, "tiny")
    assert (status, reason) == ("abi_mismatch", "untrusted") and str(near) in text
    near.unlink()
    status, _, text = select(build, play, file, "tiny")
    assert status == "not_found" and near.name in text and str(dependent) in text
    assert "/proc/" not in text


# ------------------------------------------------------------------------------------- the cells


def test_a_cell_in_quarantine_is_not_run(
    build: Build, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import anyhal as hal
    from anyhal.dtypes import dtype
    from anyhal.ops import lookup
    from anyhal.runtime import verdicts
    from anyhal.runtime.registry import write_registry

    monkeypatch.setenv("ANYHAL_CACHE", str(tmp_path))
    device = hal.device("cpu_ref")
    key = verdicts.key_of(device.fact.arch, lookup("matmul"), dtype("float32").short)
    stale = key[:-1] + ("0" if key[-1] != "0" else "1")
    wrong = {key: "matmul f32 was wrong; the cell is quarantined", stale.replace("32", "64"): "old"}
    verdicts.save(device.fingerprint, wrong)
    file = write_registry(tmp_path / "r.tsv")
    text = file.read_text(encoding="utf-8")
    assert text.count("\nquarantine\t") == 1 and "matmul f32 was wrong" in text
    done = play([build("quarantine.c"), "cpu_ref"], file)
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def test_plg_01_a_second_level_library_comes_from_the_vendors_folder(
    build: Build, play: Play, tmp_path: Path
) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "field"))
    from loading import backend, helper_of, kit, row

    from anyhal.runtime.discovery import Root, discover
    from anyhal.runtime.registry import registry_text

    library = kit(tmp_path / "new", 2)
    old = helper_of(tmp_path / "old", 1).parent
    chip = backend(tmp_path / "b", "chip", row(tmp_path / "new"))
    file = tmp_path / "registry.tsv"
    file.write_text(registry_text(discover(roots=[Root(chip, "a test")], hashes={}).backends))
    assert f"x-first\t{tmp_path / 'new' / 'libhelp.so.1'}\n" in file.read_text()
    done = play([build("select.c"), "chip"], file, LD_LIBRARY_PATH=str(old))
    assert f"kit 2 of {library}" in done.stderr, done.stderr
    file.write_text(file.read_text().replace(str(tmp_path / "new" / "libhelp"), "relative"))
    assert "not an absolute path" in play([build("select.c"), "chip"], file).stdout
