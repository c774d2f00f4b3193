"""Values that only the device sees: refused alike by every device, fused and decomposed.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import numpy as np
import pytest

import anyhal as hal
from anyhal.errors import InvalidArgumentError
from device_runs import devices, run


@pytest.mark.parametrize("mode", ["chosen", "decomposed"])
@pytest.mark.parametrize("length", [6, -1, 2**31])
@pytest.mark.parametrize("queries", [1, 3, 40])
@pytest.mark.parametrize("device", devices())
def test_a_length_that_is_no_number_of_keys(
    device: str, queries: int, length: int, mode: str
) -> None:
    rng = np.random.default_rng(0)
    q = rng.standard_normal((2, 2, queries, 8)).astype(np.float32)
    k, v = rng.standard_normal((2, 2, 1, 5, 8)).astype(np.float32)
    for bad in (np.array(length), np.array([3, length])):
        with pytest.raises(InvalidArgumentError):
            run("attention", q, k, v, bad, device=device, mode=mode, scale=0.3, causal="none")
            hal.synchronize()
    right = np.array([5, 0])
    out = run("attention", q, k, v, right, device=device, mode=mode, scale=0.3, causal="none")
    assert np.isfinite(out).all() and (out[1] == 0).all()  # the device stays usable
