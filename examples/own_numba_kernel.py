"""A Numba function, compiled to machine code, among the ops of a queue.
SPDX-License-Identifier: Apache-2.0
"""

import numpy as np
from numba import carray, cfunc, types

import anyhal as hal


@cfunc(
    types.int32(
        types.CPointer(types.voidptr), types.CPointer(types.int64), types.uint32, types.uint32
    )
)
def mandelbrot(arrays, values, part, parts):
    count, limit = values[0], values[1]
    real = carray(arrays[0], count, np.float32)
    imaginary = carray(arrays[1], count, np.float32)
    steps = carray(arrays[2], count, np.int32)
    for i in range(count * part // parts, count * (part + 1) // parts):
        a, b = real[i], imaginary[i]
        x, y, n = a, b, 0
        while n < limit and x * x + y * y < 4:
            x, y, n = x * x - y * y + a, 2 * x * y + b, n + 1
        steps[i] = n
    return 0


kernel = hal.load_module(mandelbrot, device="cpu").kernel(
    "mandelbrot", ["in f32", "in f32", "out i32", "i64", "i64"]
)
with hal.use(device="cpu"):
    across = hal.asarray(np.tile(np.linspace(-2, 0.6, 40, dtype=np.float32), 11))
    down = hal.asarray(np.repeat(np.linspace(0, -1.2, 11, dtype=np.float32), 40))
    steps = hal.zeros(440, dtype="i32")
    kernel(across, hal.negative(down), steps, 440, 30, grid=hal.kernel_limits().units)
    inside = hal.reshape(hal.equal(steps, 30), (11, 40))
for row in inside.numpy()[::-1]:
    print("".join(" #"[int(c)] for c in row).rstrip())
