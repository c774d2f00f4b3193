"""Reads what an ELF library says of itself, before anything opens it.
SPDX-License-Identifier: Apache-2.0

Machine, dependencies, build id, the versions of other libraries' symbols that it needs, and what
it exports. All is found through the program headers, as the loader finds it; section headers are
neither needed nor believed. The file may be cut off or hostile: every offset, count and string is
checked against what is there, and nothing is read or kept without a limit.

Layouts: System V ABI ("Object Files", "Dynamic Linking") and the GNU notes on hash and version
tables.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from functools import lru_cache

from anyhal.records import record

_IDENT = struct.Struct("<4sBBBBB7x")
_HEADER = struct.Struct("<HHIQQQIHHHHHH")  # from e_type on
_SEGMENT = struct.Struct("<IIQQQQQQ")  # type, flags, offset, vaddr, paddr, filesz, memsz, align
_DYNAMIC = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_NEED = struct.Struct("<HHIII")  # version, entries, file, first entry, next
_NEED_ENTRY = struct.Struct("<IHHII")  # hash, flags, index, name, next
_NOTE = struct.Struct("<III")  # bytes of name, bytes of content, type

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE, _PT_GNU_STACK = 1, 2, 4, 0x6474E551
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SONAME = 1, 4, 5, 6, 10, 14
_DT_RPATH, _DT_RUNPATH, _DT_GNU_HASH, _DT_FLAGS_1 = 15, 29, 0x6FFFFEF5, 0x6FFFFFFB
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_PIE, _WEAK_NEED, _BUILD_ID, _EXECUTABLE = 0x08000000, 0x2, 3, 0x1
_GLOBAL, _WEAK, _UNIQUE = 1, 2, 10  # bindings of a symbol that others can see
_VISIBLE = {0, 3}  # default, protected

# e_machine: name as `uname -m` says it, and its usual word size.
_MACHINES = {
    3: ("i686", 32),
    20: ("ppc", 32),
    21: ("ppc64le", 64),
    22: ("s390x", 64),
    40: ("arm", 32),
    62: ("x86_64", 64),
    183: ("aarch64", 64),
    243: ("riscv64", 64),
    258: ("loongarch64", 64),
}
_KINDS = {1: "object file", 2: "program", 3: "shared library", 4: "core dump"}

# Far above what real libraries have, far below what would fill this process.
_MOST_TABLE_BYTES = 1 << 26  # one string or symbol table
_MOST_NAME_BYTES = 1 << 16  # one name
_MOST_KEPT_BYTES = 1 << 26  # all names together
_MOST_ENTRIES = 1 << 12  # of the dynamic section, of version needs, of a note segment
_MOST_SEGMENTS = 1 << 10
_MOST_NOTE_BYTES = 1 << 16
_LONGEST_CHAIN = 1 << 16  # symbols in one bucket of a hash table


class ElfError(ValueError):
    """The file cannot be read as an ELF file. `code` is one word: not_elf, truncated, malformed."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@record
class VersionNeed:
    """One version of another library's symbols, such as GLIBC_2.28 of libc.so.6."""

    file: str
    version: str
    weak: bool = False  # the loader goes on without it


@record
class ElfFile:
    """What a file says of itself. For a machine that is not 64-bit little-endian, `kind` and
    `machine` only."""

    kind: str  # "shared library", "program", "object file", "core dump"
    machine: str  # as `uname -m` says it
    soname: str = ""
    needed: tuple[str, ...] = ()  # DT_NEEDED, in order
    rpath: str = ""
    runpath: str = ""
    build_id: str = ""  # hexadecimal
    versions: tuple[VersionNeed, ...] = ()
    exports: tuple[str, ...] = ()  # dynamic symbols that others can see, sorted
    unique: tuple[
        str, ...
    ] = ()  # those of them that are GNU-unique: one per process, never unloaded
    executable_stack: bool = False


def read_elf(file: str | os.PathLike[str] | int, *, exports: bool = True) -> ElfFile:
    """Reads a file by path or by open descriptor (whose position is neither used nor moved).

    Without `exports` the symbol table is left alone. Raises ElfError for a file that is not ELF,
    is cut off or contradicts itself, OSError for one that cannot be read.
    """
    if isinstance(file, int):
        return _parse(_Source(file, os.fstat(file)), exports)
    # A pipe in a library's place must not make this wait.
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return _parse(_Source(descriptor, os.fstat(descriptor)), exports)
    finally:
        os.close(descriptor)


