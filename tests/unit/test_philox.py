"""The generator against its authors' published answers, and the numbers against their meaning.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anyhal.ops import _philox, random_integers, random_normal, random_uniform

SEED = np.array([10, 0], np.uint64)
# Random123, kat_vectors, philox4x32 with 10 rounds: counter, key, answer.
KNOWN = [
    ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def numbers(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "want"), KNOWN)
def test_published_answers(counter: str, key: str, want: str) -> None:
    first, second = numbers(key)
    assert _philox.block_words(numbers(counter), (first, second)).tolist() == numbers(want)


def test_words_of_a_key_are_those_of_its_blocks() -> None:
    """The all-ones key gives the published block at the end of the count, the zero key at 0."""
    zero = np.zeros(2, np.uint64)
    assert _philox.reference_words(zero, 4).tolist() == numbers(KNOWN[0][2])
    key = np.array([0x1122334455667788, 0xAABBCCDDEEFF0011], np.uint64)
    block = _philox.block_words([5, 0, 0xEEFF0011, 0xAABBCCDD], (0x55667788, 0x11223344))
    assert (_philox.reference_words(key, 24)[20:] == block).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normals_are_box_muller(dtype: str) -> None:
    """Within a few ulp of the formula in long double, and shaped like a normal distribution."""
    f, count = random_normal.formula("f64" if dtype == "float64" else "f32"), 1 << 18
    found = random_normal.reference(SEED, (count,), dtype)
    if dtype == "float64":
        pairs = _philox.reference_long_words(SEED, count).reshape(-1, 2)
        w, v = pairs[:, 0] >> np.uint64(11), pairs[:, 1].astype(np.int64)
    else:
        pairs = _philox.reference_words(SEED, count).reshape(-1, 2)
        w, v = pairs[:, 0], pairs[:, 1].astype(np.int32)
    u = np.maximum(w.astype(f.type), 1).astype(np.longdouble) / np.longdouble(2) ** f.radius_bits
    turn = v.astype(f.type).astype(np.longdouble) / np.longdouble(2) ** (8 * v.itemsize - 1)
    angle = turn * np.longdouble("3.14159265358979323846264338327950288")
    r = np.sqrt(-2 * np.log(u))
    want = np.stack([r * np.cos(angle), r * np.sin(angle)], axis=-1).reshape(-1)
    assert (np.abs(found - want) <= 4 * np.finfo(dtype).eps * np.repeat(r, 2)).all()
    moments = [float((found.astype(np.float64) ** n).mean()) for n in (1, 2, 3, 4)]
    assert np.allclose(moments, [0, 1, 0, 3], atol=0.06)


@pytest.mark.parametrize("bits", [32, 53])
def test_radius_at_every_power_of_two(bits: int) -> None:
    f = random_normal.SHORT if bits == 32 else random_normal.LONG
    ends = [2**e + d for e in range(bits) for d in (-1, 0, 1) if 0 <= 2**e + d]
    x = np.array([*ends, 2**bits - 1], np.uint64)
    u = np.maximum(x.astype(f.type), 1).astype(np.longdouble) / np.longdouble(2) ** bits
    want = np.sqrt(-2 * np.log(u))
    assert (np.abs(random_normal.radius_of(x, f) - want) <= 3 * np.finfo(f.type).eps * want).all()


def test_uniforms_never_reach_one_and_fill_the_range() -> None:
    for dtype, step in (("float32", 24), ("float16", 11), ("bfloat16", 8), ("float64", 53)):
        found: Any = random_uniform.reference(SEED, (5000,), dtype)
        assert found.min() >= 0 and found.max() <= 1 - 2.0**-step
        assert (found * 2.0**step % 1 == 0).all()
        assert abs(found.mean() - 0.5) < 0.02


def test_integers_reach_both_ends_evenly() -> None:
    found = random_integers.reference(SEED, -2, 3, (50000,))
    values, counts = np.unique(found, return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2] and (np.abs(counts - 10000) < 400).all()
