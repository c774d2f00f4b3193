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
    """(C type, field with its [count] where it is an array, attribute) after size and flags, with
    explicit reserved words (attribute None) so that no compiler pads; empty without a record."""
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
        length = f"[{attr.c_count}]" if attr.c_count > 1 else ""
        found.append((attr.c_type, f"{attr.c_name or attr.name}{length}", attr))
        offset += bytes_ * attr.c_count
    pad(8)
    return found


def pack(spec: OpSpec, attrs: Mapping[str, Any]) -> bytes:
    """The record of lowered attributes; empty for an op without one."""
    layout = fields(spec)
    if not layout:
        return b""
    form = "=II"
    values: list[int | float] = []
    for c_type, _, attr in layout:
        count = 1 if attr is None else attr.c_count
        form += f"{count}{_FORMATS[c_type]}"
        values += _numbers(attr, attrs[attr.name]) if attr is not None else [0]
    return struct.pack(form, struct.calcsize(form), 0, *values)


def _numbers(attr: Attr, value: Any) -> list[int | float]:
    if attr.kind == "ints":
        assert len(value) == attr.c_count, f"{attr.name}: lower must give {attr.c_count} numbers"
        return [int(n) for n in value]
    return [_number(attr, value)]


def _number(attr: Attr, value: Any) -> int | float:
    if attr.kind == "enum":
        return attr.choices[value]
    if attr.kind == "f32":
        return float(value)
    return sum(1 << int(axis) for axis in value) if attr.kind == "axes" else int(value)


def unpack(spec: OpSpec, record: bytes) -> dict[str, Any]:
    """The lowered attributes of a record, as `pack` took them: axes as a tuple, choices by name.
    ValueError says what this build does not know: flags, reserved words, later fields."""
    layout = fields(spec)
    if not layout:
        if any(record[HEADER_BYTES:]):
            raise ValueError("an attribute is newer than this backend")
        return {}
    counts = [1 if attr is None else attr.c_count for _, _, attr in layout]
    form = "=II" + "".join(f"{n}{_FORMATS[f[0]]}" for n, f in zip(counts, layout, strict=True))
    size = struct.calcsize(form)
    if any(record[size:]):
        raise ValueError("an attribute is newer than this backend")
    _, flags, *numbers = struct.unpack(form, record[:size].ljust(size, b"\0"))
    if flags:
        raise ValueError("an attribute flag is unknown here")
    found: dict[str, Any] = {}
    for n, (_, _, attr) in zip(counts, layout, strict=True):
        values, numbers = numbers[:n], numbers[n:]
        if attr is not None:
            found[attr.name] = _value(attr, values)
        elif values[0]:
            raise ValueError("a reserved attribute word is not zero")
    return found


def _value(attr: Attr, values: list[Any]) -> Any:
    first = values[0]
    if attr.kind == "enum":
        name = next((name for name, number in attr.choices.items() if number == first), None)
        if name is None:
            raise ValueError(f"{attr.name}={first} is a choice that is unknown here")
        return name
    if attr.kind == "ints":
        return tuple(values)
    if attr.kind == "axes":
        return tuple(axis for axis in range(64) if first >> axis & 1)
    return bool(first) if attr.kind == "bool" else first
