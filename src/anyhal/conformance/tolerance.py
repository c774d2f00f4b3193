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
from functools import partial
from typing import Any

import numpy as np

from anyhal.dtypes import DType, dtype
from anyhal.ops import _oracle, attention, paged_attention
from anyhal.ops._attention import visible_keys
from anyhal.ops._spec import OpSpec
from anyhal.ops.rope import frequencies
from anyhal.ops.scaled_matmul import scaled_parts

__all__ = ["BOUNDS", "bound", "mismatch", "rounded_factors"]

_WIDE = np.longdouble


@dataclass(frozen=True)
class _Format:
    bits: int  # of the significand, the hidden one included
    lowest: int  # exponent of the smallest subnormal
    largest: float

    @property
    def u(self) -> Any:
        return np.ldexp(_WIDE(1), -self.bits)

    @property
    def theta(self) -> Any:
        """Half the smallest subnormal: what rounding can lose near zero."""
        return np.ldexp(_WIDE(1), self.lowest - 1)

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

    @property
    def acc(self) -> _Format:
        """Format of the accumulation dtype of the main operand."""
        main = self.inputs[0]
        short = (
            main.dtype.short
            if hasattr(main, "shape") and isinstance(main.dtype, DType)
            else (dtype(main.dtype).short)
        )
        return _FORMATS[self.spec.dtypes[short]]

    def value(self, i: int) -> Any:
        """Operand i as wide numbers, or None."""
        x = self.inputs[i] if i < len(self.inputs) else None
        return None if x is None else _oracle.wide(x).astype(_WIDE)


def growth(n: int | Any, data: str = "any") -> Any:
    """How many u a sum of n terms may be off, per sum of magnitudes: 8 for mean-zero data, else the
    probabilistic 2 + 2 sqrt(n)."""
    return 8.0 if data == "mean_zero" else 2 + 2 * np.sqrt(n)


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
    if fn == "prod":
        return _stored(c) + growth(n) * c.acc.u * np.abs(c.reference)
    total = np.sum(np.abs(x), axis=c.attrs["axis"], keepdims=c.attrs["keepdims"])
    error = growth(n) * c.acc.u * total
    if fn == "mean":  # and one more rounding for the division
        error = error / n + c.acc.u * np.abs(c.reference)
    return _stored(c) + error


def _product(c: _Case, a: Any, b: Any, data: str = "any") -> Any:
    """The error of a @ b in the accumulation dtype."""
    n = a.shape[-1]
    return growth(n, data) * c.acc.u * np.matmul(np.abs(a), np.abs(b)) + n * c.acc.theta


def _contraction(c: _Case) -> Any:
    if c.out.kind != "float":
        return _exact(c)
    return _stored(c) + _product(c, c.value(0), c.value(1))


def _grouped_matmul(c: _Case) -> Any:
    # The contraction's, group by group.
    x, w = np.abs(c.value(0)), np.abs(c.value(2))
    error = growth(x.shape[1]) * c.acc.u * c.spec.reference(x, c.inputs[1], w)
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
    error = growth(terms) * c.acc.u * magnitude + terms * c.acc.theta
    if bias is not None:
        bias = np.reshape(bias, (-1, *(1,) * (x.ndim - 2)))
    return _finished(c, c.spec.reference(x, w, **rest), error, bias, None, residual)


def _avg_pool(c: _Case) -> Any:
    magnitude = c.spec.reference(np.abs(c.value(0)), **c.attrs)
    terms = int(np.prod(c.attrs["kernel"]))
    return _stored(c) + growth(terms) * c.acc.u * magnitude + c.acc.u * np.abs(c.reference)


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
    hits = c.spec.reference(np.zeros_like(target), indices, np.ones_like(updates), axis)
    return _stored(c) + growth(hits + 1) * c.acc.u * total


def _named(c: _Case, name: str) -> Any:
    """Operand `name` as wide numbers, or None."""
    return c.value(next(i for i, a in enumerate(c.spec.inputs) if a.name == name))


def _scatter(c: _Case) -> Any:
    reduction = c.attrs["reduction"]
    if c.out.kind != "float" or reduction not in ("add", "multiply"):
        return _exact(c)
    x, updates, rest = c.value(0), c.value(2), (c.attrs["axis"], "add")
    hits = c.spec.reference(np.zeros_like(x), c.inputs[1], np.ones_like(updates), *rest)
    total = np.abs(c.reference)
    if reduction == "add":
        total = c.spec.reference(np.abs(x), c.inputs[1], np.abs(updates), *rest)
    return _stored(c) + growth(hits + 1) * c.acc.u * total


