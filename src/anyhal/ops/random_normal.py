"""random_normal(key, shape): standard normal numbers, the same bits on every device.
SPDX-License-Identifier: Apache-2.0

Box-Muller, written with operations that IEEE 754 rounds exactly (no fused ones) and polynomials of
stated length: whoever follows the steps of `reference` gets its bits. docs/adr/0080.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype as dtype_of
from anyhal.ops import _philox
from anyhal.ops._checks import FLOATS
from anyhal.ops._draw import Rng, one_of
from anyhal.ops._spec import Arg, Lowered, OpSpec, Sample, Shape, TensorSpec
from anyhal.ops._trace import Trace, Value
from anyhal.records import record

# The spacing of f32 numbers at SPREAD * f is the power of two in (f / sqrt 2, f * sqrt 2]; and
# y - y * BELOW_ONE is the spacing at y, since the product rounds to the number below y.
SPREAD = np.float32(math.sqrt(2.0) * 2.0**23)
BELOW_ONE = np.float32(1 - 2.0**-24)
# 2 is a generator modulo 59, so 2^e mod 59 tells e for e in 0..57 and finds it in a table.
MODULUS = 59


@record
class Formula:
    """The numbers of one computing dtype."""

    acc: str
    radius_bits: int  # of the word that the radius is made from
    log_terms: int
    sine_terms: int

    @property
    def type(self) -> Any:
        return np.float64 if self.acc == "f64" else np.float32

    @property
    def log_table(self) -> Any:
        """-2 log(2^e / 2^radius_bits) at 2^e mod MODULUS."""
        table = np.zeros(MODULUS, self.type)
        for e in range(self.radius_bits + 1):
            table[pow(2, e, MODULUS)] = self.type(2.0 * math.log(2.0) * (self.radius_bits - e))
        return table

    @property
    def log_series(self) -> list[Any]:
        """Of 2 log(m) / z in powers of z^2, with z = (m - 1) / (m + 1)."""
        return [self.type(4.0 / (2 * k + 1)) for k in range(self.log_terms)]

    @property
    def sine_series(self) -> list[Any]:
        """Of sin(y pi/2) / y in powers of y^2."""
        terms, term = [], math.pi / 2
        for k in range(self.sine_terms):
            terms.append(self.type(term))
            term *= -(math.pi / 2 * (math.pi / 2)) / ((2 * k + 2) * (2 * k + 3))
        return terms


SHORT = Formula("f32", 32, 5, 7)
LONG = Formula("f64", 53, 11, 12)


def formula(short: str) -> Formula:
    return LONG if short == "f64" else SHORT


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (key,) = inputs
    assert key is not None
    _philox.check_key("random_normal", key)
    shape = _philox.check_output("random_normal", attrs)
    return TensorSpec.dense(_philox.float_dtype("random_normal", attrs), shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return list(inputs), {}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 50.0 * out.size, float(out.nbytes)


# -------------------------------------------------------------------------------- decomposition


def _series(trace: Trace, terms: Sequence[Any], x: Value, acc: str) -> Value:
    """Horner's rule from the last term."""
    total = trace.binary("multiply", x, trace.constant(terms[-1], acc))
    for term in reversed(terms[1:-1]):
        total = trace.binary("add", total, trace.constant(term, acc), out=total)
        total = trace.binary("multiply", total, x, out=total)
    return trace.binary("add", total, trace.constant(terms[0], acc), out=total)


def _radius(trace: Trace, word: Value, f: Formula) -> Value:
    def number(x: Any) -> Value:
        return trace.constant(x, f.acc)

    if f.acc == "f64":
        word = trace.binary("shift_right", word, trace.constant(64 - f.radius_bits, "u64"))
    x = trace.cast(word, f.acc)
    # Choices by comparison are exact on every device; maximum and minimum leave open which zero.
    x = trace("where", trace.binary("less", x, number(1.0)), number(1.0), x, out=x)
    wide = trace.binary("multiply", trace.cast(x, "f32"), trace.constant(SPREAD, "f32"))
    below = trace.binary("multiply", wide, trace.constant(BELOW_ONE, "f32"))
    power = trace.binary("subtract", wide, below, out=wide)
    place = trace.cast(power, "i64")
    place = trace.binary("remainder", place, trace.constant(MODULUS, "i64"), out=place)
    exponent = trace("gather", number(f.log_table), place, axis=0)
    m = trace.binary("divide", x, trace.cast(power, f.acc))
    z = trace.binary(
        "divide",
        trace.binary("subtract", m, number(1.0)),
        trace.binary("add", m, number(1.0)),
    )
    log = _series(trace, f.log_series, trace.binary("multiply", z, z), f.acc)
    log = trace.binary("multiply", log, z, out=log)
    return trace.unary("sqrt", trace.binary("subtract", exponent, log))


