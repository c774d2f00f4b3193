"""One row per element type: names, contract value, block geometry, NumPy side.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import ml_dtypes
import numpy as np

from anyhal.errors import InvalidArgumentError

__all__ = ["ALL", "DType", "dtype", "of_value"]


@dataclass(frozen=True)
class DType:
    """An element type. `value` is the number in the contract (`anyhal_dtype`)."""

    name: str  # as NumPy users write it
    short: str  # as messages and op tables write it
    value: int
    kind: str  # "float", "int", "uint", "bool", "block" (packed integers and GGUF formats)
    block_elements: int
    block_bytes: int
    numpy: np.dtype[Any] | None  # None for block formats, which are bytes on the host

    @property
    def is_block(self) -> bool:
        return self.kind == "block"


def _row(name: str, short: str, value: int, kind: str, np_type: Any) -> DType:
    np_dtype = np.dtype(np_type)
    return DType(name, short, value, kind, 1, np_dtype.itemsize, np_dtype)


ALL: tuple[DType, ...] = (
    _row("float32", "f32", 1, "float", np.float32),
    _row("float16", "f16", 2, "float", np.float16),
    _row("bfloat16", "bf16", 3, "float", ml_dtypes.bfloat16),
    _row("float64", "f64", 4, "float", np.float64),
    _row("int64", "i64", 5, "int", np.int64),
    _row("int32", "i32", 6, "int", np.int32),
    _row("int16", "i16", 7, "int", np.int16),
    _row("int8", "i8", 8, "int", np.int8),
    _row("uint64", "u64", 9, "uint", np.uint64),
    _row("uint32", "u32", 10, "uint", np.uint32),
    _row("uint16", "u16", 11, "uint", np.uint16),
    _row("uint8", "u8", 12, "uint", np.uint8),
    _row("bool", "bool", 13, "bool", np.bool_),
    _row("float8_e4m3fn", "f8_e4m3fn", 14, "float", ml_dtypes.float8_e4m3fn),
    _row("float8_e5m2", "f8_e5m2", 15, "float", ml_dtypes.float8_e5m2),
    _row("float8_e4m3fnuz", "f8_e4m3fnuz", 16, "float", ml_dtypes.float8_e4m3fnuz),
    _row("float8_e5m2fnuz", "f8_e5m2fnuz", 17, "float", ml_dtypes.float8_e5m2fnuz),
    DType("q4_1", "q4_1", 64, "block", 32, 20, None),
    DType("q8_0", "q8_0", 65, "block", 32, 34, None),
    DType("int4", "i4", 66, "block", 2, 1, None),
    DType("uint4", "u4", 67, "block", 2, 1, None),
    DType("q4_0", "q4_0", 68, "block", 32, 18, None),
    DType("q4_k", "q4_k", 69, "block", 256, 144, None),
    DType("q6_k", "q6_k", 70, "block", 256, 210, None),
)

_BY_NAME = {n: d for d in ALL for n in (d.name, d.short)}
_BY_VALUE = {d.value: d for d in ALL}
_BY_NUMPY = {d.numpy: d for d in ALL if d.numpy is not None}


def of_value(value: int) -> DType:
    """The dtype with that number in the contract."""
    return _BY_VALUE[value]


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
            found = _BY_NUMPY.get(np.dtype(spec).newbyteorder("="))  # type: ignore[call-overload]
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
