"""Public failure reports about packaging (PKG-*): what is installed, linked, needed and said.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

import anyhal
from anyhal.runtime.elf import CLibrary, ElfFile, c_library_refusal, glibc_needed, read_elf

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(anyhal.__file__).resolve().parent
BUDGET_BYTES = 15_000_000
# What every Linux with glibc 2.28 has, as the policy manylinux_2_28 lists it.
SYSTEM = {
    *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"),
    *("libstdc++.so.6", "libgcc_s.so.1"),
    *("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"),
}
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}

pytestmark = pytest.mark.skipif(
    not (PACKAGE / "libanyhal.so").is_file(), reason="anyhal is not installed; pip install ."
)


def binaries() -> list[Path]:
    """Every ELF file of the package."""
    files = (path for path in sorted(PACKAGE.rglob("*")) if path.is_file())
    return [path for path in files if path.open("rb").read(4) == b"\x7fELF"]


def python(script: str, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {name: value for name, value in os.environ.items() if not name.startswith("ANYHAL_")}
    return subprocess.run(
        [*command, sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        env={**given, **environment},
    )


# ----------------------------------------------------------------- PKG-01: wheels outgrow the index


def test_PKG_01_the_package_is_small() -> None:
    """Packed as a wheel is; what a chip's vendor ships comes in packages of its own."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(PACKAGE.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(PACKAGE.parent))
        rows = sorted(archive.infolist(), key=lambda row: -row.compress_size)
    largest = [f"{row.compress_size:>9} {row.file_size:>9} {row.filename}" for row in rows[:12]]
    print("\n".join([f"{packed.tell()} bytes packed, of them:", *largest]))
    assert packed.tell() <= BUDGET_BYTES, "\n".join(largest)


def test_PKG_01_no_vendor_library_is_inside() -> None:
    names = [path.name for path in PACKAGE.rglob("*") if ".so" in path.name]
    ours = re.compile(r"(libanyhal(_[a-z0-9_]+)?|_core\.[\w-]+)\.so")
    assert names and all(ours.fullmatch(name) for name in names), names


def test_PKG_01_every_binary_runs_on_the_oldest_system() -> None:
    """What the policy manylinux_2_28 asks for, read from the files; auditwheel says the same."""
    contents = json.loads((PACKAGE / "_contents.json").read_text())
    if not contents["oldest_glibc"]:
        pytest.skip("this build is for the machine's own glibc: ANYHAL_OLD_GLIBC is off")
    assert len(binaries()) >= 9
    for path in binaries():
        read = read_elf(path)
        assert set(read.needed) <= SYSTEM | {"libanyhal.so"}, (path.name, read.needed)
        assert read.runpath in ("", "$ORIGIN", "$ORIGIN/..") and not read.rpath, path.name
        assert not read.executable_stack, path.name
        for need in read.versions:
            kind, _, number = need.version.partition("_")
            assert tuple(map(int, number.split("."))) <= NEWEST.get(kind, (99,)), (
                f"{path.name} needs {need.version} of {need.file}; add the new symbol to"
                " cmake/old_glibc.cmake"
            )


# ---------------------------------------------------------------------- PKG-02: two OpenMP runtimes

OPENMP = re.compile(r"/lib(?:[gi]?omp|iomp5)[\w.-]*\.so")
ORDERS = """
import sys
for name in sys.argv[1].split(","):
    __import__(name)
import numpy as np, anyhal as hal
x = np.arange(262144, dtype=np.float32).reshape(512, 512) % 7
product = hal.matmul(hal.asarray(x), hal.asarray(x)).numpy()
assert (product == x @ x).all()
if "torch" in sys.modules:
    import torch
    assert (torch.from_numpy(x) @ torch.from_numpy(x)).numpy().tolist() == (x @ x).tolist()
    assert (hal.matmul(hal.asarray(x), hal.asarray(x)).numpy() == x @ x).all()
print("done")
"""


def test_PKG_02_neither_core_nor_backends_link_openmp() -> None:
    for path in binaries():
        assert not [name for name in read_elf(path).needed if OPENMP.match("/" + name)], path.name


def test_PKG_02_the_core_alone_brings_no_openmp() -> None:
    script = "import anyhal; print(open('/proc/self/maps').read())"
    done = python(script)
    assert done.returncode == 0, done.stderr
    assert not OPENMP.findall(done.stdout)


