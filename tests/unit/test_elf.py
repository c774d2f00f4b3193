"""What a library file says of itself, read without opening it; and files that lie or are cut off.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anyhal.runtime import elf
from anyhal.runtime.elf import CLibrary, ElfError, ElfFile, VersionNeed, read_elf

SOURCE = """
#include <math.h>
#include <stdlib.h>
struct Counter { static inline int value = 0; };
extern "C" int visible(double x) { return Counter::value++ + (int)exp(x); }
extern "C" __attribute__((visibility("hidden"))) int concealed() { return 1; }
extern "C" __attribute__((weak)) int perhaps() { return getenv("HOME") != 0; }
static __attribute__((constructor)) void first() { Counter::value = 1; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with one symbol of each kind."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ on PATH")
    folder = tmp_path_factory.mktemp("elf")
    (folder / "it.cc").write_text(SOURCE)
    flags = ["-shared", "-fPIC", "-O0", "-fno-builtin", "-nostartfiles", "-Wl,--build-id=sha1"]
    names = ["-Wl,-soname,libit.so.3", "-Wl,-rpath,$ORIGIN/beside", "-Wl,--enable-new-dtags"]
    made = folder / "libit.so"
    command = [compiler, *flags, *names, str(folder / "it.cc"), "-lm", "-o", str(made)]
    subprocess.run(command, check=True, timeout=120)
    return made


