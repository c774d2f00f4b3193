"""Error bounds: one named formula per family of ops, element by element.
SPDX-License-Identifier: Apache-2.0

The formulas are explained in docs/explanation/numerics.md. Every constant is a rounding count, an
ULP ceiling of the OpenCL full profile or the growth of a sum; nothing is tuned to a backend.
`u` is the unit roundoff of a dtype, an ulp of r is 2u at r's binade, and `acc` is the accumulation
dtype that the op's file states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anyhal.conformance.growth import alike, constant, constant_products, growth, moments
from anyhal.dtypes import DType, dtype
from anyhal.ops import _oracle
from anyhal.ops._spec import OpSpec
from anyhal.ops.scaled_matmul import scaled_parts

__all__ = ["BOUNDS", "bound", "mismatch", "nearest", "rounded_factors", "wrong_elements"]

_WIDE = np.longdouble


@dataclass(frozen=True)
class _Format:
    bits: int  # of the significand, the hidden one included
    lowest: int  # exponent of the smallest subnormal
    largest: float
    flushes: bool = False

    @property
    def u(self) -> Any:
        return np.ldexp(_WIDE(1), -self.bits)

    @property
    def theta(self) -> Any:
        """What a step can lose near zero: by rounding half the smallest subnormal, by flushing all
        below the smallest normal number."""
        return self.normal if self.flushes else np.ldexp(_WIDE(1), self.lowest - 1)

    @property
    def normal(self) -> Any:
        """The smallest number with all bits of the significand."""
        return np.ldexp(_WIDE(1), self.lowest + self.bits - 1)

    @property
    def overflow(self) -> Any:
        """From here on the nearest value is infinity."""
        return _WIDE(self.largest) * (1 + self.u / 2)

    def ulp(self, r: Any) -> Any:
        """The spacing of the format at r."""
        _, exponent = np.frexp(np.where(np.isfinite(r), np.abs(r), 0))
        return np.ldexp(_WIDE(1), np.maximum(exponent - self.bits, self.lowest))


_FORMATS = {
    "f64": _Format(53, -1074, float(np.finfo(np.float64).max)),
    "f32": _Format(24, -149, float(np.finfo(np.float32).max)),
    "f16": _Format(11, -24, 65504.0),
    "bf16": _Format(8, -133, 255 * 2.0**120),
    "f8_e4m3fn": _Format(4, -9, 448.0),
    "f8_e5m2": _Format(3, -16, 57344.0),
    "f8_e4m3fnuz": _Format(4, -10, 240.0),
    "f8_e5m2fnuz": _Format(3, -17, 57344.0),
}
_SLACK = 1.01  # second-order terms and the double rounding of f32 to a shorter float

# ULP ceilings of f32 and f64 functions (OpenCL full profile; sqrt and division correctly rounded).
ULPS = {"exp": 3, "expm1": 3, "log": 3, "log1p": 4, "rsqrt": 2, "sin": 4, "cos": 4, "tanh": 5}
ULPS |= {"erf": 16, "pow": 16, "atan2": 6, "tan": 5, "asin": 4, "acos": 4, "atan": 5}
ULPS |= {"sinh": 4, "cosh": 4, "asinh": 4, "acosh": 4, "atanh": 5}
ULPS |= {"log2": 3, "log10": 3, "exp2": 3, "hypot": 4}
ULPS["softplus"] = ULPS["exp"] + ULPS["log1p"] + 1  # log1p(exp(-|x|)), then a sum
GATED = ("sigmoid", "silu", "gelu", "gelu_tanh")  # 8 ulp, or 4u(|x| + 1) near their zeros
_LIPSCHITZ = {"none": 1, "relu": 1, "tanh": 1, "sigmoid": 0.25, "silu": 1.1, "gelu": 1.13}
_LIPSCHITZ["gelu_tanh"] = _LIPSCHITZ["gelu"]


@dataclass(frozen=True)
class _Case:
    spec: OpSpec
    inputs: Sequence[Any]
    attrs: Mapping[str, Any]
    reference: Any
    out: DType
    flushes: bool = False

    @property
    def acc(self) -> _Format:
        """Format of the accumulation dtype of the main operand."""
        main = self.inputs[0]
        short = (
            main.dtype.short
            if hasattr(main, "shape") and isinstance(main.dtype, DType)
            else (dtype(main.dtype).short)
        )
        return replace(_FORMATS[self.spec.dtypes[short]], flushes=self.flushes)

    def value(self, i: int) -> Any:
        """Operand i as wide numbers, or None."""
        x = self.inputs[i] if i < len(self.inputs) else None
        return None if x is None else _oracle.wide(x).astype(_WIDE)


def _stored(c: _Case) -> Any:
    """One rounding to the output dtype."""
    form = _FORMATS[c.out.short]
    return _SLACK * form.u * np.abs(c.reference) + form.theta


def _exact(c: _Case) -> Any:
    return np.zeros(np.shape(c.reference))


def _function(c: _Case, fn: str, x: Any) -> Any:
    """A function with an ULP ceiling; f16 and bf16 are computed in f32, then rounded: 1 ulp."""
    form = _FORMATS[c.out.short]
    short = c.out.short in ("f16", "bf16")
    if fn in GATED:
        u = _FORMATS["f32"].u if short else form.u
        near_zero = 4 * u * (np.abs(x) + 1)
        return np.maximum((1 if short else 8) * form.ulp(c.reference), near_zero)
    return (1 if short else ULPS[fn]) * form.ulp(c.reference)


def _unary(c: _Case) -> Any:
    fn = c.attrs["fn"]
    if c.out.kind != "float":
        return _exact(c)
    if fn in ULPS or fn in GATED:
        return _function(c, fn, c.value(0))
    return _stored(c) if fn in ("sqrt", "reciprocal", "square") else _exact(c)


def _binary(c: _Case) -> Any:
    fn = c.attrs["fn"]
    if c.out.kind != "float" or fn in ("maximum", "minimum", "copysign", "nextafter"):
        return _exact(c)
    if fn == "logaddexp":
        # The larger operand plus log1p(exp(-d)); rounding d moves that by at most d / (1 + e^d).
        rest = np.abs(c.reference - np.maximum(c.value(0), c.value(1)))
        return _stored(c) + c.acc.u * (np.abs(c.reference) + 2 * ULPS["softplus"] * rest + 0.3)
    if fn in ULPS:
        return _function(c, fn, None)
    if fn == "floor_divide":
        # floor() of a rounded quotient is one off where the true quotient is next to an integer.
        quotient = c.value(0) / c.value(1)
        near = np.abs(quotient - np.rint(quotient)) <= 2 * c.acc.u * np.abs(quotient)
        return _stored(c) + np.where(near, 1, 0)
    return _stored(c)


def _reduce(c: _Case) -> Any:
    fn = c.attrs["fn"]
    if c.out.kind != "float" or fn in ("max", "min"):
        return _exact(c)
    x = c.value(0)
    n = max(1, x.size // max(1, np.size(c.reference)))
    over = {"axis": c.attrs["axis"], "keepdims": c.attrs["keepdims"]}
    steps = growth(n, one_number=constant(x, **over))
    if fn == "prod":
        return _stored(c) + steps * c.acc.u * np.abs(c.reference)
    error = steps * c.acc.u * np.sum(np.abs(x), **over)
    if fn == "mean":  # and one more rounding for the division
        error = error / n + c.acc.u * np.abs(c.reference)
    return _stored(c) + error


def _product(c: _Case, a: Any, b: Any, data: str = "any") -> Any:
    """The error of a @ b in the accumulation dtype."""
    n = a.shape[-1]
    steps = growth(n, data, constant_products(a, b))
    return steps * c.acc.u * np.matmul(np.abs(a), np.abs(b)) + n * c.acc.theta


def _contraction(c: _Case) -> Any:
    if c.out.kind != "float":
        return _exact(c)
    return _stored(c) + _product(c, c.value(0), c.value(1))


def _grouped_matmul(c: _Case) -> Any:
    # The contraction's, group by group.
    same = constant(c.value(0), axis=1, keepdims=True) & constant(c.value(2))
    x, w = np.abs(c.value(0)), np.abs(c.value(2))
    error = growth(x.shape[1], one_number=same) * c.acc.u * c.spec.reference(x, c.inputs[1], w)
    return _stored(c) + error + x.shape[1] * c.acc.theta


def _epilogue(c: _Case) -> Any:
    a, b = c.value(0), c.value(1)
    if c.spec.name == "quant_matmul":
        b = b.T
    u = c.acc.u
    scale = _WIDE(np.float32(c.attrs["scale"]))
    value, error = np.matmul(a, b) * scale, _product(c, a, b) * np.abs(scale)
    error = error + u * np.abs(value)
    return _finished(c, value, error, c.value(2), c.value(3), c.value(4))


def _finished(c: _Case, value: Any, error: Any, bias: Any, multiplier: Any, residual: Any) -> Any:
    """A product's error through the epilogue."""
    u = c.acc.u
    if bias is not None:
        value = value + bias
        error = error + u * np.abs(value)
    act = c.attrs.get("activation", "none")
    if act != "none":
        rounding = 8 * c.acc.ulp(value) + (4 * u * (np.abs(value) + 1) if act in GATED else 0)
        error = _LIPSCHITZ[act] * error + rounding
    # From here on only magnitudes matter; every activation is at most |x| or 1.
    if multiplier is not None:
        value = np.maximum(np.abs(value), 1) * np.abs(multiplier)
        error = error * np.abs(multiplier) + u * value
    if residual is not None:
        error = error + u * (np.abs(value) + np.abs(residual))
    return _stored(c) + error


