"""Field cases about rounding, saturation and quantised formats, on every device.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError, UnsupportedError
from anyhal.ops import BY_NAME
from anyhal.ops._checks import FP8
from anyhal.ops._oracle import decode, random_blocks
from anyhal.ops._spec import Blocks
from device_runs import call, devices, place, run

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


def test_num_13_overflow_to_an_8_bit_float_is_stated(device: str) -> None:
    x = np.array([448, 464, 465, 1000, -1000, INF, NAN], F32)
    want = {
        ("f8_e4m3fn", "saturate"): [448, 448, 448, 448, -448, 448, NAN],
        ("f8_e4m3fn", "nonfinite"): [448, 448, NAN, NAN, NAN, NAN, NAN],
        ("f8_e4m3fnuz", "saturate"): [240, 240, 240, 240, -240, 240, NAN],
        ("f8_e4m3fnuz", "nonfinite"): [NAN] * 7,
        ("f8_e5m2", "saturate"): [448, 448, 448, 1024, -1024, 57344, NAN],
        ("f8_e5m2", "nonfinite"): [448, 448, 448, 1024, -1024, INF, NAN],
    }
    for (short, overflow), values in want.items():
        found = run("cast", x, device=device, dtype=dtype(short).name, overflow=overflow)
        assert np.array_equal(found.astype(F32), np.array(values, F32), equal_nan=True), short
    array = hal.asarray(x, device=device)
    for short in FP8:
        with pytest.raises(InvalidArgumentError, match="'saturate' or 'nonfinite'"):
            array.astype(short)
        with pytest.raises(InvalidArgumentError, match="past the largest"):
            hal.asarray(x, dtype=short, device=device)
    found = run("quantize", x, np.array(1, F32), device=device, dtype="float8_e4m3fn")
    assert found.astype(F32)[:6].tolist() == [448, 448, 448, 448, -448, 448]


def e4m3fn(code: int) -> float:
    """As the format is specified: bias 7, NaN where all bits but the sign are set."""
    sign, exponent, fraction = -1.0 if code & 128 else 1.0, code >> 3 & 15, code & 7
    if code & 127 == 127:
        return NAN
    units = fraction / 8 if exponent == 0 else 1 + fraction / 8
    return sign * units * 2.0 ** (max(exponent, 1) - 7)


def test_num_14_every_code_of_e4m3fn_is_decoded(device: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(dtype("f8_e4m3fn").numpy)
    want = np.array([e4m3fn(c) for c in range(256)])
    assert want[0x7E] == 448 and want[1] == 2.0**-9 and np.isnan(want[[0x7F, 0xFF]]).all()
    for target in ("float32", "float16", "float64"):
        found = run("cast", codes, device=device, dtype=target)
        assert np.array_equal(found.astype(np.float64), want, equal_nan=True)
        assert (np.signbit(found) == np.signbit(want))[~np.isnan(want)].all()
    one = np.array(1, F32)
    assert np.array_equal(run("dequantize", codes, one, device=device), want, equal_nan=True)


@pytest.mark.parametrize("group", [64, 128, 256])
def test_num_24_every_group_of_4_bit_weights_has_its_scale(on: Run, group: int) -> None:
    rng = np.random.default_rng(0)
    w = random_blocks(rng, "i4", (128, 512))
    scale = rng.uniform(0.1, 1, (128, 512 // group)).astype(F32)
    real = decode(w) * np.repeat(scale.astype(np.float64), group, axis=1)
    wide = on("dequantize", w, scale, axis=1, block_size=group)
    assert np.allclose(wide, real, rtol=1e-6)
    x = rng.standard_normal((2, 512)).astype(F32)
    both = on("matmul_epilogue", x, np.ascontiguousarray(wide.T))
    assert np.allclose(on("matmul_epilogue", x[:1], np.ascontiguousarray(wide.T)), both[:1])
    assert np.allclose(both, x @ real.T, atol=1e-2)


@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q8_0", "q4_k", "q6_k"])
def test_num_24_every_block_of_a_file_has_its_scale(on: Run, name: str) -> None:
    rng = np.random.default_rng(0)
    w = random_blocks(rng, name, (128, 512))
    x = rng.standard_normal((2, 512)).astype(F32)
    both = on("quant_matmul", x, w)
    assert np.allclose(both, x.astype(np.float64) @ decode(w).T, atol=1e-3)
    assert np.allclose(on("quant_matmul", x[:1], w), both[:1], atol=1e-4)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("group", [32, 64])
@pytest.mark.parametrize("short", ["u4", "i4", "u8", "i8"])
def test_num_25_groups_along_either_axis(on: Run, short: str, group: int, axis: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((8, 128)).astype(np.float16).astype(F32)
    w = rng.standard_normal((128, 128)).astype(F32).clip(-3, 3)
    most = {"u4": 15, "i4": 7, "u8": 255, "i8": 127}[short]
    shape = (128 // group, 128) if axis == 0 else (128, 128 // group)
    scale = np.full(shape, 8 / most if short[0] == "u" else 4 / most, F32)
    scale *= rng.uniform(0.9, 1.1, shape).astype(F32)
    zero = np.full(shape, most // 2 if short[0] == "u" else 0, np.int32)
    attrs = {"axis": axis, "block_size": group}
    q = on("quantize", w, scale, zero, dtype=dtype(short).name, **attrs)
    if q.dtype == np.uint8 and short in ("u4", "i4"):
        q = Blocks(q, dtype(short), w.shape)
    back = on("dequantize", q, scale, zero, **attrs)
    step = np.repeat(scale, group, axis=axis)
    assert (np.abs(back - w) <= 0.5001 * step).all()
    product = on("matmul_epilogue", x, back)
    flipped = on("matmul_epilogue", x, np.ascontiguousarray(back.T).T)  # the other transpose flag
    want = x.astype(np.float64) @ back.astype(np.float64)
    assert max(np.abs(product - want).max(), np.abs(flipped - want).max()) < 0.05


@pytest.mark.parametrize("inner", [32, 33, 64, 65])
def test_num_26_the_last_group_may_be_shorter(on: Run, inner: int) -> None:
    rng = np.random.default_rng(2)
    groups = -(-inner // 32)
    a = rng.integers(-128, 128, (3, inner)).astype(np.int8)
    b = rng.integers(-128, 128, (inner, 4)).astype(np.int8)
    zero = rng.integers(-20, 20, (3, groups)).astype(np.int32)
    scale = rng.uniform(0.01, 0.1, (3, groups)).astype(F32)
    back = on("dequantize", a, scale, zero, axis=-1, block_size=32)
    spread = np.arange(inner) // 32
    want = (a - zero[:, spread].astype(np.float64)) * scale[:, spread]
    assert np.allclose(back, want, rtol=1e-6) and np.isfinite(back).all()
    # Zero points of rows and columns need no groups, whatever K is.
    rows, columns = zero[:, 0], rng.integers(-9, 9, 4).astype(np.int32)
    one = np.array(1, F32)
    found = on("scaled_matmul", a, b, one, one, rows, columns, None)
    wide = (a.astype(np.int64) - rows[:, None]) @ (b.astype(np.int64) - columns)
    assert (found == wide).all()


def test_num_43_scales_with_unusual_strides(device: str) -> None:
    rng = np.random.default_rng(3)
    q = rng.integers(-128, 128, (6, 32)).astype(np.int8)
    scale = rng.uniform(0.1, 1, (6, 4)).astype(F32)
    want = q.astype(np.float64) * np.repeat(scale.astype(np.float64), 8, axis=1)
    for layout in ("dense", "transposed", "gaps", "negative", "offset"):
        arrays = [place(q, "dense", device), place(scale, layout, device)]
        found = call(BY_NAME["dequantize"], arrays, {"axis": 1, "block_size": 8}).numpy()
        assert np.allclose(found, want, rtol=1e-6), layout
    wide = np.stack([scale[:, 0], scale[:, 1]], axis=1)
    w = rng.integers(-128, 128, (32, 6)).astype(np.int8)
    arrays = [place(q, "dense", device), place(w, "transposed", device)]
    arrays += [place(wide, "dense", device)[:, 0], place(wide, "dense", device)[:, 1]]
    found = call(BY_NAME["scaled_matmul"], arrays, {}).numpy()
    exact = q.astype(np.int64) @ w.astype(np.int64)
    assert np.allclose(found, exact * scale[:, :1].astype(float) * scale[:, 1], rtol=1e-6)


@pytest.mark.parametrize("shape", [(512, 1), (128, 2), (256,), (128, 4, 1), (4, 128)])
def test_onx_10_zero_points_of_the_wrong_shape_are_refused(device: str, shape: Any) -> None:
    w = place(random_blocks(np.random.default_rng(4), "i4", (128, 512)), "dense", device)
    scale = hal.asarray(np.ones((128, 4), F32), device=device)
    zero = hal.asarray(np.zeros(shape, np.int8), device=device)
    with pytest.raises(InvalidArgumentError) as caught:
        hal.dequantize(w, scale, zero, axis=1, block_size=128)
    text = str(caught.value)
    assert "zero_point" in text and "ceil(size / block_size)" in text and "[128, 4]" in text


def test_rounding_to_codes_is_half_to_even_and_saturates(on: Run) -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 1e9, -1e9, INF, -INF, NAN], F32)
    one = np.array(1, F32)
    found = on("quantize", x, one, dtype="int8").tolist()
    assert found == [0, 2, 2, 0, -2, 126, 127, 127, -128, 127, -128, 0]
    shifted = on("quantize", x, one, np.array(128, np.int32), dtype="uint8").tolist()
    assert shifted == [128, 130, 130, 128, 126, 254, 255, 255, 0, 255, 0, 0]


def test_integer_products_do_not_saturate_on_the_way(on: Run) -> None:
    a, b = np.full((2, 300), -128, np.int8), np.full((300, 2), -128, np.int8)
    one = np.array(1, F32)
    assert (on("scaled_matmul", a, b, one, one) == 300 * 128 * 128).all()
    u = np.full((2, 300), 255, np.uint8)
    assert (on("scaled_matmul", u, b, one, one) == -300 * 255 * 128).all()
    assert (on("scaled_matmul", u, u.T.copy(), one, one) == 300 * 255 * 255).all()


def test_special_values_of_8_bit_floats_go_through_products(on: Run) -> None:
    kind = dtype("f8_e5m2").numpy
    a, b = np.zeros((3, 8), kind), np.ones((8, 2), kind)
    a[0, 3], a[1, 5] = INF, NAN
    found = on("scaled_matmul", a, b, np.array(0.5, F32), np.array(2, F32))
    assert np.isposinf(found[0]).all() and np.isnan(found[1]).all() and (found[2] == 0).all()


@pytest.mark.parametrize(
    ("codes", "zero"),
    [("int8", np.uint8), ("uint8", np.int8), ("int16", np.int8), ("int4", np.uint8)],
)
def test_a_zero_point_has_the_dtype_of_its_codes(codes: str, zero: Any) -> None:
    """128 and -128 are one byte: a zero point of the other sign would be read as another number."""
    x = hal.asarray(np.linspace(-3, 3, 8, dtype=np.float32))
    one = hal.asarray(np.float32(0.1))
    with pytest.raises(UnsupportedError, match="zero_point") as refused:
        hal.quantize(x, one, hal.asarray(zero(3)), dtype=codes)
    assert refused.value.reason == "dtype"
    q = hal.quantize(x, one, 3, dtype=codes)  # a number is taken as i32
    with pytest.raises(UnsupportedError, match="zero_point"):
        hal.dequantize(q, one, hal.asarray(zero(3)))
    assert hal.dequantize(q, one, 3).shape == x.shape


def test_a_zero_point_of_a_product_has_the_dtype_of_its_codes() -> None:
    a, b = (hal.asarray(np.ones((4, 4), np.int8)) for _ in range(2))
    one, wrong = hal.asarray(np.float32(1)), hal.asarray(np.uint8(200))
    for name in ("a_zero", "b_zero"):
        with pytest.raises(UnsupportedError, match=name) as refused:
            hal.scaled_matmul(a, b, one, one, **{name: wrong})
        assert refused.value.reason == "dtype"
