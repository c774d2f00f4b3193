"""random_integers(key, low, high, shape): integers in [low, high), the same on every device.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import DType
from anyhal.dtypes import dtype as dtype_of
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _philox
from anyhal.ops._checks import INTS, output_dtype
from anyhal.ops._draw import Rng, one_of
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, Shape, TensorSpec
from anyhal.ops._trace import Trace, Value

WORD = 1 << 64


def _dtype(attrs: Mapping[str, Any]) -> DType:
    return output_dtype("random_integers", attrs["dtype"], INTS[0], INTS[1:])


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (key,) = inputs
    assert key is not None
    _philox.check_key("random_integers", key)
    shape, to = _philox.check_output("random_integers", attrs), _dtype(attrs)
    assert to.numpy is not None
    limits, low, high = np.iinfo(to.numpy), attrs["low"], attrs["high"]
    if low >= high:
        raise InvalidArgumentError(
            f"random_integers: low={low} and high={high} leave nothing to choose, since high is "
            "not among the numbers; pass a larger high"
        )
    if low < limits.min or high - 1 > limits.max:
        raise InvalidArgumentError(
            f"random_integers: {low} to {high - 1} does not fit {to.short}; pass another dtype"
        )
    return TensorSpec.dense(to, shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return list(inputs), {n: attrs[n] % WORD for n in ("low", "high")}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 40.0 * out.size, float(out.nbytes)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    (key,) = inputs
    assert key is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    count = attrs["high"] - attrs["low"]
    pairs = _philox.words(trace, key, 2 * out.spec.size).reshape(out.spec.size, 2)
    low, high = (trace.cast(pairs.at(1, i), "u64") for i in range(2))
    number = _high_product(trace, low, high, count)
    number = trace.binary("add", number, trace.constant(attrs["low"] % WORD, "u64"))
    trace.cast(_philox.first_of(number, out.shape), out.dtype, out=out)


def _high_product(trace: Trace, low: Value, high: Value, count: int) -> Value:
    """The upper 64 bits of (high * 2^32 + low) * count, for high and low of 32 bits."""

    def times(x: Value, n: int) -> Value:
        return trace.binary("multiply", x, trace.constant(n, "u64"))

    def upper(x: Value) -> Value:
        return trace.binary("shift_right", x, trace.constant(32, "u64"))

    above, below = divmod(count, 1 << 32)
    middle = trace.binary("add", times(high, below), upper(times(low, below)))
    if above == 0:
        return upper(middle)
    rest = trace.binary("bitwise_and", middle, trace.constant(_philox.LOW, "u64"))
    carry = upper(trace.binary("add", times(low, above), rest))
    return trace.binary("add", trace.binary("add", times(high, above), upper(middle)), carry)


def reference(key: Any, low: int, high: int, shape: Shape, dtype: str | None = None) -> Any:
    words = _philox.reference_long_words(key, math.prod(shape))
    found = [low + (int(w) * (high - low) >> 64) for w in words]  # integers of any length
    return np.array(found, dtype_of(dtype or "int64").numpy).reshape(shape)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for label, key in _philox.KEYS:
        for name in INTS:
            attrs = {"low": 3, "high": 100, "shape": (2, 7), "dtype": dtype_of(name).name}
            yield Sample(f"{label} {name}", (key,), attrs)
    key = _philox.KEYS[2][1]
    attrs = {"low": 0, "high": 2**64, "shape": (33,), "dtype": "uint64"}
    yield Sample("every word", (key,), attrs)
    for low, high in ((-(2**63), 2**63), (-(2**63), 2**63 - 1), (0, 2**32), (-1, 2**32), (-5, -4)):
        yield Sample(f"{low} to {high}", (key,), {"low": low, "high": high, "shape": (33,)})
    yield Sample("nothing", (key,), {"low": 0, "high": 2, "shape": (0,)})


def random(rng: Rng) -> Sample:
    short = one_of(rng, INTS)
    limits = np.iinfo(dtype_of(short).numpy)
    ends = rng.integers(max(limits.min, -(2**63)), min(limits.max, 2**63 - 2), 2, endpoint=True)
    low, high = sorted(int(n) for n in ends)
    attrs = {"low": low, "high": high + 1, "shape": _philox.random_shape(rng)}
    return Sample("", (_philox.random_key(rng),), {**attrs, "dtype": dtype_of(short).name})


SPEC = OpSpec(
    id=65,
    name="random_integers",
    since="0.2",
    summary="out[i] = low + floor(x * (high - low) / 2^64), x being the words 2i and 2i + 1.",
    inputs=(_philox.KEY,),
    output=Arg("out", "[...]"),
    attrs=(
        Attr("low", "i64", c_type="uint64_t", doc="the smallest; in C as two's complement"),
        Attr("high", "i64", c_type="uint64_t", doc="one past the largest; in C likewise"),
        _philox.SHAPE,
        Attr("dtype", "dtype", default=None, doc="an integer dtype; int64 by default"),
    ),
    dtypes={"u64": "u64"},
    special="no number is more likely than another by more than 2^-64; nothing is rejected, so the "
    "bits of an element depend on the key and its row-major position only",
    aliasing="none",
    bound="exact",
    source=f"{_philox.SOURCE}; Lemire 2019 (arXiv 1805.10941), the product without rejection",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