def _conv(c: _Case) -> Any:
    x, w, bias, residual = c.value(0), c.value(1), c.value(2), c.value(3)
    rest = {k: v for k, v in c.attrs.items() if k != "activation"}
    terms = w.size // max(1, w.shape[0] if c.spec.name == "conv" else w.shape[1] * rest["groups"])
    magnitude = c.spec.reference(np.abs(x), np.abs(w), **rest)
    steps = growth(terms, one_number=constant(x) & constant(w))
    error = steps * c.acc.u * magnitude + terms * c.acc.theta
    if bias is not None:
        bias = np.reshape(bias, (-1, *(1,) * (x.ndim - 2)))
    return _finished(c, c.spec.reference(x, w, **rest), error, bias, None, residual)


def _avg_pool(c: _Case) -> Any:
    magnitude = c.spec.reference(np.abs(c.value(0)), **c.attrs)
    terms = int(np.prod(c.attrs["kernel"]))
    steps = growth(terms, one_number=constant(c.value(0)))
    return _stored(c) + steps * c.acc.u * magnitude + c.acc.u * np.abs(c.reference)


def _resize(c: _Case) -> Any:
    if c.attrs["mode"] == "nearest":
        return _exact(c)
    magnitude = c.spec.reference(np.abs(c.value(0)), **c.attrs)
    # For each axis: a weight rounded, a product, a sum; and one more as second-order slack.
    steps = 4 * len(c.attrs["sizes"])
    return _stored(c) + steps * (c.acc.u * magnitude + c.acc.theta)