def _readelf(file: Path, *flags: str) -> str:
    if shutil.which("readelf") is None:
        pytest.skip("no readelf on PATH")
    command = ["readelf", "-W", *flags, str(file)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_everything_a_library_says_is_read(library: Path) -> None:
    read = read_elf(library)
    assert read.kind == "shared library"
    assert read.machine == os.uname().machine
    assert read.soname == "libit.so.3"
    assert read.runpath == "$ORIGIN/beside" and read.rpath == ""
    assert {"libm.so.6", "libc.so.6"} <= set(read.needed)
    assert {"visible", "perhaps"} <= set(read.exports) and "concealed" not in read.exports
    assert read.unique == ("_ZN7Counter5valueE",)
    assert any(need.file == "libm.so.6" for need in read.versions)
    assert not read.executable_stack
    assert re.fullmatch("[0-9a-f]{40}", read.build_id)
    assert read_elf(library, exports=False).exports == ()


@pytest.mark.parametrize("name", ["libit.so", "libc.so.6", "python"])
def test_it_reads_what_readelf_reads(name: str, library: Path) -> None:
    """An independent reader agrees on every part, whatever made the file."""
    places = {"libit.so": library, "python": Path(sys.executable).resolve()}
    file = places.get(name) or _mapped("libc.so.6")
    read = read_elf(file)
    dynamic = _readelf(file, "-d")
    assert list(read.needed) == re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    assert [read.soname] == (re.findall(r"\(SONAME\).*\[(.+)\]", dynamic) or [""])
    assert [read.build_id] == (re.findall(r"Build ID: (\w+)", _readelf(file, "-n")) or [""])
    needs = _readelf(file, "-V").partition(".gnu.version_r")[2]
    assert sorted(n.version for n in read.versions) == sorted(re.findall(r"Name: (\S+)", needs))
    rows = [line.split() for line in _readelf(file, "--dyn-syms").splitlines()]
    seen = {
        row[7].partition("@")[0]
        for row in rows
        if len(row) > 7
        and row[4] in {"GLOBAL", "WEAK", "UNIQUE"}
        and row[5] in {"DEFAULT", "PROTECTED"}
        and row[6] != "UND"
    }
    assert set(read.exports) == seen


def _mapped(name: str) -> Path:
    """Where this process has a library."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("/" + name):
            return Path(line.split()[-1])
    pytest.skip(f"this process has no {name}")


def test_a_descriptor_is_read_where_it_stands(library: Path) -> None:
    with library.open("rb") as stream:
        stream.seek(7)
        assert read_elf(stream.fileno()) == read_elf(library)
        assert stream.tell() == 7


def test_without_section_headers_all_is_still_read(library: Path, tmp_path: Path) -> None:
    """What packs a library may take them away; the loader needs none, so neither do we."""
    data = bytearray(library.read_bytes())
    struct.pack_into("<Q", data, 40, 0)
    struct.pack_into("<HHH", data, 58, 64, 0, 0)
    (tmp_path / "bare.so").write_bytes(data)
    assert read_elf(tmp_path / "bare.so") == read_elf(library)


def _header(bits: int, big: bool, machine: int) -> bytes:
    ident = b"\x7fELF" + bytes([bits // 32, 1 + big, 1, 0, 0]) + bytes(7)
    return ident + struct.pack((">" if big else "<") + "HHI", 3, machine, 1) + bytes(44)


@pytest.mark.parametrize(
    ("bits", "big", "machine", "name"),
    [
        (32, False, 40, "arm"),
        (32, False, 3, "i686"),
        (32, False, 62, "x86_64 (32-bit)"),
        (64, True, 183, "aarch64 (big-endian)"),
        (64, True, 22, "s390x"),
        (32, False, 999, "machine 999"),
    ],
)
def test_other_machines_are_named(
    bits: int, big: bool, machine: int, name: str, tmp_path: Path
) -> None:
    (tmp_path / "it.so").write_bytes(_header(bits, big, machine))
    assert read_elf(tmp_path / "it.so") == ElfFile("shared library", name)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "not_elf"),
        (b"\x7fELF", "not_elf"),
        (b"#!/bin/sh\n" * 20, "not_elf"),
        (b"MZ" + bytes(200), "not_elf"),
        (b"\x7fELF" + bytes([9, 1, 1]) + bytes(60), "malformed"),
        (_header(64, False, 62)[:40], "truncated"),
    ],
)
def test_what_is_no_library_has_its_code(data: bytes, code: str, tmp_path: Path) -> None:
    (tmp_path / "it.so").write_bytes(data)
    with pytest.raises(ElfError) as refused:
        read_elf(tmp_path / "it.so")
    assert refused.value.code == code


def test_a_pipe_or_folder_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.so")
    for path in (tmp_path / "pipe.so", tmp_path):
        with pytest.raises(ElfError, match="not a regular file"):
            read_elf(path)


def test_every_cut_is_noticed_or_harmless(library: Path, tmp_path: Path) -> None:
    """A file cut off anywhere inside its segments is refused as that."""
    data = library.read_bytes()
    loaded = max(
        at + length
        for kind, _, at, _, _, length, *_ in struct.iter_unpack(
            "<IIQQQQQQ", data[64 : 64 + 56 * struct.unpack_from("<H", data, 56)[0]]
        )
        if kind == 1
    )
    cut = tmp_path / "cut.so"
    for size in [*range(20, 400, 7), *range(400, loaded, 97), loaded - 1]:
        cut.write_bytes(data[:size])
        with pytest.raises(ElfError) as refused:
            read_elf(cut)
        assert refused.value.code == "truncated", size
    cut.write_bytes(data[:loaded])
    assert read_elf(cut) == read_elf(library)


def test_changed_bytes_give_an_answer_or_a_typed_refusal(library: Path, tmp_path: Path) -> None:
    """2,000 files with changed bytes in what is parsed: never another exception, never long."""
    data = library.read_bytes()
    draw = random.Random(5)
    count = struct.unpack_from("<H", data, 56)[0]
    parsed = [(0, 64 + 56 * count)]
    for kind, _, at, _, _, length, *_ in struct.iter_unpack(
        "<IIQQQQQQ", data[64 : 64 + 56 * count]
    ):
        if kind in (2, 4) or (kind == 1 and at == 0):
            parsed.append((at, length))
    changed, outcomes = tmp_path / "changed.so", set()
    for _ in range(2000):
        bent = bytearray(data)
        for _ in range(draw.randint(1, 4)):
            at, length = draw.choice(parsed)
            bent[at + draw.randrange(length)] = draw.choice((0, 1, 0x7F, 0xFF, draw.randrange(256)))
        changed.write_bytes(bent)
        start = time.perf_counter()
        try:
            outcomes.add(type(read_elf(changed)).__name__)
        except ElfError as refused:
            outcomes.add(refused.code)
        assert time.perf_counter() - start < 5
    assert {"ElfFile", "malformed", "truncated"} <= outcomes


def test_huge_counts_cost_neither_time_nor_memory(library: Path, tmp_path: Path) -> None:
    """A sparse terabyte with tables as long as the file: refused, not read."""
    data = bytearray(library.read_bytes())
    count = struct.unpack_from("<H", data, 56)[0]
    for row in range(count):
        kind, *_ = struct.unpack_from("<I", data, 64 + 56 * row)
        if kind in (2, 4):
            struct.pack_into("<Q", data, 64 + 56 * row + 32, 1 << 40)
    huge = tmp_path / "huge.so"
    huge.write_bytes(data)
    os.truncate(huge, 1 << 41)
    start = time.perf_counter()
    with pytest.raises(ElfError) as refused:
        read_elf(huge)
    assert refused.value.code == "malformed" and time.perf_counter() - start < 2


def _needing(
    *versions: str, needed: tuple[str, ...] = ("libc.so.6",), weak: bool = False
) -> ElfFile:
    rows = tuple(VersionNeed("libc.so.6", version, weak) for version in versions)
    return ElfFile("shared library", "x86_64", needed=needed, versions=rows)


GLIBC, MUSL = CLibrary("glibc", (2, 28)), CLibrary("musl")


def test_a_newer_glibc_is_a_sentence() -> None:
    newer = _needing("GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.9", "GLIBC_PRIVATE")
    assert elf.glibc_needed(newer) == (2, 34)
    assert elf.c_library_refusal(newer, GLIBC) == (
        "it is built for glibc >= 2.34, this process runs glibc 2.28"
    )
    assert elf.c_library_refusal(newer, CLibrary("glibc", (2, 34))) == ""
    assert elf.c_library_refusal(newer, CLibrary("glibc", (3,))) == ""
    assert elf.c_library_refusal(_needing("GLIBC_2.34", weak=True), GLIBC) == ""
    assert "glibc >= 2.36" in elf.c_library_refusal(_needing("GLIBC_ABI_DT_RELR"), GLIBC)


def test_glibc_and_musl_do_not_mix() -> None:
    assert elf.c_library_refusal(_needing("GLIBC_2.17"), MUSL) == (
        "it is built for glibc >= 2.17, this process runs musl"
    )
    assert elf.c_library_refusal(_needing(), MUSL) == (
        "it is built for glibc, this process runs musl"
    )
    for name in ("libc.musl-x86_64.so.1", "libc.so"):  # of Alpine, of musl-gcc
        theirs = _needing(needed=(name,))
        assert elf.c_library_refusal(theirs, MUSL) == ""
        assert elf.c_library_refusal(theirs, GLIBC) == (
            f"it is built for musl (it needs {name}), this process runs glibc 2.28"
        )
    assert elf.c_library_refusal(_needing(needed=()), MUSL) == ""


def test_this_process_knows_its_c_library(library: Path) -> None:
    here = elf.c_library_here()
    assert here.name == "glibc" and here.version >= (2, 28)
    assert elf.c_library_refusal(read_elf(library)) == ""
