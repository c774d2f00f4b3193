"""Reads the header of a GGUF file (versions 2 and 3) with every length checked before it is used.
SPDX-License-Identifier: Apache-2.0

The file is mapped, never read as a whole. Whatever the bytes say, the work done and the memory
taken stay proportional to the size of the file, and the outcome is either a `GgufFile` whose
tensors lie inside the file without touching each other, or a `GgufError` in one sentence.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anyhal.errors import InvalidArgumentError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 16
MAX_DIMS = 4
MAX_NAME_BYTES = 64
MAX_KEY_BYTES = 65535
# Vocabularies of today stay below a million entries; a Python string costs ~50 bytes each.
MAX_STRINGS = 1 << 22


class GgufError(InvalidArgumentError):
    """The file is not a well-formed GGUF file; the message says where and why."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """How one ggml tensor type lays out its elements: blocks of `elements` in `nbytes` bytes."""

    name: str
    elements: int
    nbytes: int


# The ids of ggml that store data; those it has withdrawn (4, 5, 31 to 33, 36 to 38) are absent.
TENSOR_TYPES: dict[int, TensorType] = {
    number: TensorType(name, elements, nbytes)
    for number, name, elements, nbytes in (
        (0, "f32", 1, 4),
        (1, "f16", 1, 2),
        (2, "q4_0", 32, 18),
        (3, "q4_1", 32, 20),
        (6, "q5_0", 32, 22),
        (7, "q5_1", 32, 24),
        (8, "q8_0", 32, 34),
        (9, "q8_1", 32, 36),
        (10, "q2_k", 256, 84),
        (11, "q3_k", 256, 110),
        (12, "q4_k", 256, 144),
        (13, "q5_k", 256, 176),
        (14, "q6_k", 256, 210),
        (15, "q8_k", 256, 292),
        (16, "iq2_xxs", 256, 66),
        (17, "iq2_xs", 256, 74),
        (18, "iq3_xxs", 256, 98),
        (19, "iq1_s", 256, 50),
        (20, "iq4_nl", 32, 18),
        (21, "iq3_s", 256, 110),
        (22, "iq2_s", 256, 82),
        (23, "iq4_xs", 256, 136),
        (24, "i8", 1, 1),
        (25, "i16", 1, 2),
        (26, "i32", 1, 4),
        (27, "i64", 1, 8),
        (28, "f64", 1, 8),
        (29, "iq1_m", 256, 56),
        (30, "bf16", 1, 2),
        (34, "tq1_0", 256, 54),
        (35, "tq2_0", 256, 66),
        (39, "mxfp4", 32, 17),
    )
}

_STRING = 8
_ARRAY = 9
_BOOL = 7
# Value type id → (struct code, NumPy dtype) of the fixed-size types.
_SCALARS: dict[int, tuple[struct.Struct, np.dtype[Any]]] = {
    number: (struct.Struct("<" + code), np.dtype(dtype))
    for number, code, dtype in (
        (0, "B", "<u1"),
        (1, "b", "<i1"),
        (2, "H", "<u2"),
        (3, "h", "<i2"),
        (4, "I", "<u4"),
        (5, "i", "<i4"),
        (6, "f", "<f4"),
        (_BOOL, "B", "<u1"),
        (10, "Q", "<u8"),
        (11, "q", "<i8"),
        (12, "d", "<f8"),
    )
}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of the file: `shape` outermost first, as NumPy writes it."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class GgufFile:
    """A mapped GGUF file: `metadata`, `tensors`, and the bytes of each tensor without a copy."""

    def __init__(
        self,
        path: Path,
        view: mmap.mmap,
        version: int,
        metadata: dict[str, Any],
        tensors: dict[str, TensorInfo],
    ) -> None:
        self.path = path
        self.version = version
        self.metadata = metadata
        self.tensors = tensors
        # The arrays handed out keep the mapping alive; it is unmapped with the last of them.
        self._bytes = np.frombuffer(view, dtype=np.uint8)

    def data(self, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The stored bytes of one tensor as a read-only view of the mapping."""
        info = self.tensors[name]
        return self._bytes[info.offset : info.offset + info.nbytes]


