"""Argument checks that several op files share, each ending in a four-part message.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anyhal.dtypes import DType, dtype
from anyhal.errors import InvalidArgumentError, UnsupportedError
from anyhal.ops._spec import Shape, TensorSpec, describe
from anyhal.printable import get_close_matches

FLOATS = ("f32", "f16", "bf16", "f64")
SIGNED = ("i64", "i32", "i16", "i8")
INTS = (*SIGNED, "u64", "u32", "u16", "u8")
NUMBERS = (*FLOATS, *INTS)
PLAIN = (*NUMBERS, "bool")  # what ops compute with
FP8 = ("f8_e4m3fn", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz")  # held, cast and quantised to
PACKED = ("i4", "u4")  # two in a byte
BLOCKS = ("q4_1", "q8_0", "q4_0", "q4_k", "q6_k")  # of GGUF files: read, never made
MOVED = (*PLAIN, *FP8, *PACKED, *BLOCKS)  # by ops that only move bytes
INDICES = ("i64", "i32")

# What sums, products and transcendental functions of a floating dtype are computed in.
WIDE = {"f32": "f32", "f16": "f32", "bf16": "f32", "f64": "f64"}


def check_dtype(op: str, name: str, spec: TensorSpec, allowed: Iterable[str]) -> None:
    """UnsupportedError unless the operand's dtype is one of `allowed` (short names)."""
    if spec.dtype.short not in allowed:
        raise UnsupportedError(
            f"{op}: {name} is {describe(spec)}, which {op} does not take; "
            f"cast it with astype to one of {', '.join(allowed)}",
            reason="dtype",
        )


def check_same_dtype(op: str, first: TensorSpec, *others: TensorSpec) -> None:
    """UnsupportedError unless all dtypes are equal; nothing is promoted silently."""
    if any(o.dtype != first.dtype for o in others):
        listed = ", ".join(describe(s) for s in (first, *others))
        raise UnsupportedError(
            f"{op}: operands {listed} have different dtypes, and nothing is promoted silently; "
            "cast one with astype",
            reason="dtype",
        )


def check_shape(op: str, name: str, spec: TensorSpec, want: Shape, axes: str) -> None:
    """InvalidArgumentError unless the shape is exactly `want`, whose letters are `axes`."""
    if spec.shape != want:
        raise InvalidArgumentError(
            f"{op}: {name} is {describe(spec)} but must be {axes} = {list(want)}; reshape it"
        )


def check_broadcasts(op: str, name: str, spec: TensorSpec, want: Shape, axes: str) -> None:
    """InvalidArgumentError unless the operand stretches to `want`."""
    try:
        spec.broadcast_to(want)
    except (InvalidArgumentError, ValueError):
        raise InvalidArgumentError(
            f"{op}: {name} is {describe(spec)} and does not broadcast to {axes} = {list(want)}; "
            "sizes must be equal or 1"
        ) from None


def check_rank(op: str, name: str, spec: TensorSpec, rank: int, axes: str) -> None:
    if spec.rank != rank:
        raise InvalidArgumentError(
            f"{op}: {name} is {describe(spec)} but needs {rank} dims {axes}; reshape it"
        )


def check_choice(op: str, name: str, value: Any, choices: Mapping[str, Any]) -> None:
    """InvalidArgumentError with the nearest known word."""
    if value not in choices:
        near = get_close_matches(str(value), list(choices), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(choices)
        raise InvalidArgumentError(f"{op}: {name}={value!r} is not a choice; {hint}")


def check_eps(op: str, attrs: Mapping[str, Any]) -> None:
    if not attrs["eps"] >= 0:
        raise InvalidArgumentError(
            f"{op}: eps={attrs['eps']} must be 0 or more, because a root is taken of it; pass a "
            "small number such as 1e-5"
        )


def output_dtype(op: str, asked: Any, natural: str, others: Iterable[str] = ()) -> DType:
    """The dtype asked for, or the natural one; UnsupportedError if it is not on offer."""
    out = dtype(asked or natural)
    if out.short not in (natural, *others):
        raise UnsupportedError(
            f"{op}: the output can be {' or '.join((natural, *others))}, not {out.short}; "
            "cast the result with astype",
            reason="dtype",
        )
    return out


def normalize_axes(op: str, axis: int | Sequence[int] | None, spec: TensorSpec) -> tuple[int, ...]:
    """Sorted non-negative axes; None means all of them. An empty tuple is refused, because its
    key would be that of None."""
    if axis is None:
        return tuple(range(spec.rank))
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    if not given:
        raise InvalidArgumentError(
            f"{op}: axis=() reduces nothing of {describe(spec)}; name an axis, or None for all"
        )
    for a in given:
        if not -spec.rank <= a < spec.rank:
            raise InvalidArgumentError(
                f"{op}: axis {a} is outside {describe(spec)}; use {-spec.rank}..{spec.rank - 1}"
            )
    found = sorted({a % spec.rank for a in given})
    if len(found) != len(given):
        raise InvalidArgumentError(
            f"{op}: axis={given} names an axis of {describe(spec)} twice; name each once"
        )
    return tuple(found)


# What the attribute dtype of products is.
OUTPUT_DTYPE = "output dtype; the operands' by default, f32 may be asked for"


def along(axis: object) -> str:
    """Where a reduction looks, as messages say it; "" for the whole array."""
    return "" if axis is None else f" along axis {axis}"
