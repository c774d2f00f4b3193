"""Every gradient rule against central differences in f64, on every device; clipping.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from gradient_cases import CASES, Case, normal

import anyhal as hal
from anyhal.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from anyhal.ops import BY_NAME
from anyhal.ops._oracle import random_blocks
from anyhal.training import Tape, clip_grad_norm
from anyhal.training.rules import REFUSED, RULES, STEPS
from device_runs import devices
from device_runs import place as place_dense

STEP = 1e-5


def lives(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.float64) and x.dtype == np.float64


def apply(source: Any, name: str, inputs: list[Any], attrs: dict[str, Any]) -> list[Any]:
    """The op through a tape, or through anyhal itself: its floating outputs."""
    if name in ("concat", "stack"):
        made = getattr(source, name)(inputs, **attrs)
    elif name == "index":
        made = source.index(*inputs) if isinstance(source, Tape) else inputs[0][inputs[1]]
    else:
        made = getattr(source, name)(*inputs, **attrs)
    outputs = made if isinstance(made, tuple | list) else (made,)
    return [out for out in outputs if "float" in out.dtype]


def place(inputs: tuple[Any, ...], device: str) -> list[Any]:
    arrays = (np.ndarray, np.float64)
    return [hal.asarray(x, device=device) if isinstance(x, arrays) else x for x in inputs]


def weights(outputs: list[Any]) -> list[Any]:
    rng = np.random.default_rng(5)
    return [np.asarray(rng.standard_normal(out.shape)) for out in outputs]


def differences(case: Case, device: str) -> list[Any]:
    """d (sum of weight * out over all outputs) / d input by central differences."""
    name, inputs, attrs = case
    found = []
    for i in (i for i, x in enumerate(inputs) if lives(x)):
        slope = np.zeros(inputs[i].shape)
        for at in np.ndindex(inputs[i].shape):
            ends = []
            for step in (STEP, -STEP):
                moved = [np.array(x) if lives(x) else x for x in inputs]
                moved[i][at] += step
                outs = [out.numpy() for out in apply(hal, name, place(tuple(moved), device), attrs)]
                # -inf is what a row without keys has for a log-sum-exp, wherever one stands.
                pairs = zip(weights(outs), outs, strict=True)
                ends.append(sum(float(np.sum(w * np.where(np.isinf(o), 0, o))) for w, o in pairs))
            slope[at] = (ends[0] - ends[1]) / (2 * STEP)
        found.append(slope)
    return found


def gradients(case: Case, device: str) -> list[Any]:
    name, inputs, attrs = case
    arrays = place(inputs, device)
    watched = [a for a, x in zip(arrays, inputs, strict=True) if lives(x)]
    tape = Tape(watched)
    outs = apply(tape, name, arrays, attrs)
    parts = [
        tape.sum(tape.multiply(out, hal.asarray(weight, device=device)))
        for out, weight in zip(outs, weights(outs), strict=True)
    ]
    loss = parts[0]
    for part in parts[1:]:
        loss = tape.add(loss, part)
    return [g.numpy() for g in tape.gradients(loss)]


def functions() -> set[str]:
    """Every public function that is an op or a view of one."""
    named = {name for spec in BY_NAME.values() for name in spec.functions}
    return named | {"einsum", "split", "reshape", "permute_dims", "broadcast_to", "index"}


def test_every_function_has_a_rule_or_a_reason() -> None:
    assert set(RULES) | set(REFUSED) == functions()
    assert not set(RULES) & set(REFUSED)


def test_every_rule_has_a_case() -> None:
    # Of quantised operands there are no central differences in f64; see the tests below.
    assert {name for name, _, _ in CASES} == set(RULES) - {"quant_matmul", "scaled_matmul"}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_has_no_gradient_says_why(name: str) -> None:
    tape = Tape([hal.ones((2,))])
    with pytest.raises(UnsupportedError, match=f"{name} has no gradient, because .*; call anyhal"):
        getattr(tape, name)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_a_rule_meets_central_differences(case: Case) -> None:
    wanted = differences(case, devices()[0])
    for device in devices():
        for got, want in zip(gradients(case, device), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8, err_msg=device)


def emptied(inputs: tuple[Any, ...]) -> Iterator[list[Any]]:
    """The operands with a size of the first 0 there, at that place of all, wherever it stands."""
    first = next(x for x in inputs if lives(x))
    for axis, n in enumerate(first.shape):
        cut = (slice(None),) * axis + (slice(0),)
        yield [x[cut] if x is first else x for x in inputs]
        beside = [isinstance(x, np.ndarray) and x.shape[axis : axis + 1] == (n,) for x in inputs]
        yield [x[cut] if also else x for also, x in zip(beside, inputs, strict=True)]
        arrays = [isinstance(x, np.ndarray) for x in inputs]
        yield [
            x[tuple(slice(0 if m == n else m) for m in x.shape)] if array else x
            for array, x in zip(arrays, inputs, strict=True)
        ]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_what_is_empty_has_a_gradient_of_its_shape(case: Case) -> None:
    name, inputs, attrs = case
    for given in emptied(inputs):
        arrays = place(tuple(given), devices()[0])
        try:
            apply(hal, name, arrays, attrs)
        except hal.HalError:
            continue  # the op itself refuses it
        watched = [a for a, x in zip(arrays, given, strict=True) if lives(x)]
        tape = Tape(watched)
        parts = [tape.sum(out) for out in apply(tape, name, arrays, attrs)]
        loss = parts[0]
        for part in parts[1:]:
            loss = tape.add(loss, part)
        for g, a in zip(tape.gradients(loss), watched, strict=True):
            assert g.shape == a.shape


@pytest.mark.parametrize("name", STEPS)
def test_a_step_has_a_gradient_of_zero(name: str) -> None:
    x = np.array([-1.5, 0.0, 1.0, 2.5])  # on a step, too
    inputs = (x, np.array(1.0)) if name == "floor_divide" else (x,)
    assert all((g == 0).all() for g in gradients((name, inputs, {}), devices()[0]))


FIRST = {case[0]: case for case in reversed(CASES)}


@pytest.mark.parametrize("case", FIRST.values(), ids=FIRST)
def test_gradients_can_be_captured_in_a_graph(case: Case) -> None:
    name, inputs, attrs = case
    arrays = place(inputs, devices()[0])
    watched = [a for a, x in zip(arrays, inputs, strict=True) if lives(x)]

    def step() -> list[Any]:
        tape = Tape(watched)
        out = apply(tape, name, arrays, attrs)[0]
        return tape.gradients(tape.sum(tape.multiply(out, out)))

    with hal.graph() as graph:
        captured = step()
    for a in watched:
        a.set(a.numpy() * 0.75)
    graph.launch()
    for got, want in zip(captured, step(), strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


# What rules compute in a dtype against f64: a dozen roundings in a row, relative to the largest
# gradient. f32 has besides what a norm of nearly equal values loses.
CLOSE = {"float32": 12 * 2.0**-20, "float16": 12 * 2.0**-11, "bfloat16": 12 * 2.0**-8}
# Of steps and orders rounding may change which one it is.
NAMES_ITS_DTYPE = ("astype",)
CHOOSES = (*STEPS, "remainder", "sort", "topk", "max_pool")
IN_DTYPES = [
    pytest.param(case, short, id=f"{case[0]}-{short}")
    for case in CASES
    for short in CLOSE
    if case[0] not in NAMES_ITS_DTYPE and (short == "float32" or case[0] not in CHOOSES)
]


@pytest.mark.parametrize(("case", "short"), IN_DTYPES)
def test_a_rule_keeps_the_dtype(case: Case, short: str) -> None:
    name, inputs, attrs = case
    wanted = gradients(case, devices()[0])
    arrays = [
        hal.astype(a, dtype=short) if lives(x) else a
        for a, x in zip(place(inputs, devices()[0]), inputs, strict=True)
    ]
    watched = [a for a, x in zip(arrays, inputs, strict=True) if lives(x)]
    tape = Tape(watched)
    outs = apply(tape, name, arrays, attrs)
    loss = None
    for out, weight in zip(outs, weights(outs), strict=True):
        part = tape.multiply(out, hal.astype(hal.asarray(weight), dtype=out.dtype))
        part = tape.sum(tape.astype(part, dtype="float32"))
        loss = part if loss is None else tape.add(loss, part)
    for found, x, want in zip(tape.gradients(loss), watched, wanted, strict=True):
        assert found.dtype == short and found.shape == x.shape
        got = hal.astype(found, dtype="float64").numpy()
        size = np.abs(want).max(initial=1.0)
        np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE[short] * size)


@pytest.mark.parametrize("device", devices())
def test_the_weights_of_a_quantised_product_are_constant(device: str) -> None:
    rng = np.random.default_rng(2)
    blocks = random_blocks(rng, "q8_0", (4, 64))
    w = place_dense(blocks, "dense", device)
    dense = hal.astype(w, dtype="float32")
    x, bias = (
        hal.asarray(rng.standard_normal(s).astype(np.float32), device=device)
        for s in ((3, 64), (4,))
    )
    tape = Tape([x, bias])
    found = tape.gradients(tape.sum(tape.quant_matmul(x, w, bias, activation="silu", scale=0.1)))
    plain = Tape([x, bias])
    y = plain.matmul_epilogue(x, dense.mT, bias, activation="silu", scale=0.1)
    for got, want in zip(found, plain.gradients(plain.sum(y)), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("device", devices())
def test_scales_of_a_product_of_codes(device: str, per_row: bool) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(-9, 9, (3, 4)).astype(np.int8), rng.integers(-9, 9, (4, 2)).astype(np.int8)
    zero = np.array(2, np.int8)
    left, right = (rng.uniform(0.5, 2, n if per_row else ()).astype(np.float32) for n in (3, 2))
    bias = rng.standard_normal(2).astype(np.float32)
    arrays = [hal.asarray(x, device=device) for x in (a, b, left, right, zero, bias)]
    tape = Tape([arrays[2], arrays[3], arrays[5]])
    out = tape.scaled_matmul(*arrays[:5], None, arrays[5], dtype="float32")
    weight = rng.standard_normal((3, 2)).astype(np.float32)
    loss = tape.sum(tape.multiply(out, hal.asarray(weight, device=device)))
    codes = (a.astype(float) - 2) @ b.astype(float) * weight
    wanted = (codes * right, codes * left.reshape(-1, 1), weight)
    axes = (1, 0) if per_row else (None, None)
    for got, want, axis in zip(tape.gradients(loss), wanted, (*axes, 0), strict=True):
        np.testing.assert_allclose(got.numpy(), want.sum(axis=axis), rtol=1e-5, atol=1e-5)


def test_statistics_from_the_batch_have_their_gradient_through_the_tape() -> None:
    """batch_norm as it trains: mean and variance are calls of their own."""
    x, weight = normal(4, 3, 2), normal(3)
    scale = normal(4, 3, 2)

    def loss(source: Any, a: Any, w: Any) -> Any:
        mean = source.mean(a, axis=(0, 2), keepdims=True)
        away = source.subtract(a, mean)
        variance = source.mean(source.square(away), axis=(0, 2))
        y = source.batch_norm(a, source.reshape(mean, (3,)), variance, w, eps=1e-3)
        return source.sum(source.multiply(y, hal.asarray(scale)))

    arrays = [hal.asarray(x), hal.asarray(weight)]
    tape = Tape(arrays)
    dx, _ = (g.numpy() for g in tape.gradients(loss(tape, *arrays)))
    for at in np.ndindex(x.shape):
        ends = []
        for step in (STEP, -STEP):
            moved = x.copy()
            moved[at] += step
            ends.append(loss(hal, hal.asarray(moved), arrays[1]).item())
        assert dx[at] == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-5, abs=1e-8)


def shared(name: str, inputs: tuple[Any, ...], **attrs: Any) -> list[Any]:
    arrays = [hal.asarray(x) for x in inputs]
    watched = [a for a in arrays if "float" in a.dtype]
    tape = Tape(watched)
    made = apply(tape, name, arrays, attrs)[0]
    return [g.numpy().tolist() for g in tape.gradients(tape.sum(made))]


def test_equal_values_share_a_gradient_or_the_first_one_has_it() -> None:
    row = np.array([1.0, 3.0, 3.0])
    assert shared("max", (row,)) == [[0, 0.5, 0.5]]
    assert shared("topk", (row,), k=1, largest=True) == [[0, 1, 0]]
    assert shared("max_pool", (row.reshape(1, 1, 3),), kernel=(3,), strides=(1,)) == [
        [[[0, 0.5, 0.5]]]
    ]
    places, updates = np.array([1, 1, 0]), np.array([3.0, 2.0, 0.0])
    found = shared("scatter", (row, places, updates), axis=0, reduction="max")
    assert found == [[1, 0.5, 1], [0.5, 0, 0]]
    # Of equal indices the last one stays.
    found = shared("scatter", (row, places, updates), axis=0, reduction="none")
    assert found == [[0, 0, 1], [0, 1, 1]]
    assert shared("hypot", (np.zeros(1), np.zeros(1))) == [[0], [0]]
    low = np.array([-np.inf])
    assert shared("logaddexp", (low, low)) == [[0.5], [0.5]]


def test_gradients_add_up_where_an_array_is_used_twice() -> None:
    x = hal.asarray(np.array([2.0, 3.0]))
    unused = hal.asarray(np.ones((2, 2), np.float32))
    tape = Tape([x, unused])
    y = tape.multiply(x, x)
    loss = tape.sum(tape.add(tape.multiply(y, x), y))
    dx, nothing = tape.gradients(loss)
    assert dx.numpy().tolist() == [3 * 4 + 4, 3 * 9 + 6]
    assert nothing.numpy().tolist() == [[0, 0], [0, 0]]


def test_the_larger_of_two_equal_values_shares_its_gradient() -> None:
    a, b = hal.asarray(np.array([1.0, 2.0])), hal.asarray(np.array([1.0, 1.0]))
    tape = Tape([a, b])
    da, db = tape.gradients(tape.sum(tape.maximum(a, b)))
    assert da.numpy().tolist() == [0.5, 1.0] and db.numpy().tolist() == [0.5, 0.0]


def test_what_a_tape_refuses() -> None:
    x = hal.asarray(np.ones(3, np.float32))
    tape = Tape([x])
    with pytest.raises(NotFoundError, match="did you mean 'matmul'"):
        tape.matmull(x, x)
    with pytest.raises(InvalidArgumentError, match="only one number"):
        tape.gradients(tape.add(x, x))


@pytest.mark.parametrize("short", ["float32", "float64", "float16"])
@pytest.mark.parametrize("device", devices())
def test_clip_grad_norm(device: str, short: str) -> None:
    make: Callable[[Any], Any] = lambda x: hal.asarray(np.asarray(x, short), device=device)  # noqa: E731
    grads = [make([3.0, 0.0]), make([[4.0], [12.0]])]
    assert clip_grad_norm(grads, 20.0).item() == 13
    assert grads[1].numpy().tolist() == [[4.0], [12.0]]
    assert clip_grad_norm(grads, 6.5).item() == 13
    assert grads[0].numpy().tolist() == [1.5, 0.0] and grads[1].numpy().tolist() == [[2.0], [6.0]]
    grads.append(make([np.nan]))
    assert np.isnan(clip_grad_norm(grads, 1.0).item()) and np.isnan(grads[0].numpy()).all()
    with pytest.raises(InvalidArgumentError, match="above 0"):
        clip_grad_norm([], 1.0)