def _scaled_matmul(c: _Case) -> Any:
    u, theta = _FORMATS["f32"].u, _FORMATS["f32"].theta
    product, rows, columns = scaled_parts(*c.inputs)
    rows, columns = np.abs(rows), np.abs(columns)
    value = np.abs(product) * rows * columns
    # The conversion of an integer sum, and two products; whichever comes first may underflow.
    error = 3 * u * value + theta * (np.abs(product) + rows + columns)
    if c.spec.dtypes[dtype(c.inputs[0].dtype).short] == "f32":
        error = error + _product(c, c.value(0), c.value(1)) * rows * columns
    bias = c.value(6)
    if bias is not None:
        error = error + u * (value + np.abs(bias))
    return _stored(c) + error


def _scatter_add(c: _Case) -> Any:
    if c.out.kind != "float":
        return _exact(c)
    target, updates = c.value(0), c.value(2)
    indices, axis = c.inputs[1], c.attrs["axis"]
    total = c.spec.reference(np.abs(target), indices, np.abs(updates), axis)
    none = np.zeros(target.shape)
    hits, *sums = (c.spec.reference(none, indices, x, axis) for x in moments(updates))
    return _stored(c) + growth(hits + 1, one_number=alike(hits, *sums)) * c.acc.u * total


def _named(c: _Case, name: str) -> Any:
    """Operand `name` as wide numbers, or None."""
    return c.value(next(i for i, a in enumerate(c.spec.inputs) if a.name == name))


