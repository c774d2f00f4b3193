"""What fails on one device reaches whoever waits for it, and nobody else.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from everywhere import DEVICES, SEED, random_values

import anyhal as hal

pytestmark = pytest.mark.foreign


def works(name: str) -> bool:
    rng = np.random.default_rng(SEED)
    a, b = random_values(rng, 5, 7), random_values(rng, 7, 3)
    product = hal.matmul(hal.asarray(a, device=name), hal.asarray(b, device=name))
    return np.allclose(product.numpy(), a @ b, rtol=1e-5, atol=1e-5)


def test_more_memory_than_there_is(device: str, needs: Callable[..., None]) -> None:
    needs(*DEVICES)
    kept = hal.asarray(np.arange(8.0, dtype=np.float32), device=device)
    with pytest.raises(hal.OutOfMemoryError, match=device):
        hal.empty((1 << 44,), device=device)
    assert kept.numpy().tolist() == list(range(8))
    assert all(map(works, DEVICES))


def test_an_index_outside_reaches_the_waiter_and_writes_nothing(
    device: str, needs: Callable[..., None]
) -> None:
    needs(*DEVICES)
    x = hal.asarray(np.arange(8.0, dtype=np.float32), device=device)
    at = hal.asarray(np.array([1, 9]), device=device)
    out = hal.full((2,), 5.0, device=device)
    with pytest.raises(hal.InvalidArgumentError, match=r"(?s)gather.*9"):
        hal.take(x, at, axis=0, out=out).numpy()
    assert all(map(works, DEVICES)), "the failed one among them"
    assert x.numpy().tolist() == list(range(8))
    at.set(np.array([1, 7]))
    assert hal.take(x, at, axis=0, out=out).numpy().tolist() == [1, 7]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whatever a failing device leaves behind is not the user's."""
    return tmp_path_factory.mktemp("cache")


WANTED = {
    ("memory", "cuda"): "OutOfMemoryError",
    ("memory", "opencl"): "OutOfMemoryError",
    ("memory", "pjrt"): "OutOfMemoryError",
    ("late", "cuda"): "DeviceLostError",  # a kernel that dies takes its context with it
    ("late", "opencl"): "ExecutionFailedError",
    ("late", "pjrt"): "ExecutionFailedError",
    ("lost", "cuda"): "DeviceLostError",
    ("lost", "opencl"): "DeviceLostError",
    ("lost", "pjrt"): "DeviceLostError",
}


@pytest.mark.parametrize(("failure", "kind"), WANTED)
def test_one_device_fails_and_the_others_go_on(
    failure: str, kind: str, needs: Callable[..., None], cache: Path
) -> None:
    needs(*DEVICES)
    environment = {
        **os.environ,
        "CUDA_DOUBLE": f"devices=sm_90,sm_80; seed={SEED}",
        "ANYHAL_CACHE": str(cache),
    }
    program = Path(__file__).with_name("victims.py")
    done = subprocess.run(
        [sys.executable, program, kind, failure],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    name, words = done.stdout.split("\n", 1)
    assert name == WANTED[failure, kind], words
    assert ("cuda:0" if kind == "cuda" else "victim:0") in words
