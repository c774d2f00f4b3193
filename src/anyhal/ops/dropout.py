"""dropout(x, key, p): elements set to 0 with probability p, the others scaled, and which ones.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _philox
from anyhal.ops._checks import FLOATS, WIDE, check_dtype
from anyhal.ops._draw import Rng, one_of
from anyhal.ops._draw import shape as random_shape
from anyhal.ops._draw import values as random_values
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, LoweredOuts, OpSpec, Outs, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value


def threshold(p: float) -> int:
    """Words below it drop their element: p * 2^32, rounded to the nearest integer."""
    return round(float(np.float32(p)) * 2.0**32)


def scale(p: float, acc: str) -> Any:
    """1 / (1 - p) rounded once; for p = 1 nothing is left to scale."""
    kept = 1.0 - float(np.float32(p))
    return (np.float64 if acc == "f64" else np.float32)(1.0 / kept if kept else 0.0)


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    x, key = inputs
    assert x is not None and key is not None
    check_dtype("dropout", "x", x, FLOATS)
    _philox.check_key("dropout", key)
    if not 0 <= attrs["p"] <= 1:
        raise InvalidArgumentError(
            f"dropout: p={attrs['p']} is no probability; pass a number from 0 to 1"
        )
    return TensorSpec.dense(x.dtype, x.shape), TensorSpec.dense(dtype("bool"), x.shape)


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: Outs) -> LoweredOuts:
    return list(inputs), {"p": attrs["p"]}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: Outs
) -> tuple[float, float]:
    y, kept = out
    assert y is not None and kept is not None
    return 20.0 * y.size, float(2 * y.nbytes + kept.nbytes)


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    out: tuple[Value | None, ...],
) -> None:
    (x, key), (y, kept) = inputs, out
    assert x is not None and key is not None and y is not None and kept is not None
    if y.spec.size == 0:
        trace.zeros(y)
        trace.zeros(kept)
        return
    acc = WIDE[x.dtype.short]
    # 64 bits, since the threshold of p = 1 is past every word.
    word = trace.cast(_philox.words(trace, key, x.spec.size).reshape(*x.shape), "u64")
    trace.binary("greater_equal", word, trace.constant(threshold(attrs["p"]), "u64"), out=kept)
    factor = trace.constant(scale(attrs["p"], acc), acc)
    scaled = trace.binary("multiply", trace.cast(x, acc), factor)
    trace("where", kept, trace.cast(scaled, y.dtype), trace.constant(0, y.dtype), out=y)


def reference(x: Any, key: Any, p: float) -> tuple[Any, Any]:
    values = wide(x)
    word = _philox.reference_words(key, x.size).reshape(x.shape)
    kept = word.astype(np.uint64) >= np.uint64(threshold(p))
    factor = scale(p, WIDE[dtype(x.dtype).short])
    with np.errstate(all="ignore"):
        return np.where(kept, values * values.dtype.type(factor), 0), kept


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for label, key in _philox.KEYS:
        for name in FLOATS:
            x = rng.standard_normal((4, 9)).astype(dtype(name).numpy)
            yield Sample(f"{label} {name}", (x, key), {"p": 0.3})
    key = _philox.KEYS[2][1]
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 1.0] * 7, np.float32)
    for p in (0.0, 0.5, 1.0):
        yield Sample(f"special values, p {p}", (special, key), {"p": p})
    yield Sample("nothing", (special[:0], key), {"p": 0.5})


def random(rng: Rng) -> Sample:
    x = random_values(rng, random_shape(rng), one_of(rng, FLOATS))
    return Sample("", (x, _philox.random_key(rng)), {"p": one_of(rng, [0.0, 0.1, 0.5, 0.999, 1.0])})


SPEC = OpSpec(
    id=66,
    name="dropout",
    since="0.2",
    summary="out = x / (1 - p) where mask is true, else 0; mask[i] = (random word i >= p * 2^32).",
    inputs=(Arg("x", "[...]"), _philox.KEY),
    output=Arg("out", "[...]"),
    more_outputs=(Arg("mask", "[...]", doc="bool: what is kept", bound="exact"),),
    attrs=(Attr("p", "f32", c_type="float", doc="how likely an element is dropped, from 0 to 1"),),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="p * 2^32 is rounded to an integer and 1 / (1 - p) to the accumulation dtype, then "
    "multiplied; what is dropped is 0 whatever it was, NaN included; p = 1 drops all",
    aliasing="none",
    bound="rounding",
    source=f"Srivastava et al. 2014, inverted; {_philox.SOURCE}",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
