"""Writes small GGUF files for tests, right ones and, by patching their parts, wrong ones.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SCALAR_CODES = {
    "u8": (0, "<B"),
    "i8": (1, "<b"),
    "u16": (2, "<H"),
    "i16": (3, "<h"),
    "u32": (4, "<I"),
    "i32": (5, "<i"),
    "f32": (6, "<f"),
    "bool": (7, "<B"),
    "u64": (10, "<Q"),
    "i64": (11, "<q"),
    "f64": (12, "<d"),
}


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(kind: str, value: Any) -> bytes:
    """Type number and value: "str", a scalar code, or either with "[]" for arrays."""
    if kind == "str":
        return struct.pack("<I", 8) + text(value)
    if kind == "str[]":
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    if kind.endswith("[]"):
        number, code = SCALAR_CODES[kind[:-2]]
        packed = b"".join(struct.pack(code, each) for each in value)
        return struct.pack("<IIQ", 9, number, len(value)) + packed
    number, code = SCALAR_CODES[kind]
    return struct.pack("<I", number) + struct.pack(code, value)


@dataclass
class Tensor:
    """`shape` outermost first; `type` is the ggml number; `offset` overrides the right one."""

    name: str
    shape: tuple[int, ...]
    type: int
    data: bytes
    offset: int | None = None


@dataclass
class GgufWriter:
    """Collects entries and tensors; `build` returns the bytes of the file."""

    entries: list[tuple[str | bytes, bytes]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    version: int = 3
    alignment: int = 32
    magic: bytes = b"GGUF"

    def add(self, key: str | bytes, kind: str, value: Any) -> GgufWriter:
        self.entries.append((key, value_bytes(kind, value)))
        return self

    def tensor(
        self, name: str, shape: tuple[int, ...], type: int, data: bytes, offset: int | None = None
    ) -> GgufWriter:
        self.tensors.append(Tensor(name, shape, type, data, offset))
        return self

    def array(self, name: str, values: np.ndarray[Any, Any]) -> GgufWriter:
        assert values.dtype == np.float32
        return self.tensor(name, values.shape, 0, values.tobytes())

    def header(self) -> bytes:
        out = [self.magic, struct.pack("<IQQ", self.version, len(self.tensors), len(self.entries))]
        for key, packed in self.entries:
            out += [text(key), packed]
        at = 0
        for each in self.tensors:
            dims = each.shape[::-1]
            offset = at if each.offset is None else each.offset
            out += [text(each.name), struct.pack("<I", len(dims))]
            out += [struct.pack("<Q", extent) for extent in dims]
            out.append(struct.pack("<IQ", each.type, offset))
            at += -(-len(each.data) // self.alignment) * self.alignment
        return b"".join(out)

    def build(self) -> bytes:
        out = bytearray(self.header())
        for each in self.tensors:
            out += bytes(-len(out) % self.alignment)
            out += each.data
        return bytes(out)
