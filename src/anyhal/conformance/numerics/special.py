"""Special values by family: what NaN, infinities, ties, dead regions, edges and extremes must give.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from anyhal.conformance.numerics import fills
from anyhal.conformance.numerics.attending import ATTENDING
from anyhal.conformance.numerics.probes import Probe, case_of, forms
from anyhal.conformance.suite import Case
from anyhal.conformance.worker import rng_of
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._checks import FLOATS
from anyhal.ops._spec import Sample
from anyhal.records import replace

Rng = np.random.Generator
_STEP = 3  # of what a decomposed form meets at quick: every third
Made = Iterator[Sample | tuple[Sample, bool]]  # the bool: bits are known


def cases() -> Iterator[Case]:
    for op in FAMILIES:
        spec = BY_NAME[op]
        for mode in forms(spec):
            for short in spec.dtypes:
                if dtype(short).numpy is None:
                    continue
                if mode == "fused":
                    yield case_of(op, "special", (short, "all"), "quick", short, mode, step=1)
                    continue
                if short == "f32":
                    yield case_of(op, "special", (short, "some"), "quick", short, mode, step=_STEP)
                yield case_of(op, "special", (short, "all"), "full", short, mode, step=1)


def probes(case: Case, seed: int) -> Iterator[Probe]:
    operands = len(BY_NAME[case.op].inputs)
    step = case.given["step"]
    for i, made in enumerate(FAMILIES[case.op](rng_of(seed), case.dtype)):
        if i % step:
            continue
        sample, exact = made if isinstance(made, tuple) else (made, False)
        absent = (None,) * (operands - len(sample.inputs))
        yield Probe(replace(sample, inputs=(*sample.inputs, *absent)), exact=exact)


def _marked(x: Any, value: float) -> tuple[str, Any]:
    """The first row of x again and again, each time with one value at another place: the first,
    the last, and the edges of tiles."""
    n = x.shape[-1]
    places = sorted({0, 1, 7, 8, 15, 16, 31, 32, 63, n - 1} & set(range(n)))
    y = np.tile(x[:1], (len(places), 1))
    y[np.arange(len(places)), places] = value
    return f"one {value}", y


def _as(short: str, *arrays: Any) -> Any:
    kind = dtype(short).numpy
    found = [None if a is None else np.asarray(a).astype(kind) for a in arrays]
    return found[0] if len(found) == 1 else found


# --------------------------------------------------------------------- rows: softmax and its kin


def _rows(rng: Rng, short: str) -> Any:
    """Rows of 65 for the softmax family; f16 ends at 65504."""
    base = rng.standard_normal(65)
    most = 6e4 if short == "f16" else 1e30
    steps = np.arange(65) % 9
    rows = [base + 88, base - 88, base * 30, np.where(np.arange(65) < 32, 88.0, -88.0)]
    rows += [np.full(65, -5e4) + 32 * steps, np.full(65, 5e4) - 32 * steps]
    rows += [np.full(65, most), np.full(65, -most), base * most / 4]
    rows += [np.where(np.arange(65) < 33, -np.inf, base), np.where(np.arange(65) % 2, -np.inf, 0)]
    rows += [np.full(65, -np.inf), np.zeros(65), np.where(np.arange(65) == 64, 104.0, 0)]
    for value in (np.nan, np.inf, -np.inf):
        for at in (0, 31, 64):
            rows.append(np.where(np.arange(65) == at, value, base))
    return _as(short, np.stack(rows))


def _softmax(rng: Rng, short: str) -> Made:
    rows = _rows(rng, short)
    yield Sample("rows", (rows,), {"axis": -1})
    yield Sample("columns", (np.ascontiguousarray(rows.T),), {"axis": 0})
    yield Sample("middle", (rows[:, None, :].repeat(3, 1).transpose(0, 2, 1).copy(),), {"axis": 1})
    for n in (0, 1, 2, 257, 2053):
        yield Sample(f"{n} long", (_as(short, rng.standard_normal((3, n))),), {"axis": -1})


def _logsumexp(rng: Rng, short: str) -> Made:
    for made in _softmax(rng, short):
        sample = made if isinstance(made, Sample) else made[0]
        if sample.inputs[0].size:
            yield Sample(sample.label, sample.inputs, {"axis": (sample.attrs["axis"],)})


def _cross_entropy(rng: Rng, short: str) -> Made:
    rows = _rows(rng, short)
    targets = rng.integers(0, 65, len(rows))
    targets[0], targets[1] = 0, 64
    ignored = np.where(np.arange(len(rows)) % 3 == 0, -100, targets)
    for reduction in ("none", "sum", "mean"):
        finite = slice(0, 6)
        attrs = {"reduction": reduction, "label_smoothing": 0.1}
        yield Sample(reduction, (rows[finite], ignored[finite]), attrs)
    yield Sample("rows", (rows, targets), {"reduction": "none"})
    yield Sample("all ignored", (rows[:3], np.full(3, -100)), {"reduction": "sum"})


# ------------------------------------------------------------------------------------- norms


def _norm_rows(rng: Rng, short: str) -> Any:
    base = rng.standard_normal(129)
    # Small enough for its squares to vanish; differences stay normal numbers.
    most, least = (2.0**14, 2.0**-14) if short == "f16" else (2.0**120, 2.0**-66)
    rows: list[Any] = [base, base + 16, base + 1024, base + 1449, base * most / 8, base * least * 8]
    rows += [np.full(129, 1234.0), np.zeros(129), 40000 + np.arange(129) % 4]
    rows += [np.where(np.arange(129) == 128, 100.0, base), np.abs(base)]
    rows += [
        np.where(np.arange(129) == 7, np.nan, base),
        np.where(np.arange(129) == 128, np.inf, base),
    ]
    return _as(short, np.stack(rows))


def _norm_samples(rng: Rng, short: str, biased: bool, attrs: dict[str, Any]) -> Made:
    rows = _norm_rows(rng, short)
    weight, bias = _as(short, rng.standard_normal(129), rng.standard_normal(129))
    rest = _as(short, rng.standard_normal(rows.shape))
    for eps in (1e-5, 1e-12, 0.0):
        some = rows if eps else rows[[0, 1, 2, 9, 10]]
        with_eps = {"eps": eps, **attrs}
        yield Sample(f"eps {eps}", (some, weight, *((bias,) if biased else ()), None), with_eps)
        yield Sample(
            f"eps {eps}, plain", (some, None, *((None,) if biased else ()), None), with_eps
        )
    inputs = (rows[:3], weight, *((bias,) if biased else ()), rest[:3])
    yield Sample("residual", inputs, {"eps": 1e-5, **attrs})
    for n in (1, 3, 1025):
        x = _as(short, rng.standard_normal((3, n)) + 3)
        yield Sample(
            f"{n} long", (x, None, *((None,) if biased else ()), None), {"eps": 1e-5, **attrs}
        )


def _layer_norm(rng: Rng, short: str) -> Made:
    yield from _norm_samples(rng, short, True, {})
    for axes in (2, 3, 4):
        x = _as(short, rng.standard_normal((2, 3, 4, 5)) + 3)
        weight, bias = _as(short, *rng.standard_normal((2, *x.shape[-axes:])))
        yield Sample(f"{axes} axes", (x, weight, bias, None), {"eps": 1e-5, "axes": axes})


def _group_norm(rng: Rng, short: str) -> Made:
    rows = _norm_rows(rng, short)
    x = np.stack([rows[:6, :128], rows[6:12, :128]])
    weight, bias = _as(short, rng.standard_normal(6), rng.standard_normal(6))
    for groups in (1, 2, 3, 6):
        yield Sample(f"{groups} groups", (x, weight, bias, None), {"groups": groups, "eps": 1e-5})


def _batch_norm(rng: Rng, short: str) -> Made:
    x = _norm_rows(rng, short)[None, [0, 1, 2, 8, 9, 11, 12]]
    mean, variance = _as(short, rng.standard_normal(7) + 1000, rng.uniform(1e-6, 4, 7))
    weight, bias = _as(short, rng.standard_normal(7), rng.standard_normal(7))
    yield Sample("large mean", (x, mean, variance, weight, bias, None), {"eps": 1e-5})
    yield Sample("no variance", (x, mean, variance * 0, None, None, None), {"eps": 1e-5})


# ------------------------------------------------------- reductions, order, selection, indices


def _reduce(rng: Rng, short: str) -> Made:
    from anyhal.ops.reduce import FUNCTIONS

    for fn, row in FUNCTIONS.items():
        if short not in row[2]:
            continue
        if short == "bool":
            for fill in (False, True):
                x = np.full((11, 67), fill)
                x[np.arange(11), [0, 1, 7, 8, 15, 16, 31, 32, 63, 65, 66]] = not fill
                yield Sample(f"{fn} one {not fill}", (x,), {"fn": fn, "axis": (1,)})
            continue
        if short in FLOATS:
            x = _as(short, rng.standard_normal((3, 67)))
            for value in (np.nan, np.inf, -np.inf):
                label, y = _marked(x, value)
                yield Sample(f"{fn} {label}", (y,), {"fn": fn, "axis": (1,)})
            both = x.copy()
            both[:, 3], both[:, 66] = np.inf, -np.inf
            yield Sample(f"{fn} of infinities", (both,), {"fn": fn, "axis": (1,)})
        else:
            x = np.resize(fills.integers(short), (5, 67))
        if fn in ("max", "min"):
            # The largest stands at every place of a row once.
            y = rng.integers(1, 5, (67, 67), endpoint=True)
            y = np.where(np.eye(67, dtype=bool), 9 if fn == "max" else 0, y).astype(x.dtype)
            yield Sample(f"{fn} everywhere", (y,), {"fn": fn, "axis": (1,)})
        for axis in ((0,), (0, 1)):
            yield Sample(f"{fn} over {axis}", (x,), {"fn": fn, "axis": axis})
        if fn not in ("max", "min"):
            yield Sample(f"{fn} of nothing", (x[:, :0],), {"fn": fn, "axis": (1,)})


def _ordered(rng: Rng, short: str) -> Iterator[tuple[str, Any]]:
    """Arrays with ties, and for floats NaN, infinities, both zeros and subnormals."""
    if short == "bool":
        return
    kind = dtype(short).numpy
    x = rng.integers(0, 4, (5, 67)).astype(kind)
    yield "ties", x
    yield "equal", np.full((3, 67), 2).astype(kind)
    yield "rising", np.arange(67).clip(0, 60).astype(kind)[None]
    yield "falling", np.arange(67)[::-1].clip(0, 60).astype(kind)[None].copy()
    if short in FLOATS:
        tiny = fills.scaled(rng, (3, 67), short, "subnormal").astype(kind)
        yield "subnormal", tiny
        yield "zeros", np.where(rng.integers(0, 2, (3, 67)), 0.0, -0.0).astype(kind)
        for value in (np.nan, np.inf, -np.inf):
            yield _marked(x, value)
        yield "two NaN", np.where(np.arange(67) % 30 == 8, np.nan, x).astype(kind)
        yield "all NaN", np.full((1, 9), np.nan).astype(kind)
    else:
        yield "ends", np.resize(fills.integers(short), (3, 67))


def _argmax(rng: Rng, short: str) -> Made:
    for label, x in _ordered(rng, short):
        yield Sample(label, (x,), {"axis": -1})
        yield Sample(f"{label}, columns", (np.ascontiguousarray(x.T),), {"axis": 0})
    if short == "f32":  # places past what 16 bits hold
        x = np.zeros((2, 70001), np.float32)
        x[0, 40000], x[0, 69999] = 1, -1
        x[1, 65537], x[1, 32769] = 1, -1
        yield Sample("70001 long", (x,), {"axis": -1})


def _sort(rng: Rng, short: str) -> Made:
    for label, x in _ordered(rng, short):
        for descending in (False, True):
            yield Sample(f"{label} {descending}", (x,), {"axis": -1, "descending": descending})


def _topk(rng: Rng, short: str) -> Made:
    for label, x in _ordered(rng, short):
        for largest in (False, True):
            for k in (1, 5) if label != "ties" else (0, 1, 8, 33, x.shape[-1]):
                yield Sample(
                    f"{label} {k} {largest}", (x,), {"k": k, "axis": -1, "largest": largest}
                )


def _cumsum(rng: Rng, short: str) -> Made:
    x = _as(short, rng.integers(0, 3, (5, 67)))
    for exclusive in (False, True):
        for reverse in (False, True):
            attrs = {"axis": 1, "exclusive": exclusive, "reverse": reverse}
            yield Sample(f"{exclusive} {reverse}", (x,), attrs), True
            if short in FLOATS:
                y = x.copy()
                y[0, 66], y[1, 0], y[2, 31], y[3, 40] = np.nan, np.nan, np.inf, -np.inf
                yield Sample(f"NaN {exclusive} {reverse}", (y,), attrs)


def _gather(rng: Rng, short: str) -> Made:
    x = fills.codes(short)[:256] if dtype(short).block_bytes == 1 and short != "bool" else None
    x = _as(short, rng.integers(0, 2, (9, 11, 3))) if x is None else x[:255].reshape(5, 17, 3)
    for axis in (0, 1, 2):
        n = x.shape[axis]
        for kind in (np.int64, np.int32):
            indices = np.array([[0, n - 1, n // 2], [n - 1, 0, n - 1]], kind)
            yield Sample(f"edges of axis {axis}", (x, indices), {"axis": axis})


def _scatter(rng: Rng, short: str) -> Made:
    kind = dtype(short).numpy
    x = _as(short, rng.integers(0, 2, (5, 7)))
    updates = _as(short, rng.integers(1, 3, (9, 7)))
    indices = np.array([0, 4, 4, 2, 4, 0, 4, 4, 4])[:, None].repeat(7, 1)
    reductions = ("add", "multiply", "max", "min") if short != "bool" else ()
    for reduction in reductions:
        attrs = {"axis": 0, "reduction": reduction}
        yield Sample(f"duplicates {reduction}", (x, indices, updates), attrs), True
        if short in FLOATS:
            some = updates.copy()
            some[1, 0], some[2, 1], some[4, 2] = np.nan, np.inf, -np.inf
            yield Sample(f"NaN {reduction}", (x, indices, some), attrs)
    rows = np.arange(5)[::-1, None].repeat(7, 1)
    yield Sample("none", (x, rows, updates[:5].astype(kind)), {"axis": 0, "reduction": "none"})


def _scatter_add(rng: Rng, short: str) -> Made:
    x, updates = _as(short, rng.integers(0, 2, (5, 7)), rng.integers(1, 3, (9, 7)))
    indices = np.array([0, 4, 4, 2, 4, 0, 4, 4, 4])
    yield Sample("duplicates", (x, indices, updates), {"axis": 0}), True
    updates = np.ascontiguousarray(updates[:, :5].T)
    yield Sample("last axis", (x[:, :5].copy(), indices, updates), {"axis": 1}), True


# ------------------------------------------------------------------------------ pools and codes


def _pool_attrs() -> Iterator[tuple[str, dict[str, Any]]]:
    for pads in ((0, 0, 0, 0), (1, 0, 0, 1), (1, 1, 1, 1)):
        for strides in ((1, 1), (2, 3)):
            for ceil in (False, True):
                yield (
                    f"pads {pads} strides {strides} {ceil}",
                    {"kernel": (2, 4), "strides": strides, "pads": pads, "ceil_mode": ceil},
                )


def _max_pool(rng: Rng, short: str) -> Made:
    x = -_as(short, rng.integers(1, 9, (1, 2, 7, 9)))  # padding is no zero
    y = x.copy()
    if short in FLOATS:
        y[0, 0, 3, 4], y[0, 1, 6, 8], y[0, 1, 0, 0] = np.nan, np.nan, -np.inf
    for label, attrs in _pool_attrs():
        yield Sample(label, (x,), attrs)
        yield Sample(f"NaN {label}", (y,), attrs)


def _avg_pool(rng: Rng, short: str) -> Made:
    x = _as(short, rng.integers(1, 9, (1, 2, 7, 9)))
    for label, attrs in _pool_attrs():
        for counted in (False, True):
            given = {**attrs, "count_include_pad": counted}
            yield Sample(f"{label} {counted}", (x,), given)


def _quantize(rng: Rng, short: str) -> Made:
    values = np.concatenate([np.arange(-300, 300) / 2, [np.nan, np.inf, -np.inf, 1e4, -0.0]])
    x = _as(short, values[: len(values) // 2 * 2])
    scale = np.asarray(_as(short, 1.0))
    for to in ("int8", "uint8", "int4", "uint4"):
        for zero in (None, 3):
            point = None if zero is None or to in ("int4", "uint4") else np.asarray(zero, to)
            yield Sample(f"ties to {to} {zero}", (x, scale, point), {"dtype": to})


def _matmul(rng: Rng, short: str) -> Made:
    """0 times an infinity or a NaN is a NaN; what a product of 64 terms cannot hold in a short
    dtype is an infinity, of its sign; what f32 holds below its smallest normal number is kept."""
    if short not in ("f32", "f16", "bf16"):
        return
    zeros, odd = np.ones((4, 9)), np.ones((9, 6))
    zeros[1:, 4], odd[4, 1:4] = 0, (np.inf, -np.inf, np.nan)
    yield Sample("0 times infinity and NaN", tuple(_as(short, zeros, odd)))
    if short == "f32":
        a, b = rng.integers(1, 9, (5, 16)), rng.integers(1, 9, (16, 7))
        yield Sample("subnormal", tuple(_as(short, a * 2.0**-70, b * 2.0**-69)))
        return
    large = 2.0**9 if short == "f16" else 2.0**63
    a = np.full((5, 64), large)
    b = np.full((64, 7), large) * np.where(np.arange(7) % 3, 1, -1)
    yield Sample("past the largest", tuple(_as(short, a, b)))
    yield Sample("past the largest, b turned", tuple(_as(short, b.T, a.T)))


FAMILIES: dict[str, Callable[[Rng, str], Made]] = {
    "softmax": _softmax,
    "log_softmax": _softmax,
    "logsumexp": _logsumexp,
    "cross_entropy": _cross_entropy,
    "layer_norm": _layer_norm,
    "rms_norm": lambda rng, short: _norm_samples(rng, short, False, {}),
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "reduce": _reduce,
    "argmax": _argmax,
    "argmin": _argmax,
    "sort": _sort,
    "topk": _topk,
    "cumsum": _cumsum,
    "gather": _gather,
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "quantize": _quantize,
    "matmul": _matmul,
    **ATTENDING,
}
