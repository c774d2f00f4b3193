"""A cache folder that is full, read-only, damaged, shared or abandoned in the middle of a write:
nothing breaks, nothing wrong is believed, and what costs time is said.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import marshal
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anyhal import settings
from anyhal.runtime import discovery_cache, kept, kept_file, registry, verdicts
from anyhal.runtime.discovery_cache import Stamp, remember

FINGERPRINT = "0" * 64
RUN = "import anyhal as hal; print((hal.asarray([1.0], device='cpu_ref:0') + 1).numpy())"
# One writer for each file that Python keeps.
WRITERS = {
    "selftest": "from anyhal.runtime import verdicts; verdicts.save('0' * 64, {'new': ''})",
    "discovery": "from anyhal.runtime import discovery_cache as d;"
    " d.remember('key', d.Stamp('new', 0), 'question', lambda: 1); d.save()",
    "probe": "from anyhal.runtime import probe; probe.keep('0' * 32, probe.Answer('clean'))",
    "registry": "from anyhal.runtime import registry; registry.write_registry()",
}
DIES = {
    "half written": """
import io, os
def write(self, data, real=io.BufferedWriter.write):
    real(self, data[: len(data) // 2]); self.flush(); os.kill(os.getpid(), 9)
opened = os.fdopen
class Half(io.BufferedWriter):
    write = write
os.fdopen = lambda handle, mode: Half(io.FileIO(handle, "w"))
""",
    "not yet renamed": "import os; os.replace = lambda *_: os.kill(os.getpid(), 9)\n",
}


def python(script: str, *before: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-c", script]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=os.environ | variables
    )


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a process that has said nothing yet."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv(settings.CACHE.name, str(folder))
    monkeypatch.setattr("anyhal.runtime.log._said", set())
    monkeypatch.setattr(kept_file, "_told", set())
    monkeypatch.setattr(discovery_cache, "_kept", None)
    return folder


# ------------------------------------------------------------------------------- damaged


def test_no_damage_of_one_bit_and_no_cut_is_believed(cache: Path) -> None:
    """A cell that was found wrong never becomes one that is right."""
    verdicts.save(FINGERPRINT, {"gfx matmul f16 1": "3.0 was 4.0", "gfx add f32 2": ""})
    path = Path(verdicts._path(FINGERPRINT))
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            assert verdicts.read(FINGERPRINT) == {}, (at, bit)
        path.write_bytes(whole[:at])
        assert verdicts.read(FINGERPRINT) == {}, at
    path.write_bytes(whole)
    assert verdicts.read(FINGERPRINT)["gfx matmul f16 1"] == "3.0 was 4.0"


def others_may_write(path: Path) -> None:
    path.chmod(0o666)


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def huge(path: Path) -> None:
    os.truncate(path, 1 << 40)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def another_version(path: Path) -> None:
    head, _, content = path.read_bytes().partition(b"\n")
    words = head.split(b" ")
    path.write_bytes(b" ".join([words[0], b"99", words[2]]) + b"\n" + content)


SAID = {
    others_may_write: ("warning", "can be written by everybody"),
    damaged: ("warning", "it is damaged"),
    huge: ("warning", "it is larger than"),
    a_folder: ("warning", "it is not a regular file"),
    another_version: ("info", "is of another version"),
}


@pytest.mark.parametrize("harm", SAID)
@pytest.mark.parametrize("name", ["selftest", "discovery"])
def test_what_is_not_believed_is_said_once(
    cache: Path,
    name: str,
    harm: Callable[[Path], None],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(settings.LOG.name, "info")
    if name == "selftest":
        path = Path(verdicts._path(FINGERPRINT))
        verdicts.save(FINGERPRINT, {"a": "wrong"})
    else:
        path = cache / discovery_cache.FILE_NAME
        remember("key", Stamp("old", 0), "question", lambda: 1)
        discovery_cache.save()
    assert capfd.readouterr().err == ""
    harm(path)
    for _ in range(2):
        if name == "selftest":
            assert verdicts.read(FINGERPRINT) == {}
        else:
            monkeypatch.setattr(discovery_cache, "_kept", None)
            assert remember("key", Stamp("old", 0), "question", lambda: 2) == 2
    level, words = SAID[harm]
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"anyhal: {level}: {path}") and words in line


@pytest.mark.parametrize(
    "rows",
    [
        [],
        5,
        {"key": b""},
        {"key": "text"},
        {"key": marshal.dumps(5)},
        {"key": marshal.dumps(("stamp",))},
        {"key": marshal.dumps(("stamp", []))},
        {"key": marshal.dumps(([], {}, 1))},
        {"key": marshal.dumps(("stamp", {}))[:-2]},
    ],
)
def test_a_row_of_another_form_is_no_answer(cache: Path, rows: object) -> None:
    """Whole by its hash."""
    content = marshal.dumps(rows)
    kept_file.write_kept(cache / discovery_cache.FILE_NAME, discovery_cache._FORM, content)
    assert remember("key", Stamp("stamp", 0), "question", lambda: 3) == 3


# ------------------------------------------------------------------------------- full, read-only


def mounted(options: str) -> list[str]:
    """A command that runs another one with a small file system over the folder CACHE."""
    unshare = shutil.which("unshare")
    for flags in ("-m", "-rm"):
        script = 'mount -t tmpfs -o size=16k none "$CACHE" && ' + options + ' && exec "$@"'
        command = [str(unshare), flags, "sh", "-c", script, "sh"]
        trial = [*command, "true"]
        here = os.environ | {"CACHE": os.environ[settings.CACHE.name]}
        if unshare and subprocess.run(trial, capture_output=True, env=here).returncode == 0:
            return command
    pytest.skip("this user may mount no file system, not even in a namespace of its own")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ('{ cat /dev/zero >"$CACHE/other" 2>/dev/null || true; }', "no space left on device"),
        ('mount -o remount,ro "$CACHE"', "read-only file system"),
    ],
    ids=["full", "read-only"],
)
def test_a_cache_that_cannot_be_written_is_said_and_costs_no_result(
    cache: Path, options: str, words: str
) -> None:
    before = mounted(options)
    look = "\nimport os; print(sorted(f for _, _, fs in os.walk(os.environ['CACHE']) for f in fs))"
    done = python(RUN + look, *before, CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[2.]\n") and ".part" not in done.stdout
    lines = [line for line in done.stderr.splitlines() if "cannot be kept" in line]
    assert len(lines) == 1 and words in lines[0] and settings.CACHE.name in lines[0], done.stderr
    for script in WRITERS.values():
        done = python(script, *before, CACHE=str(cache))
        assert words in done.stderr, done.stderr
        assert done.returncode == ("write_registry" in script), done.stderr
    clear = "from anyhal.cli import main; main(['cache', '--clear', 'all', '--yes'])"
    done = python(clear, *before, CACHE=str(cache))
    assert done.returncode == 0, done.stderr  # there is nothing to clear


def test_without_home_and_name_everything_runs(cache: Path) -> None:
    """A container's user: a number that the system's list of users does not have."""
    script = (
        "import os, pwd\n"
        "def nobody(number): raise KeyError(number)\n"
        "pwd.getpwuid = nobody\n"
        "for name in ('HOME', 'XDG_CACHE_HOME', 'ANYHAL_CACHE'): os.environ.pop(name, None)\n"
    )
    done = python(script + RUN)
    assert (done.returncode, done.stdout) == (0, "[2.]\n"), done.stderr
    assert settings.CACHE.name in done.stderr and "cannot be kept" in done.stderr


# ------------------------------------------------------------------------------- abandoned, shared


@pytest.mark.parametrize("dies", DIES)
@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_that_is_killed_leaves_what_was_there(cache: Path, name: str, dies: str) -> None:
    verdicts.save(FINGERPRINT, {"old": "wrong"})
    assert python(WRITERS[name]).returncode == 0
    row = kept.part(name)
    before = {path: (cache / row.place / path) for path in kept.content(row).files}
    before = {p: f if f.is_file() else cache / p for p, f in before.items()}
    contents = {p: f.read_bytes() for p, f in before.items()}
    assert contents
    change = WRITERS[name].replace("'new'", "'newer'").replace("'0' * 32", "'0' * 32")
    done = python(DIES[dies] + change)
    assert done.returncode == -9, done.stderr
    assert {p: f.read_bytes() for p, f in before.items()} == contents
    assert verdicts.read(FINGERPRINT)["old"] == "wrong"
    left = [path for path in cache.rglob("*.part") if path.is_file()]
    assert len(left) == 1
    assert python(change).returncode == 0
    long_ago = time.time() - 7200
    os.utime(left[0], (long_ago, long_ago))
    assert kept.clear(row)[2] == [] and not left[0].exists()


MANY = """
import sys
from anyhal.runtime import verdicts
name = sys.argv[1]
for i in range(60):
    verdicts.save("0" * 64, {f"{name} {i}": "wrong" if i % 2 else "", "shared": name})
    got = verdicts.read("0" * 64)
    assert got and all(bool(why) == bool(int(key.split()[1]) % 2)
                       for key, why in got.items() if key != "shared"), got
"""


def test_processes_that_write_at_once_never_see_half_a_file(cache: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", MANY, name], stderr=subprocess.PIPE, text=True)
        for name in ("a", "b")
    ]
    said = [writer.communicate(timeout=300)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0] and said == ["", ""]
    verdicts.save(FINGERPRINT, {"shared": ""})
    assert verdicts.read(FINGERPRINT)["shared"] in ("a", "b"), "a cell that was wrong became right"


def test_what_others_tested_is_added_to_and_what_was_cleared_stays_cleared(cache: Path) -> None:
    verdicts.save(FINGERPRINT, {"a": ""})
    verdicts.save(FINGERPRINT, {"b": "wrong"})
    assert verdicts.read(FINGERPRINT) == {"a": "", "b": "wrong"}
    kept.clear(kept.part("selftest"))
    verdicts.save(FINGERPRINT, {"c": ""})
    assert verdicts.read(FINGERPRINT) == {"c": ""}


def test_the_registry_is_replaced_through_no_link(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    for path in (Path(verdicts._path(FINGERPRINT)), Path(registry.default_path())):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(tmp_path / "precious")
    verdicts.save(FINGERPRINT, {"a": ""})
    registry.write_registry()
    assert (tmp_path / "precious").read_text() == "mine"
    assert not Path(verdicts._path(FINGERPRINT)).is_symlink()
    assert not Path(registry.default_path()).is_symlink()
