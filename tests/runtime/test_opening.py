"""What was hashed is what is opened: files swapped, cut off and changed at the worst moment.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "field"))
from loading import backend, play

# The moment between the hash and the opening: `between` runs there.
BETWEEN = """
import anyhal as hal
from anyhal import _core
real = _core.load
def load(path, *rest):
    if "/chip/" in path:
        between(path)
    return real(path, *rest)
_core.load = load
def say():
    try:
        print(hal.device("chip"))
    except hal.BackendLoadError as why:
        print(why.stage, why.reason, why)
        print([(row.stage, row.status) for row in why.stages][3:6])
"""


def test_a_file_swapped_between_hash_and_opening_runs_nothing(tmp_path: Path) -> None:
    backend(tmp_path / "b", "chip")
    evil = backend(tmp_path / "elsewhere", "evil") / "libevil.so"
    mark = tmp_path / "mark"
    swap = f"import os, shutil\ndef between(path): shutil.copy('{evil}', path + '.new'); "
    swap += "os.replace(path + '.new', path)\n"
    done = play(f"{swap}{BETWEEN}say()\nsay()", path=tmp_path / "b", MARK=str(mark))
    lines = done.stdout.splitlines()
    assert lines[0].startswith("trust hash_mismatch") and "it was changed" in lines[0], done.stderr
    assert lines[1] == "[('trust', 'failed'), ('dependencies', 'ok'), ('open', 'skipped')]"
    assert lines[2:] == lines[:2]  # the first failure is kept
    assert not mark.exists()


def test_a_changed_library_of_this_build_runs_nothing(tmp_path: Path) -> None:
    """As a build's own: the hash is known beforehand."""
    folder = backend(tmp_path, "chip")
    mark = tmp_path / "mark"
    code = f"""
import anyhal as hal
from anyhal import _core
from anyhal.runtime.discovery import hash_of
from pathlib import Path
library = Path({str(folder / "libchip.so")!r})
wanted = hash_of(library)
with library.open("ab") as file:
    file.write(b"x")
try:
    _core.load(str(library), wanted, "chip", [])
except hal.BackendLoadError as why:
    print(why.stage, why.reason)
"""
    done = play(code, MARK=str(mark))
    assert done.stdout == "trust hash_mismatch\n", done.stderr
    assert not mark.exists()


def test_a_change_in_place_after_the_opening_has_no_effect(tmp_path: Path) -> None:
    folder = backend(tmp_path, "chip")
    code = f"""
import anyhal as hal
assert hal.device("chip").name == "chip:0"
with open({str(folder / "libchip.so")!r}, "r+b") as file:
    file.truncate(0)
print(hal.load_backend("chip", instance="again"))
hal.device("chip").native
maps = [line for line in open("/proc/self/maps") if "libchip.so" in line]
print(len({{line.split()[4] for line in maps}}), all("memfd:" in line for line in maps))
"""
    done = play(code, path=tmp_path)
    assert done.returncode == 0, done.stderr
    # Both instances are of one library: the copy is kept, not made again.
    assert done.stdout.splitlines() == ["[Device('again:0', uncertified)]", "1 True"]


def test_two_backends_in_turn_get_each_its_own_library(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        backend(tmp_path, name)
    code = """
import anyhal as hal
for name in ("one", "two", "three", "two"):
    copy = name + "x" + str(len(hal.devices()))
    print(hal.load_backend(name, instance=copy))
from anyhal import _core
names = ("/libone.so", "/libtwo.so", "/libthree.so")
print(sum(path.endswith(names) for path in _core.mapped_libraries()))
"""
    done = play(code, path=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("main ")]
    assert said[-4:] == ["main one", "main two", "main three", "main two"]
    assert done.stdout.splitlines()[-1] == "3"


def test_a_limit_of_file_sizes_is_a_sentence(tmp_path: Path) -> None:
    backend(tmp_path, "chip")
    code = "import resource as r\ndef between(path): r.setrlimit(r.RLIMIT_FSIZE, (999, 999))\n"
    done = play(f"{code}{BETWEEN}say()", path=tmp_path)
    assert done.stdout.startswith("open file_limit"), done.stderr
    assert "ulimit -f" in done.stdout


def test_no_room_to_map_it_is_a_sentence(tmp_path: Path) -> None:
    backend(tmp_path, "chip", "", "-DHUGE_BYTES=(1ll<<30)", "-mcmodel=large")
    limit = (
        "import resource\ndef between(path):\n"
        "    pages = int(open('/proc/self/statm').read().split()[0])\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (256 << 20),) * 2)\n"
    )
    done = play(f"{limit}{BETWEEN}say()", path=tmp_path)
    assert done.stdout.startswith("open open_failed"), done.stderr
    assert "llocate memory" in done.stdout or "failed to map" in done.stdout


def test_a_process_without_spare_descriptors_is_told(tmp_path: Path) -> None:
    backend(tmp_path, "chip")
    full = (
        "import os, resource\ndef between(path):\n"
        "    used = max(map(int, os.listdir('/proc/self/fd')))\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, used + 1))\n"
        "    while True:\n"
        "        try: os.dup(0)\n"
        "        except OSError: return\n"
    )
    done = play(f"{full}{BETWEEN}say()", path=tmp_path)
    assert done.stdout.startswith("trust unreadable"), done.stderr
    assert "Too many open files" in done.stdout


def test_a_backend_learns_its_own_folder(tmp_path: Path) -> None:
    folder = backend(tmp_path, "chip", '[settings]\nkit = "ANYHAL_CACHE"\n')
    code = "import anyhal as hal\nn = hal.device('chip')._instance\nprint(n.path, n.name)"
    done = play(code, path=tmp_path)
    assert done.stdout == f"{folder / 'libchip.so'} chip\n", done.stderr
    assert "'folder' was given" not in done.stderr
