"""Field cases of norms, log-sums, orders and sums, each on every device, fused and decomposed.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from device_runs import call, devices, place

Run = Callable[..., Any]
F32 = np.float32
NAN, INF = np.nan, np.inf
ALL_FLOATS = ["f32", "f16", "bf16", "f64"]


@pytest.fixture(params=devices())
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["chosen", "decomposed"])
def on(request: pytest.FixtureRequest, device: str) -> Run:
    """Runs an op on the device, as routing chooses or through core ops alone; the first output, or
    a tuple of them."""

    def run_here(op: str, *inputs: Any, **attrs: Any) -> Any:
        arrays = [None if x is None else place(x, "dense", device) for x in inputs]
        made = call(BY_NAME[op], arrays, attrs, mode=request.param)
        return tuple(m.numpy() for m in made) if isinstance(made, tuple) else made.numpy()

    return run_here


def test_num_08_log_softmax_keeps_the_sum_beside_large_offsets(on: Run) -> None:
    x = np.array([[-1e7, -1e7, 1 - 1e7]], F32)
    out = on("log_softmax", x, axis=-1)
    assert np.allclose(out, [-1.5514447, -1.5514447, -0.5514447], atol=1e-6)
    assert abs(np.exp(out.astype(float)).sum() - 1) < 1e-6
    for offset in (0.0, 1e4, -1e20, 3e38):  # any offset: equal entries give -log(n)
        equal = on("log_softmax", np.full((2, 5), offset, F32), axis=-1)
        assert np.allclose(equal, -np.log(5), atol=1e-6)
    total = on("logsumexp", np.full((2, 5), 1e4, F32), axis=-1)
    assert np.allclose(total, 1e4 + np.log(5), rtol=1e-7)


def test_num_38_log_softmax_of_minus_infinity(on: Run) -> None:
    assert on("log_softmax", np.array([-1, -INF], F32), axis=-1).tolist() == [0, -INF]
    for width in (1, 2, 17, 128, 129):  # as softmax: one answer for all widths
        assert np.isnan(on("log_softmax", np.full((1, width), -INF, F32), axis=-1)).all()
        assert on("logsumexp", np.full((1, width), -INF, F32), axis=-1).tolist() == [-INF]
    assert np.isnan(on("log_softmax", np.array([INF, 1, 2], F32), axis=-1)).all()
    assert on("logsumexp", np.array([INF, 1, -INF], F32)) == INF


@pytest.mark.parametrize(
    ("mean", "first"), [(0, -1.34164), (100, -1.34153), (1000, -1.34151), (10000, -1.33133)]
)
def test_num_15_layer_norm_with_a_large_mean(on: Run, mean: int, first: float) -> None:
    row = (mean + np.arange(16) * 1e-3).astype(F32)
    d = row.astype(float) - row.astype(float).mean()
    want = d / np.sqrt(np.mean(d * d) + 1e-5)
    assert abs(want[0] - first) < 1e-3
    found = on("layer_norm", row[None], eps=1e-5)
    assert np.abs(found - want).max() < 1e-3
    channels = row.reshape(1, 2, 8)
    found = on("group_norm", channels, groups=1, eps=1e-5)
    assert np.abs(found.ravel() - want).max() < 1e-3
    found = on("layer_norm", row.reshape(1, 4, 4), eps=1e-5, axes=2)
    assert np.abs(found.ravel() - want).max() < 1e-3


@pytest.mark.parametrize("scale", [1e30, 8e37, 1e-30])
def test_num_16_norms_of_very_large_and_very_small_rows(on: Run, scale: float) -> None:
    row = (scale * np.arange(1, 5)).astype(F32)
    d = np.array([-1.34164, -0.44721, 0.44721, 1.34164])
    eps = 1e-5 if scale > 1 else 0.0
    assert np.allclose(on("layer_norm", row[None], eps=eps), d, atol=1e-5)
    assert np.allclose(on("group_norm", row.reshape(1, 4), groups=1, eps=eps), d, atol=1e-5)
    want = np.arange(1, 5) / np.sqrt(7.5)
    assert np.allclose(on("rms_norm", row[None], None, eps=eps), want, atol=1e-6)
    zero = np.zeros_like(row)
    out, total = on("rms_norm", row[None], None, zero[None], eps=eps)
    assert np.allclose(out, want, atol=1e-6) and (total == row).all()


def test_num_11_variance_of_more_elements_than_f16_counts(on: Run) -> None:
    x = np.ones((1, 65536), np.float16)
    x[0, ::2] = -1
    assert (on("layer_norm", x, eps=0.0) == x).all()
    assert on("cumsum", np.ones(65503, np.float16), axis=0)[-1] == 65504  # the nearest f16


@pytest.mark.parametrize("short", ALL_FLOATS)
def test_num_29_clip_and_order_keep_nan(on: Run, short: str) -> None:
    x = np.array([1, NAN, -3, 7]).astype(dtype(short).numpy)
    low, high = np.array(0).astype(x.dtype), np.array(5).astype(x.dtype)
    for bounds in ((low, high), (low, None), (None, high)):
        out = on("clip", x, *bounds).astype(float)
        assert np.isnan(out).tolist() == [False, True, False, False]
    assert np.isnan(on("clip", x, np.full_like(low, NAN), None).astype(float)).all()
    assert on("argmin", x) == on("argmax", x) == 1
    assert on("sort", x)[1].tolist() == [2, 0, 3, 1]
    assert on("sort", x, descending=True)[1].tolist() == [1, 3, 0, 2]
    assert on("topk", x, k=2, largest=True)[1].tolist() == [1, 3]
    assert on("topk", x, k=2, largest=False)[1].tolist() == [2, 0]


def test_num_30_further_functions_do_not_overflow(device: str) -> None:
    for np_type in (F32, np.float16):
        x = np.array([1e4, -1e4, 89, 0]).astype(np_type)
        with hal.use(device=device):
            there = hal.asarray(x)
            soft = hal.softplus(there).numpy().astype(float)
            assert np.allclose(soft, [1e4, 0, 89, np.log(2)], rtol=1e-3)
            assert np.isfinite(hal.logaddexp(there, there).numpy()).all()
            assert np.allclose(hal.hypot(there, there).numpy()[0], 1e4 * np.sqrt(2), rtol=1e-3)
            assert (hal.asinh(there).numpy()[:2] == -hal.asinh(there).numpy()[1::-1]).all()


def test_num_39_integer_sums_are_exact(on: Run) -> None:
    for name, value in (("int8", 127), ("uint8", 255), ("int32", 2**31 - 1)):
        x = np.full(2048, value, name)
        found = on("cumsum", x, axis=0)
        assert found.dtype == np.int64 and found[-1] == 2048 * value
    assert on("cumsum", np.ones(2049, np.float16), axis=0)[-1] == 2048  # 2049 rounded once


def test_num_12_what_is_not_in_a_sum_cannot_touch_it(on: Run) -> None:
    x = np.array([1, NAN, 2, INF, 3], F32)
    assert on("cumsum", x, axis=0)[0] == 1
    assert on("cumsum", x, axis=0, reverse=True)[4] == 3
    assert on("cumsum", x[2:], axis=0).tolist() == [2, INF, INF]
    batch = np.ones((3, 4, 2), F32)
    batch[1, 0, 0] = NAN
    for op, attrs in (("layer_norm", {}), ("group_norm", {"groups": 2})):
        out = on(op, batch, eps=1e-5, **attrs)
        assert np.isnan(out).any() and np.isfinite(out[[0, 2]]).all(), op


@pytest.mark.parametrize("op", ["cumsum", "sort", "topk", "layer_norm", "logsumexp"])
def test_det_03_twenty_runs_are_bit_equal(on: Run, op: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 257)).astype(F32)
    x[:, ::5] = 1.0  # ties
    attrs: dict[str, Any] = {
        "cumsum": {"axis": 1},
        "topk": {"k": 40, "largest": True},
        "layer_norm": {"eps": 1e-5},
    }.get(op, {})
    found = set()
    for _ in range(20):
        made = on(op, x, **attrs)
        found.add(b"".join(m.tobytes() for m in (made if isinstance(made, tuple) else (made,))))
    assert len(found) == 1


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm", "log_softmax", "sort"])
def test_det_02_a_row_does_not_depend_on_its_neighbours(on: Run, op: str) -> None:
    x = np.random.default_rng(1).standard_normal((64, 96)).astype(F32)
    attrs = {"eps": 1e-5} if op.endswith("_norm") else {}

    def first(rows: Any) -> bytes:
        made = on(op, rows, **attrs)
        return bytes((made[0] if isinstance(made, tuple) else made)[0].tobytes())

    assert len({first(x[:n]) for n in (1, 2, 7, 64)}) == 1
