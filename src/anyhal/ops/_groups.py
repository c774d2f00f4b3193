"""Which scale belongs to which element: one in all, one a channel, or one a block of an axis.
SPDX-License-Identifier: Apache-2.0

quantize and dequantize share this. Their parts are views that broadcast, so that a scale is never
repeated in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.errors import InvalidArgumentError, UnsupportedError
from anyhal.ops._checks import FP8
from anyhal.ops._spec import Arg, Attr, TensorSpec, describe, normalize_axis
from anyhal.ops._trace import Value

# Of samples: axis and block size: one scale, channels of each axis, blocks that divide the axis and
# that do not.
FORMS = ((None, 0), (0, 0), (-1, 0), (1, 3), (1, 4), (0, 8), (-1, 1))
QUANTISED = ("i8", "u8", "i16", "u16", "i4", "u4", *FP8)

ZERO_POINT = Arg(
    "zero_point",
    "[] or [N] or [..., G, ...]",
    optional=True,
    doc="the code of 0, shaped as scale, in the codes' dtype (i8 for i4, u8 for u4) or i32; not "
    "for 8-bit floats",
    own="i32",
)
SCALE_AXES = "[] or [N] or [..., G, ...]"
ATTRS = (
    Attr("axis", "axes", default=None, doc="of the channels or blocks; None: one scale for all"),
    Attr(
        "block_size",
        "i64",
        default=0,
        c_type="int32_t",
        doc="elements of `axis` that share a scale, the last block may be shorter; 0: each has one",
    ),
)


def one_axis(op: str, axis: Any, x: TensorSpec) -> int | None:
    """The axis as a number from 0, or None."""
    if isinstance(axis, tuple):
        if len(axis) != 1:
            raise InvalidArgumentError(
                f"{op}: axis={axis} for {describe(x)}: scales lie along one axis; name one, or None"
            )
        (axis,) = axis
    return None if axis is None else normalize_axis(op, axis, x)


def check(
    op: str,
    x: TensorSpec,
    scale: TensorSpec,
    zero: TensorSpec | None,
    attrs: Mapping[str, Any],
    quantised: str,
) -> None:
    """Shapes of scale and zero_point, and that 8-bit floats have no zero point."""
    axis, block = one_axis(op, attrs["axis"], x), attrs["block_size"]
    if not 0 <= block < 1 << 31 or (block and axis is None):
        raise InvalidArgumentError(
            f"{op}: block_size={block} with axis={axis}: blocks lie along an axis and have at least"
            " one element; name the axis and give a positive size, or leave block_size out"
        )
    shape, formula = scale_shape(op, x, axis, block)
    for name, spec in (("scale", scale), ("zero_point", zero)):
        if spec is not None and spec.shape != shape:
            raise InvalidArgumentError(
                f"{op}: {name} is {describe(spec)} but for {describe(x)} with axis={axis} and "
                f"block_size={block} it must be {formula} = {list(shape)}; reshape it"
            )
    if zero is not None:
        check_zero(op, "zero_point", zero, quantised)
        if quantised in FP8:
            raise InvalidArgumentError(
                f"{op}: zero_point is given, but {quantised} has its zero at 0; leave it out"
            )


def check_zero(op: str, name: str, zero: TensorSpec, quantised: str) -> None:
    """UnsupportedError unless a zero point is in the dtype of the codes it belongs to, or i32."""
    own = {"i4": "i8", "u4": "u8"}.get(quantised, quantised)
    if quantised not in FP8 and zero.dtype.short not in (own, "i32"):
        raise UnsupportedError(
            f"{op}: {name} is {describe(zero)}, but a zero point of {quantised} codes is {own}, or"
            " i32, which holds every code; cast it with astype",
            reason="dtype",
        )


def scale_shape(op: str, x: TensorSpec, axis: Any, block: int) -> tuple[tuple[int, ...], str]:
    """The shape that a scale must have, and how it comes about."""
    axis = one_axis(op, axis, x)
    if axis is None:
        return (), "one number"
    if not block:
        return (x.shape[axis],), "[size of axis]"
    groups = -(-x.shape[axis] // block)
    return (
        *x.shape[:axis],
        groups,
        *x.shape[axis + 1 :],
    ), "x's with ceil(size / block_size) at axis"


def lower_scale(
    spec: TensorSpec | None, x: TensorSpec, attrs: Mapping[str, Any]
) -> TensorSpec | None:
    """A view with x's dims, but the number of blocks where there are blocks."""
    axis = one_axis("", attrs["axis"], x)
    if spec is None or attrs["block_size"]:
        return spec
    for _ in range(0 if axis is None else x.rank - axis - 1):
        spec = spec.expand_dims(spec.rank)
    return spec.broadcast_to(x.shape)


def parts(
    x: Value, others: Sequence[Value | None], out: Value, attrs: Mapping[str, Any]
) -> Iterator[tuple[Value, list[Value | None], Value]]:
    """Views of x, of scale and zero point, and of out that broadcast; at most two of them: whole
    blocks, and the last block if it is shorter."""
    at, block = one_axis("", attrs["axis"], x.spec), attrs["block_size"]
    if at is None:
        yield x, list(others), out
        return
    if not block:
        after = x.spec.rank - at - 1
        yield x, [_trailing(v, after) for v in others], out
        return
    size = x.shape[at]
    whole, rest = size // block, size % block
    if whole or not rest:
        stop = whole * block
        yield (
            x.slice(at, 0, stop).split(at, whole, block),
            [None if v is None else v.slice(at, 0, whole).expand_dims(at + 1) for v in others],
            out.slice(at, 0, stop).split(at, whole, block),
        )
    if rest:
        last = [None if v is None else v.slice(at, whole, whole + 1) for v in others]
        yield x.slice(at, size - rest, size), last, out.slice(at, size - rest, size)


def _trailing(v: Value | None, count: int) -> Value | None:
    for _ in range(count):
        v = None if v is None else v.expand_dims(v.spec.rank)
    return v


def spread(values: Any, shape: tuple[int, ...], axis: Any, block: int) -> Any:
    """NumPy: a scale stretched to the shape of x."""
    if axis is None:
        return np.broadcast_to(values, shape)
    at = (axis[0] if isinstance(axis, tuple) else axis) % len(shape)
    if block:
        return np.repeat(values, block, axis=at).take(np.arange(shape[at]), axis=at)
    return np.broadcast_to(np.reshape(values, (-1, *(1 for _ in shape[at + 1 :]))), shape)
