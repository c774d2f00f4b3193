"""A C function of your own, compiled to a shared library, among the ops of a queue.
SPDX-License-Identifier: Apache-2.0
"""

import subprocess
import tempfile
from pathlib import Path

import numpy as np

import anyhal as hal

SOURCE = """
#include <stdint.h>
struct values { float factor; int64_t count; };

int32_t scale(void* const* arrays, const struct values* v, uint32_t part, uint32_t parts) {
  const float* x = arrays[0];
  float* y = arrays[1];
  if (v->factor == 0) return 1; /* not 0: it failed */
  for (int64_t i = v->count * part / parts; i < v->count * (part + 1) / parts; ++i)
    y[i] = v->factor * x[i];
  return 0;
}
"""

with tempfile.TemporaryDirectory() as folder:
    source, library = Path(folder, "scale.c"), Path(folder, "scale.so")
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", source, "-o", library], check=True)
    module = hal.load_module(library, device="cpu")
scale = module.kernel("scale", ["in f32", "out f32", "f32", "i64"])

with hal.use(device="cpu"):
    x, y = hal.add(hal.arange(6, dtype="f32"), 1.0), hal.zeros(6)
    scale(x, y, 10.0, 6, grid=2)  # two parts, on two threads
    print("in order:", hal.negative(y).numpy())

    with hal.graph() as graph:
        scale(x, y, 3.0, 6)
        z = hal.add(y, y)
    x.set(np.ones(6, np.float32))
    graph.launch()
    print("in a graph:", z.numpy())

    for wrong in ((x, y, 10.0), (x.astype("f64"), y, 10.0, 6), (x, x, 10.0, 6), (x, y, 0.0, 6)):
        try:
            scale(*wrong)
        except hal.HalError as why:
            print(f"{type(why).__name__}: {why}")
