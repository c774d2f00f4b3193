"""Refusals that write nothing, in place calls, exhaustive conversions, functions over their range.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from contract_client import Cpu, Refused
from test_products import judge

INVALID_ARGUMENT = 1


def test_num_23_indices_are_checked_before_anything_is_written(cpu: Cpu) -> None:
    table = np.ones((5, 64), np.float32)
    for bad in (-1, 5):
        indices = np.array([0, 1, bad])
        for op, inputs, attrs in (
            ("gather", [table, indices], {"axis": 0}),
            ("embedding", [table, indices], {}),
            ("scatter_add", [table, indices, np.ones((3, 64), np.float32)], {"axis": 0}),
        ):
            out = np.full((5 if op == "scatter_add" else 3, 64), 7, np.float32)
            with pytest.raises(Refused) as refused:
                cpu.run(op, inputs, attrs, out=out)
            assert refused.value.status == INVALID_ARGUMENT
            assert str(bad) in str(refused.value) and (out == 7).all()


def test_cache_append_refuses_rows_beyond_the_end(cpu: Cpu) -> None:
    cache = np.zeros((1, 2, 8, 4), np.float32)
    update = np.ones((1, 2, 3, 4), np.float32)
    for position in (-1, 6):
        with pytest.raises(Refused):
            cpu.run("cache_append", [cache, update, np.array(position)], out=cache, alias_of=1)
        assert (cache == 0).all()
    cpu.run("cache_append", [cache, update, np.array(5)], out=cache, alias_of=1)
    assert (cache[:, :, 5:] == 1).all() and (cache[:, :, :5] == 0).all()


def test_in_place(cpu: Cpu) -> None:
    rng = np.random.default_rng(1)
    for name in (np.float32, np.float16, ml_dtypes.bfloat16):
        x = rng.standard_normal((7, 600)).astype(name)
        for op, inputs, attrs in (
            ("unary", [x], {"fn": "silu"}),
            ("binary", [x, x[::-1].copy()], {"fn": "subtract"}),
            ("softmax", [x], {"axis": 0}),
            ("softmax", [x], {"axis": -1}),
            ("rms_norm", [x, None, None], {"eps": 1e-5}),
            ("rope", [x, np.arange(7), None], {"pairing": "half_split", "base": 1e4}),
        ):
            apart = cpu.run(op, inputs, attrs)
            apart = apart[0] if isinstance(apart, tuple) else apart
            over = inputs[0].copy()
            cpu.run(op, [over, *inputs[1:]], attrs, out=over, alias_of=1)
            np.testing.assert_array_equal(over, apart)


def test_overlap_that_is_not_in_place_is_refused(cpu: Cpu) -> None:
    x = np.ones((70, 70), np.float32)
    with pytest.raises(Refused):
        cpu.run("matmul", [x, x], out=x, alias_of=1)


def test_every_half_converts_exactly(cpu: Cpu) -> None:
    bits = np.arange(65536, dtype=np.uint16)
    for name in (np.float16, ml_dtypes.bfloat16):
        halves = bits.view(name)
        out = cpu.run("cast", [halves], {"dtype": "float32"})
        np.testing.assert_array_equal(out, halves.astype(np.float32))
        back = cpu.run("cast", [out], {"dtype": np.dtype(name).name})
        known = ~np.isnan(out)
        np.testing.assert_array_equal(back.view(np.uint16)[known], bits[known])
        assert np.isnan(back.astype(np.float32)[~known]).all()


def test_ties_and_their_neighbours_round_once(cpu: Cpu) -> None:
    for name in (np.float16, ml_dtypes.bfloat16):
        halves = np.arange(0, 0x7C00 if name is np.float16 else 0x7F80, dtype=np.uint16).view(name)
        low = halves.astype(np.float64)
        ties = (low[:-1] + low[1:]) / 2
        for wide in (np.float32, np.float64):
            x = ties.astype(wide)
            x = np.concatenate([np.nextafter(x, wide(0)), x, np.nextafter(x, wide(np.inf))])
            x = np.concatenate([x, -x, [np.inf, 65519.9, 65520, 1e300]]).astype(wide)
            out = cpu.run("cast", [x], {"dtype": np.dtype(name).name})
            with np.errstate(over="ignore"):
                exact = round_to_half(x.astype(np.float64), name)
            np.testing.assert_array_equal(out.astype(np.float64), exact)


def round_to_half(x: np.ndarray, name: type) -> np.ndarray:
    """Nearest even in float64 arithmetic: the neighbours of x among all halves."""
    top = 0x7C00 if name is np.float16 else 0x7F80
    halves = np.arange(top, dtype=np.uint16).view(name).astype(np.float64)
    # What comes after the largest finite half counts as infinity when rounding.
    grid = np.append(halves, 2 * halves[-1] - halves[-2])
    at = np.clip(np.searchsorted(grid, np.abs(x), side="right") - 1, 0, len(grid) - 2)
    low, high = grid[at], grid[at + 1]
    up = (np.abs(x) - low > high - np.abs(x)) | (
        (np.abs(x) - low == high - np.abs(x)) & (at % 2 == 1)
    )
    index = at + up
    return np.copysign(np.where(index >= len(halves), np.inf, grid[index]), x)


@pytest.mark.parametrize(
    "fn", ["exp", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh", "log", "sin"]
)
def test_functions_over_their_range(cpu: Cpu, fn: str) -> None:
    x = np.linspace(-120, 120, 40001).astype(np.float32)
    x = np.concatenate([x, np.linspace(-1, 1, 4001), 10.0 ** np.arange(-44, 38)]).astype(np.float32)
    judge("unary", [x], {"fn": fn}, cpu.run("unary", [x], {"fn": fn}), fn)


ODD = ["sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "tanh", "erf", "expm1", "log1p"]
ODD += ["sqrt", "positive", "round", "trunc", "floor", "ceil", "sign"]


@pytest.mark.parametrize("name", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("fn", ODD)
def test_the_sign_of_zero_is_kept(cpu: Cpu, fn: str, name: type) -> None:
    x = np.array([0.0, -0.0] * 37, name)  # whole vectors and a rest
    out = cpu.run("unary", [x], {"fn": fn})
    assert (out == 0).all()
    np.testing.assert_array_equal(np.signbit(out), np.signbit(x))


def test_num_16_norms_of_very_large_and_very_small_rows(cpu: Cpu) -> None:
    for size in (1e30, 1e-30, 3e38, 1e-44):
        x = np.full((2, 100), size, np.float32)
        x[:, ::2] *= -1
        out, _ = cpu.run("rms_norm", [x, None, None], {"eps": 0.0})
        np.testing.assert_allclose(np.abs(out), 1, rtol=1e-6)


def test_long_sums_do_not_depend_on_threads() -> None:
    x = np.random.default_rng(2).standard_normal(300001).astype(np.float32)
    sums = {float(Cpu(threads=n).run("reduce", [x], {"fn": "sum"})) for n in (1, 2, 5)}
    assert len(sums) == 1
    assert abs(sums.pop() - x.astype(np.float64).sum()) < 1e-3


def test_transposes(cpu: Cpu) -> None:
    rng = np.random.default_rng(3)
    for shape in ((33, 70), (5, 64, 65), (2, 3, 40, 130)):
        for name in (np.float32, np.float64, np.uint8, np.float16):
            x = rng.integers(0, 200, shape).astype(name)
            np.testing.assert_array_equal(
                cpu.run("copy", [np.swapaxes(x, -1, -2)]), np.swapaxes(x, -1, -2)
            )


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(Refused, match="baseline, avx2, avx512 or avx512_bf16"):
        Cpu(isa="mmx")
