"""Every gradient rule against central differences in f64, on every device; clipping.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.errors import InvalidArgumentError, NotFoundError
from anyhal.training import Tape, clip_grad_norm
from anyhal.training.rules import RULES
from device_runs import devices

RNG = np.random.default_rng(3)
STEP = 1e-5


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def positive(*shape: int) -> Any:
    return RNG.uniform(0.5, 2.0, shape)


IDS = np.array([[2, 0, 2], [1, 1, 4]])
MASK = RNG.integers(0, 2, (4, 3)).astype(bool)
ROPE = {"pairing": "half_split", "base": 100.0, "rotary_dims": 4}
SEEN = {"scale": 0.5, "causal": "last_key"}
Case = tuple[str, tuple[Any, ...], dict[str, Any]]
# Rule, inputs (floats are differentiated), attributes.
CASES: list[Case] = [
    *((n, (normal(4, 3),), {}) for n in ("negative", "abs", "exp", "expm1", "sin", "cos", "tanh")),
    *((n, (normal(4, 3),), {}) for n in ("erf", "sigmoid", "relu", "silu", "gelu", "gelu_tanh")),
    *((n, (positive(4, 3),), {}) for n in ("log", "log1p", "sqrt", "rsqrt", "reciprocal")),
    *((n, (normal(4, 3), normal(3)), {}) for n in ("add", "subtract", "multiply")),
    *((n, (normal(2, 4, 1), normal(3)), {}) for n in ("maximum", "minimum", "multiply")),
    ("divide", (normal(4, 1), positive(3)), {}),
    ("divide", (normal(4, 1), 3.0), {}),
    ("pow", (positive(4, 3), normal(3)), {}),
    ("pow", (normal(4, 3), 3.0), {}),
    ("where", (MASK, normal(4, 3), normal(3)), {}),
    *((n, (normal(4, 3),), {}) for n in ("sum", "mean", "max", "min", "prod")),
    *((n, (normal(4, 3, 2),), {"axis": (0, -1)}) for n in ("sum", "mean", "max", "min", "prod")),
    ("prod", (np.array([[0.0, 2, 3], [0, 0, 1], [1, 2, 3]]),), {"axis": 1, "keepdims": True}),
    ("matmul", (normal(2, 3, 4), normal(4, 5)), {}),
    ("matmul", (normal(3, 4), normal(2, 4, 5)), {}),
    ("take", (normal(4, 5), IDS), {"axis": 1}),
    ("scatter_add", (normal(5, 4), IDS, normal(2, 3, 4)), {"axis": 0}),
    ("embedding", (normal(5, 4), IDS), {}),
    ("softmax", (normal(4, 3),), {"axis": 0}),
    ("log_softmax", (normal(4, 3),), {"axis": 0}),
    ("logsumexp", (normal(4, 3),), {"axis": 1}),
    ("cross_entropy", (normal(2, 3, 5), IDS), {"reduction": "mean", "label_smoothing": 0.1}),
    ("cross_entropy", (normal(2, 3, 5), IDS), {"reduction": "none", "ignore_index": 1}),
    ("cross_entropy", (normal(2, 3, 5), IDS), {"reduction": "sum", "return_lse": True}),
    ("rms_norm", (normal(4, 3), normal(3)), {"eps": 1e-3}),
    ("rms_norm", (normal(4, 3),), {"eps": 1e-3}),
    ("layer_norm", (normal(4, 3), normal(3), normal(3)), {"eps": 1e-3}),
    ("layer_norm", (normal(4, 3),), {"eps": 1e-3}),
    ("attention", (normal(2, 4, 3, 5), normal(2, 2, 6, 5), normal(2, 2, 6, 4)), SEEN),
    ("rope", (normal(2, 3, 6), np.array([0, 3, 9])), ROPE),
    ("conv", (normal(2, 4, 5), normal(2, 2, 3), normal(2)), {"groups": 2, "pads": (1, 0)}),
    ("conv", (normal(1, 2, 4, 3), normal(3, 2, 2, 2)), {"strides": (2, 1)}),
    ("astype", (normal(4, 3),), {"dtype": "float64"}),
    ("copy", (normal(4, 3),), {}),
    ("reshape", (normal(4, 3), (2, 6)), {}),
    ("permute_dims", (normal(4, 3, 2), (2, 0, 1)), {}),
    ("broadcast_to", (normal(4, 1), (2, 4, 3)), {}),
    ("index", (normal(4, 3), (slice(1, 3), 2)), {}),
    ("concat", (normal(4, 3), normal(4, 2)), {"axis": -1}),
]


def lives(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == np.float64


def apply(source: Any, name: str, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """The op through a tape, or through anyhal itself."""
    if name == "concat":
        return source.concat(inputs, **attrs)
    if name == "index":
        return source.index(*inputs) if isinstance(source, Tape) else inputs[0][inputs[1]]
    made = getattr(source, name)(*inputs, **attrs)
    return made[0] if isinstance(made, tuple) else made


def place(inputs: tuple[Any, ...], device: str) -> list[Any]:
    return [hal.asarray(x, device=device) if isinstance(x, np.ndarray) else x for x in inputs]


def differences(case: Case, weight: Any, device: str) -> list[Any]:
    """d sum(weight * out) / d input by central differences, for each float input."""
    name, inputs, attrs = case
    found = []
    for i in (i for i, x in enumerate(inputs) if lives(x)):
        slope = np.zeros(inputs[i].shape)
        for at in np.ndindex(inputs[i].shape):
            ends = []
            for step in (STEP, -STEP):
                moved = [x.copy() if lives(x) else x for x in inputs]
                moved[i][at] += step
                out = apply(hal, name, place(tuple(moved), device), attrs)
                ends.append(float(np.sum(weight * out.numpy())))
            slope[at] = (ends[0] - ends[1]) / (2 * STEP)
        found.append(slope)
    return found


def test_every_rule_has_a_case() -> None:
    assert {name for name, _, _ in CASES} == set(RULES)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_a_rule_meets_central_differences(case: Case) -> None:
    name, inputs, attrs = case
    if name != "index" and not hasattr(hal, name):
        pytest.skip(f"this registry has no {name}")
    for device in devices():
        arrays = place(inputs, device)
        watched = [a for a, x in zip(arrays, inputs, strict=True) if lives(x)]
        tape = Tape(watched)
        out = apply(tape, name, arrays, attrs)
        weight = np.asarray(np.random.default_rng(5).standard_normal(out.shape))
        loss = tape.sum(tape.multiply(out, hal.asarray(weight, device=device)))
        found = [g.numpy() for g in tape.gradients(loss)]
        if device == devices()[0]:
            wanted = differences(case, weight, device)
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8, err_msg=device)


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
