"""Trains a small perceptron to tell which of three spirals a point lies on.
SPDX-License-Identifier: Apache-2.0
"""

from typing import Any

import ctrl_c  # noqa: F401 (before what takes long to import)
import numpy as np
import training_run

import anyhal as hal
from anyhal.training import Tape

ARMS, HIDDEN, BATCH = 3, 32, 64


def spirals(step: int) -> tuple[Any, Any]:
    """A batch of points and the arm that each is on."""
    rng = training_run.random(1, step)
    arm = rng.integers(0, ARMS, BATCH)
    way = rng.uniform(0.1, 1.0, BATCH)
    angle = 2 * np.pi * (way + arm / ARMS) + 0.1 * rng.standard_normal(BATCH)
    points = way[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points.astype(np.float32), arm


def initial() -> dict[str, Any]:
    rng, found = training_run.random(0), {}
    for i, (rows, columns) in enumerate(((2, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, ARMS))):
        weight = rng.standard_normal((rows, columns)) * np.sqrt(2 / rows)
        found[f"weight{i}"] = weight.astype(np.float32)
        found[f"bias{i}"] = np.zeros(columns, np.float32)
    return found


def loss(device: hal.Device) -> training_run.Loss:
    def compute(tape: Tape, p: training_run.Parameters, step: int) -> hal.Array:
        points, arms = spirals(step)
        x = hal.asarray(points, device=device)
        for i in range(3):
            x = tape.add(tape.matmul(x, p[f"weight{i}"]), p[f"bias{i}"])
            x = tape.gelu(x) if i < 2 else x
        return tape.cross_entropy(x, hal.asarray(arms, device=device), reduction="mean")

    return compute


if __name__ == "__main__":
    training_run.run(training_run.options(__doc__, 300), initial, loss, rate=0.02)
