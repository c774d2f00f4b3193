"""Field cases about attention's further forms, caches in pages and groups of rows.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.conformance.tolerance import bound, mismatch
from anyhal.dtypes import dtype
from anyhal.errors import HalError, InvalidArgumentError
from anyhal.ops import BY_NAME
from device_runs import Output, call, devices, forced, place, run

F32 = np.float32
NAN, INF = np.nan, np.inf


@pytest.fixture(params=devices())
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["chosen", "decomposed"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def attention(device: str, mode: str, *inputs: Any, **attrs: Any) -> Any:
    arrays = [None if x is None else place(x, "dense", device) for x in inputs]
    with forced(mode):
        made = hal.attention(*arrays, **attrs)
    return tuple(m.numpy() for m in made) if isinstance(made, tuple) else made.numpy()


@pytest.mark.parametrize("short", ["f32", "f16", "bf16", "f64"])
def test_num_03_the_log_sum_of_a_hidden_row(device: str, mode: str, short: str) -> None:
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, 8, 8)).astype(dtype(short).numpy)
    mask = np.zeros((8, 8), bool)
    mask[:4, :4] = True
    attrs = {"scale": 0.35, "causal": "none", "return_lse": True}
    out, lse = attention(device, mode, q, k, v, None, mask, **attrs)
    assert (out[0, 0, 4:].astype(float) == 0).all() and np.isneginf(lse[0, 0, 4:]).all()
    assert np.isfinite(lse[0, 0, :4]).all() and lse.dtype == (np.float64 if short == "f64" else F32)
    sinks = np.array([-2.0]).astype(q.dtype)
    out, lse = attention(device, mode, q, k, v, None, mask, sinks, **attrs)
    assert (out[0, 0, 4:].astype(float) == 0).all() and (lse[0, 0, 4:] == -2).all()


@pytest.mark.parametrize("hidden", [1e10, NAN, INF])
def test_num_04_what_a_window_hides_has_no_part(device: str, mode: str, hidden: float) -> None:
    rng = np.random.default_rng(1)
    q, k, v = rng.standard_normal((3, 1, 2, 6, 4)).astype(F32)
    attrs = {"scale": 0.5, "causal": "last_key", "window": 2}
    want = attention(device, mode, q, k, v, **attrs)
    k[:, :, :3], v[:, :, :3] = hidden, hidden
    found = attention(device, mode, q, k, v, **attrs)
    assert np.allclose(found[:, :, 4:], want[:, :, 4:], rtol=1e-5, atol=1e-6)


def test_num_05_a_window_lies_where_the_alignment_says(device: str, mode: str) -> None:
    q, k = np.zeros((1, 1, 3, 4), F32), np.zeros((1, 1, 6, 4), F32)
    v = np.eye(6, dtype=F32)[None, None]

    def seen(**attrs: Any) -> list[str]:
        out = attention(device, mode, q, k, v, scale=1.0, **attrs)[0, 0]
        return ["".join("1" if x else "0" for x in row) for row in out > 0]

    assert seen(causal="first_key", window=2) == ["100000", "110000", "011000"]
    assert seen(causal="last_key", window=2) == ["001100", "000110", "000011"]
    assert seen(causal="last_key", window=100) == ["111100", "111110", "111111"]
    with pytest.raises(InvalidArgumentError, match="where queries stand"):
        seen(causal="none", window=2)


def test_amd_06_head_sizes_mask_and_sinks(device: str, mode: str) -> None:
    """Smaller than reported in keys and queries, with its heads and head sizes."""
    rng = np.random.default_rng(2)
    shapes = ((1, 16, 7, 192), (1, 4, 40, 192), (1, 4, 40, 128))
    q, k, v = (rng.standard_normal(s).astype(F32) for s in shapes)
    mask = np.where(rng.random((7, 40)) < 0.3, -INF, 0).astype(F32)
    sinks = rng.standard_normal(16).astype(F32)
    inputs = (q, k, v, None, mask, sinks)
    attrs = {"scale": 192**-0.5, "causal": "none"}
    spec = BY_NAME["attention"]
    want = spec.reference(*inputs, **attrs)[0]
    allowed = bound("attention", spec, inputs, attrs, want, dtype("f32"))
    wrong = mismatch(attention(device, mode, *inputs, **attrs), want, allowed, dtype("f32"))
    assert wrong is None, wrong


def test_num_37_empty_groups_and_rows_beyond(device: str, mode: str) -> None:
    """Nothing that was in the output's memory stays."""
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(s).astype(F32) for s in ((10, 6), (4, 6, 5)))
    sizes = np.array([0, 5, 0, 3])
    out = Output((10, 5), dtype("f32"), "offset", device)
    arrays = [place(a, "dense", device) for a in (x, sizes, w)]
    call(BY_NAME["grouped_matmul"], arrays, {}, out.view, mode)
    found = out.values()
    want = np.concatenate([x[:5] @ w[1], x[5:8] @ w[3], np.zeros((2, 5), F32)])
    assert np.allclose(found, want, atol=1e-5) and (found[8:] == 0).all()