def _scatter(c: _Case) -> Any:
    reduction = c.attrs["reduction"]
    if c.out.kind != "float" or reduction not in ("add", "multiply"):
        return _exact(c)
    x, updates, rest = c.value(0), c.value(2), (c.attrs["axis"], "add")
    none = np.zeros(x.shape)
    hits, *sums = (c.spec.reference(none, c.inputs[1], part, *rest) for part in moments(updates))
    total = np.abs(c.reference)
    if reduction == "add":
        total = c.spec.reference(np.abs(x), c.inputs[1], np.abs(updates), *rest)
    return _stored(c) + growth(hits + 1, one_number=alike(hits, *sums)) * c.acc.u * total


_EXP_ROUNDINGS = 2 * ULPS["exp"]  # an ulp is up to 2u


def _cumsum(c: _Case) -> Any:
    if c.out.kind != "float":
        return _exact(c)
    attrs = {k: c.attrs[k] for k in ("axis", "exclusive", "reverse")}
    x = c.value(0)
    total, terms, *sums = (c.spec.reference(part, **attrs) for part in (np.abs(x), *moments(x)))
    return _stored(c) + growth(terms, one_number=alike(terms, *sums)) * c.acc.u * total


def _random_normal(c: _Case) -> Any:
    # The reference has the bits. Only f64 leaves room: the references of the core ops compute it in
    # long double, so that a check with them rounds twice. The field case DET-01 wants the bits.
    return 4 * _FORMATS["f64"].ulp(c.reference) if c.out.short == "f64" else _exact(c)


def _rounding(c: _Case) -> Any:
    # Of an 8-bit float the reference is the stored value: an ulp would hide a wrong rounding.
    return _stored(c) if c.out.kind == "float" and c.out.block_bytes > 1 else _exact(c)


BOUNDS: dict[str, Callable[[_Case], Any]] = {
    "exact": _exact,
    "chosen": _exact,
    "rounding": _rounding,
    "unary": _unary,
    "binary": _binary,
    "reduce": _reduce,
    "contraction": _contraction,
    "grouped_matmul": _grouped_matmul,
    "epilogue": _epilogue,
    "selection": _exact,  # which of two equal zeros is taken does not count
    "conv": _conv,
    "avg_pool": _avg_pool,
    "resize": _resize,
    "scaled_matmul": _scaled_matmul,
    "scatter_add": _scatter_add,
    "scatter": _scatter,
    "cumsum": _cumsum,
    "random_normal": _random_normal,
}


# Significand bits that each factor of a product keeps, by anyhal_accumulate; 0 is strict.
_FACTOR_BITS = {1: 11, 2: 8}


# Units that multiply bf16 take what is below f32's smallest normal number for zero.
_FLUSHED = 2.0**-126


def rounded_factors(
    accumulate: int, spec: OpSpec, inputs: Sequence[Any], attrs: Mapping[str, Any] | None = None
) -> Any:
    """What a product may be off beyond its bound when its factors are rounded as the caller
    allows: (2u + u^2) sum |a| |b|, and what factors and sums flushed to zero add; times what an
    epilogue makes of it. 0 for strict numerics and for ops without products."""
    if accumulate == 0 or spec.name not in ("matmul", "matmul_epilogue", "quant_matmul"):
        return 0.0
    rounded = ("f32", "bf16", "f16") if accumulate == 3 else ("f32", "bf16")
    if dtype(inputs[0].dtype).short not in rounded:
        return 0.0
    if accumulate == 3 and spec.name != "quant_matmul":
        return 0.0
    a, b = (np.abs(_oracle.wide(x)).astype(_WIDE) for x in inputs[:2])
    if spec.name == "quant_matmul":
        b = b.T
    with np.errstate(all="ignore"):
        flushed = np.matmul(a + 1, np.ones_like(b)) + np.matmul(np.ones_like(a), b)
        if accumulate == 3:
            # Half a step of the row's largest over 127, and two roundings of the scale.
            step = (1 + 2.0**-20) * a.max(axis=-1, keepdims=True, initial=0) / 127
            error = np.matmul(np.broadcast_to(step / 2, a.shape), b) + _FLUSHED * flushed
        else:
            u = 2.0 ** -_FACTOR_BITS[accumulate]
            error = (2 * u + u * u) * np.matmul(a, b) + _FLUSHED * flushed
        if spec.name == "matmul":
            return error
        given = attrs or {}
        scale = abs(np.float32(given.get("scale", 1.0)))
        # A hundredth for the one rounding to the output, whose value is off by this much.
        error = 1.01 * error * scale * _LIPSCHITZ[given.get("activation", "none")]
        multiplier = inputs[3]
        return error if multiplier is None else error * np.abs(_oracle.wide(multiplier))


