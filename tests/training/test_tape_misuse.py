"""What a tape must not get wrong in silence.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.training import Tape, clip_grad_norm

RNG = np.random.default_rng(4)


def made(*shape: int) -> hal.Array:
    return hal.asarray(RNG.standard_normal(shape).astype(np.float32))


def test_operands_by_name_have_the_gradients_of_those_by_place() -> None:
    x, w, b = made(3, 4), made(4), made(4)
    found = []
    for by_name in (False, True):
        tape = Tape([x, w, b])
        if by_name:
            y = tape.layer_norm(x, weight=w, bias=b, eps=1e-5)
        else:
            y = tape.layer_norm(x, w, b, eps=1e-5)
        found.append([g.numpy() for g in tape.gradients(tape.sum(tape.multiply(y, y)))])
    for place, name in zip(*found, strict=True):
        assert np.abs(place).max() > 0
        np.testing.assert_array_equal(place, name)


def test_required_operands_by_name_count_too() -> None:
    a, b = made(2, 3), made(3, 2)
    tape = Tape([a, b])
    try:
        product = tape.matmul(a, b=b)
    except hal.InvalidArgumentError:
        return  # positional only: refused, never half a gradient
    da, db = tape.gradients(tape.sum(product))
    assert np.abs(da.numpy()).max() > 0 and np.abs(db.numpy()).max() > 0


def test_a_list_that_can_be_read_once_is_read_once() -> None:
    x = made(2, 2)
    tape = Tape([x])
    (dx,) = tape.gradients(tape.sum(tape.concat(a for a in [x, x])))
    assert (dx.numpy() == 2).all()


def test_what_was_not_recorded_is_no_loss() -> None:
    p = made(2, 2)
    tape = Tape([p])
    with pytest.raises(hal.InvalidArgumentError, match="tape.multiply"):
        tape.gradients(tape.sum(p * p))


def test_a_further_output_is_refused_and_not_zero() -> None:
    x, w, r = made(2, 4), made(4), made(2, 4)
    tape = Tape([x, w, r])
    y, total = tape.rms_norm(x, w, r, eps=1e-5)
    with pytest.raises(hal.UnsupportedError, match="further output of rms_norm"):
        tape.add(y, total)


def test_gradients_share_no_memory_and_can_be_clipped() -> None:
    a, b = made(3), made(3)
    tape = Tape([a, b])
    s = tape.add(a, b)
    grads = tape.gradients(tape.sum(tape.multiply(s, s)))
    before = np.linalg.norm(np.concatenate([g.numpy() for g in grads]))
    assert clip_grad_norm(grads, 0.5).item() == pytest.approx(before, rel=1e-5)
    after = np.linalg.norm(np.concatenate([g.numpy() for g in grads]))
    assert after == pytest.approx(0.5, rel=1e-5)
    tape = Tape([a])
    flat = tape.gradients(tape.sum(a))  # a broadcast of one number inside
    clip_grad_norm(flat, 1.0)
    assert np.linalg.norm(flat[0].numpy()) == pytest.approx(1, rel=1e-5)


def test_both_forms_of_permute_dims() -> None:
    y = made(2, 3)
    tape = Tape([y])
    (dy,) = tape.gradients(tape.sum(tape.permute_dims(y, 1, 0)))
    assert dy.shape == (2, 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: Tape(None),
        lambda t: Tape([None]),
        lambda t: t.gradients(3.0),
        lambda t: clip_grad_norm([hal.ones((2,))], "a"),
        lambda t: clip_grad_norm([3], 1),
        lambda t: clip_grad_norm([hal.asarray([3, 4])], 1.0),
    ],
)
def test_wrong_kinds_are_typed(call: Any) -> None:
    with pytest.raises(hal.HalError, match="; "):
        call(Tape([hal.ones((2,))]))
