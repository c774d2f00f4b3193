"""random_uniform(key, shape): numbers in [0, 1), the same bits on every device.
SPDX-License-Identifier: Apache-2.0
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

# Bits of each number: what the significand of the dtype holds, so that none rounds up to 1.
BITS = {"f32": 24, "f16": 11, "bf16": 8, "f64": 53}


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (key,) = inputs
    assert key is not None
    _philox.check_key("random_uniform", key)
    shape = _philox.check_output("random_uniform", attrs)
    return TensorSpec.dense(_philox.float_dtype("random_uniform", attrs), shape)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return list(inputs), {}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 20.0 * out.size, float(out.nbytes)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    (key,) = inputs
    assert key is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    bits = BITS[out.dtype.short]
    make = _philox.long_words if out.dtype.short == "f64" else _philox.words
    word = make(trace, key, out.spec.size)
    cut = trace.constant(8 * word.dtype.block_bytes - bits, word.dtype)
    word = trace.binary("shift_right", word, cut, out=word)
    number = _philox.first_of(trace.cast(word, out.dtype), out.shape)
    trace.binary("multiply", number, trace.constant(2.0**-bits, out.dtype), out=out)


def reference(key: Any, shape: Shape, dtype: str | None = None) -> Any:
    to, count = dtype_of(dtype or "float32"), math.prod(shape)
    bits = BITS[to.short]
    if to.short == "f64":
        word = _philox.reference_long_words(key, count) >> np.uint64(64 - bits)
    else:
        word = _philox.reference_words(key, count) >> np.uint32(32 - bits)
    return (word.astype(np.float64) * 2.0**-bits).reshape(shape)


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
    id=63,
    name="random_uniform",
    since="0.2",
    summary="out[i] = the upper bits of random word i as a fraction in [0, 1).",
    inputs=(_philox.KEY,),
    output=Arg("out", "[...]", doc="24 bits in f32, 11 in f16, 8 in bf16, 53 (two words) in f64"),
    attrs=(_philox.SHAPE, _philox.FLOAT),
    dtypes={"u64": "u64"},
    special="every number is an exact multiple of 2^-bits, never 1; the bits depend on the key and "
    "the row-major position only, not on device, shape or layout",
    aliasing="none",
    bound="exact",
    source=_philox.SOURCE,
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
