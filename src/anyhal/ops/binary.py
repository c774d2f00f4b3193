"""binary(a, b, fn): one function of each pair of elements, with broadcasting.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._checks import (
    FLOATS,
    INTS,
    NUMBERS,
    PLAIN,
    check_choice,
    check_dtype,
    check_same_dtype,
)
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, broadcast_shapes


def _floor_divide(a: Any, b: Any) -> Any:
    return np.where(b == 0, 0, np.floor_divide(a, b)) if _integer(a) else np.floor_divide(a, b)


def _remainder(a: Any, b: Any) -> Any:
    return np.where(b == 0, 0, np.remainder(a, b)) if _integer(a) else np.remainder(a, b)


def _pow(a: Any, b: Any) -> Any:
    if not _integer(a):
        return np.power(a, b)
    # The truncated real value of a negative power: 0, or a unit for the bases 1 and -1.
    negative = b < 0
    unit = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(negative, unit.astype(a.dtype), np.power(a, np.where(negative, 0, b)))


def _shift_left(a: Any, b: Any) -> Any:
    past = _past_width(a, b)
    return np.where(past, 0, np.left_shift(a, np.where(past, 0, b)))


def _shift_right(a: Any, b: Any) -> Any:
    past = _past_width(a, b)
    sign = np.where(a < 0, -1, 0).astype(a.dtype) if a.dtype.kind == "i" else np.zeros_like(a)
    return np.where(past, sign, np.right_shift(a, np.where(past, 0, b)))


def _past_width(a: Any, b: Any) -> Any:
    return (b < 0) | (b >= a.dtype.itemsize * 8)


def _integer(a: Any) -> bool:
    return a.dtype.kind in "iu"


# fn: number in the contract, public name, formula, input dtypes, and the function on wide values.
_Row = tuple[int, str, str, tuple[str, ...], Callable[[Any, Any], Any]]
FUNCTIONS: dict[str, _Row] = {
    "add": (1, "add", "a + b", NUMBERS, np.add),
    "subtract": (2, "subtract", "a - b", NUMBERS, np.subtract),
    "multiply": (3, "multiply", "a * b", NUMBERS, np.multiply),
    "divide": (4, "divide", "a / b; x / 0 is an infinity, 0 / 0 NaN", FLOATS, np.divide),
    "floor_divide": (
        5,
        "floor_divide",
        "the integer at or below a / b; integers by 0 give 0, an infinite a NaN",
        NUMBERS,
        _floor_divide,
    ),
    "remainder": (
        6,
        "remainder",
        "a - b * floor(a / b), with the sign of b; integers by 0 give 0, floats NaN",
        NUMBERS,
        _remainder,
    ),
    "pow": (
        7,
        "pow",
        "a to the power b; an integer to a negative power is truncated (0 unless a is 1 or -1)",
        NUMBERS,
        _pow,
    ),
    "maximum": (8, "maximum", "the larger; NaN if either is NaN", NUMBERS, np.maximum),
    "minimum": (9, "minimum", "the smaller; NaN if either is NaN", NUMBERS, np.minimum),
    "atan2": (10, "atan2", "the angle of the point (b, a) in radians", FLOATS, np.arctan2),
    "equal": (11, "equal", "a == b; NaN equals nothing", PLAIN, np.equal),
    "not_equal": (12, "not_equal", "a != b; true for NaN", PLAIN, np.not_equal),
    "less": (13, "less", "a < b", PLAIN, np.less),
    "less_equal": (14, "less_equal", "a <= b", PLAIN, np.less_equal),
    "greater": (15, "greater", "a > b", PLAIN, np.greater),
    "greater_equal": (16, "greater_equal", "a >= b", PLAIN, np.greater_equal),
    "logical_and": (17, "logical_and", "a and b", ("bool",), np.logical_and),
    "logical_or": (18, "logical_or", "a or b", ("bool",), np.logical_or),
    "logical_xor": (19, "logical_xor", "a or b, but not both", ("bool",), np.logical_xor),
    "bitwise_and": (20, "bitwise_and", "a & b", (*INTS, "bool"), np.bitwise_and),
    "bitwise_or": (21, "bitwise_or", "a | b", (*INTS, "bool"), np.bitwise_or),
    "bitwise_xor": (22, "bitwise_xor", "a ^ b", (*INTS, "bool"), np.bitwise_xor),
    "shift_left": (
        23,
        "bitwise_left_shift",
        "a << b; 0 when b is negative or not below the width",
        INTS,
        _shift_left,
    ),
    "shift_right": (
        24,
        "bitwise_right_shift",
        "a >> b with the sign kept; 0 or -1 when b is negative or not below the width",
        INTS,
        _shift_right,
    ),
    "logaddexp": (
        25,
        "logaddexp",
        "log(exp(a) + exp(b)), without overflow",
        FLOATS,
        np.logaddexp,
    ),
    "copysign": (26, "copysign", "the magnitude of a with the sign of b", FLOATS, np.copysign),
    "nextafter": (
        27,
        "nextafter",
        "the value of the dtype next to a in the direction of b; b where they are equal",
        FLOATS,
        np.nextafter,
    ),
    "hypot": (28, "hypot", "sqrt(a * a + b * b), without overflow", FLOATS, np.hypot),
}
# Functions of the stored values: one number in a wider format has other neighbours.
_STORED = ("nextafter",)
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    a, b = inputs
    assert a is not None and b is not None
    fn = attrs["fn"]
    check_choice("binary", "fn", fn, FUNCTIONS)
    _, public, _, allowed, _ = FUNCTIONS[fn]
    check_same_dtype(public, a, b)
    check_dtype(public, "a", a, allowed)
    out = dtype("bool") if fn in COMPARISONS else a.dtype
    return TensorSpec.dense(out, broadcast_shapes(public, a, b))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    a, b = inputs
    assert a is not None and b is not None
    return ([a.broadcast_to(out.shape), b.broadcast_to(out.shape)], {"fn": attrs["fn"]}, out)


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    a, b = inputs
    assert a is not None and b is not None
    return float(out.size), float(a.nbytes + b.nbytes + out.nbytes)


def reference(a: Any, b: Any, fn: str) -> Any:
    with np.errstate(all="ignore"):
        if fn in _STORED:
            return wide(FUNCTIONS[fn][4](a, b))
        return FUNCTIONS[fn][4](wide(a), wide(b))


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 7.0])
    for fn, (_, _, _, allowed, _) in FUNCTIONS.items():
        for short in allowed:
            np_type = dtype(short).numpy
            if short in FLOATS:
                a = np.concatenate([np.repeat(special, 10), 3 * rng.standard_normal(23)])
                b = np.concatenate([np.tile(special, 10), 3 * rng.standard_normal(23)])
            elif short == "bool":
                a, b = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
            else:
                info = np.iinfo(np_type)
                ends = [int(info.min), int(info.max), 0, 1, 2, 7, info.bits - 1, info.bits]
                few = np.array(ends, np_type)
                a, b = np.repeat(few, 8), np.tile(few, 8)
            yield Sample(f"{fn} {short}", (a.astype(np_type), b.astype(np_type)), {"fn": fn})
    import ml_dtypes  # a program that only computes need not wait for it

    for short in FLOATS:
        np_type = dtype(short).numpy
        kind: Any = ml_dtypes.finfo(np_type)  # type: ignore[no-untyped-call]
        limits = [kind.max, kind.tiny, kind.smallest_subnormal, 1.0, 2.0, 0.0]
        edges = np.array([*limits, *(-e for e in limits), np.inf, -np.inf]).astype(np_type)
        for fn in ("nextafter", "hypot", "copysign"):
            a, b = np.repeat(edges, len(edges)), np.tile(edges, len(edges))
            yield Sample(f"{fn} ends {short}", (a, b), {"fn": fn})
    row = rng.standard_normal(6).astype(np.float32)
    column = rng.standard_normal((4, 1)).astype(np.float32)
    yield Sample("broadcast", (column, row), {"fn": "add"})
    yield Sample("0-d", (np.array(2.0, np.float32), row), {"fn": "multiply"})
    yield Sample("empty", (np.zeros((0, 6), np.float32), row), {"fn": "add"})


def _dtypes(fn: str) -> str:
    allowed = ", ".join(FUNCTIONS[fn][3])
    return f"{allowed} -> {'bool' if fn in COMPARISONS else 'same'}"


SPEC = OpSpec(
    id=5,
    name="binary",
    since="0.1",
    summary="out = fn(a, b), element by element; shapes broadcast, dtypes must be equal.",
    inputs=(Arg("a", "[...]"), Arg("b", "[...]")),
    output=Arg("out", "[...]"),
    attrs=(
        Attr(
            "fn",
            "enum",
            choices={fn: row[0] for fn, row in FUNCTIONS.items()},
            c_type="int32_t",
            c_enum="binary_fn",
        ),
    ),
    dtypes={**dict.fromkeys(FLOATS, "f32"), "f64": "f64", **{n: n for n in (*INTS, "bool")}},
    special="IEEE rules; NaN propagates through maximum and minimum; integers wrap and never trap; "
    "f16 and bf16 are computed in f32 and rounded once",
    aliasing="elementwise",
    bound="binary",
    source="array API 2024.12; integer division by zero and shifts past the width are ours",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    variants={row[1]: {"fn": fn} for fn, row in FUNCTIONS.items()},
    variant_docs={row[1]: f"out = {row[2]}." for row in FUNCTIONS.values()},
    variant_dtypes={row[1]: _dtypes(fn) for fn, row in FUNCTIONS.items()},
)