class _Cursor:
    """A position in the mapped header; every step is checked against the end of the file."""

    def __init__(self, path: Path, buffer: mmap.mmap, size: int) -> None:
        self.path = path
        self.buffer = buffer
        self.size = size
        self.at = 0
        self.strings = 0

    def fail(self, what: str, why: str, todo: str = "") -> GgufError:
        todo = todo or "fetch the file again or convert the model anew"
        return GgufError(f"reading {what} of {self.path} at byte {self.at}: {why}; {todo}")

    def need(self, nbytes: int, what: str) -> None:
        if nbytes > self.size - self.at:
            raise self.fail(
                what, f"{nbytes} bytes are needed and the file ends after {self.size - self.at}"
            )

    def u32(self, what: str) -> int:
        self.need(4, what)
        (value,) = _U32.unpack_from(self.buffer, self.at)
        self.at += 4
        return int(value)

    def u64(self, what: str) -> int:
        self.need(8, what)
        (value,) = _U64.unpack_from(self.buffer, self.at)
        self.at += 8
        return int(value)

    def count(self, what: str, least_bytes: int) -> int:
        """A count of records that each take at least `least_bytes` of what is left of the file."""
        value = self.u64(what)
        if value > (self.size - self.at) // least_bytes:
            raise self.fail(what, f"{value} entries cannot fit in the file's {self.size} bytes")
        return value

    def string(self, what: str, most_bytes: int | None = None) -> str:
        length = self.u64(what)
        if most_bytes is not None and length > most_bytes:
            raise self.fail(what, f"its length {length} exceeds the limit of {most_bytes} bytes")
        self.need(length, what)
        raw = self.buffer[self.at : self.at + length]
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(what, f"it is not valid UTF-8 ({error.reason})") from None
        self.at += length
        return text


def open_gguf(path: str | os.PathLike[str]) -> GgufFile:
    """Maps the file and reads its header; raises `GgufError` when it is not well formed."""
    if not isinstance(path, str | os.PathLike):
        raise GgufError(f"opening a model: a {type(path).__name__} is no path; pass a file's name")
    path = Path(path)
    buffer, size = _map(path)
    cursor = _Cursor(path, buffer, size)
    version = _read_preamble(cursor)
    tensor_count = cursor.count("the tensor count", least_bytes=32)
    entry_count = cursor.count("the metadata count", least_bytes=13)
    metadata = _read_metadata(cursor, entry_count)
    parts = metadata.get("split.count", 1)
    if type(parts) is not int or parts not in (0, 1):
        raise cursor.fail(
            "the metadata",
            f"the model is split over {parts} files",
            "merge it into one file first",
        )
    alignment = _alignment(cursor, metadata)
    tensors = _read_tensors(cursor, tensor_count, alignment)
    return GgufFile(path, buffer, version, metadata, tensors)


def _map(path: Path) -> tuple[mmap.mmap, int]:
    try:
        # Without O_NONBLOCK a named pipe would block here for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:  # ValueError: a name with NUL
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise GgufError(f"opening {path}: {reason}; check the path") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise GgufError(f"opening {path}: it is not a regular file; give the path of a .gguf")
        if status.st_size < 24:
            raise GgufError(
                f"opening {path}: its {status.st_size} bytes are fewer than the 24 of the shortest"
                " GGUF header; fetch the file again"
            )
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ), status.st_size
    except (OSError, ValueError) as error:
        if isinstance(error, GgufError):
            raise
        raise GgufError(f"mapping {path}: {error}; check the file system") from None
    finally:
        os.close(descriptor)


def _read_preamble(cursor: _Cursor) -> int:
    if cursor.buffer[:4] != MAGIC:
        raise cursor.fail(
            "the magic", f"it is {cursor.buffer[:4]!r}, not {MAGIC!r}", "give a GGUF file"
        )
    cursor.at = 4
    version = cursor.u32("the version")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        why = "it is big-endian" if swapped in VERSIONS else f"version {version} is not 2 or 3"
        raise cursor.fail("the version", why, "convert the model to little-endian GGUF 3")
    return version


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(count):
        key = cursor.string(f"metadata key {index}", MAX_KEY_BYTES)
        if not key:
            raise cursor.fail(f"metadata key {index}", "it is empty")
        if key in metadata:
            raise cursor.fail(f'metadata key "{key}"', "it occurs twice")
        metadata[key] = _read_value(cursor, cursor.u32(f'the type of "{key}"'), f'"{key}"')
    return metadata


def _read_value(cursor: _Cursor, kind: int, what: str) -> Any:
    if kind == _STRING:
        return cursor.string(what)
    if kind == _ARRAY:
        return _read_array(cursor, what)
    if kind not in _SCALARS:
        raise cursor.fail(what, f"value type {kind} is unknown")
    layout, _ = _SCALARS[kind]
    cursor.need(layout.size, what)
    (value,) = layout.unpack_from(cursor.buffer, cursor.at)
    if kind == _BOOL:
        if value > 1:
            raise cursor.fail(what, f"a bool holds {value}")
        value = bool(value)
    cursor.at += layout.size
    return value


