"""What an import and a first call may cost: modules, threads, libraries, questions to the system.
SPDX-License-Identifier: Apache-2.0

Times are in benchmarks/startup.py; here stands what makes them, which no busy machine disturbs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anyhal.runtime.discovery import package_folder
from other_build import copy_as_other_build

MATMUL = "x = np.ones((8, 8), np.float32)\nhal.matmul(x, x)\n"
# Each costs milliseconds, and a small call on arrays of plain dtypes needs none of them.
HEAVY = [
    *("importlib.metadata", "email", "tomllib", "hashlib", "_hashlib", "pkgutil", "rich", "typer"),
    *("numpy.random", "ml_dtypes", "anyhal.conformance", "anyhal.dispatch.known_answers"),
    *("anyhal.routing.replay", "anyhal.routing.explain", "anyhal.ops.attention"),
    *(
        "dataclasses",
        "difflib",
        "threading",
        "glob",
        "anyhal.runtime.probe",
        "anyhal.runtime.queue",
        "cryptography",
    ),
    *("anyhal.runtime.kernels", "anyhal.runtime.native", "anyhal.runtime.einsum"),
    *("pathlib", "urllib", "ipaddress", "fnmatch", "json", "zlib"),
]
LOADED = "import sys\nprint([m for m in {heavy!r} if m in sys.modules])\n"


def run(code: str, cache: Path, **more: str) -> str:
    env = {**os.environ, "ANYHAL_CACHE": str(cache), **more}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder in which a first matmul has left what it found out, and a second one what was
    too young for the first to rely on."""
    cache = tmp_path_factory.mktemp("cache")
    for wait_s in (2.1, 0):
        run(f"import numpy as np, anyhal as hal\n{MATMUL}", cache)
        time.sleep(wait_s)
    return cache


def test_import_reads_no_module_that_it_does_not_need(tmp_path: Path) -> None:
    code = "import numpy as np, anyhal as hal\n" + LOADED.format(heavy=HEAVY)
    assert run(code, tmp_path) == "[]\n"
    code = "import anyhal, sys\nprint(sum(m.startswith('anyhal.ops.') for m in sys.modules))"
    assert int(run(code, tmp_path)) < 10  # of seventy files: what all ops are made of


def test_a_first_matmul_reads_no_module_that_it_does_not_need(warm: Path) -> None:
    code = f"import numpy as np, anyhal as hal\n{MATMUL}" + LOADED.format(heavy=HEAVY)
    assert run(code, warm) == "[]\n"


def test_plg_07_import_opens_nothing_starts_nothing_and_asks_for_nothing(tmp_path: Path) -> None:
    """No library but the core's, no thread, no environment variable, no file but modules."""
    code = """
import json, os, sys, numpy
threads = len(os.listdir("/proc/self/task"))
asked, opened = [], []
class Environment(dict):
    def __getitem__(self, name): asked.append(name); return dict.__getitem__(self, name)
    def get(self, name, *default): asked.append(name); return dict.get(self, name, *default)
    def __contains__(self, name): asked.append(name); return dict.__contains__(self, name)
os.environ = Environment(os.environ)
os.getenv = os.environ.get
def note(event, args):
    if event == "open" and not str(args[0]).endswith((".py", ".pyc", ".so")):
        opened.append(str(args[0]))
sys.addaudithook(note)
import anyhal
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "libanyhal_" in line}
print(json.dumps([
    len(os.listdir("/proc/self/task")) - threads,
    sorted(libraries), asked, opened[:-1] if opened else [], len(anyhal._core.devices()),
]))
"""
    threads, libraries, asked, opened, devices = json.loads(run(code, tmp_path))
    assert threads == 0 and libraries == [] and devices == 0
    assert [name for name in asked if name.startswith(("ANYHAL", "XDG"))] == [] == opened


CALLS = """
import os, sys, numpy as np, anyhal as hal
x = np.ones((8, 8), np.float32)
a = hal.asarray(x)
out = hal.matmul(a, a)
def calls():
    for _ in range(100):
        hal.matmul(a, a, out=out)
        a @ a
        hal.add(x, a)
        hal.asarray(x)
        hal.empty((4, 4))
        out.numpy()
calls()
"""


