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
from plugin_double import Double

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


def test_dev_10_two_foreign_devices_and_the_processor_pass_a_tensor_round(
    plugins: list[Any],
) -> None:
    """All three provide the same ops; each step runs where its operands are."""
    ring = [*plugins, hal.device("cpu:0")]
    x = hal.asarray(np.arange(6, dtype=np.float32), device=ring[-1])
    for k in range(9):
        x = hal.add(hal.asarray(x, device=ring[k % 3]), hal.ones((6,), device=ring[k % 3]))
        assert x.device.name == ring[k % 3].name
    assert x.numpy().tolist() == [9, 10, 11, 12, 13, 14]


@pytest.mark.parametrize("script", ["version=0.51; slots=97", "version=0.81", "version=0.999"])
def test_plg_05_an_older_and_a_newer_table_are_read_as_far_as_they_go(
    double: Double, script: str
) -> None:
    code = "import anyhal as hal\nx = hal.asarray([1.0], device='pjrt:0')\nprint(hal.add(x, x))\n"
    assert "2." in double.python(code, script)


@pytest.mark.parametrize("slots, works", [("160", True), ("97", True), ("90", True), ("72", False)])
def test_plg_11_a_table_of_another_size_under_the_same_version(
    double: Double, slots: str, works: bool
) -> None:
    code = "import anyhal as hal\nprint(len([d for d in hal.devices() if 'pjrt' in d.name]))\n"
    done = double.run("-c", code, script=f"version=0.81; slots={slots}")
    assert done.stdout.strip() == ("2" if works else "1"), done.stderr
    assert works or "lacks function 72" in done.stderr


def test_mem_12_memory_that_is_short_at_any_buffer_ends_nothing(double: Double) -> None:
    code = """
import ctypes, numpy as np, anyhal as hal
d = hal.device("pjrt:0")
lib = ctypes.CDLL(LIBRARY)
A = np.arange(6, dtype=np.float32)
told = 0
for n in range(1, 13):
    for slot in ("Client_BufferFromHostBuffer", "LoadedExecutable_Execute"):
        lib.pjrt_double_script(f"fail={slot}@{n}+:8".encode())
        try:
            x = hal.asarray(A, device=d)
            for _ in range(10):
                x = hal.add(x, hal.ones((6,), device=d))
            assert (x.numpy() == A + 10).all()
        except hal.OutOfMemoryError:
            told += 1
lib.pjrt_double_script(b"")
x = hal.asarray(A, device=d)
assert (hal.add(x, x).numpy() == A + A).all() and told >= 12, told
"""
    double.python(code.replace("LIBRARY", repr(str(double.library))))
