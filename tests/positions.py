"""Positions outside of arrays that may have no elements, for the tests of every backend.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import anyhal as hal
from anyhal.errors import InvalidArgumentError

OUTSIDE = [((4, 0), 9), ((4, 0), -1), ((0, 0), 0), ((0, 3), 0), ((4, 2), 4)]


def positions_outside(device: str, op: str, shape: tuple[int, int], at: int) -> None:
    """Who reads the result learns of the position, and no call after it does."""
    with hal.use(device=device):
        x, indices = hal.zeros(shape), hal.asarray(np.array([at]))
        updates = hal.zeros((1, shape[1]))
        said = re.escape(f"is outside [0, {shape[0]})")
        with pytest.raises(InvalidArgumentError, match=f"index {at} (at .*)?{said}"):
            if op == "take":
                hal.take(x, indices, axis=0).numpy()
            else:
                hal.scatter_add(x, indices, updates, axis=0).numpy()
        assert ((hal.ones((2,)) + 1).numpy() == 2).all()
        assert x.numpy().shape == shape
        if shape[0] > 0:
            assert hal.take(x, hal.asarray(np.array([3])), axis=0).numpy().shape == (1, shape[1])
