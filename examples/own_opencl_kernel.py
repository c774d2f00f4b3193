"""An OpenCL C kernel of your own, and a command of your own, among the ops of an OpenCL queue.
SPDX-License-Identifier: Apache-2.0
"""

import ctypes

import numpy as np

import anyhal as hal

SOURCE = """
__kernel void scale(__global const float* x, ulong x_at, __global float* y, ulong y_at,
                    float factor, long count) {
  x = (__global const float*)((__global const char*)x + x_at);
  y = (__global float*)((__global char*)y + y_at);
  const long i = get_global_id(0);
  if (i < count) y[i] = factor * x[i];
}
"""
device = hal.select_backend("opencl")
limits = hal.kernel_limits(device)
scale = hal.load_module(SOURCE, format="opencl_c").kernel(
    "scale", ["in f32", "out f32", "f32", "i64"], block=min(4, limits.group_items)
)
x, y = hal.add(hal.arange(6, dtype="f32"), 1.0), hal.zeros(6)
scale(x, y, 10.0, 6, grid=2)
print("in order:", hal.negative(y).numpy())

with hal.graph() as graph:
    scale(x, y, 3.0, 6, grid=2)
    z = hal.add(y, y)
x.set(np.ones(6, np.float32))
graph.launch()
print("in a graph:", z.numpy())


def copy_half(work: hal.NativeWork) -> None:
    source, target = work.operands
    numbers = [source.offset_bytes, target.offset_bytes, 3 * 4]
    code = ctypes.CDLL("libOpenCL.so.1").clEnqueueCopyBuffer(
        *map(ctypes.c_void_p, [work.handle, source.handle, target.handle]),
        *map(ctypes.c_size_t, numbers), ctypes.c_uint(0), None, None,
    )  # fmt: skip
    print("clEnqueueCopyBuffer answered", code)


hal.enqueue_native(copy_half, reads=[z], writes=[y])
print("native work, in order:", y.numpy())
handle = hal.native_handle(y)
print(f"behind an array: {handle.kind} of {handle.api}, owned by the caller: {handle.owned}")
