"""resize(x, sizes, mode, coordinates, rounding): x sampled at other spatial sizes.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from anyhal.errors import InvalidArgumentError
from anyhal.ops import _draw
from anyhal.ops._checks import FLOATS, PLAIN, WIDE, check_choice, check_dtype
from anyhal.ops._indexing import along
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value

MODES = {"nearest": 1, "linear": 2}
COORDINATES = {"half_pixel": 1, "pytorch_half_pixel": 2, "align_corners": 3, "asymmetric": 4}
ROUNDING = {"none": 1, "round_prefer_floor": 2, "round_prefer_ceil": 3, "floor": 4, "ceil": 5}
_LARGEST = 2**31 - 1


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (x,) = inputs
    assert x is not None
    mode, sizes = attrs["mode"], attrs["sizes"]
    for name, choices in (("mode", MODES), ("coordinates", COORDINATES), ("rounding", ROUNDING)):
        check_choice("resize", name, attrs[name], choices)
    check_dtype("resize", "x", x, FLOATS if mode == "linear" else PLAIN)
    if (mode == "linear") != (attrs["rounding"] == "none"):
        raise InvalidArgumentError(
            f"resize: rounding={attrs['rounding']!r} of x {describe(x)} does not go with "
            f"mode={mode!r}: nearest has to round the coordinate, linear must not; state it for "
            "nearest alone"
        )
    if not 1 <= len(sizes) <= min(x.rank, 3) or any(not 0 <= s <= _LARGEST for s in sizes):
        raise InvalidArgumentError(
            f"resize: sizes={sizes} of x {describe(x)} must be one to three numbers below 2^31, "
            "for its last axes; correct them"
        )
    spatial = x.shape[x.rank - len(sizes) :]
    if any(n == 0 and s > 0 for n, s in zip(spatial, sizes, strict=True)):
        raise InvalidArgumentError(
            f"resize: x {describe(x)} has an axis of size 0, and nothing cannot become "
            f"{list(sizes)}; check the size first"
        )
    return TensorSpec.dense(x.dtype, (*x.shape[: x.rank - len(sizes)], *sizes))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    record = {name: attrs[name] for name in ("mode", "coordinates", "rounding")}
    return list(inputs), {**record, "sizes": (len(attrs["sizes"]),)}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    (x,) = inputs
    assert x is not None
    flops = 0.0 if attrs["mode"] == "nearest" else 3.0 * out.size * len(attrs["sizes"])
    return flops, float(x.nbytes + out.nbytes)


def _coordinates(n: int, size: int, kind: str) -> tuple[Any, int]:
    """Where each of `size` elements lies among n, as exact fractions: numerators, denominator."""
    at = np.arange(size, dtype=np.int64)
    if size == 1 and kind in ("align_corners", "pytorch_half_pixel"):
        return np.zeros(1, np.int64), 1
    if kind == "align_corners":
        return at * (n - 1), max(size - 1, 1)
    if kind == "asymmetric":
        return at * n, size
    return (2 * at + 1) * n - size, 2 * size


def _nearest(n: int, size: int, kind: str, rounding: str) -> Any:
    above, below = _coordinates(n, size, kind)
    found = {
        "floor": lambda: above // below,
        "ceil": lambda: -(-above // below),
        "round_prefer_floor": lambda: -((below - 2 * above) // (2 * below)),
        "round_prefer_ceil": lambda: (2 * above + below) // (2 * below),
    }[rounding]()
    return found.clip(0, n - 1)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    (x,) = inputs
    assert x is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    first = x.spec.rank - len(attrs["sizes"])
    axes = [(first + i, size) for i, size in enumerate(attrs["sizes"])]
    if attrs["mode"] == "nearest":
        for axis, size in axes:
            at = _nearest(x.shape[axis], size, attrs["coordinates"], attrs["rounding"])
            last = out if axis == x.spec.rank - 1 else None
            x = trace("gather", x, trace.constant(at, "i64"), axis=axis, out=last)
        return
    value = trace.cast(x, WIDE[x.dtype.short])
    for axis, size in axes:
        value = _blend(trace, value, axis, size, attrs["coordinates"])
    trace.cast(value, out.dtype, out=out)


def _blend(trace: Trace, x: Value, axis: int, size: int, kind: str) -> Value:
    """The weighted sum of the two neighbours along one axis; the second has no part where its
    weight is 0, whatever it holds."""
    n, acc = x.shape[axis], x.dtype
    above, below = _coordinates(n, size, kind)
    above = above.clip(0, (n - 1) * below)
    low, part = np.divmod(above, below)
    # Both weights from whole numbers: 1 - weight would lose what is small beside 1.
    near, far = (along(p / below, axis, x.spec.rank) for p in (below - part, part))
    left = trace("gather", x, trace.constant(low, "i64"), axis=axis)
    if not far.any():
        return left
    right = trace("gather", x, trace.constant((low + 1).clip(0, n - 1), "i64"), axis=axis)
    a = trace.binary("multiply", left, trace.constant(near, acc))
    b = trace.binary("multiply", right, trace.constant(far, acc))
    mixed = trace.binary("add", a, b, out=a)
    if far.all():
        return mixed
    return trace("where", trace.constant(far == 0, "bool"), left, mixed)


def _position(o: int, n: int, size: int, kind: str) -> Fraction:
    """The formulas of ONNX, with the scale size / n."""
    if kind == "asymmetric":
        return Fraction(o * n, size)
    if size == 1 and kind != "half_pixel":
        return Fraction(0)
    if kind == "align_corners":
        return Fraction(o * (n - 1), size - 1)
    return (o + Fraction(1, 2)) * Fraction(n, size) - Fraction(1, 2)


def _rounded(position: Fraction, rounding: str) -> int:
    if rounding == "floor":
        return math.floor(position)
    if rounding == "ceil":
        return math.ceil(position)
    half = Fraction(1, 2)
    if rounding == "round_prefer_floor":
        return math.ceil(position - half)
    return math.floor(position + half)


def reference(x: Any, *, sizes: Any, mode: str, coordinates: str, rounding: str = "none") -> Any:
    values = wide(x)
    for axis, size in enumerate(sizes, x.ndim - len(sizes)):
        n, rows = values.shape[axis], []
        for o in range(size):
            position = _position(o, n, size, coordinates)
            if mode == "nearest":
                at = min(max(_rounded(position, rounding), 0), n - 1)
                rows.append(np.take(values, at, axis))
                continue
            position = min(max(position, Fraction(0)), Fraction(n - 1))
            low = math.floor(position)
            part, row = position - low, np.take(values, low, axis)
            if part:
                kind = values.dtype.type
                weight = kind(part.numerator) / kind(part.denominator)
                with np.errstate(all="ignore"):
                    row = row * (1 - weight) + np.take(values, low + 1, axis) * weight
            rows.append(row)
        shape = (*values.shape[:axis], size, *values.shape[axis + 1 :])
        values = np.stack(rows, axis) if rows else np.zeros(shape, values.dtype)
    return values


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for kind in COORDINATES:
        for short in PLAIN:
            x = _draw.values(rng, (2, 1, 5, 4), short, 5)
            for rounding in [r for r in ROUNDING if r != "none"]:
                attrs = {"mode": "nearest", "coordinates": kind, "rounding": rounding}
                yield Sample(f"{kind} {rounding} {short}", (x,), {"sizes": (7, 3), **attrs})
        for short in FLOATS:
            attrs = {"mode": "linear", "coordinates": kind}
            for shape, sizes in (
                ((2, 1, 5, 4), (7, 3)),
                ((1, 2, 3, 2, 4), (4, 3, 9)),
                ((2, 6), (1,)),
                ((3, 1), (5,)),
                ((2, 26), (64,)),
            ):
                x = _draw.values(rng, shape, short)
                yield Sample(f"{kind} {list(sizes)} {short}", (x,), {"sizes": sizes, **attrs})
        x = np.array([[1, np.nan, 2, np.inf, -0.0, 3]], np.float32)
        yield Sample(f"{kind} special", (x,), {"sizes": (11,), **attrs})
        yield Sample(f"{kind} as it is", (x,), {"sizes": (6,), **attrs})
        yield Sample(f"{kind} to nothing", (x,), {"sizes": (0,), **attrs})
        yield Sample(f"{kind} no rows", (x[:0],), {"sizes": (3,), **attrs})


def random(rng: _draw.Rng) -> Sample:
    mode = _draw.one_of(rng, MODES)
    short = _draw.one_of(rng, FLOATS if mode == "linear" else PLAIN)
    count = int(rng.integers(1, 4))
    lead = tuple(int(n) for n in rng.integers(0, 4, int(rng.integers(0, 3))))
    spatial = tuple(int(n) for n in rng.integers(1, 9, count))
    attrs = {
        "sizes": tuple(int(n) for n in rng.integers(0, 14, count)),
        "mode": mode,
        "coordinates": _draw.one_of(rng, COORDINATES),
        "rounding": "none" if mode == "linear" else _draw.one_of(rng, list(ROUNDING)[1:]),
    }
    return Sample("", (_draw.values(rng, (*lead, *spatial), short),), attrs)


SPEC = OpSpec(
    id=44,
    name="resize",
    since="0.2",
    summary="out = x at the coordinates that each output element has in x, along the last axes.",
    inputs=(Arg("x", "[A..., S...]"),),
    output=Arg("out", "[A..., sizes...]"),
    attrs=(
        Attr(
            "sizes",
            "ints",
            c_type="int32_t",
            c_name="axis_count",
            doc="of the last one to three axes; the scale is exactly size / S",
        ),
        Attr("mode", "enum", choices=MODES, c_type="int32_t", c_enum="resize_mode"),
        Attr(
            "coordinates",
            "enum",
            choices=COORDINATES,
            c_type="int32_t",
            c_enum="resize_coordinates",
            doc="of element o: half_pixel (o + 1/2) S / size - 1/2; pytorch_half_pixel the same, "
            "but 0 when size is 1; align_corners o (S - 1) / (size - 1); asymmetric o S / size",
        ),
        Attr(
            "rounding",
            "enum",
            default="none",
            choices=ROUNDING,
            c_type="int32_t",
            c_enum="resize_rounding",
            doc="of the coordinate; required with nearest, and only there",
        ),
    ),
    dtypes={
        **{name: WIDE[name] for name in FLOATS},
        **{name: name for name in PLAIN if name not in FLOATS},
    },
    special="coordinates are exact fractions, held inside x; nearest keeps bits and takes every "
    "dtype, linear floats; a neighbour of weight 0 has no part, NaN included; rounded once",
    aliasing="none",
    bound="resize",
    source="ONNX Resize, opset 19, sizes only",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
