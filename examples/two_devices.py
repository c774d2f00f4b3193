"""One program on two devices: what each one runs, what it refuses, and why.
SPDX-License-Identifier: Apache-2.0
"""

import numpy as np

import anyhal as hal

rng = np.random.default_rng(0)
x, w = rng.standard_normal((4, 8), np.float32), rng.standard_normal((8, 16), np.float32)

for name in ("cpu", "dayone"):
    device = hal.select_backend(name)
    y = hal.softmax(hal.matmul(hal.asarray(x), hal.asarray(w)))
    print(f"{device.name}: rows sum to {y.numpy().sum(axis=1).round(5).tolist()}")
    print(hal.explain("softmax f32[4,16]").sentence)
try:
    with hal.use(fallback="never"):
        hal.softmax(hal.asarray(x))
except hal.UnsupportedError as refusal:
    print("refused:", refusal.reason)