@pytest.mark.parametrize("order", ["numpy,anyhal", "anyhal,numpy"])
def test_PKG_02_import_orders(order: str) -> None:
    done = python(ORDERS.replace("sys.argv[1]", repr(order)))
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("order", ["torch,anyhal", "anyhal,torch", "numpy,torch,anyhal"])
def test_PKG_02_import_orders_with_torch(order: str) -> None:
    """Torch brings an OpenMP runtime of its own, and oneDNN another: both work, nothing aborts."""
    done = python(ORDERS.replace("sys.argv[1]", repr(order)))
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


# ------------------------------------------------ PKG-03: a wheel that lacks what its name promises


def configure(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    cmake = shutil.which("cmake") or pytest.skip("cmake is not on PATH")
    command = [cmake, "-S", str(ROOT), "-B", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    "option", ["ANYHAL_CUDA=ON", "ANYHAL_PYTHONS=OFF", "ANYHAL_CHIPS:STRING=x"]
)
def test_PKG_03_an_unknown_option_stops_the_build(option: str, tmp_path: Path) -> None:
    done = configure(tmp_path, f"-D{option}")
    name = option.partition("=")[0].partition(":")[0]
    assert done.returncode != 0
    assert f"there is no option {name}; known: ANYHAL_PYTHON" in " ".join(done.stderr.split())


def test_PKG_03_the_package_holds_what_is_promised() -> None:
    """The list that the build wrote, against the chips of README.md and the files themselves."""
    contents = json.loads((PACKAGE / "_contents.json").read_text())
    table = (ROOT / "README.md").read_text().partition("## Chips")[2].partition("## ")[0]
    promised = set(re.findall(r"^\| \[`(\w+)`\]", table, re.MULTILINE))
    assert contents["schema"] == 1 and set(contents["backends"]) == promised
    assert contents["machine"] == os.uname().machine
    rows = (PACKAGE / "_build_hashes.sha256").read_text().splitlines()
    hashes = {file: sha256 for sha256, file in map(str.split, rows)}
    for name, row in contents["backends"].items():
        library = PACKAGE / row["library"]
        manifest = tomllib.loads((library.parent / "backend.toml").read_text())
        named = manifest.get("library") or manifest["python"]
        assert (manifest["name"], named) == (name, library.name)
        assert library.stat().st_size == row["bytes"] and hashes[row["library"]] == row["sha256"]
        beside = {str(p.relative_to(library.parent)) for p in library.parent.rglob("*")}
        assert {*row["files"], "backend.toml", library.name} <= beside
    if contents["machine"] == "x86_64":
        assert contents["backends"]["cpu"]["code"] == ["baseline", "avx2", "avx512"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="registers of x86-64")
def test_PKG_03_the_listed_code_is_really_there() -> None:
    objdump = shutil.which("objdump") or pytest.skip("objdump is not on PATH")
    library = PACKAGE / "backends" / "cpu" / "libanyhal_cpu.so"
    command = f"{objdump} -d --no-show-raw-insn {library} | grep -oE '%[xyz]mm' | sort | uniq -c"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    counts = {name: int(count) for count, name in map(str.split, done.stdout.splitlines())}
    assert min(counts[name] for name in ("%xmm", "%ymm", "%zmm")) > 1000, counts


# ----------------------------------- PKG-04: the error names the library that exists, not the other

LOADS = """
import sys
import anyhal as hal
try:
    print("loaded", hal.load_backend("tiny", instance="mine"))
except hal.BackendLoadError as why:
    print("refused", why)
"""
Plugin = Callable[..., Path]


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    """Builds a backend that needs libabsent.so.1, which is then somewhere or nowhere."""
    compiler = shutil.which("gcc") or pytest.skip("no gcc on PATH")
    folder, elsewhere = tmp_path / "tiny", tmp_path / "elsewhere"

    def build(*options: str) -> Path:
        folder.mkdir()
        elsewhere.mkdir()
        (tmp_path / "absent.c").write_text("int absent(void) { return 1; }\n")
        near = elsewhere / "libabsent.so.1"
        shared = [compiler, "-shared", "-fPIC"]
        command = [*shared, str(tmp_path / "absent.c"), "-Wl,-soname,libabsent.so.1"]
        subprocess.run([*command, "-o", str(near)], check=True)
        command = [*shared, "-std=c11", "-fvisibility=hidden", f"-I{ROOT / 'include'}"]
        command += ["-DCASE=RIGHT", str(ROOT / "tests/core/tiny_backend.c"), *options]
        command += ["-Wl,--no-as-needed", str(near), "-o", str(folder / "libanyhal_tiny.so")]
        subprocess.run(command, check=True)
        lines = {"name": "tiny", "vendor": "test", "library": "libanyhal_tiny.so", "abi": "0.3"}
        lines |= {"licence": "none", "summary": "needs a library"}
        text = "".join(f'{key} = "{value}"\n' for key, value in lines.items())
        (folder / "backend.toml").write_text(text)
        return near

    return build


@pytest.mark.parametrize("where", ["nowhere", "another folder", "PATH only"])
def test_PKG_04_the_missing_dependency_is_named(where: str, plugin: Plugin, tmp_path: Path) -> None:
    near = plugin()
    given = {"ANYHAL_BACKEND_PATH": str(tmp_path / "tiny")}
    if where == "nowhere":
        near.unlink()
    if where == "PATH only":
        given["PATH"] = f"{near.parent}{os.pathsep}{os.environ['PATH']}"
    done = python(LOADS, **given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused") and "libabsent.so.1" in done.stdout
    # The loader's words about the other one, which is there.
    assert "libanyhal_tiny.so: cannot open" not in done.stdout


def test_PKG_04_what_lies_beside_the_backend_is_found(plugin: Plugin, tmp_path: Path) -> None:
    near = plugin("-Wl,-rpath,$ORIGIN")
    near.rename(tmp_path / "tiny" / near.name)
    done = python(LOADS, ANYHAL_BACKEND_PATH=str(tmp_path / "tiny"))
    assert done.stdout.startswith("loaded"), done.stdout + done.stderr


# ------------------------------------------------------------------- PKG-05: musl, and an old glibc


def test_PKG_05_a_backend_for_a_newer_glibc_is_refused(plugin: Plugin, tmp_path: Path) -> None:
    near = plugin("-Wl,-rpath,$ORIGIN", "-fno-builtin")
    near.rename(tmp_path / "tiny" / near.name)
    library = tmp_path / "tiny" / "libanyhal_tiny.so"
    library.write_bytes(library.read_bytes().replace(b"GLIBC_2.", b"GLIBC_9."))
    read = read_elf(library)
    assert glibc_needed(read) > (9,)
    assert c_library_refusal(read).startswith("it is built for glibc >= 9.")
    done = python(LOADS, ANYHAL_BACKEND_PATH=str(tmp_path / "tiny"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused") and re.search("(?i)glibc(_| >= )9", done.stdout)


def test_PKG_05_our_own_binaries_under_other_c_libraries() -> None:
    musl, oldest, older = CLibrary("musl"), CLibrary("glibc", (2, 28)), CLibrary("glibc", (2, 5))
    for path in binaries():
        read: ElfFile = read_elf(path)
        assert re.search(r"built for glibc >= 2\.\d+, .* runs musl", c_library_refusal(read, musl))
        assert "this process runs glibc 2.5" in c_library_refusal(read, older), path.name
        if json.loads((PACKAGE / "_contents.json").read_text())["oldest_glibc"]:
            assert c_library_refusal(read, oldest) == "", path.name


@pytest.mark.skipif(shutil.which("musl-gcc") is None, reason="musl-gcc is not here: musl-tools")
def test_PKG_05_a_real_backend_for_musl_and_ours_in_a_real_process_of_musl(tmp_path: Path) -> None:
    """Theirs is refused by name before it is opened; ours is refused by musl's loader, in words."""
    library, loads = tmp_path / "libanyhal_tiny.so", tmp_path / "loads"
    command = ["musl-gcc", "-std=c11", "-shared", "-fPIC", f"-I{ROOT / 'include'}", "-DCASE=RIGHT"]
    command += [str(ROOT / "tests/core/tiny_backend.c"), "-o", str(library)]
    subprocess.run(command, check=True)
    assert c_library_refusal(read_elf(library)).startswith("it is built for musl (it needs libc.so")
    loads.with_suffix(".c").write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\n"
        "int main(int n, char** name) { (void)n;\n"
        '  puts(dlopen(name[1], RTLD_NOW) ? "opened" : dlerror()); return 0; }\n'
    )
    subprocess.run(["musl-gcc", f"{loads}.c", "-o", str(loads)], check=True)
    for ours in (PACKAGE / "libanyhal.so", *PACKAGE.glob("_core*.so")):
        done = subprocess.run([str(loads), str(ours)], capture_output=True, text=True)
        assert done.returncode == 0 and "Error loading shared library" in done.stdout, ours.name


# --------------------------------------------------------- PKG-06: a compiler is needed at run time


def isolation() -> list[str]:
    """A command that takes the network away, where this user may do that."""
    unshare = shutil.which("unshare")
    for flags in ("-n", "-rn"):
        if (
            unshare
            and subprocess.run([unshare, flags, "true"], capture_output=True).returncode == 0
        ):
            return [unshare, flags]
    return []


def test_PKG_06_every_op_without_compiler_cache_or_network() -> None:
    """The op suite's known answers where PATH is empty and the home folder cannot hold anything."""
    command = [*isolation(), sys.executable, "-m", "pytest", "-q", "-n", "0"]
    command += ["-p", "no:cacheprovider", str(ROOT / "tests/ops/test_property.py")]
    command += ["-k", "samples_meet and not cpu_ref and not dayone"]
    kept = {"PYTHONPATH", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"}
    given = {name: value for name, value in os.environ.items() if name in kept}
    given |= {"PATH": "/nonexistent", "HOME": "/dev/null", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=given, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 50, done.stdout[-500:]


def test_PKG_06_commands_work_on_a_system_that_cannot_be_written() -> None:
    script = "from anyhal.cli import main; main(['devices', '--json'])"
    done = python(script, HOME="/dev/null", XDG_CACHE_HOME="", PATH="/nonexistent")
    assert done.returncode == 0, done.stderr
    assert {"cpu:0", "cpu_ref:0"} <= {row["name"] for row in json.loads(done.stdout)["devices"]}
    shown = python("from anyhal.cli import main; main(['cache'])", HOME="/dev/null")
    assert shown.returncode == 0, shown.stderr


NO_GOMP = """
import sys
import numpy as np, anyhal as hal
(device,) = hal.load_backend("cpu", instance="slim", settings={"onednn_library": sys.argv[1]})
print(device.notes())
x = np.arange(65536, dtype=np.float32).reshape(256, 256) % 5
y = hal.matmul(hal.asarray(x, device="slim:0"), hal.asarray(x, device="slim:0")).numpy()
assert (y == x @ x).all()
"""


def test_a_slim_system_without_libgomp(tmp_path: Path) -> None:
    """oneDNN is there, the OpenMP runtime that it needs is not: slower, said, and right."""
    try:
        listed = metadata.distribution("onednn-cpu-gomp")
    except metadata.PackageNotFoundError:
        pytest.skip("oneDNN is not installed")
    names = [file for file in listed.files or () if file.name == "libdnnl.so.3"]
    library = Path(str(listed.locate_file(names[0])))
    slim = tmp_path / "libdnnl.so.3"
    slim.write_bytes(library.read_bytes().replace(b"libgomp.so.1\0", b"libgone.so.1\0"))
    done = python(NO_GOMP.replace("sys.argv[1]", repr(str(slim))))
    assert done.returncode == 0, done.stderr
    for said in (done.stdout, done.stderr):  # in the device's notes, and once as a warning
        assert "oneDNN is not used" in said and "libgone.so.1: cannot open" in said
        assert "libgomp1" in said


HIDDEN = """
for file in $(ldconfig -p | sed -n 's/.*libgomp.so.1.*=> //p'); do
  mount --bind /dev/null "$(readlink -f "$file")" || exit 9
done
exec "$@"
"""
LARGE = """
import numpy as np, anyhal as hal
x = np.arange(512 * 512, dtype=np.float32).reshape(512, 512) % 5
for _ in range(2):
    y = hal.matmul(hal.asarray(x, device="cpu:0"), hal.asarray(x, device="cpu:0")).numpy()
assert (y == x @ x).all()
"""


def test_a_system_that_has_no_libgomp_computes_and_says_what_is_missing() -> None:
    """The library as installed, with the system's libgomp hidden from this process alone."""
    unshare = shutil.which("unshare")
    for flags in ("-m", "-rm"):
        command = [str(unshare), flags, "sh", "-c", HIDDEN, "sh", sys.executable, "-c"]
        if unshare and subprocess.run([*command, ""], capture_output=True).returncode == 0:
            break
    else:
        pytest.skip("this user may hide no file, not even in a namespace of its own")
    done = subprocess.run([*command, LARGE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (line,) = [text for text in done.stderr.splitlines() if "oneDNN is not used" in text]
    assert "libgomp.so.1" in line and "libgomp1" in line
