"""A product on one device, attention on another; and arrays that wander over all of them.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from everywhere import COUNT, DEVICES, SEED, attention, random_values

import anyhal as hal

pytestmark = pytest.mark.foreign

HEADS, ROWS, DEPTH = 2, 6, 8
SCALE = 0.35
LENGTH = 96


def copied(source: str, target: str) -> tuple[int, int]:
    for row in hal.copies():
        if (row["source"], row["target"]) == (source, target):
            return row["count"], row["bytes"]
    return 0, 0


@pytest.mark.parametrize(
    "pair", list(permutations(DEVICES, 2)), ids=lambda pair: f"{pair[0]}-{pair[1]}"
)
def test_a_product_on_one_and_attention_on_the_other(
    pair: tuple[str, str], needs: Callable[..., None]
) -> None:
    first, second = pair
    needs(first, second)
    rng = np.random.default_rng(SEED)
    x, w = random_values(rng, HEADS * ROWS, DEPTH), random_values(rng, DEPTH, DEPTH)
    k, v = random_values(rng, 1, HEADS, ROWS, DEPTH), random_values(rng, 1, HEADS, ROWS, DEPTH)
    q = hal.matmul(hal.asarray(x, device=first), hal.asarray(w, device=first))
    q = q.reshape((1, HEADS, ROWS, DEPTH))
    there = [hal.asarray(a, device=second) for a in (k, v)]
    with pytest.raises(hal.InvalidArgumentError, match=f"{first} and {second}"):
        hal.attention(q, *there, scale=SCALE, causal="none")
    before = copied(first, second)
    with hal.use(device=second, fallback="any"):
        result = hal.attention(q, *there, scale=SCALE, causal="none")
    after = copied(first, second)
    assert (result.device.name, after[0] - before[0]) == (second, 1)
    assert after[1] - before[1] == x.nbytes
    wanted = attention((x.astype(np.float64) @ w).reshape(q.shape), k, v, SCALE)
    np.testing.assert_allclose(result.numpy(), wanted, rtol=2e-5, atol=2e-5)


def test_the_copies_are_shown_before_the_call(needs: Callable[..., None]) -> None:
    needs("opencl:0", "pjrt:0")
    text = "attention f32[1,2,6,8]@opencl:0 f32[1,2,6,8]@pjrt:0 f32[1,2,6,8]@pjrt:0"
    with hal.use(device="pjrt:0", fallback="any"):
        decision = hal.explain(f"{text} scale={SCALE} causal=none")
    assert decision.choice == "pjrt:0"
    assert [(c.operand, c.source, c.target) for c in decision.copies] == [(0, "opencl:0", "pjrt:0")]


class Wanderer:
    """Arrays on any device, changed on the queue and by the device that are drawn; each value is
    known."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.values = [float(self.random.randrange(4)) for _ in range(3)]
        self.arrays = [
            hal.asarray(np.full(LENGTH, v, np.float32), device=self.place()) for v in self.values
        ]

    def place(self) -> str:
        return self.random.choice(list(DEVICES))

    def step(self) -> None:
        i, j = self.random.randrange(3), self.random.randrange(3)
        a, b = self.arrays[i], self.arrays[j]
        where = self.random.choice([a.device.name, b.device.name, self.place()])
        with hal.use(device=where, fallback="any"):
            if self.random.random() < 0.5:
                self.arrays[i] = hal.add(a, b)
                self.values[i] += self.values[j]
            elif self.random.random() < 0.5:
                hal.add(a, b, out=a)
                self.values[i] += self.values[j]
            elif self.random.random() < 0.5:
                self.arrays[i] = hal.asarray(a, device=where)
            else:
                self.arrays[i] = hal.minimum(a, 64.0)
                self.values[i] = min(self.values[i], 64.0)

    def run(self) -> None:
        for _ in range(self.random.randrange(4, 14)):
            self.step()
        for value, array in zip(self.values, self.arrays, strict=True):
            assert (array.numpy() == value).all(), f"{array} instead of {value}"


@pytest.mark.parametrize("part", range(10))
def test_arrays_that_wander_over_all_devices(part: int, needs: Callable[..., None]) -> None:
    needs(*DEVICES)
    for i in range(part, COUNT, 10):
        Wanderer(SEED * 100_003 + i).run()
