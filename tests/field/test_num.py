"""Field cases that touch the meaning of ops, each on every device, fused and decomposed.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anyhal as hal
from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import BY_NAME
from anyhal.ops._oracle import decode, random_blocks
from device_runs import Output, call, devices, run

Run = Callable[..., Any]
F32 = np.float32
NAN, INF = np.nan, np.inf


@pytest.fixture(params=devices())
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["chosen", "decomposed"])
def on(request: pytest.FixtureRequest, device: str) -> Run:
    """Runs an op on the device, as routing chooses or through core ops alone."""

    def run_here(op: str, *inputs: Any, **attrs: Any) -> Any:
        return run(op, *inputs, device=device, mode=request.param, **attrs)

    return run_here


@pytest.fixture
def core(device: str) -> Run:
    """Runs a core op on the device."""

    def run_here(op: str, *inputs: Any, **attrs: Any) -> Any:
        return run(op, *inputs, device=device, **attrs)

    return run_here


def f32(*values: Any) -> Any:
    with np.errstate(over="ignore"):
        return np.array(values, F32)


def unary(core: Run, fn: str, x: Any) -> Any:
    return core("unary", np.asarray(x), fn=fn)


@pytest.mark.parametrize(("a", "b"), [((4, 0), (0, 4)), ((3, 2, 0), (3, 0, 3))])
def test_num_01_empty_inner_axis(device: str, a: Any, b: Any) -> None:
    want = np.matmul(np.zeros(a), np.zeros(b))
    out = Output(want.shape, dtype("f32"), "gaps", device)
    arrays = [hal.asarray(np.zeros(s, F32), device=device) for s in (a, b)]
    call(BY_NAME["matmul"], arrays, {}, out.view)
    assert (out.values() == 0).all()
    nothing = np.zeros((2, 0), F32)
    assert (run("reduce", nothing, device=device, fn="sum", axis=1) == 0).all()
    with pytest.raises(InvalidArgumentError, match="max"):
        run("reduce", nothing, device=device, fn="max", axis=1)


def test_num_02_the_old_output_is_never_read(device: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 64, 64)).astype(F32)
    arrays = [hal.asarray(x, device=device) for x in (a, b)]
    found = []
    for old in (0.0, NAN, INF):
        out = hal.asarray(np.full((64, 64), old, F32), device=device)
        hal.matmul(*arrays, out=out)
        found.append(out.numpy().tobytes())
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("short", ["f32", "f16", "bf16", "f64"])
def test_num_03_fully_masked_row_is_zero(on: Run, short: str) -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1, 1, 8, 8)).astype(dtype(short).numpy)
    mask = np.zeros((8, 8), bool)
    mask[:4, :4] = True
    out = on("attention", q, k, v, None, mask, scale=0.35, causal="none").astype(np.float64)
    assert (out[0, 0, 4:] == 0).all() and np.isfinite(out).all() and (out[0, 0, :4] != 0).any()


@pytest.mark.parametrize("hidden", [1e10, NAN, INF])
def test_num_04_masked_key_has_no_part(on: Run, hidden: float) -> None:
    q = np.arange(8, dtype=F32).reshape(1, 1, 2, 4)
    mask = np.array([[True, False], [True, False]])
    attrs = {"scale": 0.5, "causal": "none"}
    want = on("attention", q, q, q, None, mask, **attrs)
    k, v = q.copy(), q.copy()
    k[0, 0, 1, 0] = v[0, 0, 1, 0] = hidden
    assert (on("attention", q, k, v, None, mask, **attrs) == want).all()
    assert (want == q[:, :, :1]).all()
    causal = {"scale": 0.5, "causal": "first_key"}
    assert (on("attention", q, k, v, None, None, **causal)[0, 0, 0] == q[0, 0, 0]).all()
    assert (on("attention", q, k, v, np.array(1), None, **attrs) == want).all()


def test_num_05_causal_alignment_is_stated(on: Run) -> None:
    # Equal scores and one-hot values: row t of the result is 1/n over the keys it sees.
    q, k = np.zeros((1, 1, 2, 4), F32), np.zeros((1, 1, 5, 4), F32)
    v = np.eye(5, dtype=F32)[None, None]
    seen = {
        c: (on("attention", q, k, v, None, None, scale=1.0, causal=c)[0, 0] > 0)
        .astype(int)
        .tolist()
        for c in ("none", "first_key", "last_key")
    }
    assert seen["first_key"] == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]
    assert seen["last_key"] == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert seen["none"] == [[1] * 5] * 2
    with pytest.raises(TypeError, match="causal"):
        hal.attention(*(hal.asarray(x) for x in (q, k, v)), scale=1.0)


def test_num_06_softmax_of_minus_infinity_at_every_width(on: Run) -> None:
    for width in [*range(1, 67), 127, 128, 129, 255, 256, 300]:
        out = on("softmax", np.full((1, width), -INF, F32), axis=-1)
        assert np.isnan(out).all(), width
    assert np.allclose(on("softmax", np.full((1, 64), -5e4, F32), axis=-1), 1 / 64)


def test_num_07_softmax_with_one_infinity(on: Run) -> None:
    out = on("softmax", f32([INF, 1, 2], [0, 0, 0]), axis=-1)
    assert np.isnan(out[0]).all() and np.allclose(out[1], 1 / 3)
    assert np.isnan(on("softmax", f32([INF, 0, -1, NAN, 5]), axis=-1)).all()


def test_num_11_mean_of_more_elements_than_f16_counts(core: Run) -> None:
    assert core("reduce", np.ones(65536, np.float16), fn="mean") == 1.0
    assert core("reduce", np.full((232, 304), 0.5, np.float16), fn="mean") == 0.5


def test_num_12_infinity_beside_zeros_in_bf16(core: Run) -> None:
    a = np.zeros((17, 33), ml_dtypes.bfloat16)
    a[3, 5] = INF
    b = np.ones((33, 9), ml_dtypes.bfloat16)
    out = core("matmul", a, b).astype(np.float64)
    assert np.isposinf(out[3]).all() and (np.delete(out, 3, 0) == 0).all()


def test_num_22_overlapping_output_is_refused(device: str) -> None:
    x = hal.asarray(np.arange(6, dtype=F32), device=device)
    before = x.numpy()
    with pytest.raises(InvalidArgumentError, match="overlaps"):
        hal.cos(x[:-1], out=x[1:])
    with pytest.raises(InvalidArgumentError, match="overlaps"):
        hal.sum(x, out=x[2:3].reshape(()))
    assert (x.numpy() == before).all()
    hal.cos(x, out=x)  # exactly the input is allowed
    assert np.allclose(x.numpy(), np.cos(before), rtol=1e-6)


@pytest.mark.parametrize("ids", [[1, 2, 4, 10], [0, -1]])
def test_num_23_out_of_range_id_is_an_error(device: str, ids: list[int]) -> None:
    table = hal.asarray(np.arange(30, dtype=F32).reshape(10, 3), device=device)
    wrong = hal.asarray(np.array(ids), device=device)
    for op, attrs in (("embedding", {}), ("gather", {"axis": 0})):
        out = Output((len(ids), 3), dtype("f32"), "offset", device)
        with pytest.raises(InvalidArgumentError, match=r"(?i)index|id|range"):
            call(BY_NAME[op], [table, wrong], dict(attrs), out.view)
            hal.synchronize()
        assert out.untouched()
        right = hal.asarray(np.array([3]), device=device)  # the device stays usable
        assert (call(BY_NAME[op], [table, right], dict(attrs)).numpy() == [[9, 10, 11]]).all()


def test_num_24_every_block_has_its_scale(on: Run) -> None:
    rng = np.random.default_rng(0)
    for name in ("q4_1", "q8_0"):
        w = random_blocks(rng, name, (128, 512))
        x = rng.standard_normal((2, 512)).astype(F32)
        want = x.astype(np.float64) @ decode(w).T
        both = on("quant_matmul", x, w)
        assert np.allclose(both, want, atol=1e-4)
        assert np.allclose(on("quant_matmul", x[:1], w), both[:1], atol=1e-4)


def test_num_27_rope_positions_beyond_f16(on: Run) -> None:
    x = np.tile(np.linspace(0.1, 1, 8).astype(np.float16), (1, 4, 1))
    positions = np.array([2048, 2049, 4097, 40000])
    attrs = {"pairing": "interleaved", "base": 10000.0}
    out = on("rope", x, positions, None, **attrs).astype(np.float64)
    want = BY_NAME["rope"].reference(x, positions, **attrs)
    assert np.abs(out - want).max() < 4e-3
    assert (out[0, 0] != out[0, 1]).any() and np.isfinite(out).all()


# Angles pi/2 for the first pair and 0 for the second: base so small that theta_1 vanishes.
QUARTER = {"base": 1e20, "position_scale": float(np.pi / 2)}


def test_num_28_both_pairings(on: Run) -> None:
    x, one = f32([[1, 2, 3, 4]]), np.array([1])
    half = on("rope", x, one, None, pairing="half_split", **QUARTER)
    assert np.allclose(half, [[-3, 2, 1, 4]], atol=1e-5)
    pairs = on("rope", x, one, None, pairing="interleaved", **QUARTER)
    assert np.allclose(pairs, [[-2, 1, 3, 4]], atol=1e-5)
    with pytest.raises(TypeError, match="pairing"):
        hal.rope(hal.asarray(x), hal.asarray(one), base=1e4)


def test_num_44_partial_rotary_turns_a_leading_block(on: Run) -> None:
    x = np.arange(1, 9, dtype=F32)[None]
    attrs = {"rotary_dims": 4, "base": 1.0, "position_scale": float(np.pi / 2)}
    half = on("rope", x, np.array([1]), None, pairing="half_split", **attrs)
    assert np.allclose(half, [[-3, -4, 1, 2, 5, 6, 7, 8]], atol=1e-5)
    pairs = on("rope", x, np.array([1]), None, pairing="interleaved", **attrs)
    assert np.allclose(pairs, [[-2, 1, -4, 3, 5, 6, 7, 8]], atol=1e-5)


@pytest.mark.parametrize("short", ["f32", "f16", "bf16", "f64"])
def test_num_29_max_and_min_keep_nan(core: Run, short: str) -> None:
    x = np.array([[1, NAN], [NAN, 1]]).astype(dtype(short).numpy)
    for fn in ("max", "min"):
        assert np.isnan(core("reduce", x, fn=fn, axis=1).astype(float)).all()
        assert np.isnan(core("reduce", x, fn=fn).astype(float))
    ones = np.ones(2).astype(x.dtype)
    for fn in ("maximum", "minimum"):
        assert np.isnan(core("binary", x[0], ones, fn=fn).astype(float)).tolist() == [False, True]
        assert np.isnan(core("binary", ones, x[1], fn=fn).astype(float)).tolist() == [True, False]
    assert np.isnan(unary(core, "relu", x[0]).astype(float)).tolist() == [False, True]


@pytest.mark.parametrize("np_type", [F32, np.float16])
def test_num_30_bounded_functions_do_not_overflow(core: Run, np_type: Any) -> None:
    x = np.array([45, -45, 1000, -1000]).astype(np_type)
    assert unary(core, "tanh", x).tolist() == [1, -1, 1, -1]
    tails = np.array([-13.24, 20.625, 21.658]).astype(np_type)
    gelu = unary(core, "gelu_tanh", tails)
    assert abs(gelu[0]) < 1e-6 and np.signbit(gelu[0]) and (gelu[1:] == tails[1:]).all()
    assert unary(core, "sigmoid", np.array([1e4, -1e4]).astype(np_type)).tolist() == [1, 0]


def test_num_31_float_to_integer_saturates(core: Run) -> None:
    x = f32(NAN, INF, -INF, 3e10, -3e10)
    for name in ("int32", "int8", "uint8", "int64", "uint64"):
        found = core("cast", x, dtype=name).tolist()
        info = np.iinfo(name)
        wide = info.bits == 64
        low = 0 if info.min == 0 else info.min
        ends = [int(x[3]) if wide else info.max, int(x[4]) if wide and info.min else low]
        assert found == [0, info.max, low, *ends], name


def test_num_33_products_are_f32_unless_asked(device: str) -> None:
    n = 512 if device == "cpu:0" else 64
    a, b = np.random.default_rng(0).standard_normal((2, n, n)).astype(F32)
    want = a.astype(np.float64) @ b
    found = hal.matmul(hal.asarray(a, device=device), hal.asarray(b, device=device)).numpy()
    assert np.abs(found - want).max() < 2e-6 * np.abs(want).max()


def test_num_42_negative_index_does_not_wrap(device: str) -> None:
    x = np.arange(40, dtype=F32).reshape(10, 4)
    with pytest.raises(InvalidArgumentError):
        run("embedding", x, np.array([[-1]]), device=device)
        hal.synchronize()
    with pytest.raises(InvalidArgumentError):
        run("scatter_add", x, np.array([-1]), x[:1], device=device, axis=0)
        hal.synchronize()
    cache = hal.asarray(np.zeros((1, 1, 4, 2), F32), device=device)
    update = hal.asarray(np.ones((1, 1, 2, 2), F32), device=device)
    for position in (-1, 3, 2**31):
        with pytest.raises(InvalidArgumentError):
            hal.cache_append(cache, update, hal.asarray(np.array(position), device=device))
            hal.synchronize()
    assert (cache.numpy() == 0).all()
    assert run("embedding", x, np.zeros((0,), np.int64), device=device).shape == (0, 4)


def test_num_45_activations_are_not_clamped(core: Run) -> None:
    tanh = unary(core, "tanh", f32(6, 5))
    assert abs(tanh[0] - np.tanh(6.0)) <= 2 * np.spacing(F32(1)) and tanh[0] != tanh[1]
    sigmoid = unary(core, "sigmoid", f32(12, 89))
    assert np.abs(sigmoid - [0.99999386, 1.0]).max() <= 2 * np.spacing(F32(1))


ODD = ["sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "tanh", "erf", "expm1", "log1p"]
ODD += ["sqrt", "positive", "round", "trunc"]


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("name", [d.name for d in hal.devices()])
def test_odd_functions_keep_the_sign_of_zero(name: str, kind: str) -> None:
    """On every device of the machine, whole vectors and a rest."""
    with hal.use(device=name):
        x = hal.asarray(np.array([-0.0, 0.0] * 19, np.float32)).astype(kind)
        for fn in ODD:
            out = getattr(hal, fn)(x).numpy()
            assert (out == 0).all(), fn
            assert np.signbit(out).tolist() == [True, False] * 19, fn
