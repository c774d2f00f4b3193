"""One row per element type: names, contract value, block geometry, NumPy side.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from anyhal.errors import InvalidArgumentError
from anyhal.printable import get_close_matches
from anyhal.records import record

__all__ = ["ALL", "DType", "dtype", "of_value"]


@record
class DType:
    """An element type. `value` is the number in the contract (`anyhal_dtype`)."""

    name: str  # as NumPy users write it
    short: str  # as messages and op tables write it
    value: int
    kind: str  # "float", "int", "uint", "bool", "block" (packed integers and GGUF formats)
    block_elements: int
    block_bytes: int

    @property
    def is_block(self) -> bool:
        return self.kind == "block"

    @cached_property
    def numpy(self) -> np.dtype[Any] | None:
        """None for block formats, which are bytes on the host."""
        if self.is_block:
            return None
        if self.name not in _OF_ML_DTYPES:
            return np.dtype(self.name)
        import ml_dtypes  # teaches NumPy these types; a program without them need not wait for it

        made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.name))
        return made


def _row(name: str, short: str, value: int, kind: str, nbytes: int) -> DType:
    return DType(name, short, value, kind, 1, nbytes)


_OF_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")

ALL: tuple[DType, ...] = (
    _row("float32", "f32", 1, "float", 4),
    _row("float16", "f16", 2, "float", 2),
    _row("bfloat16", "bf16", 3, "float", 2),
    _row("float64", "f64", 4, "float", 8),
    _row("int64", "i64", 5, "int", 8),
    _row("int32", "i32", 6, "int", 4),
    _row("int16", "i16", 7, "int", 2),
    _row("int8", "i8", 8, "int", 1),
    _row("uint64", "u64", 9, "uint", 8),
    _row("uint32", "u32", 10, "uint", 4),
    _row("uint16", "u16", 11, "uint", 2),
    _row("uint8", "u8", 12, "uint", 1),
    _row("bool", "bool", 13, "bool", 1),
    _row("float8_e4m3fn", "f8_e4m3fn", 14, "float", 1),
    _row("float8_e5m2", "f8_e5m2", 15, "float", 1),
    _row("float8_e4m3fnuz", "f8_e4m3fnuz", 16, "float", 1),
    _row("float8_e5m2fnuz", "f8_e5m2fnuz", 17, "float", 1),
    DType("q4_1", "q4_1", 64, "block", 32, 20),
    DType("q8_0", "q8_0", 65, "block", 32, 34),
    DType("int4", "i4", 66, "block", 2, 1),
    DType("uint4", "u4", 67, "block", 2, 1),
    DType("q4_0", "q4_0", 68, "block", 32, 18),
    DType("q4_k", "q4_k", 69, "block", 256, 144),
    DType("q6_k", "q6_k", 70, "block", 256, 210),
)

_BY_NAME = {n: d for d in ALL for n in (d.name, d.short)}
_BY_VALUE = {d.value: d for d in ALL}
_BY_NUMPY = {d.numpy: d for d in ALL if not d.is_block and d.name not in _OF_ML_DTYPES}


def of_value(value: int) -> DType:
    """The dtype with that number in the contract."""
    return _BY_VALUE[value]


def _of_numpy(given: np.dtype[Any]) -> DType | None:
    found = _BY_NUMPY.get(given)
    if found is None and given.name in _OF_ML_DTYPES and _BY_NAME[given.name].numpy == given:
        found = _BY_NUMPY[given] = _BY_NAME[given.name]
    return found


def dtype(spec: object) -> DType:
    """The dtype that `spec` names: a DType, a name ("float32", "f32"), or anything that
    `numpy.dtype` takes. The contract's numbers are no names; `of_value` reads them.

    Raises InvalidArgumentError with the nearest known name.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str):
        found = _BY_NAME.get(spec)
        if found is not None:
            return found
    elif spec is not None and not isinstance(spec, int | np.generic | np.ndarray):
        try:
            found = _of_numpy(np.dtype(spec).newbyteorder("="))  # type: ignore[call-overload]
        except Exception:  # NumPy asks the object itself, which may raise what it likes
            found = None
        if found is not None:
            return found
    name = spec if isinstance(spec, str) else getattr(spec, "__name__", "")
    near = get_close_matches(name, list(_BY_NAME), n=1) if isinstance(name, str) else []
    hint = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(d.name for d in ALL)
    plain = spec is None or isinstance(spec, str | int | float | np.dtype | type)
    shown = repr(spec) if plain else f"a {type(spec).__name__}"
    raise InvalidArgumentError(f"dtype {shown} is not one that anyhal has; {hint}")
