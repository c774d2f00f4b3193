"""Windows that slide over spatial axes: sizes, padding and views, for convolutions and pools.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.errors import InvalidArgumentError
from anyhal.ops._checks import check_dtype
from anyhal.ops._draw import Rng
from anyhal.ops._spec import Attr, Shape, TensorSpec, describe
from anyhal.ops._trace import Trace, Value
from anyhal.records import record

SPATIAL_MAX = 3
_LARGEST = 2**31 - 1

_EACH = "one number for each spatial axis"
STRIDES = Attr(
    "strides", "ints", default=None, c_type="int32_t", c_count=3, doc=f"{_EACH}; 1 by default"
)
DILATIONS = Attr(
    "dilations", "ints", default=None, c_type="int32_t", c_count=3, doc=f"{_EACH}; 1 by default"
)
PADS = Attr(
    "pads",
    "ints",
    default=None,
    c_type="int32_t",
    c_count=6,
    doc="elements before each spatial axis, then elements after each; 0 by default",
)
# Libraries differ on the stride of a pool that states none.
POOL_ATTRS = (
    Attr("kernel", "ints", c_type="int32_t", c_count=3, doc=_EACH),
    Attr("strides", "ints", c_type="int32_t", c_count=3, doc=_EACH),
    PADS,
    DILATIONS,
    Attr(
        "ceil_mode",
        "bool",
        default=False,
        doc="keep a last window that leaves the padded input, if it begins before the end pad",
    ),
)


@record
class Windows:
    """Where a kernel stands; one number for each spatial axis. Output element o looks at elements
    o * stride - before + dilation * k of the input."""

    kernel: Shape
    strides: Shape
    dilations: Shape
    before: Shape
    after: Shape
    sizes: Shape  # of the output

    @property
    def reach(self) -> Shape:
        """From the first to the last element of one window."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def extents(self) -> Shape:
        """From the first element of the first window to the last of the last one."""
        return tuple(
            (o - 1) * s + r for o, s, r in zip(self.sizes, self.strides, self.reach, strict=True)
        )

    def record(self) -> dict[str, Shape]:
        """As the C records carry it, for three axes."""
        rest = SPATIAL_MAX - len(self.kernel)
        pads = (*self.before, *(0,) * rest, *self.after, *(0,) * rest)
        ones = (1,) * rest
        return {
            "strides": self.strides + ones,
            "dilations": self.dilations + ones,
            "pads": pads,
        }

    def inside(
        self, sizes: Sequence[int], before: Sequence[int], after: Sequence[int]
    ) -> list[Any]:
        """For each axis a bool [output, kernel]: which elements lie in the input of these sizes
        and so much of its padding."""
        found = []
        for a, n in enumerate(sizes):
            starts = np.arange(self.sizes[a])[:, None] * self.strides[a] - self.before[a]
            at = starts + np.arange(self.kernel[a]) * self.dilations[a]
            found.append((at >= -before[a]) & (at < n + after[a]))
        return found

    def places(self) -> Iterator[tuple[Any, tuple[slice, ...]]]:
        """Each output place and its window in the padded input; for the references."""
        for at in np.ndindex(self.sizes):
            starts = [o * s for o, s in zip(at, self.strides, strict=True)]
            yield (
                at,
                tuple(
                    slice(b, b + r, d)
                    for b, r, d in zip(starts, self.reach, self.dilations, strict=True)
                ),
            )


def per_axis(
    op: str, x: TensorSpec, name: str, value: Any, count: int, default: int, lowest: int
) -> Shape:
    """An attribute of `count` numbers from `lowest` on."""
    found: Shape = (default,) * count if value is None else tuple(value)
    if len(found) != count or any(not lowest <= v <= _LARGEST for v in found):
        raise InvalidArgumentError(
            f"{op}: {name}={found} of x {describe(x)} must be {count} numbers from {lowest} to "
            f"{_LARGEST}; correct them"
        )
    return found


def check_spatial(op: str, x: TensorSpec) -> int:
    """The number of spatial axes of x."""
    if not 1 <= x.rank - 2 <= SPATIAL_MAX:
        raise InvalidArgumentError(
            f"{op}: x is {describe(x)} but must be [N, C, spatial...] with one to three spatial "
            "axes; reshape it"
        )
    return x.rank - 2


def windows(
    op: str, x: TensorSpec, kernel: Sequence[int], attrs: Mapping[str, Any], ceil: bool = False
) -> Windows:
    """The windows of a kernel over the spatial axes of x."""
    count = check_spatial(op, x)
    sizes = per_axis(op, x, "kernel", kernel, count, 1, 1)
    strides = per_axis(op, x, "strides", attrs["strides"], count, 1, 1)
    dilations = per_axis(op, x, "dilations", attrs["dilations"], count, 1, 1)
    pads = per_axis(op, x, "pads", attrs["pads"], 2 * count, 0, 0)
    out = []
    for a, n in enumerate(x.shape[2:]):
        reach = (sizes[a] - 1) * dilations[a] + 1
        room = n + pads[a] + pads[count + a] - reach
        if room < 0:
            raise InvalidArgumentError(
                f"{op}: a window reaches over {reach} elements of spatial axis {a}, and x "
                f"{describe(x)} with pads {pads[a]} and {pads[count + a]} has {room + reach}; "
                "pad more or use a smaller kernel"
            )
        steps = room // strides[a]
        if ceil and room % strides[a] and (steps + 1) * strides[a] < n + pads[a]:
            steps += 1
        out.append(steps + 1)
    return Windows(sizes, strides, dilations, pads[:count], pads[count:], tuple(out))