def _rms_norm(c: _Case) -> Any:
    n = c.value(0).shape[-1]
    # The sum with a residual is rounded, which counts in the element and in the mean.
    added = 0 if _named(c, "residual") is None else 2
    return _stored(c) + (8 + 1 + added + 0.5 * np.sqrt(n)) * c.acc.u * np.abs(c.reference)


def _normalized(c: _Case, t: Any, axes: tuple[int, ...], weight: Any) -> Any:
    """Layer and group norm: the differences from the mean, then their root mean square."""
    if t.size == 0:
        return np.zeros(t.shape)
    u, n = c.acc.u, np.prod([t.shape[a] for a in axes])
    mean = partial(np.mean, axis=axes, keepdims=True)
    d = t - mean(t)
    rstd = 1 / np.sqrt(mean(d * d) + _WIDE(np.float32(c.attrs["eps"])))
    # The mean of a row is off by g(n) u; taken again of the differences, by that of those.
    shift = growth(n) * (mean(np.abs(d)) + growth(n) * u * mean(np.abs(t)))
    if _named(c, "residual") is not None:  # t itself is rounded
        rms = np.sqrt(mean(t * t))
        shift = shift + np.abs(t) + mean(np.abs(t)) + np.abs(d) * rstd * rms
    # Two differences, square, mean and root as in rms_norm.
    y = np.abs(d) * rstd
    error = u * (rstd * shift + (4 + 8 + 1 + 0.5 * np.sqrt(n)) * y)
    weight = 1 if weight is None else np.abs(weight)
    return _stored(c) + weight * (error + u * y) + u * np.abs(c.reference)


def _total(c: _Case) -> Any:
    residual = _named(c, "residual")
    return c.value(0) if residual is None else c.value(0) + residual


def _layer_norm(c: _Case) -> Any:
    t = _total(c)
    axes = tuple(range(t.ndim - c.attrs["axes"], t.ndim))
    return _normalized(c, t, axes, _named(c, "weight"))


