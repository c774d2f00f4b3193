"""Users' kernels in OpenCL C, native work and limits, on every OpenCL device.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cl_client import loader

import anyhal as hal

SOURCE = """
__kernel void scale(__global const float* x, ulong x_at, __global float* y, ulong y_at,
                    float factor, long count) {
  x = (__global const float*)((__global const char*)x + x_at);
  y = (__global float*)((__global char*)y + y_at);
  const long i = get_global_id(0);
  if (i < count) y[i] = factor * x[i];
}
__kernel void sizes(__global long* out, ulong at) {
  if (get_global_id(0) || get_global_id(1) || get_global_id(2)) return;
  for (int d = 0; d < 3; ++d) {
    out[at / 8 + d] = get_local_size(d);
    out[at / 8 + 3 + d] = get_num_groups(d);
  }
}
"""
SCALE = ("in f32", "out f32", "f32", "i64")


@pytest.fixture
def module(cl: str) -> Iterator[hal.Module]:
    with hal.use(device=cl):
        yield hal.load_module(SOURCE, format="opencl_c", device=cl)


def test_a_user_s_kernel_runs_in_order_among_ops(module: hal.Module) -> None:
    scale = module.kernel("scale", SCALE, block=16)
    x = hal.add(hal.asarray(np.arange(100, dtype=np.float32)), 1.0)
    y = hal.zeros(100)
    scale(x, y, 0.5, 100, grid=7)
    np.testing.assert_array_equal(hal.negative(y).numpy(), np.arange(1, 101) * np.float32(-0.5))
    scale(x[50:], y, 1.0, 50, grid=4)  # another place, and what was set before is not
    np.testing.assert_array_equal(y.numpy()[:50], np.arange(51, 101))


def test_values_change_from_call_to_call_and_in_graphs(module: hal.Module) -> None:
    scale = module.kernel("scale", SCALE)
    x, y = hal.ones(4), hal.zeros(4)
    for factor in (2.0, 3.0):
        scale(x, y, factor, 4, grid=4)
        assert y.numpy().tolist() == [factor] * 4
    with hal.graph() as g:
        scale(x, y, 5.0, 4, grid=4)
        z = hal.add(y, y)
    scale(x, y, 7.0, 4, grid=4)
    g.launch()
    assert z.numpy().tolist() == [10] * 4


def test_blocks_and_grids(module: hal.Module) -> None:
    out = hal.zeros(6, dtype="i64")
    module.kernel("sizes", ["out i64"], block=(4, 2))(out, grid=(3, 5, 2))
    assert out.numpy().tolist() == [4, 2, 1, 3, 5, 2]


Wrong = Callable[[hal.Module], Any]
WRONG: dict[str, tuple[Wrong, type[Exception], str]] = {
    "name": (lambda m: m.kernel("none", SCALE), hal.NotFoundError, "no kernel 'none'"),
    "short": (lambda m: m.kernel("scale", ["in f32"]), hal.InvalidArgumentError, "more than the 2"),
    "long": (
        lambda m: m.kernel("scale", [*SCALE, "f32"]),
        hal.InvalidArgumentError,
        "parameter 6 of 'scale'",
    ),
    "width": (
        lambda m: m.kernel("scale", [*SCALE[:2], "f64", "i64"]),
        hal.InvalidArgumentError,
        "parameter 4 of 'scale' is not a value of 8 bytes",
    ),
    "block": (lambda m: m.kernel("scale", SCALE, block=1 << 24), hal.InvalidArgumentError, "block"),
    "shared": (
        lambda m: m.kernel("scale", SCALE, shared_bytes=64),
        hal.UnsupportedError,
        "declared in the kernel",
    ),
    "source": (
        lambda m: hal.load_module("oops", format="opencl_c", device=m.device),
        hal.InvalidArgumentError,
        "compiler refuses the source",
    ),
    "format": (
        lambda m: hal.load_module("oops", format="ptx", device=m.device),
        hal.UnsupportedError,
        "loads OpenCL C source",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused(module: hal.Module, name: str) -> None:
    make, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        make(module)


def test_a_call_that_does_not_fit_writes_nothing(module: hal.Module) -> None:
    scale = module.kernel("scale", SCALE)
    x, y = hal.ones(4), hal.full(4, 7.0, dtype="f32")
    elsewhere = hal.ones(4, device="cpu_ref:0")
    for given in [(x, y, 1.0), (elsewhere, y, 1.0, 4), (y, y, 1.0, 4), (x, y, 1.0, 1.5)]:
        with pytest.raises(hal.InvalidArgumentError):
            scale(*given)
    assert y.numpy().tolist() == [7] * 4


def test_native_work_is_ordered_between_ops(cl: str) -> None:
    """clEnqueueCopyBuffer by the test's own hand."""
    with hal.use(device=cl):
        x = hal.add(hal.asarray(np.arange(64, dtype=np.float32)), 1.0)
        y = hal.zeros(64)

        def copy(work: hal.NativeWork) -> None:
            source, target = work.operands
            code = loader().clEnqueueCopyBuffer(
                *map(c.c_void_p, (work.handle, source.handle, target.handle)),
                *map(c.c_size_t, (source.offset_bytes, target.offset_bytes, 64)),
                c.c_uint(0), None, None,
            )  # fmt: skip
            assert code == 0

        hal.enqueue_native(copy, reads=[x[16:]], writes=[y])
        got = hal.negative(y).numpy()
    np.testing.assert_array_equal(got, -np.append(np.arange(17, 33), np.zeros(48)))


def test_handles_say_whose_they_are(cl: str) -> None:
    x = hal.zeros(64, device=cl)
    queue = hal.Queue(cl)
    device, made, memory = map(hal.native_handle, (hal.device(cl), queue, x[16:]))
    assert [h.kind for h in (device, made, memory)] == ["device", "queue", "memory"]
    assert {h.api for h in (device, made, memory)} == {"OpenCL"}
    assert all(h.handle and not h.owned for h in (device, made, memory))
    assert memory.offset_bytes == hal.native_handle(x).offset_bytes + 64
    bytes_ = c.c_size_t()
    code = loader().clGetMemObjectInfo(
        c.c_void_p(memory.handle), c.c_uint(0x1102), c.c_size_t(8), c.byref(bytes_), None
    )
    assert code == 0 and bytes_.value >= 256
    assert hal.kernel_limits(cl).group_items >= 16
    with pytest.raises(hal.UnsupportedError, match="there is: kernel_limits 1"):
        hal.extension(cl, "wings")
