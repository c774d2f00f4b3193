"""pad(x, value, pads, mode): x with a border around it, or with its border cut off.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _draw
from anyhal.ops._checks import PLAIN, check_choice, check_dtype, check_same_dtype
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value

MODES = {"constant": 1, "reflect": 2, "edge": 3, "wrap": 4}
RANK_MAX = 16
_LARGEST = 2**31 - 1


def _split(x: TensorSpec, pads: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Elements before and after each axis."""
    return pads[: x.rank], pads[x.rank :]


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    x, value = inputs
    assert x is not None
    mode, pads = attrs["mode"], attrs["pads"]
    check_choice("pad", "mode", mode, MODES)
    check_dtype("pad", "x", x, PLAIN)
    if value is not None:
        check_same_dtype("pad", x, value)
        if mode != "constant" or value.rank != 0:
            raise InvalidArgumentError(
                f"pad: value {describe(value)} for x {describe(x)}: it must be one number and goes "
                f"with mode='constant', not {mode!r}; reshape it or leave it out"
            )
    if len(pads) != 2 * x.rank or any(abs(p) > _LARGEST for p in pads):
        raise InvalidArgumentError(
            f"pad: pads={pads} of x {describe(x)} must be {2 * x.rank} numbers below 2^31, those "
            "before each axis and then those after each axis; correct them"
        )
    shape = []
    for d, (n, before, after) in enumerate(zip(x.shape, *_split(x, pads), strict=True)):
        kept = n + min(before, 0) + min(after, 0)
        if kept < 0 or (kept == 0 and mode != "constant" and max(before, after) > 0):
            raise InvalidArgumentError(
                f"pad: axis {d} of x {describe(x)} has {max(kept, 0)} elements left between pads "
                f"{before} and {after}, too few for mode={mode!r}; cut off less"
            )
        shape.append(n + before + after)
    return TensorSpec.dense(x.dtype, tuple(shape))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    x = inputs[0]
    assert x is not None
    before = _split(x, attrs["pads"])[0]
    # The contract carries what comes before; what comes after follows from the output's dims.
    return (
        list(inputs),
        {"mode": attrs["mode"], "pads": (*before, *(0,) * (RANK_MAX - x.rank))},
        out,
    )


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    return 0.0, 2.0 * out.nbytes


def _sources(mode: str, n: int, before: int, after: int) -> Any:
    """Which of n elements stands at each place of the padded axis."""
    at = np.arange(-before, n + after)
    if mode == "edge":
        return at.clip(0, n - 1)
    if mode == "wrap":
        return at % n
    period = max(2 * (n - 1), 1)
    at %= period
    return np.minimum(at, period - at) if n > 1 else np.zeros_like(at)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    x, value = inputs
    assert x is not None
    if out.spec.size == 0:
        trace.zeros(out)
        return
    befores, afters = _split(x.spec, attrs["pads"])
    for d, (before, after) in enumerate(zip(befores, afters, strict=True)):
        x = x.slice(d, max(0, -before), x.shape[d] - max(0, -after))
    grown = [d for d in range(x.spec.rank) if x.shape[d] != out.shape[d]]
    if attrs["mode"] == "constant" and grown:
        trace("fill", trace.constant(0, x.dtype) if value is None else value, out=out)
        for d in grown:
            out = out.slice(d, max(0, befores[d]), max(0, befores[d]) + x.shape[d])
        grown = []
    for d in grown:
        sources = _sources(attrs["mode"], x.shape[d], max(0, befores[d]), max(0, afters[d]))
        x = trace(
            "gather",
            x,
            trace.constant(sources, "i64"),
            axis=d,
            out=out if d == grown[-1] else None,
        )
    if not grown and x.spec.size:
        trace("copy", x, out=out)


def reference(x: Any, value: Any = None, *, pads: Any, mode: str = "constant") -> Any:
    pairs = list(zip(pads[: x.ndim], pads[x.ndim :], strict=True))
    cut = tuple(slice(max(0, -b), n - max(0, -a)) for n, (b, a) in zip(x.shape, pairs, strict=True))
    border = [(max(0, b), max(0, a)) for b, a in pairs]
    if x.ndim == 0:
        return wide(x)
    if mode == "constant":
        fill = 0 if value is None else wide(value)
        return np.pad(wide(x)[cut], border, mode="constant", constant_values=fill)
    options: Any = {"mode": mode}
    return np.pad(wide(x)[cut], border, **options)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in PLAIN:
        x = (10 * rng.standard_normal((2, 3, 4))).astype(dtype(short).numpy)
        for mode in MODES:
            attrs = {"pads": (1, 0, 2, 0, 2, 3), "mode": mode}
            yield Sample(f"{mode} {short}", (x, None), attrs)
        yield Sample(f"value {short}", (x, x[0, 0, 0]), {"pads": (0, 1, 0, 0, 0, 2)})
    x = np.array([[np.nan, -0.0, 3.0], [np.inf, 1.0, 2.0]], np.float32)
    for mode in MODES:
        yield Sample(f"{mode} further than x", (x, None), {"pads": (5, 7, 3, 9), "mode": mode})
        yield Sample(f"{mode} cut and grown", (x, None), {"pads": (3, -1, -1, 2), "mode": mode})
        yield Sample(f"{mode} one element", (x[:1, :1], None), {"pads": (2, 0, 1, 3), "mode": mode})
        yield Sample(f"{mode} as it is", (x, None), {"pads": (0, 0, 0, 0), "mode": mode})
    yield Sample("of nothing", (x[:0], np.float32(-0.0).reshape(())), {"pads": (1, 0, 1, 0)})
    yield Sample("to nothing", (x, None), {"pads": (0, -1, 0, -2)})
    yield Sample("edge of no rows", (x[:0], None), {"pads": (0, 1, 0, 1), "mode": "edge"})
    yield Sample("0-d", (x[0, 0], None), {"pads": ()})


def random(rng: _draw.Rng) -> Sample:
    mode, short = _draw.one_of(rng, MODES), _draw.one_of(rng, PLAIN)
    dims = _draw.shape(rng, smallest=0 if mode == "constant" else 2)[:3]
    kept = 0 if mode == "constant" else 1  # the border of nothing is refused
    pads = [int(rng.integers(-max(0, min(n - kept, 6) // 2), 5)) for n in (*dims, *dims)]
    value = _draw.values(rng, (), short) if mode == "constant" and rng.random() < 0.5 else None
    attrs = {"pads": tuple(pads), "mode": mode}
    return Sample("", (_draw.values(rng, dims, short), value), attrs)


SPEC = OpSpec(
    id=34,
    name="pad",
    since="0.2",
    summary="out = x with a border; a negative pad cuts off, before the border is made.",
    inputs=(
        Arg("x", "[N...]"),
        Arg("value", "[]", optional=True, doc="of the border with mode constant; 0 by default"),
    ),
    output=Arg("out", "[before + N + after...]"),
    attrs=(
        Attr(
            "pads",
            "ints",
            c_type="int32_t",
            c_name="before",
            c_count=RANK_MAX,
            doc="elements before each axis, then elements after each axis",
        ),
        Attr(
            "mode",
            "enum",
            default="constant",
            choices=MODES,
            c_type="int32_t",
            c_enum="pad_mode",
            doc="reflect does not repeat the border element; reflect and wrap may go round",
        ),
    ),
    dtypes={name: name for name in PLAIN},
    special="bits are kept; the border of nothing is an error except with mode constant",
    aliasing="none",
    bound="exact",
    source="ONNX Pad, opset 19; NumPy pad where the border is wider than x",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
