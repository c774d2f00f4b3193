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


def test_a_sum_with_a_residual_has_a_gradient_and_adds_up() -> None:
    x, w, r = made(2, 4), made(4), made(2, 4)
    tape = Tape([x, w, r])
    y, total = tape.rms_norm(x, w, r, eps=1e-5)
    dx, _, dr = tape.gradients(tape.sum(tape.add(tape.multiply(y, 0.0), total)))
    assert (dx.numpy() == 1).all() and (dr.numpy() == 1).all()


def test_an_output_of_whole_numbers_is_a_constant() -> None:
    x = made(3, 4)
    tape = Tape([x])
    values, indices = tape.topk(x, k=2, largest=True)
    picked = tape.take_along_axis(x, indices, axis=-1)
    (dx,) = tape.gradients(tape.sum(tape.add(values, picked)))
    assert sorted(set(dx.numpy().ravel().tolist())) == [0, 2]
    tape = Tape([x])
    codes = tape.astype(x, dtype="int32")
    with pytest.raises(hal.InvalidArgumentError, match="does not come from a watched"):
        tape.gradients(hal.astype(hal.sum(codes), dtype="float32"))


def test_an_operand_without_a_rule_is_refused_and_not_zero() -> None:
    factors = hal.ones((2,))
    tape = Tape([factors])
    x, positions = made(3, 4), hal.asarray([0, 1, 2])
    turned = tape.rope(x, positions, factors, pairing="half_split", base=10.0, rotary_dims=4)
    with pytest.raises(hal.UnsupportedError, match="rope has no gradient for its operand freq_fac"):
        tape.gradients(tape.sum(turned))


def test_out_is_refused() -> None:
    a, b = made(3), made(3)
    tape = Tape([a])
    with pytest.raises(hal.InvalidArgumentError, match="out is given by name"):
        tape.add(a, b, out=a)


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


def test_what_shares_memory_is_not_clipped_twice() -> None:
    a, b = made(6), made(3)
    before = a.numpy().copy()
    for grads in ([a, b, a], [a, a[1:3]], [b, a[:4], a[3:]]):
        with pytest.raises(hal.InvalidArgumentError, match="share memory"):
            clip_grad_norm(grads, 0.1)
    np.testing.assert_array_equal(a.numpy(), before)
    clip_grad_norm([a[:3], a[3:]], 0.1)
    assert np.linalg.norm(a.numpy()) == pytest.approx(0.1, rel=1e-5)


@pytest.mark.parametrize(("short", "uses"), [("float16", 4000), ("bfloat16", 400)])
def test_gradients_of_short_floats_are_added_in_f32(short: str, uses: int) -> None:
    """At half that many, adding 1 in the dtype itself changes nothing any more."""
    p = hal.astype(hal.ones((2,)), dtype=short)
    for inner in (False, True):  # what is used often need not be what is watched
        tape = Tape([p])
        y = tape.multiply(p, 1.0) if inner else p
        total = tape.multiply(y, 1.0)
        for _ in range(1, uses):
            total = tape.add(total, tape.multiply(y, 1.0))
        (g,) = tape.gradients(tape.sum(total))
        assert g.dtype == short and g.astype("float32").numpy().tolist() == [float(uses)] * 2


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
        lambda t: Tape([hal.asarray([1, 2])]),
        lambda t: t.argmax(hal.ones((2,)), axis=0),
        lambda t: t.gradients(3.0),
        lambda t: clip_grad_norm([hal.ones((2,))], "a"),
        lambda t: clip_grad_norm([3], 1),
        lambda t: clip_grad_norm([hal.asarray([3, 4])], 1.0),
    ],
)
def test_wrong_kinds_are_typed(call: Any) -> None:
    with pytest.raises(hal.HalError, match="; "):
        call(Tape([hal.ones((2,))]))


def test_gradients_twice_says_that_the_tape_is_used_up() -> None:
    w = hal.ones((2,))
    tape = Tape([w])
    loss = tape.sum(w)
    tape.gradients(loss)
    with pytest.raises(hal.InvalidArgumentError, match=r"called already.*make a new Tape"):
        tape.gradients(loss)