class _Source:
    """Checked reads of one file."""

    def __init__(self, descriptor: int, info: os.stat_result) -> None:
        if not stat.S_ISREG(info.st_mode):
            raise ElfError("not_elf", "it is not a regular file")
        self.descriptor, self.size = descriptor, info.st_size

    def read(self, offset: int, count: int, what: str) -> bytes:
        if count > _MOST_TABLE_BYTES:
            raise ElfError("malformed", f"its {what} has {count} bytes")
        if offset + count > self.size:
            needs = f"its {what} ends at byte {offset + count}, {self.size} are there"
            raise ElfError("truncated", f"it was cut off: {needs}")
        parts = bytearray()
        while len(parts) < count:
            part = os.pread(self.descriptor, count - len(parts), offset + len(parts))
            if not part:
                raise ElfError("truncated", "it shrank while it was read")
            parts += part
        return bytes(parts)


def _parse(source: _Source, exports: bool) -> ElfFile:
    if source.size < _IDENT.size + 4 or source.read(0, 4, "header") != b"\x7fELF":
        raise ElfError("not_elf", "it is not an ELF file")
    _, width, order, *_ = _IDENT.unpack(source.read(0, _IDENT.size, "header"))
    if width not in (1, 2) or order not in (1, 2):
        raise ElfError("malformed", "its header names no word size or byte order")
    byte_order = ">" if order == 2 else "<"
    kind, number = struct.unpack(byte_order + "HH", source.read(_IDENT.size, 4, "header"))
    head = (_KINDS.get(kind, f"file of type {kind}"), _machine_name(number, width * 32, order == 2))
    if (width, order) != (2, 1):
        return ElfFile(*head)
    segments = _Segments(source)
    dynamic = _Dynamic(source, segments)
    kind_name = "program" if dynamic.first(_DT_FLAGS_1) & _PIE else head[0]
    found, unique = _exports(dynamic) if exports else ((), ())
    return ElfFile(
        kind=kind_name,
        machine=head[1],
        soname=dynamic.string(_DT_SONAME),
        needed=tuple(dynamic.text(at) for at in dynamic.all(_DT_NEEDED)),
        rpath=dynamic.string(_DT_RPATH),
        runpath=dynamic.string(_DT_RUNPATH),
        build_id=_build_id(source, segments),
        versions=tuple(_version_needs(dynamic)),
        exports=found,
        unique=unique,
        executable_stack=segments.executable_stack,
    )


def _machine_name(number: int, bits: int, big_endian: bool) -> str:
    name, usual = _MACHINES.get(number, (f"machine {number}", bits))
    odd = [f"{bits}-bit"] if bits != usual else []
    odd += ["big-endian"] if big_endian and name not in ("s390x", "ppc") else []
    return f"{name} ({', '.join(odd)})" if odd else name


class _Segments:
    """The program headers: which bytes of the file lie at which address."""

    def __init__(self, source: _Source) -> None:
        header = source.read(_IDENT.size, _HEADER.size, "header")
        _, _, version, _, start, _, _, _, size, count, *_ = _HEADER.unpack(header)
        if version != 1 or (count and size != _SEGMENT.size) or count > _MOST_SEGMENTS:
            raise ElfError("malformed", "its program headers have no known form")
        self.source = source
        table = source.read(start, size * count, "table of segments") if count else b""
        self.rows = list(_SEGMENT.iter_unpack(table))
        self.executable_stack = any(
            kind == _PT_GNU_STACK and flags & _EXECUTABLE for kind, flags, *_ in self.rows
        )
        for kind, _, at, _, _, length, *_ in self.rows:
            # The loader would map past the end, and the first touch there ends the process.
            if kind == _PT_LOAD and at + length > source.size:
                needs = f"its segments need {at + length} bytes, {source.size} are there"
                raise ElfError("truncated", f"it was cut off: {needs}")

    def of_kind(self, wanted: int) -> Iterator[tuple[int, int]]:
        """(offset, bytes) in the file."""
        for kind, _, at, _, _, length, *_ in self.rows:
            if kind == wanted:
                yield at, length

    def offset(self, address: int, count: int, what: str) -> int:
        """Where the file holds the `count` bytes that are loaded at `address`."""
        for kind, _, at, start, _, length, *_ in self.rows:
            if kind == _PT_LOAD and start <= address and address + count <= start + length:
                return int(at + address - start)
        raise ElfError("malformed", f"its {what} lies in none of its segments")

    def read(self, address: int, count: int, what: str) -> bytes:
        return self.source.read(self.offset(address, count, what), count, what)


