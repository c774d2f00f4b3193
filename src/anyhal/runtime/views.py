"""Views of arrays: other shapes, strides and offsets on the same bytes.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from anyhal import _core
from anyhal.errors import InvalidArgumentError, InvalidTypeError, UnsupportedError, typed_call
from anyhal.ops._spec import TensorSpec, dense_strides, describe, normalize_axis
from anyhal.runtime.array import OPS, Array, is_int, needs_array, shape_of, spec_of


def _view(a: Any, spec: TensorSpec, offset: int = 0) -> Array:
    return _core.view(a, spec.dtype.value, list(spec.shape), list(spec.strides), offset)


def getitem(a: Any, key: Any) -> Array:
    """A view: integers, slices with a positive step, None and one Ellipsis."""
    spec = spec_of(a)
    keys = key if isinstance(key, tuple) else (key,)
    taken = sum(k is not None and k is not Ellipsis for k in keys)
    if sum(k is Ellipsis for k in keys) > 1 or taken > spec.rank:
        raise InvalidArgumentError(
            f"indexing {describe(spec)} with {key!r}: it has {spec.rank} dims; use fewer indices"
        )
    if not any(k is Ellipsis for k in keys):
        keys = (*keys, Ellipsis)
    shape: list[int] = []
    strides: list[int] = []
    offset, axis = 0, 0
    for k in keys:
        if k is None:
            shape.append(1)
            strides.append(0)
        elif k is Ellipsis:
            rest = spec.rank - taken
            shape += spec.shape[axis : axis + rest]
            strides += spec.strides[axis : axis + rest]
            axis += rest
        else:
            blocked = spec.dtype.is_block and axis == spec.rank - 1
            if blocked and k != slice(None):
                raise UnsupportedError(
                    f"indexing {describe(spec)}: the last dim of a block format is whole; index"
                    " the other dims",
                    reason="layout",
                )
            step, size = _index(k, spec, axis, shape)
            if size is not None:
                strides.append(spec.strides[axis] * (size[1] if size[0] > 1 else 1))
            offset += step * spec.strides[axis]
            axis += 1
    out = TensorSpec(spec.dtype, tuple(shape), tuple(strides))
    return _view(a, out, 0 if out.size == 0 else offset * spec.dtype.block_bytes)


def _index(
    k: Any, spec: TensorSpec, axis: int, shape: list[int]
) -> tuple[int, tuple[int, int] | None]:
    """(first element, (size, step) for a slice); appends the size to `shape`."""
    n = spec.shape[axis]
    parts = (k.start, k.stop, k.step) if isinstance(k, slice) else (k,)
    if any(isinstance(part, bool | np.bool_) for part in parts):
        raise InvalidTypeError(
            f"indexing {describe(spec)} with {k!r}: a bool is neither a place nor a mask here; pass"
            " an int, or choose elements with where"
        )
    if isinstance(k, slice):
        try:
            start, stop, step = k.indices(n)
        except (TypeError, ValueError) as why:
            raise InvalidArgumentError(
                f"indexing {describe(spec)} with {k!r}: {why}; use whole numbers and a step of at"
                " least 1"
            ) from None
        if step < 0:
            raise UnsupportedError(
                f"indexing {describe(spec)}: step {step} is negative, which views cannot express;"
                " use take with reversed indices",
                reason="layout",
            )
        size = max(0, -(-(stop - start) // step))
        shape.append(size)
        return (start if size else 0), (size, step)
    try:
        i = int(k.__index__())
    except (AttributeError, TypeError, InvalidArgumentError):  # arrays of more than one element
        shown = describe(spec_of(k)) if isinstance(k, Array) else repr(k)
        raise InvalidArgumentError(
            f"indexing {describe(spec)} with {shown}: only integers, slices, None and ... make"
            " views; use take or where"
        ) from None
    if not -n <= i < n:
        raise InvalidArgumentError(
            f"indexing {describe(spec)}: {i} is outside axis {axis} of size {n}; use {-n}..{n - 1}"
        )
    return i % n, None


def diagonal(a: Any, first: int, second: int) -> Any:
    """A view of the elements whose indices along two axes are equal, at the place of the first."""
    spec = spec_of(a)
    shape, strides = list(spec.shape), list(spec.strides)
    assert shape[first] == shape[second] and first < second and not spec.dtype.is_block
    strides[first] += strides.pop(second)
    shape.pop(second)
    return _view(a, TensorSpec(spec.dtype, tuple(shape), tuple(strides)))


@typed_call("reshape")
def reshape(a: Any, *shape: Any) -> Array:
    """The same elements under another shape: a view where the layout allows, else a copy."""
    needs_array("reshape", a)
    dims = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else list(shape)
    spec = spec_of(a)
    if not all(map(is_int, dims)):
        raise InvalidTypeError(
            f"reshaping {describe(spec)} to {list(shape)}: sizes are whole numbers; pass ints"
        )
    if dims.count(-1) > 1:
        raise InvalidArgumentError(
            f"reshaping {describe(spec)} to {list(shape)}: -1 is there {dims.count(-1)} times, and"
            " only one size follows from the others; write the sizes"
        )
    known = math.prod(n for n in dims if n != -1)
    if dims.count(-1) == 1 and known and spec.size % known == 0:
        dims[dims.index(-1)] = spec.size // known
    if any(n < 0 for n in dims) or math.prod(dims) != spec.size:
        raise InvalidArgumentError(
            f"reshaping {describe(spec)} to {list(shape)}: the element counts differ; "
            f"{spec.size} elements are there"
        )
    if spec.dtype.is_block and dims[-1:] != list(spec.shape[-1:]):
        raise UnsupportedError(
            f"reshaping {describe(spec)}: the last dim of a block format stays; reshape the others",
            reason="layout",
        )
    strides = _view_strides(spec, dims)
    if strides is None:
        a = OPS["copy"](a)
        strides = dense_strides(dims, spec.dtype)
    return _view(a, TensorSpec(spec.dtype, tuple(dims), tuple(strides)))


def _view_strides(spec: TensorSpec, dims: Sequence[int]) -> Sequence[int] | None:
    """Strides that show the same bytes under `dims`, or None."""
    if spec.is_dense:
        return dense_strides(dims, spec.dtype)
    if spec.dtype.is_block:
        return None
    old = [(n, s) for n, s in zip(spec.shape, spec.strides, strict=True) if n != 1]
    out: list[int] = []
    i = 0
    at = 0
    while at < len(dims):
        if dims[at] == 1:
            out.append(0)
            at += 1
            continue
        if i == len(old):
            return None
        group, end = [dims[at]], at + 1
        have, j = old[i][0], i + 1
        while math.prod(group) != have:
            if math.prod(group) < have:
                if end == len(dims):
                    return None
                group.append(dims[end])
                end += 1
            else:
                # Old dims merge only when one continues the other.
                if j == len(old) or old[j - 1][1] != old[j][0] * old[j][1]:
                    return None
                have *= old[j][0]
                j += 1
        step = old[j - 1][1]
        part: list[int] = []
        for n in reversed(group):
            part.append(step)
            step *= n
        out += reversed(part)
        i, at = j, end
    return out if i == len(old) else None


@typed_call("permute_dims")
def transpose(a: Any, *axes: Any) -> Array:
    """The view with its dims in another order (reversed without arguments)."""
    needs_array("permute_dims", a)
    order = list(axes[0]) if len(axes) == 1 and isinstance(axes[0], tuple | list) else list(axes)
    spec = spec_of(a)
    order = order or list(reversed(range(spec.rank)))
    good = all(is_int(i) and -spec.rank <= i < spec.rank for i in order)
    order = [int(i) % spec.rank for i in order] if good and spec.rank else order
    if not good or sorted(order) != list(range(spec.rank)):
        raise InvalidArgumentError(
            f"transposing {describe(spec)} by {list(axes)}: name each of its {spec.rank} dims once"
        )
    if spec.dtype.is_block and order[-1:] != [spec.rank - 1]:
        raise UnsupportedError(
            f"transposing {describe(spec)}: the last dim of a block format stays last; cast it to a"
            " float first",
            reason="layout",
        )
    return _view(a, spec.permute(order))


def matrix_transpose(a: Any) -> Array:
    """The view with the last two dims exchanged."""
    r = a.ndim
    if r < 2:
        raise InvalidArgumentError(
            f"transposing {describe(spec_of(a))}: it has no two dims to exchange; reshape it"
        )
    return transpose(a, *range(r - 2), r - 1, r - 2)


@typed_call("broadcast_to")
def broadcast_to(a: Any, shape: Sequence[int]) -> Array:
    """The view with that shape; stretched dims have stride 0."""
    needs_array("broadcast_to", a)
    return _view(a, spec_of(a).broadcast_to(shape_of(shape)))


@typed_call("split")
def split(a: Any, indices_or_sections: int | Sequence[int], /, *, axis: int = 0) -> list[Array]:
    """Copies of consecutive parts along one axis: so many equal ones, or cut before each index."""
    needs_array("split", a)
    spec = spec_of(a)
    axis = normalize_axis("split", axis, spec)
    size = spec.shape[axis]
    if is_int(indices_or_sections):
        parts = int(cast("int", indices_or_sections))
        if parts < 1 or size % parts:
            raise InvalidArgumentError(
                f"split: axis {axis} of {describe(spec)} does not divide into {parts} equal parts;"
                " give the indices to cut at"
            )
        cuts = [size // parts * i for i in range(1, parts)]
    else:
        cuts = _cuts(indices_or_sections)
    ends = [0, *cuts, size]
    if ends != sorted(ends):
        raise InvalidArgumentError(
            f"split: cutting axis {axis} of {describe(spec)} at {cuts}: indices must ascend from 0"
            f" to {size}; correct them"
        )
    whole = (slice(None),) * axis
    return [OPS["copy"](getitem(a, (*whole, slice(i, j)))) for i, j in itertools.pairwise(ends)]


def _cuts(indices: Any) -> list[int]:
    rows = isinstance(indices, Iterable) and not isinstance(indices, str | bytes | Array)
    given: list[Any] = list(indices) if rows else [None]
    if not all(is_int(i) for i in given):
        raise InvalidTypeError(
            f"split: cannot cut at a {type(indices).__name__} that is not made of whole numbers;"
            " pass how many equal parts, or a list of indices"
        )
    return [int(i) for i in given]
