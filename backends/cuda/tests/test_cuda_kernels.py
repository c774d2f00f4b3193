"""A user's kernel and native work from Python, on the simulated driver.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyhal as hal

PTX = ".version 8.1\n.target sm_80\n.visible .entry scale(\n"
SCALE = ("in f32", "out f32", "f32", "i32")


def test_a_user_s_kernel_runs_in_order_and_in_graphs(simulated: Any) -> None:
    module = hal.load_module(PTX, format="ptx", architecture="compute_80", device=simulated)
    scale = module.kernel("scale", SCALE, block=32)
    scope = hal.use(device=simulated, allow_uncertified=(simulated.fact.backend,))
    with scope:
        x, y = hal.asarray(np.arange(100, dtype=np.float32)), hal.zeros(100)
        scale(x[1:], y, 0.5, 99, grid=4)
        np.testing.assert_array_equal(y.numpy(), np.append(np.arange(1, 100) * np.float32(0.5), 0))
        with hal.graph() as g:
            scale(x, y, 2.0, 100, grid=4)
        y.set(np.zeros(100, np.float32))
        g.launch()
        np.testing.assert_array_equal(y.numpy(), 2 * np.arange(100))


def test_what_is_not_for_this_device_is_refused(simulated: Any) -> None:
    with pytest.raises(hal.UnsupportedError, match="sm_90a|compute_99") as refused:
        hal.load_module(PTX, format="ptx", architecture="compute_99", device=simulated)
    assert refused.value.reason == "architecture"
    with pytest.raises(hal.UnsupportedError, match="PTX and cubins"):
        hal.load_module("__kernel void f() {}", format="opencl_c", device=simulated)
    module = hal.load_module(PTX, format="ptx", architecture="compute_80", device=simulated)
    with pytest.raises(hal.HalError, match="no_such"):
        module.kernel("no_such", SCALE)


def test_native_work_gets_the_stream_and_addresses(simulated: Any) -> None:
    x, y = hal.ones(4, device=simulated), hal.zeros(4, device=simulated)
    queue = hal.Queue(simulated)
    stream = hal.native_handle(queue)
    seen: list[hal.NativeWork] = []
    hal.enqueue_native(seen.append, reads=[x[2:]], writes=[y], queue=queue)
    (work,) = seen
    assert (work.type, stream.api, stream.kind) == ("cuda_stream", "CUDA", "queue")
    assert work.handle == stream.handle != 0
    memory = hal.native_handle(x)
    assert work.operands[0].handle == memory.handle + memory.offset_bytes + 8
    assert work.operands[0].offset_bytes == 0