class _Dynamic:
    """The dynamic section and the strings that it refers to."""

    def __init__(self, source: _Source, segments: _Segments) -> None:
        self.segments = segments
        self.entries: list[tuple[int, int]] = []
        for at, length in list(segments.of_kind(_PT_DYNAMIC))[:1]:
            if length > _MOST_ENTRIES * _DYNAMIC.size:
                raise ElfError("malformed", f"its dynamic section has {length} bytes")
            table = source.read(at, length, "dynamic section")
            for tag, value in _DYNAMIC.iter_unpack(table[: length - length % _DYNAMIC.size]):
                if tag == 0:
                    break
                self.entries.append((tag, value))
        self.kept = 0
        size = self.first(_DT_STRSZ)
        self.strings = b""
        if size:
            self.strings = segments.read(self.first(_DT_STRTAB), size, "table of strings")

    def all(self, wanted: int) -> Iterator[int]:
        return (value for tag, value in self.entries if tag == wanted)

    def first(self, wanted: int) -> int:
        return next(self.all(wanted), 0)

    def string(self, wanted: int) -> str:
        return next((self.text(value) for value in self.all(wanted)), "")

    def text(self, at: int) -> str:
        end = self.strings.find(b"\0", at, at + _MOST_NAME_BYTES) if at < len(self.strings) else -1
        if end < 0:
            raise ElfError("malformed", f"one of its names, at {at}, has no end")
        self.kept += end - at
        if self.kept > _MOST_KEPT_BYTES:
            raise ElfError("malformed", f"its names have more than {_MOST_KEPT_BYTES} bytes")
        return self.strings[at:end].decode("utf-8", "backslashreplace")


def _version_needs(dynamic: _Dynamic) -> Iterator[VersionNeed]:
    at, left = dynamic.first(_DT_VERNEED), _MOST_ENTRIES
    for _ in range(dynamic.first(_DT_VERNEEDNUM) if at else 0):
        row = dynamic.segments.read(at, _NEED.size, "table of needed versions")
        _, entries, file, first, following = _NEED.unpack(row)
        where = at + first
        for _ in range(entries):
            left -= 1
            if left < 0:
                raise ElfError("malformed", f"it needs more than {_MOST_ENTRIES} versions")
            row = dynamic.segments.read(where, _NEED_ENTRY.size, "table of needed versions")
            _, flags, _, name, step = _NEED_ENTRY.unpack(row)
            weak = bool(flags & _WEAK_NEED)
            yield VersionNeed(dynamic.text(file), dynamic.text(name), weak)
            where += step
            if not step:
                break
        at, left = at + following, left - 1
        if not following or left < 0:
            return


def _build_id(source: _Source, segments: _Segments) -> str:
    for at, length in segments.of_kind(_PT_NOTE):
        if length > _MOST_NOTE_BYTES:
            raise ElfError("malformed", f"its notes have {length} bytes")
        notes, position = source.read(at, length, "notes"), 0
        for _ in range(_MOST_ENTRIES):
            if position + _NOTE.size > len(notes):
                break
            name_size, size, kind = _NOTE.unpack_from(notes, position)
            name = position + _NOTE.size
            content = name + (name_size + 3) // 4 * 4
            if kind == _BUILD_ID and notes[name : name + name_size] == b"GNU\0":
                if size > 64 or content + size > len(notes):
                    raise ElfError("malformed", f"its build id has {size} bytes")
                return notes[content : content + size].hex()
            position = content + (size + 3) // 4 * 4
    return ""


