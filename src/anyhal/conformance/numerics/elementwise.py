"""Functions of single elements: every code of short dtypes, special values, every rounding.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from anyhal.conformance.numerics import fills
from anyhal.conformance.numerics.probes import Probe, case_of
from anyhal.conformance.suite import Case
from anyhal.conformance.worker import rng_of
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME, binary, unary
from anyhal.ops._checks import FLOATS, FP8, INTS, PACKED, PLAIN
from anyhal.ops._spec import Sample

_SOME = 2048  # bit patterns for each function at quick
_MANY = 1 << 16
_ODD = 53  # elements of a row: several vectors of any width, and a rest
_LONG = 70_001  # and of one that a 16-bit count does not hold
_SHORT = ("f16", "bf16")
_OPS = ("unary", "binary", "cast", "clip", "where", "copy")


def cases() -> Iterator[Case]:
    for op in _OPS:
        spec = BY_NAME[op]
        modes = ("fused",) if spec.is_core else ("fused", "decomposed")
        for mode in modes:
            for short in spec.dtypes:
                if short not in (*PLAIN, *(FP8 if op in ("cast", "copy") else ())):
                    continue
                for effort in ("quick", "full"):
                    if mode == "fused" or short == "f32" or effort == "full":
                        yield case_of(op, "elementwise", (short, effort), effort, short, mode)


def probes(case: Case, seed: int) -> Iterator[Probe]:
    _, op, _, short, effort, _ = case.id.split("/")
    rng = rng_of(seed)
    for sample in globals()[f"_{op}"](rng, short, effort == "full"):
        yield Probe(sample)


def _values(rng: fills.Rng, short: str, full: bool) -> Any:
    """All that a function of one element has to know."""
    if short == "bool":
        return np.array([True, False, True])
    if short in (*FP8, *_SHORT, "i8", "u8"):
        return fills.codes(short)
    if short in INTS:
        return np.concatenate([fills.integers(short), fills.codes(short, rng, 64)])
    usual = np.concatenate([4 * rng.standard_normal(512), 100 * rng.standard_normal(256)])
    near = 1 + np.ldexp(rng.uniform(-1, 1, 256), rng.integers(-30, 0, 256))
    kind = dtype(short).numpy
    patterns = fills.codes(short, rng, _MANY if full else _SOME)
    return np.concatenate([fills.special(short), usual.astype(kind), near.astype(kind), patterns])


def _unary(rng: fills.Rng, short: str, full: bool) -> Iterator[Sample]:
    for fn, row in unary.FUNCTIONS.items():
        if short in row[3]:
            yield Sample(fn, (_values(rng, short, full),), {"fn": fn})


def _pairs(x: Any) -> tuple[Any, Any]:
    return np.repeat(x, len(x)), np.tile(x, len(x))


def _binary(rng: fills.Rng, short: str, full: bool) -> Iterator[Sample]:
    if short == "bool":
        pairs = _pairs(np.array([False, True]))
    else:
        few = fills.special(short) if short in FLOATS else fills.integers(short)
        a, b = _pairs(few)
        kind = dtype(short).numpy
        usual = [(3 * rng.standard_normal(_MANY // 8 if full else 512)).astype(kind) for _ in "ab"]
        if short in INTS:
            usual = [fills.codes(short, rng, 256) for _ in "ab"]
        pairs = (np.concatenate([a, usual[0]]), np.concatenate([b, usual[1]]))
    for fn, row in binary.FUNCTIONS.items():
        if short in row[3]:
            yield Sample(fn, pairs, {"fn": fn})
            if fn in ("add", "less", "maximum"):  # one operand repeats along either axis
                a, b = np.resize(pairs[0], 12), np.resize(pairs[1], _ODD)
                yield Sample(f"{fn} outer", (a[:, None], b), {"fn": fn})
                yield Sample(f"{fn} outer, turned", (b, a[:, None]), {"fn": fn})
            if fn == "logaddexp":  # beyond what exp can hold, and far from the ends
                far = np.array([2e4, -2e4, 1.2e4, -1.2e4, 800, -800, 90, -90, 0])
                yield Sample("logaddexp far", _pairs(far.astype(pairs[0].dtype)), {"fn": fn})


def _cast(rng: fills.Rng, short: str, full: bool) -> Iterator[Sample]:
    values = _values(rng, short, full)
    for to in (*PLAIN, *FP8, *PACKED):
        for overflow in ("saturate", "nonfinite") if to in FP8 else ("unstated",):
            x = values
            if short in FLOATS and to in (*FLOATS, *FP8) and to != short:
                x = np.concatenate([x, _roundings(rng, short, to, full)])
            if short in FLOATS and to in INTS:
                ends = fills.integers(to).astype(np.float64)
                ends = np.concatenate([ends + d for d in (-1, -0.5, 0, 0.5, 1)])
                with np.errstate(all="ignore"):
                    x = np.concatenate([x, ends.astype(x.dtype)])
            if to in PACKED:
                x = x[: len(x) // 2 * 2]  # two in a byte
            attrs = {"dtype": dtype(to).name, "overflow": overflow}
            yield Sample(f"to {to} {overflow}", (x,), attrs)


def _roundings(rng: fills.Rng, short: str, to: str, full: bool) -> Any:
    """Ties between values of the target, their neighbours, overflow."""
    if to == "f64" or (short in _SHORT and to in ("f32", *_SHORT)):
        return fills.special(short)
    if to == "f32":  # from f64
        start = fills.codes(to, rng, _SOME)
        start = start[np.isfinite(start)]
        targets = np.concatenate([start, np.nextafter(start, np.float32(np.inf))])
        return fills.around(np.sort(targets), short)
    every = fills.codes(to).astype(np.float64)
    every = np.unique(every[np.isfinite(every)])
    if not full and len(every) > _SOME:
        at = int(rng.integers(len(every) - _SOME))  # a stretch, the middle and both ends
        middle = len(every) // 2
        every = every[np.r_[:64, at : at + _SOME // 2, middle - 64 : middle + 64, -64:0]]
    return fills.around(every, short)


def _clip(rng: fills.Rng, short: str, full: bool) -> Iterator[Sample]:
    if short == "bool":
        return
    few = fills.special(short) if short in FLOATS else fills.integers(short)
    x, low = _pairs(few)
    high = np.roll(low, 7)
    yield Sample("both", (x, low, high))
    yield Sample("low", (x, low, None))
    yield Sample("high", (x, None, high))
    yield Sample("one bound for a row", (x[:35].reshape(5, 7), low[:7], high[:5, None]))


def _where(rng: fills.Rng, short: str, full: bool) -> Iterator[Sample]:
    a = _values(rng, short, False)
    b = a[::-1].copy()
    yield Sample("bits", (rng.integers(0, 2, a.shape).astype(bool), a, b))
    yield Sample("one row of conditions", (np.array([[True], [False]]), a, b))


def _copy(rng: fills.Rng, short: str, full: bool) -> Iterator[Sample]:
    x = _values(rng, short, False)
    yield Sample("bits", (x,))
    yield Sample("long", (np.resize(x, _LONG),))
    half = x[: len(x) // 2 * 2].reshape(2, -1)
    yield Sample("turned", (half.T,))
    yield Sample("repeated", (np.broadcast_to(x, (3, *x.shape)),))
