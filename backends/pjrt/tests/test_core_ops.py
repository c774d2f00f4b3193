"""A slice of the samples of the ten core ops on each plugin; --slice N begins elsewhere.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_property import outcome, samples

import anyhal as hal
from anyhal.dtypes import dtype as numpy_of
from anyhal.ops import BY_NAME

STEP = 9  # every ninth sample: each is compiled twice
CORE = [spec.name for spec in BY_NAME.values() if spec.is_core and not spec.shape_from_out]
RICH = ("rms_norm", "softmax", "rope", "cache_append", "quant_matmul", "argmax", "embedding")


@pytest.mark.parametrize("op", CORE)
def test_core_ops_meet_their_reference(device: Any, op: str) -> None:
    cases = samples(op)
    chosen = range(sum(map(ord, op)) % STEP, len(cases), STEP)
    found = [outcome(BY_NAME[op], cases[i], device.name, "chosen", i) for i in chosen]
    wrong = [f for f in found if f is not None]
    assert not wrong, "\n".join(wrong[:6])


@pytest.mark.parametrize("op", RICH)
def test_rich_ops_decompose_into_them(device: Any, op: str) -> None:
    cases = samples(op)
    for i in (0, len(cases) // 2, len(cases) - 1):
        assert outcome(BY_NAME[op], cases[i], device.name, "chosen", i) is None


def test_special_values(device: Any) -> None:
    x = np.array([np.nan, -np.inf, np.inf, -0.0, 0.0, 1e-45, 1.0], np.float32)
    a = hal.asarray(x, device=device)
    assert hal.copy(a).numpy().tobytes() == x.tobytes(), "moves keep every bit"
    swapped = hal.asarray(x[::-1].copy(), device=device)
    for fn, numpy in ((hal.maximum, np.maximum), (hal.minimum, np.minimum)):
        np.testing.assert_array_equal(fn(a, swapped).numpy(), numpy(x, x[::-1]))
    assert np.isnan(hal.max(a).numpy()) and np.isnan(hal.min(a).numpy())
    flushed = hal.multiply(a[5:6], hal.asarray([1.0], device=device)).numpy()
    assert flushed[0] == 0 and device.flushes_denormals, "declared, and so"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_functions_in_loops_of_many_turns(device: Any, dtype: str) -> None:
    """Plugin 0.115 mixes up the lanes of an arc tangent from 48 elements on."""
    x = np.linspace(-3, 3, 257).astype(numpy_of(dtype).numpy)
    allowed = {"bfloat16": 2**-8, "float16": 2**-11}.get(dtype, 1e-6)
    for name in ("arctan", "tanh", "expm1", "arcsin"):
        y = np.clip(x, -1, 1) if name == "arcsin" else x
        fn = getattr(hal, {"arctan": "atan", "arcsin": "asin"}.get(name, name))
        right = getattr(np, name)(y.astype(np.float64))
        found = fn(hal.asarray(y, device=device)).numpy().astype(np.float64)
        np.testing.assert_allclose(found, right, rtol=2 * allowed, atol=1e-12)


@pytest.mark.parametrize("name", ["log1p", "sinh", "cosh"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_with_forms_of_their_own_are_right(device: Any, name: str, dtype: str) -> None:
    """XLA's log1p is a hundred ulp off near -0.41 in f64, a sinh by its f32 expm1 past 4 ulp."""
    wide = np.longdouble
    near = np.linspace(-1, 4, 40001, dtype=wide)
    ends = [-0.0, 0.0, 1e-30, -1e-30, -np.inf, np.inf, np.nan, 1e17, 2.0**53, 2.0**54, -80, 80]
    x = np.concatenate([near, np.asarray(ends, wide)]).astype(dtype)
    with np.errstate(all="ignore"):
        right = getattr(np, name)(x.astype(wide))
        room = 4 * np.spacing(np.abs(right.astype(dtype)))
        found = getattr(hal, name)(hal.asarray(x, device=device)).numpy()
        wrong = ~((np.abs(found.astype(wide) - right) <= room) | (found == right.astype(dtype)))
    wrong &= ~(np.isnan(right) & np.isnan(found))
    wrong |= (np.signbit(found) != np.signbit(right)) & ~np.isnan(right)
    assert not wrong.any(), (x[wrong][:4], found[wrong][:4], right[wrong][:4])


def test_subnormal_numbers_are_zeros_or_themselves(device: Any) -> None:
    tiny = hal.asarray(np.array([1e-45, -1e-45], np.float32), device=device)
    assert set(np.abs(hal.sign(tiny).numpy()).tolist()) <= {0.0, 1.0}
    assert hal.pow(tiny, tiny).numpy()[0] == 1
    least = hal.asarray(np.array([2.0**-126], np.float32), device=device)
    assert hal.asin(least).numpy()[0] == np.float32(2.0**-126)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_integers_never_trap(device: Any, dtype: str) -> None:
    low = np.iinfo(dtype).min
    a = hal.asarray(np.array([low, 7, 0, 5], dtype), device=device)
    b = hal.asarray(np.array([-1 if low else 1, 0, 0, 2], dtype), device=device)
    with np.errstate(all="ignore"):
        first = np.array([low], dtype) // np.array([-1 if low else 1], dtype)
    assert hal.floor_divide(a, b).numpy().tolist() == [first[0], 0, 0, 2]
    assert hal.remainder(a, b).numpy().tolist() == [0, 0, 0, 1]


def test_fill(device: Any) -> None:
    for dtype in ("float32", "bfloat16", "int64", "bool"):
        out = hal.empty((3, 5), dtype=dtype, device=device)
        hal.zeros_like(out) if hasattr(hal, "zeros_like") else None
        assert hal.full((3, 5), 1, dtype=dtype, device=device).numpy().astype(int).sum() == 15


SHAPES = {"row": (1, 100), "column": (100, 1), "scalar": ()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("region", [False, True])
def test_quotients_by_what_repeats_are_rounded_once(
    device: Any, dtype: str, shape: tuple[int, ...], region: bool
) -> None:
    rng = np.random.default_rng(2)
    large, tiny = np.finfo(dtype).max, np.finfo(dtype).tiny
    a = rng.standard_normal((100, 100)).astype(dtype)
    a[0, :5] = large, -large, large / 2, 1, np.inf
    for number, top in enumerate((1.0, large)):
        b = np.asarray(rng.uniform(0.5, 1, shape) * top, dtype)
        x, y = hal.asarray(a, device=device), hal.asarray(b, device=device)
        if region:
            with hal.graph(device) as graph:
                wide = hal.copy(hal.broadcast_to(y, a.shape))
                found = hal.divide(x, y), hal.divide(x, wide), hal.floor_divide(x, y)
            graph.launch()
            assert graph.form == "compiled"
        else:
            found = hal.divide(x, y), hal.divide(x, hal.broadcast_to(y, a.shape)), None
        with np.errstate(all="ignore"):
            want = a / b
            floored = np.floor_divide(a, b)
        want[np.abs(want) < tiny] *= 0  # denormals are declared to be 0
        for quotient in found[:2]:
            assert quotient.numpy().tobytes() == want.tobytes(), number
        if found[2] is not None and number == 0:
            ok = np.isfinite(want)
            assert np.array_equal(found[2].numpy()[ok], floored[ok])
    one = hal.reciprocal(hal.broadcast_to(y, a.shape)).numpy()
    with np.errstate(all="ignore"):
        want = np.broadcast_to(1 / b, a.shape)
    assert np.array_equal(one, np.where(np.abs(want) < tiny, 0, want))
