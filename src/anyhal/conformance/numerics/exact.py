"""Phase A: integers whose every partial sum is exact, so that any right kernel gives the same bits.
SPDX-License-Identifier: Apache-2.0

For every output the magnitudes of all terms together stay below 2^p of the accumulator, and the
answer is exact in the output's dtype. What is found here is no rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from anyhal.conformance.numerics.probes import Probe, case_of, forms
from anyhal.conformance.numerics.products import (
    MULTIPLES,
    PRODUCTS,
    SUMS,
    largest,
    product,
    total,
    widest,
)
from anyhal.conformance.suite import Case
from anyhal.conformance.worker import rng_of
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._spec import Sample

_BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
_BITS |= {"f8_e4m3fn": 4, "f8_e4m3fnuz": 4, "f8_e5m2": 3, "f8_e5m2fnuz": 3}
_INTEGERS = ("i8", "u8", "i32", "i64")
_EACH_SIDE = tuple(e + d for e in (8, 16, 32, 64, 128, 256, 1024) for d in (-1, 0, 1))
_ALL_K = (1, 2, 3, *_EACH_SIDE, 4096)
_SOME_K = (1, 3, 8, 17, 33, 65, 129, 257, 1025)
_HUGE_K = (65537, 131071)
_HUGE = ("matmul", "scaled_matmul", "reduce", "cumsum")  # ops that take them
_TURNED = {"matmul": 1, "matmul_epilogue": 1, "grouped_matmul": 2, "scaled_matmul": 1}  # b
_EDGES = (0, 1, 2, 3, 5, 7, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
_LONG = {"smoke": (64, 1024), "quick": (64, 256, 1024, 4096), "full": (64, 256, 1024, 4096, 16384)}


def cases() -> Iterator[Case]:
    rows = [("products", *row) for row in PRODUCTS.items()]
    rows += [("sums", *row) for row in SUMS.items()]
    for what, op, made in rows:
        spec = BY_NAME[op]
        for mode in forms(spec):
            for short in spec.dtypes:
                if what == "sums" and short not in _BITS:
                    continue
                if op == "conv_backward" and what == "sums" and short in ("f16", "bf16"):
                    continue  # its first output sums more than these hold
                main = short == "f32"
                for form in made:
                    words = [short, what, *([form] if form else [])]
                    own = {"form": form}
                    if main and mode == "fused":
                        yield case_of(op, "exact", [*words, "smoke"], "smoke", short, mode, **own)
                    tier = "quick" if mode == "fused" or main else "full"
                    yield case_of(op, "exact", [*words, "quick"], tier, short, mode, **own)
                    yield case_of(op, "exact", [*words, "full"], "full", short, mode, **own)


def probes(case: Case, seed: int) -> Iterator[Probe]:
    _, op, _, short, what, *_, effort, _ = case.id.split("/")
    rng, form = rng_of(seed), case.given["form"]
    make = _sums if what == "sums" else _integers if short in _INTEGERS else _products
    found = make(rng, op, form, short, effort)
    exact = op != "layer_norm_backward"  # its other output is no sum
    step = 3 if case.given["mode"] == "decomposed" and effort != "full" else 1
    for i, (sample, layouts) in enumerate(found):
        if i % step == 0:
            yield Probe(sample, layouts, exact=exact)


_Found = Iterator[tuple[Sample, tuple[str, ...]]]


def _lengths(op: str, form: str, short: str, effort: str) -> list[int]:
    many = _ALL_K if short in ("f32", "i8") and op != "conv_backward" else _SOME_K
    full = (*_ALL_K, *(_HUGE_K if op in _HUGE else ()))
    chosen = {"smoke": (17, 129), "quick": many, "full": full}[effort]
    step = MULTIPLES.get(form, 1)
    return sorted({-(-k // step) * step for k in chosen})


def _products(rng: np.random.Generator, op: str, form: str, short: str, effort: str) -> _Found:
    kind, step = dtype(short).numpy, MULTIPLES.get(form, 1)
    wide = "float32" if widest(op, short) else short
    most = min(largest(form), 1 << min(_BITS[short], 19))
    out_bits = 24 if wide == "float32" else _BITS[short]

    def made(label: str, a: Any, b: Any) -> tuple[Sample, tuple[str, ...]]:
        return product(op, form, a.astype(kind), b.astype(kind), label), ()

    # A1: small dense integers; the product of sizes is what tiles are about.
    sizes = ((17, 33, 9), (5, 64, 33), (64, 17, 65))
    for m, k, n in sizes[: 1 if effort == "smoke" else 3]:
        k = -(-k // step) * step
        limit = max(1, min(most, 64, int(np.sqrt(2 ** min(out_bits, 24) / k))))
        a, b = (rng.integers(-limit, limit, s, endpoint=True) for s in ((m, k), (k, n)))
        yield made(f"dense {m}x{k}x{n}", a, b)
    # A2: what is summed up first is taken away again; low partial sums do not come back.
    low, high = _mirrored_range(op, form, short)
    for k in _LONG[effort]:
        if k % step == 0 and (k > 64 or effort != "smoke"):
            fit = _fits(k, high, _BITS["f32" if short != "f64" else "f64"])
            for segment in _segments(short, k):
                a, b = mirrored(rng, (3, k, 5), (min(low, fit), fit), segment)
                sample, _ = made(f"mirrored {k} by {segment}", a, b)
                yield sample, ()
                if op in _TURNED:
                    layouts = ["dense"] * len(sample.inputs)
                    layouts[_TURNED[op]] = "transposed"
                    yield sample, tuple(layouts)
    # A3: an integer with more bits than shorter formats keep.
    if short in ("f32", "f64") and form not in MULTIPLES:
        odd = 4097 if short == "f32" else (1 << 40) + 1
        b = rng.integers(-1, 1, (9, 7), endpoint=True)
        yield made("mantissa", np.full((5, 9), odd), b)
    codes = 60 if op == "conv_backward" else 251  # whose other output sums them
    # A5 and A6: one k at a time, the last ones above all, and b says where a value stands.
    for k in _lengths(op, form, short, effort):
        m, n = min(k, 67 if k == 257 else 5), 3
        last = np.zeros((m, k))
        last[np.arange(m), k - 1 - np.arange(m)] = 1
        yield made(f"last of {k}", last, position_code((k, n), min(most, largest(form), codes)))
    if effort != "smoke" and op != "conv_backward":  # whose other output is no such sum
        yield from _grid(rng, op, form, short, effort)
    yield from _extras(rng, op, form, short)


def _grid(rng: np.random.Generator, op: str, form: str, short: str, effort: str) -> _Found:
    """A4 and the list of M and N: a permutation picks rows of b."""
    kind, step = dtype(short).numpy, MULTIPLES.get(form, 1)
    edges: tuple[int, ...] = _EDGES if effort == "full" else (0, 1, 3, 17, 33, 65, 129)
    if short != "f32" and effort != "full":
        edges = (0, 1, 33)
    k = step * -(-8 // step)
    for i, m in enumerate(edges):
        for n in {edges[-1 - i], edges[(i * 5 + 2) % len(edges)]}:
            if n == 0 and op in ("quant_matmul", "conv", "conv_transpose"):
                continue
            if m == 0 and op in ("conv", "conv_transpose"):
                continue
            a = np.zeros((m, k))
            a[np.arange(m), rng.integers(0, k, m)] = 1
            most = min(1 << _BITS[short], largest(form))
            b = position_code((k, n), most)
            yield product(op, form, a.astype(kind), b.astype(kind), f"picked {m}x{k}x{n}"), ()
    if form in MULTIPLES or op == "scaled_matmul":
        return
    a = np.eye(33)[rng.permutation(33)].astype(kind)
    b = rng.standard_normal((33, 17)).astype(kind)
    sample = product(op, form, a, b, "permuted reals")
    for layout in ("dense", "transposed", "gaps"):
        yield sample, (layout,) * len(sample.inputs)


def _extras(rng: np.random.Generator, op: str, form: str, short: str) -> _Found:
    """A8, and batches whose rows must not be mixed up."""
    kind = dtype(short).numpy
    small = [rng.integers(-2, 2, s, endpoint=True).astype(kind) for s in ((5, 6), (6, 7))]
    if op == "matmul":
        code = position_code((2, 3, 4, 5), 120).astype(kind)
        pick = np.eye(4)[[3, 1, 0]].astype(kind)
        yield Sample("batch codes", (pick, code)), ()
        yield Sample("batch codes, first operand", (code, np.eye(5, 2).astype(kind))), ()
        # K = 0 sums nothing, over whatever the output held.
        yield Sample("K 0", (np.zeros((2, 3, 0), kind), np.zeros((2, 0, 3), kind))), ()
    if op == "matmul_epilogue":
        bias, by, rest = (
            rng.integers(-2, 2, s, endpoint=True).astype(kind) for s in ((7,),) + ((5, 7),) * 2
        )
        for scale in (0.0, 1.0, -1.0, 2.0, 0.5):
            attrs = {"scale": scale, **widest(op, short)}
            yield Sample(f"scale {scale}", (*small, bias, by, rest), attrs), ()
            yield (
                Sample(
                    f"scale {scale} relu",
                    (*small, bias, None, rest),
                    {"activation": "relu", **attrs},
                ),
                (),
            )
        yield Sample("K 0", (np.zeros((5, 0), kind), np.zeros((0, 7), kind), bias, by, rest)), ()


def _fits(k: int, high: int, bits: int) -> int:
    """The largest magnitude with which k products stay below 2^bits."""
    return max(1, min(high, int(np.sqrt(2**bits / k))))


def _mirrored_range(op: str, form: str, short: str) -> tuple[int, int]:
    if short.startswith("f8_e4m3"):
        return 13, 15
    if short.startswith("f8"):
        return 5, 8
    high = {"f64": 1 << 19, "f32": 64}.get(short, 8)
    return 1, min(high, largest(form))


def _segments(short: str, k: int) -> list[int]:
    """Kernels for 8-bit floats may move their sums to f32 every so many products."""
    return sorted(
        {k // 2, *((s for s in (32, 128) if s <= k // 2) if short.startswith("f8") else ())}
    )


def mirrored(
    rng: np.random.Generator, sizes: tuple[int, int, int], values: tuple[int, int], segment: int
) -> tuple[Any, Any]:
    """a and b whose products rise over `segment` terms and fall over the next, in reverse; one row
    of b is then changed by 1, so that the answer is a small part of a."""
    m, k, n = sizes
    low, high = values
    a, b = np.zeros((m, k)), np.zeros((k, n))
    at = 0
    for at in range(0, k - 2 * segment + 1, 2 * segment):
        up = slice(at, at + segment)
        down = slice(at + segment, at + 2 * segment)
        a[:, up] = rng.integers(low, high, (m, segment), endpoint=True)
        b[up] = rng.integers(low, high, (segment, n), endpoint=True)
        a[:, down], b[down] = a[:, up][:, ::-1], -b[up][::-1]
    row = b[at + segment]
    row += np.where(row <= -high, 1, -1) if high > low else 1
    return a, b


def position_code(shape: tuple[int, ...], most: int) -> Any:
    """Integers that tell where they stand: distinct along every axis up to `most`."""
    count = int(np.prod(shape))
    wrap = max(1, min(most, 251))
    return (np.arange(count) * 7 % wrap + 1).clip(1, most).reshape(shape)


def _integers(rng: np.random.Generator, op: str, form: str, short: str, effort: str) -> _Found:
    """A7: integers of their whole range, and the last k."""
    kind, info = dtype(short).numpy, np.iinfo(dtype(short).numpy)
    for k in _lengths(op, form, short, effort):
        bits = min(info.bits - (info.min < 0), 11) if op == "scaled_matmul" else info.bits
        most = int(min(info.max, 2**bits - 1))
        a = rng.integers(max(info.min, -most - 1), most, (3, k), endpoint=True).astype(kind)
        b = rng.integers(max(info.min, -most - 1), most, (k, 5), endpoint=True).astype(kind)
        if k * 4.0**8 < 2**24 or op == "matmul":
            yield product(op, form, a, b, f"whole range {k}"), ()
        m = min(k, 5)
        last = np.zeros((m, k), kind)
        last[np.arange(m), k - 1 - np.arange(m)] = 1
        yield product(op, form, last, position_code((k, 3), 120).astype(kind), f"last of {k}"), ()
    edge = info.min if info.min < 0 else info.max
    if info.bits == 8:
        for k in (2, 4, 16, 33, 255):
            pairs = np.full((2, k), edge, kind), np.full((k, 3), edge, kind)
            yield product(op, form, *pairs, f"{edge} times {edge}, {k}"), ()


def _sums(rng: np.random.Generator, op: str, form: str, short: str, effort: str) -> _Found:
    kind, bits = dtype(short).numpy, _BITS[short]
    power = op == "avg_pool"  # a quotient is exact for powers of two
    for k in _LONG[effort]:
        if effort == "smoke" and k > 256:
            continue
        # What a running sum shows of itself must be exact in the output as well.
        high = {"f64": 1 << 40, "f32": 2000}.get(short, 200)
        high = int(
            min(high, 2 ** (bits if op == "cumsum" else min(53, max(bits, 24))) // k, 2**bits)
        )
        if high < 1:
            continue
        _, b = mirrored(rng, (1, k, 5), (max(1, high // 2), high), k // 2)
        yield total(op, form, b.astype(kind), f"mirrored {k}"), ()
    for k in _lengths(op, "", short, effort):
        if power and k & (k - 1):
            continue
        b = np.zeros((k, 5))
        b[k - 1] = [1, 2, 3, 4, 5]
        b[0] += [1, 1, 0, 0, 2]
        yield total(op, form, b.astype(kind), f"first and last of {k}"), ()