def pool_windows(op: str, x: TensorSpec, attrs: Mapping[str, Any]) -> Windows:
    """Those of a pool: each window must see an element of x, or it would have no result."""
    w = windows(op, x, attrs["kernel"], attrs, attrs["ceil_mode"])
    none = (0,) * len(w.kernel)
    for a, inside in enumerate(w.inside(x.shape[2:], none, none)):
        if not inside.any(axis=1).all():
            raise InvalidArgumentError(
                f"{op}: a window along spatial axis {a} of x {describe(x)} lies in the padding "
                f"alone (kernel {w.kernel}, dilations {w.dilations}, pads {w.before} and "
                f"{w.after}); pad less"
            )
    return w


def infer_pool(
    op: str, x: TensorSpec, attrs: Mapping[str, Any], allowed: Sequence[str]
) -> TensorSpec:
    check_dtype(op, "x", x, allowed)
    return TensorSpec.dense(x.dtype, (*x.shape[:2], *pool_windows(op, x, attrs).sizes))


def pool_record(op: str, x: TensorSpec, attrs: Mapping[str, Any]) -> dict[str, Any]:
    w = pool_windows(op, x, attrs)
    return {"kernel": (*w.kernel, *(1,) * (SPATIAL_MAX - len(w.kernel))), **w.record()}


# ------------------------------------------------------------------------------ in decompositions


def padded(trace: Trace, x: Value, w: Windows, value: Any) -> Value:
    """x with the padding that windows look at; x itself if they look at none."""
    sizes = x.shape[2:]
    if not any(w.before) and all(e <= n for e, n in zip(w.extents, sizes, strict=True)):
        return x
    whole = trace.temp((*x.shape[:2], *w.extents), x.dtype)
    trace("fill", trace.constant(value, x.dtype), out=whole)
    inner = whole
    for a, (n, before, extent) in enumerate(zip(sizes, w.before, w.extents, strict=True), 2):
        stop = max(before, min(before + n, extent))
        x, inner = (
            x.slice(a, 0, stop - before),
            inner.slice(a, min(before, extent), min(stop, extent)),
        )
    if x.spec.size:
        trace("copy", x, out=inner)
    return whole


def view(x: Value, w: Windows, kernel_last: bool) -> Value:
    """All windows of padded x as axes of their own, which overlap: [N, C, kernel..., output...] or
    [N, C, output..., kernel...]. For reading only."""
    steps = x.spec.strides[2:]
    kernel = tuple(
        zip(w.kernel, (s * d for s, d in zip(steps, w.dilations, strict=True)), strict=True)
    )
    output = tuple(
        zip(w.sizes, (s * d for s, d in zip(steps, w.strides, strict=True)), strict=True)
    )
    axes = (*output, *kernel) if kernel_last else (*kernel, *output)
    spec = TensorSpec(
        x.dtype,
        (*x.shape[:2], *(n for n, _ in axes)),
        (*x.spec.strides[:2], *(s for _, s in axes)),
    )
    return Value(x.kind, x.index, spec, x.offset)


def every(x: Value, starts: Sequence[int], steps: Sequence[int], sizes: Sequence[int]) -> Value:
    """Every `step`th element of each spatial axis."""
    offset, shape, strides = x.offset, list(x.shape), list(x.spec.strides)
    for a, (start, step, n) in enumerate(zip(starts, steps, sizes, strict=True), 2):
        offset += start * strides[a] * x.dtype.block_bytes
        shape[a], strides[a] = n, strides[a] * step
    return Value(x.kind, x.index, TensorSpec(x.dtype, tuple(shape), tuple(strides)), offset)


# ---------------------------------------------------------------------------------- random cases


def random_pool(rng: Rng) -> tuple[Shape, dict[str, Any]]:
    """A shape and attributes of a pool."""
    count = int(rng.integers(1, SPATIAL_MAX + 1))
    kernel, strides = rng.integers(1, 4, count), rng.integers(1, 4, count)
    dilations = rng.integers(1, 3, count)
    pads = np.concatenate([rng.integers(0, k // 2 + 1, 2) for k in kernel]).reshape(-1, 2).T
    sizes = (kernel - 1) * dilations + rng.integers(1, 6, count)
    attrs = {
        "kernel": tuple(map(int, kernel)),
        "strides": tuple(map(int, strides)),
        "dilations": tuple(map(int, dilations)),
        "pads": tuple(map(int, pads.reshape(-1))),
        "ceil_mode": bool(rng.integers(2)),
    }
    batch, channels = rng.integers(0, 4, 2)
    return (int(batch), int(channels), *map(int, sizes)), attrs