def bound(
    name: str,
    spec: OpSpec,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
    reference: Any,
    out_dtype: DType,
    *,
    flushes: bool = False,
) -> Any:
    """The largest admissible |result - reference| per element, for the values as stored.

    `attrs` may leave out what has a default. Where the reference is NaN or infinite the number has
    no meaning; `mismatch` judges those by kind. With `flushes`, as a device may declare, every step
    on the way may lose what lies below the smallest normal number; the output is `mismatch`'s.
    """
    full = {a.name: attrs.get(a.name, a.default) for a in spec.attrs}
    case = _Case(spec, inputs, full, np.asarray(reference), out_dtype, flushes)
    with np.errstate(all="ignore"):
        return np.broadcast_to(BOUNDS[name](case), np.shape(reference))


def nearest(reference: Any, tolerance: Any, out_dtype: DType) -> tuple[Any, Any]:
    """What one rounding to nearest even gives, and no tolerance; beyond the range as they were."""
    form = _FORMATS[out_dtype.short]
    wide = np.asarray(reference, _WIDE)
    with np.errstate(all="ignore"):
        step = form.ulp(wide)
        stored = np.where(wide == 0, wide, np.rint(wide / step) * step)
        inside = np.abs(stored) <= form.largest
    return np.where(inside, stored, wide), np.where(inside, 0, tolerance)


def mismatch(
    actual: Any,
    reference: Any,
    tolerance: Any,
    out_dtype: DType,
    *,
    bits: bool = False,
    flushes: bool = False,
) -> str | None:
    """None if every element is inside its tolerance and of the right kind, else a sentence.

    NaN must meet NaN and an infinity the same infinity; nothing is skipped. A reference beyond the
    output's range by more than the tolerance must give infinity. With `bits`, zeros keep their
    sign. With `flushes`, as a device may declare, what lies below the smallest normal number of
    the output may be 0; not of f16, whose small numbers are normal ones of the f32 it is computed
    in.
    """
    actual, reference = np.asarray(actual), np.asarray(reference)
    if actual.shape != reference.shape:
        return f"shape {list(actual.shape)} instead of {list(reference.shape)}"
    wrong = wrong_elements(actual, reference, tolerance, out_dtype, bits=bits, flushes=flushes)
    return _report(wrong, actual, reference, tolerance)


def wrong_elements(
    actual: Any,
    reference: Any,
    tolerance: Any,
    out_dtype: DType,
    *,
    bits: bool = False,
    flushes: bool = False,
) -> Any:
    """Where `mismatch` finds something: a bool for each element of two arrays of one shape."""
    if out_dtype.kind != "float":
        return actual != reference.astype(actual.dtype)
    a, r = actual.astype(_WIDE), reference.astype(_WIDE)
    limit = _FORMATS[out_dtype.short].overflow
    with np.errstate(all="ignore"):
        close = np.abs(a - r) <= tolerance
        past = (np.abs(r) + tolerance >= limit) & np.isinf(a) & (np.signbit(a) == np.signbit(r))
        must_be_infinite = np.isfinite(r) & (np.abs(r) - tolerance >= limit)
        right = np.where(must_be_infinite, past, np.isfinite(a) & close | past)
        if flushes and out_dtype.short != "f16":
            right |= (a == 0) & (np.abs(r) < _FORMATS[out_dtype.short].normal)
        right = np.where(np.isfinite(r), right, (a == r) | (np.isnan(a) & np.isnan(r)))
        if bits:
            right &= np.isnan(r) | (np.signbit(a) == np.signbit(r))
    return ~right


def _report(wrong: Any, actual: Any, reference: Any, tolerance: Any) -> str | None:
    if not np.any(wrong):
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    return (
        f"{int(np.sum(wrong))} of {wrong.size} elements are wrong, first at {list(where)}: "
        f"{actual[where]!s} instead of {reference[where]!s}, allowed error "
        f"{float(np.asarray(tolerance)[where]):.3g}"
    )
