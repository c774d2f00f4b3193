"""The devices that one machine can show at once, and what is known of each.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os

import numpy as np

# name -> how a recording runs there: as one program, as the driver's graph, or call by call
DEVICES = {
    "cpu:0": "replayed",
    "cpu_ref:0": "replayed",
    "dayone:0": "replayed",
    "opencl:0": "replayed",
    "opencl:1": "replayed",
    "pjrt:0": "compiled",
    "pjrt:1": "compiled",
    "cuda:0": "recorded",
}
SEED = int(os.environ.get("FOREIGN_SEED", "1"))
COUNT = int(os.environ.get("FOREIGN_COUNT", "100"))


def random_values(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    """In float64."""
    scores = scale * np.einsum("bhtd,bhsd->bhts", q.astype(np.float64), k.astype(np.float64))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64))
