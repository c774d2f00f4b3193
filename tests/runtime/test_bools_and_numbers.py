"""A bool is no number, a number no dtype, and a number that does not fit is refused.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal import training
from anyhal.dtypes import ALL

BOOLS = [True, False, np.True_]


@pytest.fixture(autouse=True)
def no_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "x[b]": lambda x, b: x[b],
    "x[:, b]": lambda x, b: x[:, b],
    "x[b:]": lambda x, b: x[b:],
    "x[:b]": lambda x, b: x[:b],
    "x[::b]": lambda x, b: x[::b],
    "x[b].set": lambda x, b: x[b].set(1.0),
    "tape.index": lambda x, b: training.Tape([x]).index(x, b),
    "reshape": lambda x, b: x.reshape(6, b),
    "reshape to a tuple": lambda x, b: hal.reshape(x, (6, b)),
    "permute_dims": lambda x, b: hal.permute_dims(x, b, 0),
    "transpose": lambda x, b: x.transpose((b, 0)),
    "broadcast_to": lambda x, b: hal.broadcast_to(x, (b, 2, 3)),
    "empty": lambda x, b: hal.empty((b,)),
    "zeros": lambda x, b: hal.zeros(b),
    "full": lambda x, b: hal.full((2, b), 1.0),
    "frombuffer": lambda x, b: hal.frombuffer(b"1234", "f32", (b,)),
    "arange": lambda x, b: hal.arange(b),
    "arange from": lambda x, b: hal.arange(b, 4),
    "arange by": lambda x, b: hal.arange(0, 4, b),
    "split": lambda x, b: hal.split(x, b),
    "split at": lambda x, b: hal.split(x, [b]),
    "split along": lambda x, b: hal.split(x, 1, axis=b),
    "wait": lambda x, b: hal.Queue("cpu_ref:0").wait(b),
    "clip_grad_norm": lambda x, b: training.clip_grad_norm([x], b),
}


@pytest.mark.parametrize("b", BOOLS, ids=repr)
@pytest.mark.parametrize("place", PLACES)
def test_a_bool_is_no_index_no_axis_and_no_size(place: str, b: Any) -> None:
    with pytest.raises(hal.InvalidArgumentError):
        PLACES[place](hal.ones((2, 3)), b)


@pytest.mark.parametrize("b", [np.array(True), "array"], ids=["0-d ndarray", "0-d array"])
def test_an_array_of_one_bool_is_no_index(b: Any) -> None:
    x = hal.ones((2, 3))
    b = hal.asarray(True) if isinstance(b, str) else b
    for key in (b, (slice(None), b), slice(b, None)):
        with pytest.raises(hal.InvalidArgumentError):
            x[key]
    assert x[hal.asarray(1)].shape == (3,) and x[np.int8(1)].shape == (3,)


@pytest.mark.parametrize("short", [d.short for d in ALL if not d.is_block])
def test_a_bool_goes_with_bools_only(short: str) -> None:
    x = hal.ones((2,), dtype=short)
    if short == "bool":
        assert hal.bitwise_and(x, True).numpy().all()
        return
    for b in BOOLS:
        for call in (lambda: hal.add(x, b), lambda: hal.add(b, x), lambda: x * b):  # noqa: B023
            with pytest.raises(hal.HalError):
                call()


def test_a_bool_is_no_operand_of_a_step() -> None:
    def step(lr: Any) -> Any:
        p, g, m, v = (hal.ones((3,)) for _ in range(4))
        rates = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.0}
        return hal.adamw_step(p, m, v, g, lr, 1, **rates)

    step(0.1)
    for b in BOOLS:
        with pytest.raises(hal.HalError):
            step(b)


TOO_LARGE = [
    *[("f32", x) for x in (1e300, -1e39, 10**39, np.float64(1e300))],
    *[("f16", x) for x in (65520.0, -1e300, 100_000)],
    *[("bf16", x) for x in (1e39, 10**39)],
    *[("i8", x) for x in (128, -129)],
]


@pytest.mark.parametrize(("short", "number"), TOO_LARGE)
def test_a_number_that_does_not_fit_is_refused(short: str, number: Any) -> None:
    x = hal.ones((2,), dtype=short)
    for call in (lambda: hal.add(x, number), lambda: number - x, lambda: hal.equal(x, number)):
        with pytest.raises(hal.InvalidArgumentError, match="does not fit"):
            call()


def test_a_number_that_an_array_is_made_of_fits_too() -> None:
    x = hal.ones((2,), dtype="f16")
    for call in (
        lambda: hal.full((2,), 1e300),
        lambda: hal.full((2,), 100_000, dtype="f16"),
        lambda: hal.asarray([[0.0, -1e39]]),
        lambda: hal.asarray(10**39, dtype="bf16"),
        lambda: x.set(65520),
    ):
        with pytest.raises(hal.InvalidArgumentError, match="does not fit"):
            call()
    assert hal.asarray([1e300, float("inf")], dtype="f64").numpy()[0] == 1e300
    assert np.isinf(hal.asarray([float("inf")]).numpy()[0])
    # What NumPy holds already is converted, as astype does it.
    assert np.isinf(hal.asarray(np.array([1e300]), dtype="f32").numpy()[0])


@pytest.mark.parametrize("short", ["f64", "f32", "f16", "bf16"])
def test_infinities_and_what_rounds_are_numbers(short: str) -> None:
    x = hal.zeros((1,), dtype=short)
    for number in (float("inf"), -float("inf"), 1e-300, -0.0, 3.3e4):
        want = np.asarray(number).astype(x.numpy().dtype)
        assert hal.add(x, number).numpy()[0] == want
    assert np.isnan(hal.add(x, float("nan")).numpy().astype(np.float64)[0])
    assert hal.add(hal.zeros((1,), dtype="f16"), 65519.0).numpy()[0] == 65504


@pytest.mark.parametrize("number", [0, 2, 14, 64, True, np.int32(2), np.array(2)], ids=repr)
def test_the_numbers_of_the_contract_are_no_dtypes(number: Any) -> None:
    x = hal.ones((2,))
    calls: list[Callable[[], Any]] = [
        lambda: hal.asarray([1], dtype=number),
        lambda: hal.asarray(x, dtype=number),
        lambda: hal.empty((2,), dtype=number),
        lambda: hal.full((2,), 1, dtype=number),
        lambda: hal.arange(3, dtype=number),
        lambda: hal.frombuffer(b"12", number, (1,)),
        lambda: hal.astype(x, dtype=number),
        lambda: x.astype(number),
        lambda: hal.sum(x, dtype=number),
    ]
    for _ in range(2):
        hal.astype(x, dtype="f16")
        for call in calls:
            with pytest.raises(hal.InvalidArgumentError, match="dtype"):
                call()
