"""Public failure reports that a bridge to a compiler could repeat, each by its number.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyhal as hal


def test_str_04_a_long_graph_never_reads_stale_values(device: Any) -> None:
    """Four hundred calls over two blocks that are rewritten in turn, replayed with new inputs."""
    x = hal.asarray(np.zeros(16, np.float32), device=device)
    a = hal.asarray(np.zeros(16, np.float32), device=device)
    b = hal.asarray(np.zeros(16, np.float32), device=device)
    half = hal.asarray(np.full(16, 0.5, np.float32), device=device)
    with hal.graph(device) as graph:
        hal.copy(x, out=a)
        for _ in range(200):
            hal.multiply(a, half, out=b)
            hal.add(b, x, out=a)
    for k in range(4):
        values = np.arange(16, dtype=np.float32) + k
        x.set(values)
        graph.launch()
        np.testing.assert_allclose(a.numpy(), 2 * values, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_num_23_an_embedding_outside_is_no_row_of_zeros(device: Any, dtype: Any) -> None:
    table = hal.asarray(np.ones((5, 3), np.float32), device=device)
    for bad in (5, -1, np.iinfo(dtype).max):
        ids = hal.asarray(np.array([0, bad], dtype), device=device)
        with pytest.raises(hal.InvalidArgumentError, match="outside"):
            hal.embedding(table, ids)
        device.synchronize()


def test_mem_11_listing_devices_leaves_the_others_to_a_child(paths: list[Path]) -> None:
    code = """
import os, anyhal as hal
names = [d.name for d in hal.devices()]
assert "pjrt:0" in names, names
child = os.fork()
if child == 0:
    x = hal.asarray([1.0, 2.0], device="cpu:0")
    os._exit(0 if (x + x).numpy().tolist() == [2.0, 4.0] else 3)
print(os.waitpid(child, 0)[1], hal.add(*[hal.asarray([1.0], device="pjrt:0")] * 2).numpy())
"""
    env = {**os.environ, "ANYHAL_PJRT_PLUGINS": str(paths[0])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120
    )
    assert done.stdout.strip() == "0 [2.]", done.stderr
