"""Records a small step once and replays it with new inputs: no plan, no allocation per launch.
SPDX-License-Identifier: Apache-2.0
"""

import numpy as np

import anyhal as hal

device = hal.select_backend("cpu")
weight = hal.asarray(np.eye(8, dtype=np.float32) * 2, constant=True)
state = hal.zeros((1, 8), dtype="float32")

with hal.graph() as step:
    out = hal.add(hal.matmul(state, weight), 1.0)

state.set(np.zeros((1, 8), np.float32))
step.launch()
before = hal.counters(device)
value = np.zeros((1, 8), np.float32)
for _ in range(5):
    state.set(value)
    step.launch()
    value = out.numpy()
after = hal.counters(device)
print("after five steps:", value[0, 0])
print("plans prepared meanwhile:", after["plans_prepared"] - before["plans_prepared"])
print("driver allocations meanwhile:", after["driver_allocs"] - before["driver_allocs"])