def _group_norm(c: _Case) -> Any:
    t, weight, groups = _total(c), _named(c, "weight"), c.attrs["groups"]
    split = (t.shape[0], groups, t.shape[1] // groups, *t.shape[2:])
    weight = weight if weight is None else weight.reshape(*split[1:3], *(1,) * (t.ndim - 2))
    case = replace(
        c, inputs=[x if x is None or x.ndim == 1 else x.reshape(split) for x in c.inputs]
    )
    case = replace(case, reference=c.reference.reshape(split))
    found = _normalized(case, t.reshape(split), tuple(range(2, t.ndim + 1)), weight)
    return np.broadcast_to(found, split).reshape(t.shape)


def _batch_norm(c: _Case) -> Any:
    def channel(v: Any) -> Any:
        return 0 if v is None else v.reshape(-1, *(1,) * (c.value(0).ndim - 2))

    t, mean, variance, weight = _total(c), *map(channel, (c.value(1), c.value(2), c.value(3)))
    scale = 1 / np.sqrt(variance + _WIDE(np.float32(c.attrs["eps"])))
    scale = scale if c.value(3) is None else scale * np.abs(weight)
    added = 0 if _named(c, "residual") is None else np.abs(t)
    # A difference, the root of a sum (2 ulp), two products, the bias.
    error = c.acc.u * scale * (added + (1 + 4 + 1 + 2) * np.abs(t - mean))
    return _stored(c) + error + c.acc.u * np.abs(c.reference)


_EXP_ROUNDINGS = 2 * ULPS["exp"]  # an ulp is up to 2u


def _softmax(c: _Case) -> Any:
    x, axis = c.value(0), c.attrs["axis"]
    if x.size == 0:
        return _exact(c)
    with np.errstate(all="ignore"):
        depth = x.max(axis=axis, keepdims=True) - x
        depth = np.where(np.isfinite(depth), depth, 0)  # e = 0 has no relative error
        mean_depth = np.sum(c.reference * depth, axis=axis, keepdims=True)
    relative = c.acc.u * (depth + mean_depth + 2 * _EXP_ROUNDINGS + 7)
    return _stored(c) + relative * np.abs(c.reference) + 2 * _EXP_ROUNDINGS * c.acc.theta


def _exponentials(c: _Case, axis: Any) -> Any:
    """The sum of exp(x - max) and the error of its logarithm."""
    x, u = c.value(0), c.acc.u
    depth = x.max(axis=axis, keepdims=True) - x
    e = np.where(np.isfinite(depth), np.exp(-depth), 0)
    total = np.maximum(np.sum(e, axis=axis, keepdims=True), 1)
    depth = np.where(np.isfinite(depth), depth, 0)
    mean_depth = np.sum(e * depth, axis=axis, keepdims=True) / total
    n = x.size // max(1, total.size)
    log = np.log(total)
    return u * (mean_depth + _EXP_ROUNDINGS + growth(n) + 2 * ULPS["log"] * log)


def _log_softmax(c: _Case) -> Any:
    x, axis = c.value(0), c.attrs["axis"]
    if x.size == 0:
        return _exact(c)
    depth = x.max(axis=axis, keepdims=True) - x
    depth = np.where(np.isfinite(depth), depth, 0)
    return _stored(c) + c.acc.u * (depth + np.abs(c.reference)) + _exponentials(c, axis)


def _logsumexp(c: _Case) -> Any:
    axis = c.attrs["axis"]
    if c.value(0).size == 0:
        return _exact(c)
    error = _exponentials(c, axis).reshape(np.shape(c.reference))
    return _stored(c) + c.acc.u * np.abs(c.reference) + error


def _cumsum(c: _Case) -> Any:
    if c.out.kind != "float":
        return _exact(c)
    attrs = {k: c.attrs[k] for k in ("axis", "exclusive", "reverse")}
    total = c.spec.reference(np.abs(c.value(0)), **attrs)
    terms = c.spec.reference(np.ones_like(c.value(0)), **attrs)
    return _stored(c) + growth(terms) * c.acc.u * total


def _attention_scores(c: _Case) -> tuple[Any, Any, Any]:
    """The weight of each key, its relative error, and what the log of their sum may be off."""
    q, k = c.value(0), c.value(1)
    k = np.repeat(k, q.shape[1] // max(k.shape[1], 1), axis=1)
    scale, u = _WIDE(np.float32(c.attrs["scale"])), c.acc.u
    length, mask, sinks = (c.inputs[i] if i < len(c.inputs) else None for i in (3, 4, 5))
    kt = np.swapaxes(k, -1, -2)
    scores = np.matmul(q, kt) * scale
    ds = growth(q.shape[-1]) * u * np.matmul(np.abs(q), np.abs(kt)) * np.abs(scale)
    if c.attrs["softcap"]:
        # tanh does not stretch errors; its own, and those of the quotient and the product.
        cap = _WIDE(np.float32(c.attrs["softcap"]))
        scores = cap * np.tanh(scores / cap)
        ds = ds + (2 * ULPS["tanh"] + 3) * u * np.abs(scores)
    if mask is not None and mask.dtype != np.bool_:
        scores = scores + _oracle.wide(mask)
    seen = visible_keys(scores.shape, length, mask, c.attrs["causal"], c.attrs["window"])
    ds = ds + u * np.abs(scores)
    ds = np.where(seen & np.isfinite(ds), ds, 0).max(axis=-1, keepdims=True, initial=0)
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    rest = _WIDE(0)
    if sinks is not None:
        sink = _oracle.wide(sinks).astype(_WIDE)[:, None, None]
        top = np.maximum(top, sink)
        rest = np.nan_to_num(np.exp(sink - top))
    depth = top - scores
    e = np.where(np.isfinite(depth), np.exp(-depth), 0)
    p = e / np.maximum(e.sum(axis=-1, keepdims=True) + rest, 1)
    depth = np.where(np.isfinite(depth), depth, 0)
    relative = 2 * ds + u * (depth + 2 * _EXP_ROUNDINGS + 7) + growth(k.shape[2] + 1) * u
    off = ds + u * ((p * depth).sum(axis=-1, keepdims=True) + _EXP_ROUNDINGS + 2)
    # The logarithm is at most |lse| + |top|, and 3 ulp of it are 6 u; the caller adds the first.
    log = 2 * ULPS["log"] * np.where(np.isfinite(top), np.abs(top), 0)
    return p, relative, off + u * (growth(k.shape[2] + 1) + log)


def _attention(c: _Case) -> Any:
    v = np.repeat(c.value(2), c.value(0).shape[1] // max(c.value(1).shape[1], 1), axis=1)
    p, relative, _ = _attention_scores(c)
    # A key whose weight underflows still counts with what its exponential may be off.
    weight = relative * p + 2 * _EXP_ROUNDINGS * c.acc.theta
    return _stored(c) + np.matmul(weight, np.where(np.isfinite(v), np.abs(v), 0))


def _attention_lse(c: _Case) -> Any:
    *_, off = _attention_scores(c)
    return _stored(c) + off[..., 0] + 2 * ULPS["log"] * c.acc.u * np.abs(c.reference)


def _paged_attention(c: _Case) -> Any:
    """Attention's, sequence by sequence."""
    out = np.zeros(np.shape(c.reference), _WIDE)
    spec = attention.SPEC
    attrs = {a.name: a.default for a in spec.attrs}
    attrs |= {"scale": c.attrs["scale"], "causal": "last_key"}
    for own, parts in paged_attention.each_sequence(c.inputs):
        rows = np.swapaxes(c.reference[own], 0, 1)[None]
        inner = _Case(spec, (*parts, None, None, None), attrs, rows, c.out)
        out[own] = np.swapaxes(_attention(inner)[0], 0, 1)
    return out


def _rope(c: _Case) -> Any:
    x = np.abs(c.value(0))
    rotary = c.attrs["rotary_dims"] or x.shape[-1]
    half = rotary // 2
    speed = frequencies(rotary, c.attrs["base"], c.attrs["position_scale"])
    factors = c.value(2)
    if factors is not None:
        speed = speed / factors
    angle = np.abs(c.inputs[1].astype(_WIDE)[..., None] * speed)
    split = c.attrs["pairing"] == "half_split"
    first = x[..., :half] if split else x[..., 0:rotary:2]
    second = x[..., half:rotary] if split else x[..., 1:rotary:2]
    # The angle: frequency rounded, divided by its factor, times the position, with slack 2. The
    # turn: sine and cosine within 4 ulp, two products and a sum.
    u = c.acc.u
    error = (first + second) * u * (8 * angle + 2 * ULPS["sin"] + 3)
    out = np.zeros(x.shape, _WIDE)
    stored = np.broadcast_to(_stored(c), x.shape)
    if split:
        out[..., :half] = out[..., half:rotary] = error
    else:
        out[..., 0:rotary:2] = out[..., 1:rotary:2] = error
    out[..., :rotary] += stored[..., :rotary]
    return out


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
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "cumsum": _cumsum,
    "attention": _attention,
    "attention_lse": _attention_lse,
    "paged_attention": _paged_attention,
    "rope": _rope,
    "random_normal": _random_normal,
}


# Significand bits that each factor of a product keeps, by anyhal_accumulate; 0 is strict.
_FACTOR_BITS = {1: 11, 2: 8}


def rounded_factors(accumulate: int, spec: OpSpec, inputs: Sequence[Any]) -> Any:
    """What a product may be off beyond its bound when its factors are rounded as the caller
    allows: (2u + u^2) sum |a| |b|; 0 for strict numerics and for ops without products."""
    if accumulate == 0 or spec.name != "matmul" or dtype(inputs[0].dtype).short != "f32":
        return 0.0
    u = 2.0 ** -_FACTOR_BITS[accumulate]
    a, b = (np.abs(_oracle.wide(x)) for x in inputs[:2])
    with np.errstate(all="ignore"):
        return (2 * u + u * u) * np.matmul(a, b).astype(_WIDE)


def bound(
    name: str,
    spec: OpSpec,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
    reference: Any,
    out_dtype: DType,
) -> Any:
    """The largest admissible |result - reference| per element, for the values as stored.

    `attrs` may leave out what has a default. Where the reference is NaN or infinite the number has
    no meaning; `mismatch` judges those by kind.
    """
    full = {a.name: attrs.get(a.name, a.default) for a in spec.attrs}
    case = _Case(spec, inputs, full, np.asarray(reference), out_dtype)
    with np.errstate(all="ignore"):
        return np.broadcast_to(BOUNDS[name](case), np.shape(reference))


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
    if out_dtype.kind != "float":
        wrong = actual != reference.astype(actual.dtype)
        return _report(wrong, actual, reference, np.zeros(reference.shape))
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
    return _report(~right, actual, reference, tolerance)


def _report(wrong: Any, actual: Any, reference: Any, tolerance: Any) -> str | None:
    if not np.any(wrong):
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    return (
        f"{int(np.sum(wrong))} of {wrong.size} elements are wrong, first at {list(where)}: "
        f"{actual[where]!s} instead of {reference[where]!s}, allowed error "
        f"{float(np.asarray(tolerance)[where]):.3g}"
    )
