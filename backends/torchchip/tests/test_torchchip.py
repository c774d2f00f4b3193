"""PyTorch's kernels against the references: everything that torchchip declares.
SPDX-License-Identifier: Apache-2.0

Run in an environment that has torch: pytest -m torch backends/torchchip.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import anyhal as hal
from anyhal.sdk.checklist import check_device

HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed here")
def test_without_pytorch_it_is_absent_and_says_so() -> None:
    with pytest.raises(hal.BackendLoadError, match="PyTorch is not installed; pip install"):
        hal.load_backend("torchchip", instance="absent")
    hal.devices()
    rows = [r for r in hal.facts()["refused"] if r["name"] == "torchchip"]
    assert [r["absent"] for r in rows] == [True]


@pytest.mark.torch
def test_every_declared_cell_gives_the_known_answers() -> None:
    (device,) = hal.load_backend("torchchip", instance="judged")
    lines = list(check_device(device, lambda check, about: None))
    assert [line.failed for line in lines if line.failed] == []
    assert sum(line.count for line in lines) > 800


@pytest.mark.torch
def test_tensors_are_views_and_nothing_is_copied() -> None:
    """A copy of a gigabyte's operand would show; so does an address."""
    import torch

    found = []
    real = torch.from_numpy
    (device,) = hal.load_backend("torchchip", instance="views")
    x = hal.asarray(np.ones((64, 64), np.float32), device=device)
    (x + x).numpy()
    torch.from_numpy = lambda a: found.append(a.ctypes.data) or real(a)  # type: ignore[func-returns-value]
    try:
        y = x + x
        device.synchronize()
    finally:
        torch.from_numpy = real
    shown = {np.from_dlpack(a).ctypes.data for a in (x, y)}
    assert shown == set(found) and len(found) == 3


@pytest.mark.torch
def test_a_block_of_a_model_runs_on_it() -> None:
    rng = np.random.default_rng(3)
    (device,) = hal.load_backend("torchchip", instance="block")
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((4, 32), (32, 32)))
    g = np.ones(32, np.float32)

    def block(name: str) -> np.ndarray:
        a, b, c = (hal.asarray(v, device=name) for v in (x, w, g))
        h = hal.rms_norm(a, c, eps=1e-5)
        scores = hal.softmax(hal.matmul(hal.matmul(h, b), hal.permute_dims(h, (1, 0))), axis=-1)
        return hal.add(hal.matmul(scores, h), a).numpy()

    np.testing.assert_allclose(block("block"), block("cpu"), rtol=2e-5, atol=2e-5)
    assert {r["op"] for r in hal.routes() if r["device"] == "block:0"} >= {"rms_norm", "softmax"}


@pytest.mark.torch
def test_an_index_outside_writes_nothing() -> None:
    (device,) = hal.load_backend("torchchip", instance="looked")
    x = hal.asarray(np.ones((3, 2), np.float32), device=device)
    out = hal.asarray(np.zeros((1, 2), np.float32), device=device)
    with pytest.raises(hal.InvalidArgumentError, match=r"outside 0\.\.2"):
        hal.take(x, hal.asarray(np.int32([7]), device=device), axis=0, out=out)
        device.synchronize()
