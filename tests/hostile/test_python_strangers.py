"""A stranger's chip in Python is met in an interpreter of its own, by the rules for libraries.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anyhal.runtime import probe
from anyhal.runtime.probe import Stranger, verdict
from anyhal.sdk.scaffold import new_backend

Make = Callable[[str], Stranger]

DEEDS = {
    "import os; os.abort()": ("probe_aborted", "open"),
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)": ("probe_crashed", "open"),
    "raise SystemExit(3)": ("probe_exited", "open"),
    "import os; os._exit(0)": ("probe_exited", "open"),
    "import time; time.sleep(60)": ("probe_timeout", "open"),
    "while True: pass": ("probe_timeout", "open"),
    "print('hello')": ("probe_printed", "open"),
    "import os; os.system('echo hello')": ("probe_printed", "open"),
    "import os; os.chdir('/')": ("probe_state", "open"),
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)": ("probe_state", "open"),
    "import os; os.environ['HOME'] = '/nowhere'": ("probe_state", "open"),
    "import os, time\nif os.fork() == 0: time.sleep(60)": ("probe_forked", "devices"),
    "import subprocess; subprocess.Popen(['sleep', '60'])": ("probe_forked", "devices"),
    "import atexit, os; atexit.register(os.abort)": ("probe_aborted", "gate"),
    "x = bytearray(6 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1": ("probe_memory", "open"),
    "import nobody": ("", ""),  # the core's word
    "raise KeyError('x')": ("", ""),
    "": ("", ""),
}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setenv("ANYHAL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "chips").mkdir()
    count = iter(range(9))

    def make(deed: str) -> Stranger:
        name = f"pychip{next(count)}"
        file = new_backend(name, "python", tmp_path / "chips") / "chip.py"
        file.write_text(file.read_text() + f"\n\n{deed}\n")
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        return Stranger(file, sha256, name, python=True)

    return make


@pytest.mark.parametrize("deed", DEEDS)
def test_what_it_does_at_load_is_refused_by_kind(
    make: Make, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    quick = any(word in deed for word in ("sleep(60)", "while"))
    monkeypatch.setenv("ANYHAL_PROBE_SECONDS", "1" if quick else "30")
    monkeypatch.setattr(probe, "_MEMORY_BYTES", 1 << 30)
    monkeypatch.setattr("anyhal.runtime.probing._MEMORY_BYTES", 1 << 30)
    stranger = make(deed)
    found = verdict(stranger)
    assert (found.code, found.stage) == DEEDS[deed], found
    kept = probe.path_of(stranger.key)
    assert kept.is_file()
    probe._known.clear()
    assert verdict(stranger) == found  # from the cache folder


def test_those_that_hang_do_not_add_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYHAL_PROBE_SECONDS", "2")
    began = time.monotonic()
    found = probe.verdicts([make("import time; time.sleep(60)") for _ in range(3)])
    assert [one.code for one in found] == ["probe_timeout"] * 3
    assert time.monotonic() - began < 3 * 3.5


def test_a_system_that_changes_meanwhile_is_no_failure(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when ldconfig writes its cache, or the package is installed anew."""
    changes = iter(range(99))
    monkeypatch.setattr(probe, "_machine", lambda: f"machine {next(changes)}")
    assert [one.code for one in probe.verdicts([make(""), make("import os; os.abort()")])] == [
        "",
        "probe_aborted",
    ]


def test_a_file_that_was_changed_is_said(make: Make) -> None:
    stranger = make("")
    stranger.library.write_text("import os; os.abort()\n")
    assert verdict(stranger).code == "hash_mismatch"


def test_a_program_goes_on_without_it(make: Make) -> None:
    stranger = make("import os; os.abort()")
    environment = os.environ | {"ANYHAL_BACKEND_PATH": str(stranger.library.parents[1])}
    code = "from anyhal_command import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "devices", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and '"cpu:0"' in done.stdout, done.stderr
    code = "import anyhal as hal; hal.load_backend('pychip0', instance='named')"
    for settings, words in (({}, "it called abort() while"), ({"ANYHAL_PROBE": "off"}, "")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment | settings,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert words in done.stderr and (done.returncode < 0) is (not words), done.stderr
