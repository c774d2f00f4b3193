"""Keys of random numbers, given as lists: u64 whatever their size, on every device.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.ops import _philox

DEVICES = ("cpu", "cpu_ref", "dayone")
KEYS = [(0, 0), (7, 1), (2**63 - 1, 2**63), (2**63, 5), (2**64 - 1, 2**64 - 1), (1, 2**32)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("form", [tuple, list, lambda k: tuple(map(np.uint64, k))])
def test_a_list_is_the_key_that_it_says(device: str, key: tuple[int, int], form: Any) -> None:
    want = _philox.reference_long_words(np.array(key, np.uint64), 5)
    with hal.use(device=device):
        found = hal.random_integers(form(key), low=0, high=2**64, shape=(5,), dtype="uint64")
    np.testing.assert_array_equal(found.numpy(), want)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("key", [(-1, 2), (2, -(2**63)), (2**64, 0), [2**63, -1]], ids=str)
def test_a_key_outside_u64_is_refused(device: str, key: Any) -> None:
    with hal.use(device=device):
        for draw in (hal.random_uniform, hal.random_normal):
            with pytest.raises(
                hal.InvalidArgumentError, match="operand key: -?[0-9]+ does not fit"
            ):
                draw(key, shape=(2,))
        with pytest.raises(hal.InvalidArgumentError, match="operand key: -?[0-9]+ does not fit"):
            hal.dropout(hal.ones((2,)), key, p=0.5)


@pytest.mark.parametrize("key", [(1.0, 2), (True, 2), np.array([1, 2])], ids=str)
def test_a_key_of_another_kind_is_not_guessed(key: Any) -> None:
    with pytest.raises(hal.UnsupportedError, match="one of u64"):
        hal.random_uniform(key, shape=(2,))


def test_integers_that_no_dtype_holds_together_are_not_rounded() -> None:
    for want in (None, "int64", "uint64"):
        with pytest.raises(hal.InvalidArgumentError, match="no integer dtype holds"):
            hal.asarray([2**63, -1], dtype=want)
    assert hal.asarray([2**63, -1], dtype="float64").numpy().tolist() == [2.0**63, -1.0]
    assert hal.asarray([2**64 - 1, 0]).dtype == "uint64"
    assert hal.asarray([1e300, -1.0], dtype="float64").numpy().max() == 1e300
