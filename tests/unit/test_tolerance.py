"""The bounds catch broken kernels and let honest ones pass; the comparer has no blind spots.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from anyhal import ops
from anyhal.conformance.tolerance import bound, mismatch, rounded_factors
from anyhal.dtypes import dtype

RNG = np.random.default_rng(7)
F32 = dtype("f32")


def judge(
    name: str, inputs: Any, attrs: dict[str, Any], actual: Any, out: str = "f32"
) -> str | None:
    spec, d = ops.lookup(name), dtype(out)
    want = spec.reference_outs(*inputs, **attrs)[0]
    return mismatch(actual, want, bound(spec.bound, spec, inputs, attrs, want, d), d)


def sequential(a: Any, b: Any) -> Any:
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total += a[:, k, None].astype(np.float32) * b[None, k].astype(np.float32)
    return total


def short_mantissa(x: Any) -> Any:
    """f32 with the ten explicit mantissa bits of the usual matrix units."""
    bits = x.view(np.uint32)
    return ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)


def drop_last(a: Any, b: Any) -> Any:
    return sequential(a[:, :-1], b[:-1])


def one_zero(a: Any, b: Any) -> Any:
    out = sequential(a, b)
    out[3, 4] = 0
    return out


@pytest.mark.parametrize("value", [0.7, 1 / 3])
def test_equal_terms_have_the_worst_case_and_no_others(value: float) -> None:
    """Roundings of equal terms repeat, so that no kernel without blocks meets what is true of
    others; who has just one other term among them is held to that again."""
    a = np.full((3, 3000), value, np.float32)
    b = np.full((3000, 2), 1 + value, np.float32)
    assert judge("matmul", (a, b), {}, sequential(a, b)) is None
    a[1] = RNG.permutation(np.linspace(0.5, 1.5, 3000).astype(np.float32))
    found = judge("matmul", (a, b), {}, np.matmul(a, b, dtype=np.float64) * (1 + 2e-5))
    assert found is not None and found.startswith("2 of 6") and "[1, 0]" in found


def test_equal_keys_have_the_worst_case() -> None:
    keys = 3000
    q, k, v = (np.full((1, 1, n, 8), 0.7, np.float32) for n in (2, keys, keys))
    total = np.cumsum(np.full(keys, 0.7, np.float32))[-1] / np.float32(keys)
    attrs = {"scale": 0.5, "causal": "none"}
    assert judge("attention", (q, k, v), attrs, np.full_like(q, total)) is None
    v[0, 0, 0] = 0.6
    want = ops.lookup("attention").reference_outs(q, k, v, **attrs)[0]
    assert judge("attention", (q, k, v), attrs, want * (1 + 1e-4)) is not None


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("reduce", lambda x: (x,), {"fn": "sum", "axis": (0,), "keepdims": False}),
        ("embedding_backward", lambda x: (x, np.zeros(len(x), int)), {"rows": 2}),
        ("scatter_add", lambda x: (np.zeros_like(x[:2]), np.zeros(len(x), int), x), {"axis": 0}),
    ],
)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_rows_added_in_order_meet_the_bound(op: str, inputs: Any, attrs: Any, kind: Any) -> None:
    spec = ops.lookup(op)
    for n in (300, 100_000):
        x = np.full((n, 2), kind(1 / 3))
        given = inputs(x)
        want = np.asarray(spec.reference(*given, **attrs))
        got = np.zeros(want.shape, kind)
        got.reshape(-1, 2)[0] = np.cumsum(x, axis=0)[-1]
        out = dtype(kind)
        assert mismatch(got, want, bound(spec.bound, spec, given, attrs, want, out), out) is None
        x[::2] *= kind(0.9)  # no longer one number
        given = inputs(x)
        want = np.asarray(spec.reference(*given, **attrs))
        off = want * (1 + 0.2 * n * np.finfo(kind).eps) if n > 300 else want * (1 + 1e-4)
        assert mismatch(off, want, bound(spec.bound, spec, given, attrs, want, out), out)


MUTANTS: dict[str, Callable[[Any, Any], Any]] = {
    "all zero": lambda a, b: np.zeros((a.shape[0], b.shape[1]), np.float32),
    "one element zero": one_zero,
    "rows swapped": lambda a, b: sequential(a[::-1], b),
    "last k dropped": drop_last,
    "short mantissa": lambda a, b: sequential(short_mantissa(a), short_mantissa(b)),
    "bf16 inputs": lambda a, b: sequential(
        a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)
    ),
    "f16 result": lambda a, b: sequential(a, b).astype(np.float16).astype(np.float32),
}
DATA = {
    "mean-zero": lambda *s: RNG.standard_normal(s).astype(np.float32),
    "positive": lambda *s: RNG.uniform(0.5, 1, s).astype(np.float32),
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("size", [16, 512])
def test_honest_products_pass(data: str, size: int) -> None:
    a, b = DATA[data](16, size), DATA[data](size, 16)
    assert judge("matmul", (a, b), {}, sequential(a, b)) is None
    halves = sum(sequential(a[:, i::4], b[i::4]) for i in range(4))
    assert judge("matmul", (a, b), {}, halves) is None
    fused = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    assert judge("matmul", (a, b), {}, fused) is None


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("size", [16, 512])
def test_broken_products_are_caught(mutant: str, size: int) -> None:
    a, b = DATA["mean-zero"](16, size), DATA["mean-zero"](size, 16)
    assert judge("matmul", (a, b), {}, MUTANTS[mutant](a, b)) is not None


def test_bf16_partial_sums_are_caught() -> None:
    a = RNG.standard_normal((16, 256)).astype(ml_dtypes.bfloat16)
    b = RNG.standard_normal((256, 16)).astype(ml_dtypes.bfloat16)
    honest = sequential(a, b).astype(ml_dtypes.bfloat16)
    assert judge("matmul", (a, b), {}, honest, "bf16") is None
    parts = [sequential(a[:, i::4], b[i::4]).astype(ml_dtypes.bfloat16) for i in range(4)]
    split = sum(p.astype(np.float32) for p in parts).astype(ml_dtypes.bfloat16)
    assert judge("matmul", (a, b), {}, split, "bf16") is not None


def test_a_softmax_without_its_maximum_is_caught() -> None:
    x = (40 * RNG.standard_normal((8, 64))).astype(np.float32)
    e = np.exp(x - x.max(-1, keepdims=True))
    assert judge("softmax", (x,), {"axis": -1}, e / e.sum(-1, keepdims=True)) is None
    with np.errstate(all="ignore"):
        plain = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    assert judge("softmax", (x,), {"axis": -1}, plain) is not None
    assert judge("softmax", (x,), {"axis": -1}, (e * 1.0001) / e.sum(-1, keepdims=True)) is not None


def test_a_long_softmax_may_add_one_by_one_but_not_in_half_precision() -> None:
    """2,053 terms in the order of a loop, in f32: up to 23 u off, where 24 u without the terms'
    number were allowed. A sum that is off by a term or kept in f16 is found."""
    for seed in range(40):
        x = np.random.default_rng(seed).standard_normal((3, 2053)).astype(np.float32)
        e = np.exp(x - x.max(-1, keepdims=True))
        total = np.cumsum(e, -1, dtype=np.float32)[:, -1:]
        assert judge("softmax", (x,), {"axis": -1}, e * (1 / total)) is None, seed
        short = e[:, 1:].sum(-1, keepdims=True)
        assert judge("softmax", (x,), {"axis": -1}, e / short) is not None, seed
        half = np.cumsum(e.astype(np.float16), -1, dtype=np.float16)[:, -1:]
        wrong = (e / half.astype(np.float32)).astype(np.float32)
        assert judge("softmax", (x,), {"axis": -1}, wrong) is not None, seed


def test_attention_probabilities_in_half_precision_are_caught() -> None:
    q, k, v = RNG.standard_normal((3, 1, 2, 33, 16)).astype(np.float32)
    s = (q * np.float32(0.25)) @ np.swapaxes(k, -1, -2)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    attrs = {"scale": 0.25, "causal": "none"}
    assert judge("attention", (q, k, v), attrs, p @ v) is None
    half = p.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert judge("attention", (q, k, v), attrs, half @ v) is not None


def test_rope_angles_in_half_precision_are_caught() -> None:
    x = RNG.standard_normal((1, 4, 8)).astype(np.float32)
    positions = np.array([2048, 2049, 4097, 40000])
    attrs = {"pairing": "interleaved", "base": 1e4}
    rope = ops.lookup("rope")
    good = rope.reference(x, positions, **attrs).astype(np.float32)
    assert judge("rope", (x, positions), attrs, good) is None
    with np.errstate(all="ignore"):
        shorter = positions.astype(np.float16).astype(np.float64).clip(0, 4e4).astype(np.int64)
    bad = rope.reference(x, shorter, **attrs).astype(np.float32)
    assert judge("rope", (x, positions), attrs, bad) is not None


def test_rms_norm_and_epilogue_in_half_precision_are_caught() -> None:
    x, w = RNG.standard_normal((4, 64)).astype(np.float32), np.ones(64, np.float32)
    norm = ops.lookup("rms_norm")
    good = norm.reference(x, w, eps=1e-5)[0]
    assert judge("rms_norm", (x, w), {"eps": 1e-5}, good.astype(np.float32)) is None
    half = good.astype(np.float16).astype(np.float32)
    assert judge("rms_norm", (x, w), {"eps": 1e-5}, half) is not None
    inputs = (x, RNG.standard_normal((64, 8)).astype(np.float32), None, None, None)
    for activation in ("none", "silu", "gelu_tanh", "tanh"):
        attrs = {"activation": activation}
        good = ops.lookup("matmul_epilogue").reference(*inputs, **attrs)
        assert judge("matmul_epilogue", inputs, attrs, good.astype(np.float32)) is None
        wrong = good.astype(np.float16).astype(np.float32)
        assert judge("matmul_epilogue", inputs, attrs, wrong) is not None


@pytest.mark.parametrize("fn", ["exp", "log", "sin", "tanh", "erf", "sigmoid", "gelu", "sqrt"])
def test_functions_in_half_precision_are_caught(fn: str) -> None:
    x = RNG.uniform(0.1, 3, 100).astype(np.float32)
    good = ops.lookup("unary").reference(x, fn)
    assert judge("unary", (x,), {"fn": fn}, good.astype(np.float32)) is None
    half = good.astype(np.float16).astype(np.float32)
    assert judge("unary", (x,), {"fn": fn}, half) is not None


def compare(actual: Any, want: Any, allowed: float = 1e-6, **options: Any) -> str | None:
    want = np.asarray(want, np.float64)
    with np.errstate(all="ignore"):
        actual = np.asarray(actual, np.float32)
    return mismatch(actual, want, np.full(want.shape, allowed), F32, **options)


def test_kinds_must_agree() -> None:
    inf, nan = np.inf, np.nan
    assert compare([nan, inf, -inf, 1], [nan, inf, -inf, 1]) is None
    for got, want in ((nan, 1), (1, nan), (inf, 1), (1, inf), (-inf, inf), (nan, inf), (inf, nan)):
        assert compare([got], [want]) is not None, (got, want)
    found = compare([[1, 2], [3, nan]], [[1, 2], [3, 4]])
    assert found is not None and "1 of 4" in found and "[1, 1]" in found


def test_overflow_and_the_sign_of_zero() -> None:
    largest = float(np.finfo(np.float32).max)
    assert compare([np.inf], [1e39]) is None  # past the range: infinity is right
    assert compare([largest], [1e39]) is not None
    assert compare([-np.inf], [1e39]) is not None
    assert compare([np.inf], [largest]) is not None
    edge = largest * (1 + 2.0**-25)  # where rounding itself decides
    assert compare([np.inf], [edge], 2e31) is None and compare([largest], [edge], 2e31) is None
    assert compare([-0.0], [0.0]) is None
    assert compare([-0.0], [0.0], bits=True) is not None


def test_integers_are_exact_and_shapes_count() -> None:
    i64 = dtype("i64")
    big = np.array([2**53 + 1])
    assert mismatch(big, big, np.zeros(1), i64) is None
    assert mismatch(big, big - 1, np.zeros(1), i64) is not None
    assert compare([1.0, 2.0], [[1.0, 2.0]]) == "shape [2] instead of [1, 2]"


def test_broken_windows_are_caught() -> None:
    x, w = RNG.standard_normal((2, 4, 9)).astype(np.float32), RNG.standard_normal((6, 2, 3))
    attrs = {"groups": 2, "strides": (2,), "pads": (1, 1)}
    inputs, spec = (x, w.astype(np.float32)), ops.lookup("conv")
    good = spec.reference(*inputs, **attrs)
    assert judge("conv", inputs, attrs, good.astype(np.float32)) is None
    for wrong in (
        good.astype(np.float16),
        spec.reference(x, inputs[1][..., ::-1], **attrs),  # a flipped kernel
        spec.reference(x, inputs[1][[3, 4, 5, 0, 1, 2]], **attrs),  # groups exchanged
    ):
        assert judge("conv", inputs, attrs, wrong.astype(np.float32)) is not None
    pool, attrs = ops.lookup("avg_pool"), {"kernel": (3,), "strides": (2,), "pads": (1, 1)}
    good, other = (pool.reference(x, **attrs, count_include_pad=c) for c in (True, False))
    attrs["count_include_pad"] = True
    assert judge("avg_pool", (x,), attrs, good.astype(np.float32)) is None
    assert judge("avg_pool", (x,), attrs, other.astype(np.float32)) is not None
    assert judge("avg_pool", (x,), attrs, good.astype(np.float16).astype(np.float32)) is not None
    attrs = {"sizes": (13,), "mode": "linear", "coordinates": "half_pixel"}
    good = ops.lookup("resize").reference(x, **attrs)
    assert judge("resize", (x,), attrs, good.astype(np.float32)) is None
    assert judge("resize", (x,), attrs, good.astype(np.float16).astype(np.float32)) is not None


def test_rounded_factors_are_covered_and_no_more() -> None:
    """bf16 factors pass the widened bound and fail the strict one; fewer bits fail both."""
    rng, spec = np.random.default_rng(8), ops.lookup("matmul")
    a, b = (rng.standard_normal((40, 40)).astype(np.float32) for _ in range(2))
    want = spec.reference(a, b)
    strict = bound(spec.bound, spec, (a, b), {}, want, dtype("f32"))
    wider = strict + rounded_factors(2, spec, (a, b))

    def product(bits: int) -> Any:
        def cut(x: Any) -> Any:
            m, e = np.frexp(x.astype(np.float64))
            return np.ldexp(np.rint(m * 2**bits) / 2**bits, e)

        return (cut(a) @ cut(b)).astype(np.float32)

    assert mismatch(product(8), want, wider, dtype("f32")) is None
    assert mismatch(product(8), want, strict, dtype("f32")) is not None
    assert mismatch(product(3), want, wider, dtype("f32")) is not None
    assert not np.any(rounded_factors(0, spec, (a, b)))


def test_a_device_that_declares_it_may_flush_small_results_and_no_others() -> None:
    def flushed(size: float, short: str) -> bool:
        want, zero = np.array([size]), np.zeros(1)
        return mismatch(zero, want, np.zeros(1), dtype(short), flushes=True) is None

    assert flushed(1e-39, "f32") and flushed(-1e-39, "bf16") and flushed(1e-310, "f64")
    assert not flushed(1.2e-38, "f32") and not flushed(1e-300, "f64")
    assert not flushed(1e-6, "f16"), "f16 is computed in f32, where this is a normal number"
    assert mismatch(np.zeros(1), np.array([1e-39]), np.zeros(1), F32) is not None
    assert mismatch(np.array([2e-39]), np.array([1e-39]), np.zeros(1), F32, flushes=True)