def _exports(dynamic: _Dynamic) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names that other libraries can see, and those of them that are GNU-unique; each sorted."""
    count, start = _symbol_count(dynamic), dynamic.first(_DT_SYMTAB)
    if not count or not start:
        return (), ()
    table = dynamic.segments.read(start, count * _SYMBOL.size, "table of symbols")
    names: set[str] = set()
    unique: set[str] = set()
    for at, info, other, section, _, _ in _SYMBOL.iter_unpack(table):
        binding = info >> 4
        if not section or binding not in (_GLOBAL, _WEAK, _UNIQUE) or other & 3 not in _VISIBLE:
            continue
        name = dynamic.text(at)
        names.add(name)
        if binding == _UNIQUE:
            unique.add(name)
    return tuple(sorted(names)), tuple(sorted(unique))


def _symbol_count(dynamic: _Dynamic) -> int:
    """How many symbols there are: only the hash tables know. 0 without one: nothing finds any."""
    table = dynamic.first(_DT_HASH)
    if table:
        return int(struct.unpack("<II", dynamic.segments.read(table, 8, "table of hashes"))[1])
    table = dynamic.first(_DT_GNU_HASH)
    if not table:
        return 0
    head = dynamic.segments.read(table, 16, "table of hashes")
    first: int
    buckets, first, filters, _ = struct.unpack("<IIII", head)
    start = table + 16 + filters * 8
    heads = dynamic.segments.read(start, buckets * 4, "table of hashes")
    last: int = max((value for (value,) in struct.iter_unpack("<I", heads)), default=0)
    if last < first:
        return first  # imports only
    chain = start + buckets * 4
    for at in range(last, last + _LONGEST_CHAIN):  # its chain ends with an odd entry
        entry = dynamic.segments.read(chain + (at - first) * 4, 4, "table of hashes")
        if entry[0] & 1:
            return at + 1
    raise ElfError("malformed", "its table of hashes has no end")


@record
class CLibrary:
    """The C library of a process: "glibc" with its version such as (2, 36), or "musl"."""

    name: str
    version: tuple[int, ...] = ()


@lru_cache(maxsize=1)
def c_library_here() -> CLibrary:
    """The one that this process runs on."""
    try:
        said = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (ValueError, OSError):  # the name is glibc's own
        said = []
    if len(said) == 2 and said[0] == "glibc":
        return CLibrary("glibc", _numbers(said[1]))
    return CLibrary("musl")


def glibc_needed(elf: ElfFile) -> tuple[int, ...]:
    """The oldest glibc that has every version the file needs, such as (2, 28); () when it names
    none."""
    needs = [need.version for need in elf.versions if not need.weak]
    found = [_numbers(version[6:]) for version in needs if version.startswith("GLIBC_")]
    # Compact relative relocations: the loader learned them in 2.36.
    found += [(2, 36) for version in needs if version == "GLIBC_ABI_DT_RELR"]
    return max(found, default=())


def c_library_refusal(elf: ElfFile, here: CLibrary | None = None) -> str:
    """Why the C library `here` (default: this process's) cannot load the file, or ""."""
    here = here or c_library_here()
    oldest = glibc_needed(elf)
    dotted = ".".join(map(str, oldest))
    for_glibc = bool(oldest) or "libc.so.6" in elf.needed
    # By its name in Alpine, or its own, which musl-gcc writes; glibc's has a number.
    names = [name for name in elf.needed if name.startswith(("libc.musl", "ld-musl"))]
    musl = next(iter(names), "libc.so" if "libc.so" in elf.needed else "")
    if here.name != "glibc":
        built = f"glibc >= {dotted}" if oldest else "glibc"
        return f"it is built for {built}, this process runs {here.name}" if for_glibc else ""
    runs = f"this process runs glibc {'.'.join(map(str, here.version))}"
    if musl:
        return f"it is built for musl (it needs {musl}), {runs}"
    return f"it is built for glibc >= {dotted}, {runs}" if oldest > here.version else ""


@lru_cache
def _numbers(text: str) -> tuple[int, ...]:
    """(2, 17) of "2.17"; () for GLIBC_PRIVATE and the like."""
    parts = text.split(".")
    return (
        tuple(map(int, parts)) if all(part.isascii() and part.isdigit() for part in parts) else ()
    )
