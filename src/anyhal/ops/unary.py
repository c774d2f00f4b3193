"""unary(x, fn): one function of each element.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._checks import FLOATS, INTS, NUMBERS, check_choice, check_dtype
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _gelu_tanh(x: Any) -> Any:
    # x * sigmoid(2u) is x/2 * (1 + tanh(u)) without the cancellation of the negative tail.
    return _times(x, _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _times(x: Any, gate: Any) -> Any:
    """x * gate, where a gate of 0 at x = -inf gives -0."""
    return np.where(np.isneginf(x), -0.0, x * gate)


# fn: number in the contract, public name, formula, input dtypes, and the function on wide values.
_Row = tuple[int, str, str, tuple[str, ...], Callable[[Any], Any]]
FUNCTIONS: dict[str, _Row] = {
    "neg": (1, "negative", "-x; integers wrap", NUMBERS, lambda x: -x),
    "abs": (2, "abs", "the magnitude of x; the smallest integer wraps", NUMBERS, np.abs),
    "sign": (3, "sign", "-1, 0 or 1; NaN stays", NUMBERS, np.sign),
    "exp": (4, "exp", "e to the power x", FLOATS, np.exp),
    "expm1": (5, "expm1", "exp(x) - 1 without cancellation", FLOATS, np.expm1),
    "log": (6, "log", "the natural logarithm; log(0) = -inf, negative gives NaN", FLOATS, np.log),
    "log1p": (7, "log1p", "log(1 + x) without cancellation", FLOATS, np.log1p),
    "sqrt": (8, "sqrt", "the square root; negative gives NaN", FLOATS, np.sqrt),
    "rsqrt": (9, "rsqrt", "1 / sqrt(x); rsqrt(0) = inf", FLOATS, lambda x: 1 / np.sqrt(x)),
    "reciprocal": (10, "reciprocal", "1 / x", FLOATS, lambda x: 1 / x),
    "sin": (11, "sin", "the sine of x in radians; sin(inf) = NaN", FLOATS, np.sin),
    "cos": (12, "cos", "the cosine of x in radians; cos(inf) = NaN", FLOATS, np.cos),
    "tanh": (13, "tanh", "the hyperbolic tangent", FLOATS, np.tanh),
    "erf": (14, "erf", "the error function", FLOATS, _erf),
    "floor": (15, "floor", "the integer at or below x", FLOATS, np.floor),
    "ceil": (16, "ceil", "the integer at or above x", FLOATS, np.ceil),
    "round": (17, "round", "the nearest integer, ties to even", FLOATS, np.rint),
    "trunc": (18, "trunc", "the integer next to x toward zero", FLOATS, np.trunc),
    "logical_not": (19, "logical_not", "not x", ("bool",), np.logical_not),
    "bitwise_not": (20, "bitwise_invert", "every bit of x inverted", (*INTS, "bool"), np.invert),
    "isnan": (21, "isnan", "whether x is NaN", FLOATS, np.isnan),
    "isinf": (22, "isinf", "whether x is an infinity", FLOATS, np.isinf),
    "isfinite": (23, "isfinite", "whether x is neither NaN nor infinite", FLOATS, np.isfinite),
    "sigmoid": (24, "sigmoid", "1 / (1 + exp(-x))", FLOATS, _sigmoid),
    "relu": (25, "relu", "max(x, 0); NaN stays", FLOATS, lambda x: np.where(x < 0, 0.0, x)),
    "silu": (26, "silu", "x * sigmoid(x)", FLOATS, lambda x: _times(x, _sigmoid(x))),
    "gelu": (
        27,
        "gelu",
        "x / 2 * (1 + erf(x / sqrt(2)))",
        FLOATS,
        lambda x: _times(x, _erfc(-x / math.sqrt(2)) / 2),
    ),
    "gelu_tanh": (
        28,
        "gelu_tanh",
        "x / 2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))",
        FLOATS,
        _gelu_tanh,
    ),
    "tan": (29, "tan", "the tangent of x in radians; tan(inf) = NaN", FLOATS, np.tan),
    "asin": (30, "asin", "the arc sine in radians; NaN outside -1..1", FLOATS, np.arcsin),
    "acos": (31, "acos", "the arc cosine in radians; NaN outside -1..1", FLOATS, np.arccos),
    "atan": (32, "atan", "the arc tangent in radians", FLOATS, np.arctan),
    "sinh": (33, "sinh", "the hyperbolic sine", FLOATS, np.sinh),
    "cosh": (34, "cosh", "the hyperbolic cosine", FLOATS, np.cosh),
    "asinh": (35, "asinh", "the inverse hyperbolic sine", FLOATS, np.arcsinh),
    "acosh": (36, "acosh", "the inverse hyperbolic cosine; NaN below 1", FLOATS, np.arccosh),
    "atanh": (37, "atanh", "the inverse hyperbolic tangent; atanh(1) = inf", FLOATS, np.arctanh),
    "log2": (38, "log2", "the logarithm to base 2; log2(0) = -inf", FLOATS, np.log2),
    "log10": (39, "log10", "the logarithm to base 10; log10(0) = -inf", FLOATS, np.log10),
    "exp2": (40, "exp2", "2 to the power x", FLOATS, np.exp2),
    "square": (41, "square", "x * x; integers wrap", NUMBERS, np.square),
    "positive": (42, "positive", "x itself", NUMBERS, np.positive),
    "signbit": (
        43,
        "signbit",
        "whether the sign bit is set: of -0 and NaN too",
        FLOATS,
        np.signbit,
    ),
    "softplus": (44, "softplus", "log(1 + exp(x)), without overflow", FLOATS, _softplus),
}
TO_BOOL = ("isnan", "isinf", "isfinite", "signbit")


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (x,) = inputs
    assert x is not None
    fn = attrs["fn"]
    check_choice("unary", "fn", fn, FUNCTIONS)
    _, public, _, allowed, _ = FUNCTIONS[fn]
    check_dtype(public, "x", x, allowed)
    return TensorSpec.dense(dtype("bool") if fn in TO_BOOL else x.dtype, x.shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    (x,) = inputs
    assert x is not None
    return [x.broadcast_to(out.shape)], {"fn": attrs["fn"]}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    (x,) = inputs
    assert x is not None
    return float(out.size), float(x.nbytes + out.nbytes)


def reference(x: Any, fn: str) -> Any:
    with np.errstate(all="ignore"):
        return FUNCTIONS[fn][4](wide(x))


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    special = [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        45.0,
        -45.0,
    ]
    more = [1e4, -1e4, -13.24, 20.625, 21.658, 1e-3, -1e-3, 1e-30, 6.0, 12.0, 89.0, -89.0, 100.0]
    for fn, (_, _, _, allowed, _) in FUNCTIONS.items():
        for short in allowed:
            np_type = dtype(short).numpy
            if short in FLOATS:
                x = np.concatenate([special, more, 3 * rng.standard_normal(22)]).astype(np_type)
            elif short == "bool":
                x = rng.integers(0, 2, 17).astype(np_type)
            else:
                info = np.iinfo(np_type)
                ends = np.array([info.min, info.max, 0, 1, 7], np_type)
                x = np.concatenate([ends, rng.integers(0, 100, 12).astype(np_type)])
            yield Sample(f"{fn} {short}", (x,), {"fn": fn})
    # The odd functions next to 0, the inverse ones next to their ends, 2^x and log2 at integers.
    near = [1e-4, -2e-5, 3e-7, 0.999, -0.9999, 1.0001, 1.5, 2.0, 8.0, -3.0, 1024.0, 10.0, 1000.0]
    for fn in list(FUNCTIONS)[28:]:
        for short in (n for n in FUNCTIONS[fn][3] if n in FLOATS):
            yield Sample(
                f"{fn} near ends {short}", (np.array(near, dtype(short).numpy),), {"fn": fn}
            )
    yield Sample("0-d", (np.array(0.25, np.float32),), {"fn": "exp"})
    yield Sample("empty", (np.zeros((0, 3), np.float32),), {"fn": "exp"})


def _dtypes(fn: str) -> str:
    allowed = ", ".join(FUNCTIONS[fn][3])
    return f"{allowed} -> {'bool' if fn in TO_BOOL else 'same'}"


SPEC = OpSpec(
    id=4,
    name="unary",
    since="0.1",
    summary="out = fn(x), element by element.",
    inputs=(Arg("x", "[...]"),),
    output=Arg("out", "[...]"),
    attrs=(
        Attr(
            "fn",
            "enum",
            choices={fn: row[0] for fn, row in FUNCTIONS.items()},
            c_type="int32_t",
            c_enum="unary_fn",
        ),
    ),
    dtypes={**dict.fromkeys(FLOATS, "f32"), "f64": "f64", **{n: n for n in (*INTS, "bool")}},
    special="NaN stays NaN; f16 and bf16 are computed in f32 and rounded once; bounded functions "
    "saturate instead of overflowing; integers wrap",
    aliasing="elementwise",
    bound="unary",
    source="array API 2024.12; gelu and silu as ONNX Gelu (opset 20) and Swish",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    variants={row[1]: {"fn": fn} for fn, row in FUNCTIONS.items()},
    variant_docs={row[1]: f"out = {row[2]}." for row in FUNCTIONS.values()},
    variant_dtypes={row[1]: _dtypes(fn) for fn, row in FUNCTIONS.items()},
)