def test_no_call_after_the_first_walks_folders_or_opens_files(warm: Path) -> None:
    code = CALLS + (
        "seen = []\n"
        "sys.addaudithook(lambda event, args: seen.append(event)"
        " if event in ('open', 'os.listdir', 'os.scandir', 'import', 'ctypes.dlopen') else None)\n"
        "counted = []\n"
        "for name in ('stat', 'lstat', 'readlink', 'access', 'getenv'):\n"
        "    real = getattr(os, name)\n"
        "    setattr(os, name, lambda *a, real=real, **k: (counted.append(a), real(*a, **k))[1])\n"
        "calls()\nprint(seen, counted)\n"
    )
    assert run(code, warm) == "[] []\n"


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace, which sees native calls")
def test_no_call_after_the_first_asks_the_system_for_files(warm: Path, tmp_path: Path) -> None:
    """The native side too: nothing between two marks but what computes."""
    log = tmp_path / "calls.txt"
    marks = "os.path.exists('/begin-mark')\ncalls()\nos.path.exists('/end-mark')\n"
    watched = "trace=open,openat,stat,lstat,newfstatat,statx,access,readlink,getdents64"
    command = ["strace", "-f", "-e", watched, "-o", str(log), sys.executable, "-c", CALLS + marks]
    env = {**os.environ, "ANYHAL_CACHE": str(warm)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    if not log.exists() or "begin-mark" not in log.read_text():
        pytest.skip(f"this machine lets nobody be traced: {done.stderr[-200:]}")
    between = log.read_text().partition("/begin-mark")[2].partition("/end-mark")[0]
    assert [line for line in between.splitlines()[1:-1] if "(" in line] == []


def beside(folder: Path, name: str, rank: int, machine: str = "") -> Path:
    """A stranger: the smallest backend under another name, outside the package."""
    place = folder / "backends" / name
    place.mkdir(parents=True, mode=0o755)
    source = Path(package_folder()) / "backends" / "dayone"
    lines = [
        line
        for line in (source / "backend.toml").read_text().splitlines()
        if not line.startswith(("name", "rank", "machine"))
    ]
    here = f'machine = ["{machine or os.uname().machine}"]'
    text = "\n".join([f'name = "{name}"', f"rank = {rank}", *lines, here, ""])
    (place / "backend.toml").write_text(text.replace("libanyhal_dayone.so", f"lib{name}.so"))
    (library,) = source.glob("*.so")
    copy_as_other_build(library, place / f"lib{name}.so")
    return place.parent


MAPPED = (
    "\nmaps = open('/proc/self/maps').read()\n"
    "print([n for n in {names} if f'lib{{n}}.so' in maps or f'libanyhal_{{n}}.so' in maps])"
)


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("hal.zeros(3)", []),
        ("hal.device('cpu')", []),
        ("hal.device('quiet')", ["quiet"]),
        ("with hal.use(allow_uncertified=('quiet',)):\n    hal.zeros(3)", ["quiet"]),
        ("hal.devices()", ["loud", "quiet"]),
    ],
)
def test_a_stranger_is_opened_when_it_is_named_or_listed(
    tmp_path: Path, warm: Path, code: str, loaded: list[str]
) -> None:
    path = beside(tmp_path, "loud", 1000)
    beside(tmp_path, "quiet", 1)
    beside(tmp_path, "elsewhere", 1000, machine="s390x")  # what is not here is never opened
    end = MAPPED.format(names=["elsewhere", "loud", "quiet"])
    found = run(f"import anyhal as hal\n{code}{end}", warm, ANYHAL_BACKEND_PATH=str(path))
    assert found.strip() == str(loaded)


def test_a_choice_opens_no_backend_of_a_lower_rank(warm: Path) -> None:
    end = MAPPED.format(names=["cpu", "cpu_ref", "dayone", "opencl", "pjrt"])
    assert run(f"import anyhal as hal\nhal.zeros(3){end}", warm).strip() == "['cpu']"


def test_what_is_chosen_unnamed_is_what_all_devices_would_give(tmp_path: Path) -> None:
    code = (
        "import anyhal as hal\nfirst = hal.device().name\n"
        "best = hal.devices()[0].name\nprint(first == best == hal.device().name, first)"
    )
    for more in ({}, {"ANYHAL_VISIBLE_DEVICES": "dayone,cpu_ref"}):
        assert run(code, tmp_path, **more).startswith("True"), more


def test_a_changed_library_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    """Discovery reads no library any more; who opens one does."""
    package = tmp_path / "anyhal"
    shutil.copytree(package_folder(), package)
    with next((package / "backends" / "cpu").glob("*.so")).open("ab") as library:
        library.write(b"x")
    code = (
        "import anyhal as hal\nprint(hal.device().name)\n"
        "try:\n    hal.device('cpu')\n"
        "except hal.BackendLoadError as why:\n    print(why.stage, why)"
    )
    said = run(code, tmp_path / "cache", PYTHONPATH=str(tmp_path)).splitlines()
    assert said[0] not in ("cpu:0", "")
    assert said[1].startswith("trust") and "it was changed" in said[1]


def test_what_a_start_finds_out_is_kept_for_the_next_one(warm: Path) -> None:
    """What the self-test judges by is read by the first process alone."""
    code = (
        "import sys\nread = []\n"
        "sys.addaudithook(lambda event, args: read.append(str(args[0]))"
        " if event == 'open' and str(args[0]).endswith('.py') else None)\n"
        f"import numpy as np, anyhal as hal\nread.clear()\n{MATMUL}"
        "print([name for name in read if '/anyhal/conformance/' in name])"
    )
    run(code, warm)  # the installed files are older than this process by now
    assert run(code, warm) == "[]\n"


def test_what_comes_late_is_there_all_the_same(tmp_path: Path) -> None:
    code = """
import sys, anyhal as hal
from anyhal.runtime.missing import LATE
assert not {*LATE.values()} & {*sys.modules} and {*LATE} <= {*dir(hal)} & {*hal.__all__}
assert hal.einsum.__module__ == "anyhal.runtime.einsum" and hal.einsum is vars(hal)["einsum"]
assert [getattr(hal, name).__name__ for name in LATE] == [*LATE]
from anyhal import *
assert Graph is hal.Graph and kernel_limits is hal.kernel_limits
"""
    run(code, tmp_path)


def test_the_functions_look_as_they_did(tmp_path: Path) -> None:
    """Names, help and signatures, before anything was called and after."""
    code = """
import inspect, pydoc, anyhal as hal
def shown(): return (
    str(inspect.signature(hal.softmax)), hal.softmax.__doc__[:20], hal.softmax.__name__,
    hal.softmax.__module__, inspect.getsourcefile(inspect.unwrap(hal.softmax))[-12:],
    hal.softmax.spec.name, "softmax" in dir(hal), "softmax" in pydoc.render_doc(hal.softmax))
first = shown()
hal.softmax(hal.ones((2, 2)))
assert shown() == first, (first, shown())
assert "axis" in first[0] and first[4] == "functions.py" and first[5:] == ("softmax", True, True)
assert all(getattr(hal, name) is not None for name in hal.__all__)
"""
    run(code, tmp_path)