def test_a_form_without_a_kernel_leaves_the_others_their_kernel() -> None:
    """cpu has a kernel for the plain form; that it refuses a window is no reason to distrust it."""
    q = hal.asarray(np.ones((1, 2, 3, 4), F32), device="cpu:0")

    def fused() -> int:
        found = [r for r in hal.routes() if r["op"] == "attention" and not r["decomposed"]]
        return sum(r["calls"] for r in found)

    before = fused()
    hal.attention(q, q, q, scale=1.0, causal="last_key")
    assert fused() == before + 1


def test_a_graph_records_calls_that_lack_an_output(device: str) -> None:
    q = hal.asarray(np.ones((1, 2, 3, 4), F32), device=device)
    out = hal.zeros((1, 2, 3, 4), device=device)
    with hal.use(device=device), hal.graph() as graph:
        hal.attention(q, q, q, scale=1.0, causal="none", out=(out, None))
    graph.launch()
    assert np.allclose(out.numpy(), 1)


@pytest.mark.parametrize("sizes", [[-1, 5, 0, 3], [4, 4, 0, 3], [11, 0, 0, 0]])
def test_num_23_groups_that_do_not_fit(device: str, mode: str, sizes: list[int]) -> None:
    x, w = np.ones((10, 6), F32), np.ones((4, 6, 5), F32)
    with pytest.raises(HalError):
        run("grouped_matmul", x, np.array(sizes), w, device=device, mode=mode)
    assert run("grouped_matmul", x, np.array([10, 0, 0, 0]), w, device=device).sum() == 300


# Two sequences with 2 and 1 new tokens at the end of 5 and 3 positions, in pages of 4 rows.
PAGED = {
    "starts": [0, 2, 3],
    "table": [[2, 0], [3, -1]],
    "lengths": [5, 3],
}


@pytest.mark.parametrize(
    "change",
    [
        {"table": [[2, 4], [3, 0]]},
        {"table": [[-1, 0], [3, 0]]},
        {"lengths": [9, 3]},
        {"lengths": [5, -1]},
        {"lengths": [1, 3]},
        {"starts": [0, 2, 4]},
        {"starts": [2, 0, 3]},
        {"starts": [-1, 2, 3]},
        {"table": [[2, 0], [0, 0]], "lengths": [5, 1]},
    ],
    ids=str,
)
def test_num_23_num_42_indices_of_pages_are_judged(
    device: str, mode: str, change: dict[str, Any]
) -> None:
    numbers = {k: np.array(v) for k, v in {**PAGED, **change}.items()}
    indices = [place(numbers[k], "dense", device) for k in ("starts", "table", "lengths")]
    before = np.full((4, 4, 2, 3), 7, F32)
    pages, update = (hal.asarray(a, device=device) for a in (before, np.ones((3, 2, 3), F32)))
    with forced(mode), pytest.raises(HalError):
        hal.paged_cache_append(pages, update, *indices)
    assert (pages.numpy() == before).all(), "written although refused"
    if change.get("lengths") in ([1, 3], [5, 1]):
        return  # fine to read: tokens that see nothing, a page that two sequences share
    q = hal.asarray(np.ones((3, 2, 3), F32), device=device)
    with forced(mode), pytest.raises(HalError):
        hal.paged_attention(q, pages, pages, *indices, scale=1.0)


def test_paged_decoding_equals_attention_over_a_plain_cache(device: str, mode: str) -> None:
    rng = np.random.default_rng(4)
    starts, table, lengths = (np.array(PAGED[k]) for k in ("starts", "table", "lengths"))
    shapes = ((3, 4, 8), (3, 2, 8), (3, 2, 8))
    q, k, v = (rng.standard_normal(s).astype(F32) for s in shapes)
    indices = [place(a, "dense", device) for a in (starts, table, lengths)]
    caches = [rng.standard_normal((4, 4, 2, 8)).astype(F32) for _ in range(2)]
    pages = [hal.asarray(c, device=device) for c in caches]
    with forced(mode):
        for cache, new in zip(pages, (k, v), strict=True):
            hal.paged_cache_append(cache, hal.asarray(new, device=device), *indices)
        out = hal.paged_attention(hal.asarray(q, device=device), *pages, *indices, scale=0.3)
    for cache, new, changed in zip(caches, (k, v), pages, strict=True):
        cache[2, 3], cache[0, 0], cache[3, 2] = new
        assert (changed.numpy() == cache).all()
    for own, places in (
        (slice(0, 2), ([2, 2, 2, 2, 0], [0, 1, 2, 3, 0])),
        (slice(2, 3), ([3, 3, 3], [0, 1, 2])),
    ):
        one = [np.swapaxes(x, 0, 1)[None] for x in (q[own], *(c[places] for c in caches))]
        want, _ = BY_NAME["attention"].reference(*one, scale=0.3, causal="last_key")
        assert np.allclose(out.numpy()[own], np.swapaxes(want[0], 0, 1), atol=1e-5)
