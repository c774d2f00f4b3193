"""Public failure reports about planted libraries and variables that become paths, by id.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from loading import backend, cc, kit, play, require_open, row

import anyhal

NOBODY = 65534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

LIST = """
import anyhal as hal
from anyhal.runtime.device import found, facts
facts()
for r in found().backends:
    stop = r.stages.first_failure
    print(r.name, stop.code if stop else "ok", stop.detail if stop else "")
print("searched", found().searched)
for note in found().notes:
    print("note", note)
"""


def planted(folder: Path) -> Path:
    """A vendor's library that marks that it ran."""
    text = (
        "#include <stdio.h>\n#include <stdlib.h>\n__attribute__((constructor)) static void it(void)"
        '{ FILE* f = fopen(getenv("MARK"), "a"); if (f) fputs("planted\\n", f), fclose(f); }\n'
    )
    folder.mkdir(parents=True, exist_ok=True)
    return cc(text, folder / "libkit.so.3", "-Wl,-soname,libkit.so.3")


def test_sec_02_a_planted_vendor_library_is_not_loaded(tmp_path: Path) -> None:
    here, public, script = (tmp_path / name for name in ("cwd", "public", "script"))
    for folder in (here, public, script):
        planted(folder)
    public.chmod(0o777)
    absent = tmp_path / "nowhere"
    rows = row(absent, more='package = "no-such-kit"')
    backend(tmp_path / "b", "chip", rows)
    program = script / "program.py"
    program.write_text("import anyhal as hal\nprint(hal.device('chip'))\n")
    mark = tmp_path / "mark"
    env = {**os.environ, "PATH": f"{public}:{os.environ['PATH']}", "MARK": str(mark)}
    env |= {"ANYHAL_BACKEND_PATH": str(tmp_path / "b"), "ANYHAL_PROBE": "off"}
    done = subprocess.run([sys.executable, str(program)], cwd=here, env=env, capture_output=True,
                          text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0 and "chip:0" in done.stdout, done.stderr
    assert mark.read_text() == "constructed chip\n" and "kit -" not in done.stderr


def test_sec_02_a_vendors_folder_that_everybody_can_write_is_not_used(tmp_path: Path) -> None:
    open_to_all = tmp_path / "opt"
    kit(open_to_all, 1)
    open_to_all.chmod(0o777)
    backend(tmp_path / "b", "chip", row(open_to_all, more="required = true"))
    done = play(LIST, path=tmp_path / "b")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("chip ")]
    assert "can be written by everybody" in line and str(open_to_all) in line
    open_to_all.chmod(0o755)
    assert "chip ok" in play(LIST, path=tmp_path / "b").stdout


def test_sec_02_a_folder_of_backends_or_one_above_it_that_everybody_can_write(
    tmp_path: Path,
) -> None:
    above = tmp_path / "above"
    backend(above / "b", "chip")
    above.chmod(0o777)
    mark = tmp_path / "mark"
    done = play(LIST, path=above / "b", MARK=str(mark))
    assert f"chip untrusted {above} can be written by everybody" in done.stdout
    assert not mark.exists()
    above.chmod(0o1777)  # as /tmp: others cannot replace what is mine
    assert "chip ok" in play(LIST, path=above / "b", MARK=str(mark)).stdout


def test_sec_03_a_relative_path_is_refused_and_an_override_is_logged(tmp_path: Path) -> None:
    backend(tmp_path, "chip")
    done = play(LIST, path=Path("relative"), cwd=tmp_path)
    assert done.returncode == 1 and "ANYHAL_BACKEND_PATH='relative'" in done.stderr
    assert "it is a relative path" in done.stderr or "is a relative path" in done.stderr
    done = play(LIST, path=tmp_path, ANYHAL_LOG="info")
    assert f"info: looking for backends in {tmp_path} first (ANYHAL_BACKEND_PATH)" in done.stderr
    assert "looking for" not in play(LIST, path=tmp_path).stderr


def test_sec_03_a_file_that_is_not_there_is_a_note(tmp_path: Path) -> None:
    done = play(LIST, path=tmp_path / "gone")
    assert f"note looking for backends in {tmp_path / 'gone'}" in done.stdout


@only_root
def test_sec_03_what_belongs_to_another_user_is_refused(tmp_path: Path) -> None:
    folder = backend(tmp_path, "chip")
    os.chown(folder / "libchip.so", NOBODY, NOBODY)
    done = play(LIST, path=tmp_path)
    assert "chip untrusted" in done.stdout and f"belongs to user {NOBODY}" in done.stdout


@only_root
def test_sec_03_a_process_with_more_rights_ignores_variables_and_says_so(tmp_path: Path) -> None:
    backend(tmp_path, "chip")
    mark = tmp_path / "mark"
    code = f"import os\nos.setresuid({NOBODY}, 0, 0)\n{LIST}"  # as a set-uid program of root
    done = play(code, path=tmp_path, MARK=str(mark))
    assert done.returncode == 0, done.stderr
    found = [line.partition(" ")[0] for line in done.stdout.partition("searched")[0].splitlines()]
    assert "cpu" in found and "chip" not in found and not mark.exists()
    ignored = "ANYHAL_BACKEND_PATH, ANYHAL_PROBE, installed plugins are not looked at"
    assert ignored in done.stdout
    assert "more rights than its user" in done.stderr  # a warning, whatever ANYHAL_LOG says


@only_root
def test_sec_03_file_capabilities_count_as_more_rights(tmp_path: Path) -> None:
    import shutil

    if shutil.which("setcap") is None:
        pytest.skip("setcap is not installed")
    program = tmp_path / "python"
    shutil.copy(os.path.realpath(sys.executable), program)
    if subprocess.run(["setcap", "cap_net_raw=ep", str(program)], check=False).returncode:
        pytest.skip("this file system keeps no capabilities")
    code = "import sys\nsys.path[:0] = {}\nfrom anyhal import settings as s\n"
    code += "print(s.environment_is_trusted())"
    tmp_path.chmod(0o755)
    require_open(tmp_path)
    require_open(Path(anyhal.__file__).parent)
    done = subprocess.run([str(program), "-c", code.format(sys.path)], user=NOBODY, group=NOBODY,
                          extra_groups=[], capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.stdout == "False\n", done.stderr


@only_root
def test_sec_02_as_an_unprivileged_user() -> None:
    """Root sees everything; another user does not, and is told."""
    import shutil
    import tempfile

    require_open(Path(anyhal.__file__).parent)
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        place.chmod(0o755)
        locked, strange = backend(place / "x", "locked"), backend(place / "x", "strange")
        good = backend(place / "x", "good")
        os.chown(strange, 1234, 1234)
        locked.chmod(0o700)
        # The interpreter's own folders may be closed to others, so its modules come first.
        head = "import os, ctypes, email.parser, importlib.metadata, tomllib, traceback\n"
        head += "import dataclasses, inspect, difflib, subprocess, glob, anyhal\n"
        head += "import anyhal.cli.doctor_machine, anyhal.sdk.chip, anyhal.runtime.probing\n"
        drop = f"os.setgroups([])\nos.setgid({NOBODY})\nos.setuid({NOBODY})\n"
        code = head + drop + LIST
        done = play(code, path=place / "x", ANYHAL_CACHE=str(place / "none"))
        assert done.returncode == 0, done.stderr
        assert f"strange untrusted {strange} belongs to user 1234" in done.stdout
        assert f"note looking for backends in {locked}" in done.stdout
        assert "Permission denied" in done.stdout and "good ok" in done.stdout, good
    finally:
        shutil.rmtree(place)
