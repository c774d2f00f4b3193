"""The C attribute records: one field list gives the header text and the bytes of a call.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from anyhal.ops._spec import Attr, OpSpec

HEADER_BYTES = 8  # size, flags
_FORMATS = {"int32_t": "i", "uint32_t": "I", "float": "f", "uint64_t": "Q"}


def fields(spec: OpSpec) -> list[tuple[str, str, Attr | None]]:
    """(C type, field, attribute) after size and flags, with explicit reserved words (attribute
    None) so that no compiler pads; empty when the op has no record."""
    found: list[tuple[str, str, Attr | None]] = []
    offset = HEADER_BYTES

    def pad(to: int) -> None:
        nonlocal offset
        while offset % to:
            name = f"reserved{len(found)}" if any(f[2] is None for f in found) else "reserved"
            found.append(("uint32_t", name, None))
            offset += 4

    for attr in spec.attrs:
        if attr.c_type is None:
            continue
        bytes_ = struct.calcsize(_FORMATS[attr.c_type])
        pad(bytes_)
        found.append((attr.c_type, attr.c_name or attr.name, attr))
        offset += bytes_
    pad(8)
    return found


def pack(spec: OpSpec, attrs: Mapping[str, Any]) -> bytes:
    """The record of lowered attributes; empty for an op without one."""
    layout = fields(spec)
    if not layout:
        return b""
    form = "=II" + "".join(_FORMATS[c_type] for c_type, _, _ in layout)
    values = [0 if attr is None else _number(attr, attrs[attr.name]) for _, _, attr in layout]
    return struct.pack(form, struct.calcsize(form), 0, *values)


def _number(attr: Attr, value: Any) -> int | float:
    if attr.kind == "enum":
        return attr.choices[value]
    if attr.kind == "f32":
        return float(value)
    return sum(1 << int(axis) for axis in value) if attr.kind == "axes" else int(value)