def _read_array(cursor: _Cursor, what: str) -> list[str] | np.ndarray[Any, Any]:
    kind = cursor.u32(f"the element type of {what}")
    if kind == _STRING:
        return _read_strings(cursor, cursor.count(what, least_bytes=8), what)
    if kind == _ARRAY:
        raise cursor.fail(what, "it is an array of arrays, which no key of GGUF uses")
    if kind not in _SCALARS:
        raise cursor.fail(what, f"element type {kind} is unknown")
    _, dtype = _SCALARS[kind]
    count = cursor.count(what, least_bytes=dtype.itemsize)
    values = np.frombuffer(cursor.buffer, dtype=dtype, count=count, offset=cursor.at).copy()
    if kind == _BOOL:
        if count and values.max() > 1:
            raise cursor.fail(what, f"a bool holds {values.max()}")
        values = values.astype(np.bool_)
    cursor.at += count * dtype.itemsize
    return values


def _read_strings(cursor: _Cursor, count: int, what: str) -> list[str]:
    """The hot loop of opening a file: a vocabulary holds a hundred thousand strings."""
    cursor.strings += count
    if cursor.strings > MAX_STRINGS:
        raise cursor.fail(what, f"the header holds more than {MAX_STRINGS} strings")
    buffer, at, size, length_of = cursor.buffer, cursor.at, cursor.size, _U64.unpack_from
    strings: list[str] = []
    append = strings.append
    try:
        for _ in range(count):
            (length,) = length_of(buffer, at)
            start = at + 8
            at = start + length
            if at > size:
                raise cursor.fail(what, f"string {len(strings)} of {length} bytes leaves the file")
            append(buffer[start:at].decode("utf-8"))
    except struct.error:
        raise cursor.fail(what, f"the file ends before string {len(strings)}") from None
    except UnicodeDecodeError as error:
        raise cursor.fail(
            what, f"string {len(strings)} is not valid UTF-8 ({error.reason})"
        ) from None
    cursor.at = at
    return strings


def _alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    good = type(value) is int and 8 <= value <= MAX_ALIGNMENT and value & (value - 1) == 0
    if not good:
        raise cursor.fail(
            '"general.alignment"', f"{value!r} is not a power of two from 8 to {MAX_ALIGNMENT}"
        )
    return int(value)


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> dict[str, TensorInfo]:
    found: dict[str, TensorInfo] = {}
    for index in range(count):
        info = _read_tensor(cursor, index)
        if info.name in found:
            raise cursor.fail(f'tensor "{info.name}"', "its name occurs twice")
        if info.offset % alignment:
            raise cursor.fail(
                f'tensor "{info.name}"',
                f"its offset {info.offset} is not a multiple of the alignment {alignment}",
            )
        found[info.name] = info
    base = -(-cursor.at // alignment) * alignment
    placed = {
        name: TensorInfo(name, info.type, info.shape, base + info.offset, info.nbytes)
        for name, info in found.items()
    }
    _check_placement(cursor, placed)
    return placed


def _read_tensor(cursor: _Cursor, index: int) -> TensorInfo:
    name = cursor.string(f"the name of tensor {index}", MAX_NAME_BYTES)
    what = f'tensor "{name}"'
    if not name:
        raise cursor.fail(f"the name of tensor {index}", "it is empty")
    rank = cursor.u32(f"the rank of {what}")
    if not 1 <= rank <= MAX_DIMS:
        raise cursor.fail(what, f"its rank {rank} is not from 1 to {MAX_DIMS}")
    innermost_first = [cursor.u64(f"the dimensions of {what}") for _ in range(rank)]
    number = cursor.u32(f"the type of {what}")
    offset = cursor.u64(f"the offset of {what}")
    kind = TENSOR_TYPES.get(number)
    if kind is None:
        raise cursor.fail(what, f"tensor type {number} is unknown")
    elements = 1
    for extent in innermost_first:
        elements *= extent
    if not elements:
        raise cursor.fail(what, f"a dimension of {innermost_first} is zero")
    if innermost_first[0] % kind.elements:
        raise cursor.fail(
            what,
            f"its rows of {innermost_first[0]} elements do not divide into {kind.name} blocks"
            f" of {kind.elements}",
        )
    nbytes = elements // kind.elements * kind.nbytes
    if nbytes > cursor.size or offset > cursor.size:
        raise cursor.fail(
            what,
            f"{nbytes} bytes at offset {offset} leave the file of {cursor.size} bytes",
        )
    return TensorInfo(name, kind, tuple(reversed(innermost_first)), offset, nbytes)


def _check_placement(cursor: _Cursor, tensors: dict[str, TensorInfo]) -> None:
    end, previous = 0, ""
    for info in sorted(tensors.values(), key=lambda each: each.offset):
        if info.offset < end:
            raise cursor.fail(f'tensor "{info.name}"', f'its bytes overlap tensor "{previous}"')
        end, previous = info.offset + info.nbytes, info.name
        if end > cursor.size:
            raise cursor.fail(
                f'tensor "{info.name}"',
                f"its data ends at byte {end} and the file at {cursor.size}",
            )
