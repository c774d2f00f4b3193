"""Tensors of other libraries, by DLPack: where they lie, and their values on the host.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anyhal import _core
from anyhal.dtypes import of_value
from anyhal.ops._checks import FP8

HOST = (1, 0)  # DLPack's name of the host's memory
_VERSION = (1, 1)  # the latest that is understood


def place(x: Any) -> tuple[int, int]:
    """The DLPack device type and number that a tensor says it lies on."""
    if not hasattr(x, "__dlpack_device__"):
        return HOST
    found = x.__dlpack_device__()
    try:
        kind, number = (int(part) for part in found)
        if max(abs(kind), abs(number)) >= 1 << 31:
            raise ValueError("more than an int32")
        return kind, number
    except (TypeError, ValueError, OverflowError):
        raise BufferError(
            f"importing a DLPack tensor: __dlpack_device__ of {type(x).__name__} gave {found!r},"
            " which is no device type and number; its library must correct it"
        ) from None


def capsule(x: Any, **options: Any) -> Any:
    """What x.__dlpack__ gives for the options that are not None, of either age of the protocol."""
    asked = {name: value for name, value in options.items() if value is not None}
    _require_plain(x)
    try:
        return x.__dlpack__(max_version=_VERSION, **asked)
    except TypeError as why:
        if set(asked) - {"stream"}:
            raise BufferError(
                f"importing a DLPack tensor: __dlpack__ of {type(x).__name__} does not take"
                f" {' and '.join(asked)} ({why}); move it to the host first"
            ) from None
    return x.__dlpack__(**asked)


def _require_plain(x: Any) -> None:
    """A view that negates its memory when it is read is exported by its library as the bytes it has
    not negated, and no capsule says so."""
    is_negated = getattr(x, "is_neg", None)
    if callable(is_negated) and is_negated() is True:
        raise BufferError(
            f"importing a DLPack tensor: the {type(x).__name__} negates its memory when it is read,"
            " which DLPack cannot say; pass x.resolve_neg()"
        )


class _Memory:
    """Borrowed host memory as NumPy's array interface; keeps it."""

    __slots__ = ("__array_interface__", "_holder")

    def __init__(self, address: int, shape: Any, strides: Any, typestr: str, holder: Any) -> None:
        self._holder = holder
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": tuple(shape),
            "strides": tuple(strides),
            "typestr": typestr,
        }


def host_values(x: Any) -> np.ndarray[Any, Any]:
    """The values of a tensor as an ndarray not to be written: a view where it lies on the host, a
    copy that its library makes where it does not. Any strides and alignment, bool as 0 and 1."""
    there = place(x)
    taken = capsule(x) if there[0] == HOST[0] else capsule(x, dl_device=HOST)
    address, value, shape, strides, holder = _core.borrow_dlpack(taken)
    d = of_value(value)
    assert d.numpy is not None  # DLPack has no block formats
    if 0 in shape:
        try:
            return np.empty(shape, d.numpy)
        except ValueError as why:
            raise BufferError(f"importing a DLPack tensor: its shape {shape}: {why}") from None
    known = d.numpy.kind in "fiub" and d.short not in FP8  # to the array interface of NumPy
    plain = d.numpy if known else np.dtype(f"u{d.block_bytes}")
    steps = [s * d.block_bytes for s in strides]
    values = np.asarray(_Memory(address, shape, steps, plain.str, holder)).view(d.numpy)
    return values.view(np.uint8) != 0 if d.kind == "bool" else values