def _cosine_and_sine(trace: Trace, word: Value, f: Formula) -> Value:
    """[2, pairs] of the angle of `word`, a signed fraction of half a turn."""
    signed, bits = ("i64", 62) if f.acc == "f64" else ("i32", 30)
    t = trace.cast(trace.cast(word, signed), f.acc)
    t = trace.binary("multiply", t, trace.constant(2.0**-bits, f.acc), out=t)  # quarter turns
    away = trace.unary("abs", t)
    y = trace.temp((2, *word.shape), f.acc)
    trace.binary("subtract", trace.constant(1.0, f.acc), away, out=y.at(0, 0))
    other = trace.binary("subtract", trace.constant(2.0, f.acc), away)
    other = trace("where", trace.binary("less", away, other), away, other, out=other)
    trace.binary("multiply", other, trace.unary("sign", t), out=y.at(0, 1))
    value = _series(trace, f.sine_series, trace.binary("multiply", y, y), f.acc)
    return trace.binary("multiply", value, y, out=value)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    (key,) = inputs
    assert key is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    f = formula(out.dtype.short)
    pairs = -(-out.spec.size // 2)
    make = _philox.long_words if f.acc == "f64" else _philox.words
    word = make(trace, key, 2 * pairs).reshape(pairs, 2)
    radius = _radius(trace, word.at(1, 0), f)
    both = _cosine_and_sine(trace, word.at(1, 1), f)
    found = trace.temp((pairs, 2), f.acc)
    trace.binary("multiply", both, radius, out=found.permute(1, 0))
    trace.cast(_philox.first_of(found.reshape(2 * pairs), out.shape), out.dtype, out=out)


# ------------------------------------------------------------------------------------ reference


def _horner(terms: Sequence[Any], x: Any) -> Any:
    total = np.full_like(x, terms[-1])
    for term in reversed(terms[:-1]):
        total = total * x + term
    return total


def radius_of(x: Any, f: Formula) -> Any:
    """sqrt(-2 log(max(x, 1) / 2^radius_bits)) for integers x below 2^radius_bits."""
    one = f.type(1)
    x = np.maximum(x.astype(f.type), one)
    wide = x.astype(np.float32) * SPREAD
    power = wide - wide * BELOW_ONE
    m = x / power.astype(f.type)
    z = (m - one) / (m + one)
    place = power.astype(np.int64) % MODULUS
    return np.sqrt(f.log_table[place] - _horner(f.log_series, z * z) * z)


def reference(key: Any, shape: Shape, dtype: str | None = None) -> Any:
    """Not in more precision: with the very operations that every device is to round alike."""
    to, count = dtype_of(dtype or "float32"), math.prod(shape)
    f = formula(to.short)
    pairs = -(-count // 2)
    if f is LONG:
        word = _philox.reference_long_words(key, 2 * pairs).reshape(pairs, 2)
        radius = radius_of(word[:, 0] >> np.uint64(11), f)
        t = word[:, 1].astype(np.int64).astype(f.type) * f.type(2.0**-62)
    else:
        word = _philox.reference_words(key, 2 * pairs).reshape(pairs, 2)
        radius = radius_of(word[:, 0], f)
        t = word[:, 1].astype(np.int32).astype(f.type) * f.type(2.0**-30)
    away = np.abs(t)
    y = np.stack([f.type(1) - away, np.minimum(away, f.type(2) - away) * np.sign(t)], axis=-1)
    found = _horner(f.sine_series, y * y) * y * radius[:, None]
    return found.reshape(-1)[:count].reshape(shape).astype(to.numpy)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for label, key in _philox.KEYS:
        for name in FLOATS:
            attrs = {"shape": (3, 5), "dtype": dtype_of(name).name}
            yield Sample(f"{label} {name}", (key,), attrs)
    yield Sample("0-d", (_philox.KEYS[2][1],), {"shape": ()})
    yield Sample("nothing", (_philox.KEYS[2][1],), {"shape": (2, 0)})
    yield Sample("several rows of blocks", (_philox.KEYS[2][1],), {"shape": (20001,)})


def random(rng: Rng) -> Sample:
    attrs = {"shape": _philox.random_shape(rng), "dtype": dtype_of(one_of(rng, FLOATS)).name}
    return Sample("", (_philox.random_key(rng),), attrs)


SPEC = OpSpec(
    id=64,
    name="random_normal",
    since="0.2",
    summary="out[2j], out[2j + 1] = r cos a, r sin a with r = sqrt(-2 log u): Box-Muller.",
    inputs=(_philox.KEY,),
    output=Arg("out", "[...]", doc="mean 0, deviation 1; f16 and bf16 are rounded from f32"),
    attrs=(_philox.SHAPE, _philox.FLOAT),
    dtypes={"u64": "u64"},
    special="u = max(w, 1) / 2^32 with w = word 2j in f32; a = pi v / 2^31 with v = word 2j + 1 as "
    "a signed number in f32; in f64 w is the upper 53 of 64 bits and v all 64; magnitudes end at "
    "6.7 (f64: 8.6); the steps of docs/adr/0080 give the same bits everywhere",
    aliasing="none",
    bound="random_normal",
    source=f"Box and Muller 1958; {_philox.SOURCE}",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
