"""Field cases of indexing, padding, convolutions, pools and resize, on every device in both forms.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.errors import HalError, InvalidArgumentError
from anyhal.ops import BY_NAME
from device_runs import call, devices, forced, place, run

Run = Callable[..., Any]
F32 = np.float32


@pytest.fixture(params=devices())
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["chosen", "decomposed"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def on(device: str, mode: str) -> Run:
    """Runs an op on the device, as routing chooses or through core ops alone."""

    def run_here(op: str, *inputs: Any, **attrs: Any) -> Any:
        arrays = [None if x is None else place(x, "dense", device) for x in inputs]
        return call(BY_NAME[op], arrays, attrs, mode=mode).numpy()

    return run_here


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F32)


@pytest.mark.parametrize(
    ("x", "w", "groups"),
    [
        ((2, 8, 40, 4), (16, 1, 32, 1), 8),
        ((2, 48, 130), (32, 3, 128), 16),
        ((3, 4, 5), (4, 1, 3), 4),
    ],
)
def test_num_17_a_batch_is_its_entries(on: Run, x: Any, w: Any, groups: int) -> None:
    values, weights = normal(*x), normal(*w)
    want = BY_NAME["conv"].reference(values, weights, groups=groups)
    whole = on("conv", values, weights, groups=groups)
    assert np.abs(whole - want).max() < 1e-3
    for n in range(x[0]):
        alone = on("conv", values[n : n + 1], weights, groups=groups)
        assert np.abs(whole[n] - alone[0]).max() < 1e-3


def test_num_18_grouped_1x1(on: Run) -> None:
    x = np.zeros((1, 4, 1, 1), F32)
    x[0, 3] = 1
    out = on("conv", x, np.ones((16, 2, 1, 1), F32), groups=2).reshape(16)
    assert out.tolist() == [0] * 8 + [1] * 8
    for channels, features in itertools.product((2, 4, 6, 8), (2, 4, 24, 32)):
        for groups in (g for g in (1, 2, 4, 8) if channels % g == 0 and features % g == 0):
            x, w = normal(1, channels, 1, 1), normal(features, channels // groups, 1, 1)
            want = np.einsum(
                "gc,gfc->gf",
                x.reshape(groups, -1),
                w.reshape(groups, features // groups, channels // groups),
            )
            found = on("conv", x, w, groups=groups).reshape(groups, -1)
            assert np.allclose(found, want, atol=1e-5), (channels, features, groups)


@pytest.mark.parametrize("channels", [1, 4, 16])
def test_num_19_conv3d_in_both_layouts(device: str, mode: str, channels: int) -> None:
    x, w = normal(1, channels, 5, 5, 5), normal(3, channels, 3, 3, 3)
    plain = run("conv", x, w, device=device, mode=mode, pads=(1,) * 6)
    last = place(np.ascontiguousarray(np.moveaxis(x, 1, -1)), "dense", device)
    turned = hal.permute_dims(last, (0, 4, 1, 2, 3))
    assert turned.strides[1] == 1
    weights = place(w, "dense", device)
    found = call(BY_NAME["conv"], [turned, weights], {"pads": (1,) * 6}, mode=mode).numpy()
    assert np.abs(found - plain).max() <= 1e-4 * np.abs(plain).max()


def test_num_20_dilation(on: Run) -> None:
    x, w = np.arange(60, dtype=F32).reshape(1, 1, 30, 2), np.ones((1, 1, 3, 1), F32)
    out = on("conv", x, w, pads=(2, 0, 2, 0), dilations=(2, 1))[0, 0]
    rows = {0: [4, 6], 1: [8, 10], 2: [12, 15], 15: [90, 93], 29: [112, 114]}
    assert {r: out[r].tolist() for r in rows} == rows


OUTSIDE = (-1, 3, 2**31 - 1, -(2**31))


@pytest.mark.parametrize("index", OUTSIDE)
def test_num_23_and_42_an_index_outside_is_the_same_error_everywhere(
    device: str, mode: str, index: int
) -> None:
    x = np.arange(12, dtype=F32).reshape(3, 4)
    bad = np.array([[0, 1, 2, index]])
    updates = np.ones((1, 4), F32)
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("take_along_axis", (x, bad), {"axis": 0}),
        ("one_hot", (bad[0],), {"depth": 3}),
        ("slice_update", (x, updates, np.array([index, 0])), {}),
        *[
            ("scatter", (x, bad, updates), {"axis": 0, "reduction": reduction})
            for reduction in ("none", "add", "max", "min", "multiply")
        ],
    ]
    for kind in (np.int64, np.int32):
        for op, inputs, attrs in calls:
            given = [v.astype(kind) if v.dtype == np.int64 else v for v in inputs]
            spec = BY_NAME[op]
            arrays = [place(v, "dense", device) for v in given]
            target = arrays[0] if spec.aliasing == "first" else None
            with pytest.raises(InvalidArgumentError, match=str(index)):
                call(spec, arrays, attrs, target, mode)
                hal.synchronize()
            if target is not None:
                assert (target.numpy() == x).all(), f"{op} wrote before it refused"
    assert run("one_hot", np.array([1]), device=device, mode=mode, depth=3).tolist() == [[0, 1, 0]]


def test_num_40_a_channel_slice_of_a_channels_last_array(device: str, mode: str) -> None:
    last = place(np.array([[[[1, 10], [2, 20]]]], F32), "dense", device)  # [N, H, W, C]
    w = place(np.full((1, 1, 1, 1), 3, F32), "dense", device)
    for channel, want in ((0, [3, 6]), (1, [30, 60])):
        part = hal.permute_dims(last, (0, 3, 1, 2))[:, channel : channel + 1]
        found = call(BY_NAME["conv"], [part, w], {}, mode=mode).numpy()
        assert found.reshape(-1).tolist() == want


def test_num_41_strides_dilations_and_pads_differ_by_axis(on: Run) -> None:
    x, w = normal(1, 1, 3, 6), normal(1, 1, 3, 3)
    assert on("conv", x, w, strides=(1, 2)).shape == (1, 1, 1, 2)
    pairs = [(1, 2), (2, 1)]
    for strides, dilations in itertools.product(pairs, pairs):
        for pads in ((1, 2, 1, 2), (2, 0, 1, 3)):
            attrs = {"strides": strides, "dilations": dilations, "pads": pads}
            want = BY_NAME["conv"].reference(x, w, **attrs)
            assert np.allclose(on("conv", x, w, **attrs), want, atol=1e-5), attrs
            pooled = {**attrs, "kernel": (3, 3), "pads": (1, 1, 1, 1)}
            if dilations == (1, 2):
                want = BY_NAME["max_pool"].reference(x, **pooled)
                assert (on("max_pool", x, **pooled) == want).all(), pooled


def test_onx_03_nearest_says_how_it_rounds(on: Run) -> None:
    x = np.arange(26, dtype=F32).reshape(1, 1, 1, 26)
    attrs = {"sizes": (64,), "mode": "nearest"}
    ceil = on("resize", x, coordinates="half_pixel", rounding="round_prefer_ceil", **attrs)
    floor = on("resize", x, coordinates="asymmetric", rounding="floor", **attrs)
    assert ceil[0, 0, 0, 30:35].tolist() == [12, 12, 13, 13, 14]
    assert floor[0, 0, 0, 30:35].tolist() == [12, 12, 13, 13, 13]
    for name in ("mode", "coordinates"):
        given = {**attrs, "coordinates": "half_pixel", "rounding": "floor"}
        del given[name]
        with pytest.raises((TypeError, HalError), match=name):
            on("resize", x, **given)
    with pytest.raises(InvalidArgumentError, match="rounding"):
        on("resize", x, coordinates="half_pixel", **attrs)


def test_onx_04_the_coordinate_modes_differ(on: Run) -> None:
    x = np.arange(4, dtype=F32).reshape(1, 1, 4)
    o = np.arange(7)
    want = {
        "align_corners": o / 2,
        "asymmetric": (o * 4 / 7).clip(0, 3),
        "half_pixel": ((o + 0.5) * 4 / 7 - 0.5).clip(0, 3),
        "pytorch_half_pixel": ((o + 0.5) * 4 / 7 - 0.5).clip(0, 3),
    }
    for coordinates, values in want.items():
        found = on("resize", x, sizes=(7,), mode="linear", coordinates=coordinates)
        assert np.allclose(found[0, 0], values, atol=1e-6), coordinates
    one = {
        c: float(on("resize", x, sizes=(1,), mode="linear", coordinates=c)[0, 0, 0]) for c in want
    }
    half, none = {"half_pixel": 1.5}, dict.fromkeys(want, 0.0)
    assert one == {**none, **half}


def test_onx_05_linear_after_a_product_depends_on_its_input(device: str, mode: str) -> None:
    x = place(np.array([[2.0], [0.5], [-1.0]], F32), "dense", device)
    w = place(np.array([[1.0]], F32), "dense", device)
    with forced(mode):
        made = hal.matmul(x, w).reshape(1, 1, 3, 1, 1)
        attrs: Any = {"sizes": (511, 1, 1), "mode": "linear", "coordinates": "half_pixel"}
        found = hal.resize(made, **attrs).numpy().reshape(-1)
    want = BY_NAME["resize"].reference(x.numpy().reshape(1, 1, 3, 1, 1), **attrs).reshape(-1)
    assert np.abs(found - want).max() < 1e-5 and found[0] == 2 and found[-1] == -1


def test_onx_07_negative_pads_cut_off_first(on: Run) -> None:
    assert on("pad", np.arange(6, dtype=F32), None, pads=(-1, -2)).tolist() == [1, 2, 3]
    x = normal(1, 2, 4, 5)
    found = on("pad", x, None, pads=(0, 0, -1, -1, 0, 0, 1, 1))
    want = np.pad(x[:, :, 1:, 1:], ((0, 0), (0, 0), (0, 1), (0, 1)))
    assert (found == want).all()
    row = np.arange(5, dtype=F32)
    for kind, want_row in (("reflect", [3, 2, 1, 2, 3]), ("wrap", [2, 3, 1, 2, 3])):
        assert on("pad", row[1:4], None, pads=(2, 0), mode=kind).tolist() == want_row
        assert on("pad", row, None, pads=(-1, -1), mode=kind).tolist() == [1, 2, 3]
        options: Any = {"mode": kind}
        both = on("pad", row, None, pads=(-1, 2), mode=kind)
        assert both.tolist() == np.pad(row[1:], (0, 2), **options).tolist()


def test_onx_08_negative_indices_are_made_positive_by_their_caller(on: Run) -> None:
    data = np.arange(12, dtype=F32).reshape(3, 4)
    last = np.full((3, 4), -1) % data.shape[1]
    found = on("take_along_axis", data, last, axis=1)
    assert found.tolist() == [[3] * 4, [7] * 4, [11] * 4]
    assert on("one_hot", np.array([-1]) % 5, depth=5).tolist() == [[0, 0, 0, 0, 1]]


@pytest.mark.parametrize("reduction", ["none", "add", "max", "min", "multiply"])
def test_det_03_heavy_duplicates_give_the_same_bits(on: Run, reduction: str) -> None:
    rng = np.random.default_rng(0)
    x, updates = normal(7), normal(500)
    indices = rng.integers(0, 7, 500)
    attrs = {"axis": 0, "reduction": reduction}
    first = on("scatter", x, indices, updates, **attrs)
    assert all(
        on("scatter", x, indices, updates, **attrs).tobytes() == first.tobytes() for _ in range(20)
    )
    if reduction == "none":
        order = np.arange(500)
        assert (first == [updates[order[indices == i][-1]] for i in range(7)]).all()
