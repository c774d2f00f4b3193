"""Field cases about determinism: the same numbers on every device, and whoever else is in a batch.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.ops import BY_NAME
from anyhal.ops._philox import reference_words
from device_runs import devices, forced, run

SEED = np.array([10, 0], np.uint64)
MODES = ("chosen", "decomposed")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("op", ["random_uniform", "random_normal"])
def test_det_01_a_seed_gives_the_same_bits_on_every_device(op: str, dtype: str) -> None:
    for shape in ((3,), (1000,), (1 << 20,) if dtype == "float32" else (4099,)):
        want = np.asarray(BY_NAME[op].reference(SEED, shape, dtype))
        for device in devices():
            for mode in MODES:
                found = run(op, SEED, device=device, mode=mode, shape=shape, dtype=dtype)
                assert found.tobytes() == want.astype(found.dtype).tobytes(), (device, mode, shape)


def test_det_01_integers_and_masks_too() -> None:
    x = np.ones((7, 31), np.float32)
    kept = reference_words(SEED, x.size).reshape(x.shape) >= 0.25 * 2**32
    for device in devices():
        for mode in MODES:
            key, ones = hal.asarray(SEED, device=device), hal.asarray(x, device=device)
            with forced(mode):
                _, mask = hal.dropout(ones, key, p=0.25)
                dice = hal.random_integers(key, low=1, high=7, shape=(500,))
            assert (mask.numpy() == kept).all()
            want = BY_NAME["random_integers"].reference(SEED, 1, 7, (500,))
            assert (dice.numpy() == want).all()


def test_det_01_the_state_is_the_key() -> None:
    """A restored key goes on with the same numbers on another device; a prefix is a prefix."""
    saved = np.array([10, 41], np.uint64)
    found = [run("random_normal", saved, device=d, shape=(64,)).tobytes() for d in devices()]
    assert len(set(found)) == 1
    longer = run("random_normal", saved, device=devices()[-1], shape=(2, 100)).reshape(-1)
    assert longer[:64].tobytes() == found[0]
    other = run("random_normal", saved + np.uint64([0, 1]), device=devices()[0], shape=(64,))
    assert other.tobytes() != found[0]


def test_det_01_one_plan_serves_every_key() -> None:
    for device in devices():
        key = hal.asarray(SEED, device=device)
        out = hal.zeros((64,), device=device)
        one = hal.asarray(np.array([0, 1], np.uint64), device=device)
        for step in range(3):
            hal.random_uniform(key, shape=(64,), out=out)
            now = SEED + np.array([0, step], np.uint64)
            want = np.asarray(BY_NAME["random_uniform"].reference(now, (64,)), np.float32)
            assert out.numpy().tobytes() == want.tobytes()
            hal.add(key, one, out=key)


@pytest.mark.parametrize("device", devices())
def test_det_03_twenty_times_the_same(device: str) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((40, 16), (3, 16, 8)))
    q = rng.standard_normal((1, 4, 9, 16)).astype(np.float32)
    sizes = np.array([13, 0, 20])
    attrs: dict[str, Any] = {"scale": 0.25, "causal": "last_key", "window": 4, "softcap": 3.0}
    for mode in MODES:
        found = {
            (
                run("grouped_matmul", x, sizes, w, device=device, mode=mode).tobytes(),
                hal_attention(device, mode, q, attrs).tobytes(),
            )
            for _ in range(20)
        }
        assert len(found) == 1


def hal_attention(device: str, mode: str, q: Any, attrs: dict[str, Any]) -> Any:
    a = hal.asarray(q, device=device)
    with forced(mode):
        return hal.attention(a, a, a, **attrs).numpy()


@pytest.mark.parametrize("device", ["cpu:0", "cpu_ref:0"])
def test_det_02_a_request_does_not_depend_on_its_neighbours(device: str) -> None:
    rng = np.random.default_rng(1)
    limit = 64 if device == "cpu:0" else 8
    q = rng.standard_normal((limit, 4, 1, 16)).astype(np.float32)
    k, v = rng.standard_normal((2, limit, 2, 70, 16)).astype(np.float32)
    a = rng.standard_normal((512, 200)).astype(np.float32)
    b = hal.asarray(rng.standard_normal((200, 96)).astype(np.float32), device=device)
    with hal.use(device=device, determinism="batch_invariant"):
        alone = [
            hal.attention(*(hal.asarray(x[:1]) for x in (q, k, v)), scale=0.25, causal="none"),
            hal.matmul(hal.asarray(a[:1]), b),
        ]
        for n in (2, 3, limit):
            batch = [hal.asarray(x[:n]) for x in (q, k, v)]
            among = hal.attention(*batch, scale=0.25, causal="none")
            assert among.numpy()[:1].tobytes() == alone[0].numpy().tobytes(), n
        for n in (2, 5, 33, 64, 512 if device == "cpu:0" else 65):
            among = hal.matmul(hal.asarray(a[:n]), b)
            assert among.numpy()[:1].tobytes() == alone[1].numpy().tobytes(), n


@pytest.mark.parametrize("device", devices())
def test_det_03_many_updates_of_one_row(device: str) -> None:
    rng = np.random.default_rng(2)
    target = np.zeros((3, 40), np.float32)
    updates = rng.standard_normal((500, 40)).astype(np.float32)
    rows = rng.integers(0, 3, 500)
    found = {
        run("scatter_add", target, rows, updates, device=device, axis=0).tobytes()
        for _ in range(20)
    }
    assert len(found) == 1


@pytest.mark.parametrize("numerics", ["strict", "bf16"])
def test_det_04_a_long_inner_axis_is_summed_in_one_order(numerics: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((64, 8192), (8192, 64)))
    with hal.use(device="cpu:0", numerics=numerics):
        x, w = hal.asarray(a), hal.asarray(b)
        assert len({hal.matmul(x, w).numpy().tobytes() for _ in range(50)}) == 1
