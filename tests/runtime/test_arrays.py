"""Arrays through the public API: making, viewing, writing, operators, refusals.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import operator
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anyhal as hal
from anyhal.runtime import context

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "key",
    [0, -1, slice(None), (0, 1), (slice(None), 1), (..., 2), (None, 1, ...), (slice(0, 2, 2), 0),
     (slice(None), slice(1, 1)), (1, 2, 3), (slice(None), slice(None), slice(0, 4, 3))],
)  # fmt: skip
def test_indexing_is_numpys(key: Any) -> None:
    np.testing.assert_array_equal(hal.asarray(X)[key].numpy(), X[key])


@pytest.mark.parametrize("key", [3, (0, 0, 0, 0), "a", 1.5, (..., ...)])
def test_bad_indices_are_refused(key: Any) -> None:
    with pytest.raises(hal.InvalidArgumentError):
        hal.asarray(X)[key]


def test_a_negative_step_is_refused_with_advice() -> None:
    with pytest.raises(hal.UnsupportedError, match="take"):
        hal.asarray(X)[::-1]


@pytest.mark.parametrize("shape", [(24,), (6, 4), (2, -1), (1, 2, 3, 1, 4), (4, 3, 2), (3, 8)])
def test_reshape_of_dense_and_strided(shape: tuple[int, ...]) -> None:
    a = hal.asarray(X)
    np.testing.assert_array_equal(a.reshape(*shape).numpy(), X.reshape(shape))
    np.testing.assert_array_equal(a.T.reshape(shape).numpy(), X.T.reshape(shape))
    half = a[:, :, :2]
    if np.prod(shape) > 0 and -1 not in shape:
        return
    np.testing.assert_array_equal(half.reshape(2, -1).numpy(), X[:, :, :2].reshape(2, -1))


def test_reshape_shares_memory_where_the_layout_allows() -> None:
    a = hal.asarray(X)
    a.reshape(6, 4).set(0)
    assert not a.numpy().any()
    b = hal.asarray(X)
    b[:, 1].reshape(2, 2, 2).set(7)
    assert (b.numpy()[:, 1] == 7).all() and (b.numpy()[:, 0] != 7).all()


def test_transpose_and_matrix_transpose() -> None:
    a = hal.asarray(X)
    np.testing.assert_array_equal(a.transpose(1, 0, 2).numpy(), X.transpose(1, 0, 2))
    np.testing.assert_array_equal(a.mT.numpy(), X.swapaxes(1, 2))
    with pytest.raises(hal.InvalidArgumentError):
        a.transpose(0, 0, 1)


def test_numpy_is_a_copy_on_every_device() -> None:
    for device in hal.devices():
        a = hal.asarray(X, device=device)
        values = a.numpy()
        values[...] = -1
        np.testing.assert_array_equal(a.numpy(), X)


def test_operators_and_numbers() -> None:
    a, x = hal.asarray(X), X
    for got, want in [
        (a + 1, x + 1), (2 - a, 2 - x), (a * a, x * x), (a / 2, x / 2), (-a, -x),
        (a // 5, x // 5), (a % 5, x % 5), (a**2, x**2), (a > 3, x > 3), (a == a, x == x),
        (abs(-a), x), (a @ a.mT, x @ x.swapaxes(1, 2)),
    ]:  # fmt: skip
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    bits = hal.asarray(np.array([1, 6], np.int32))
    assert (bits & 3).numpy().tolist() == [1, 2] and (~bits).numpy().tolist() == [-2, -7]


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(hal.InvalidArgumentError):
        hal.asarray(np.array([1], np.int32)) + 1.5
    with pytest.raises(hal.InvalidArgumentError):
        hal.asarray(np.array([1], np.uint8)) + 300


def test_constants_are_never_written() -> None:
    c = hal.asarray(X, constant=True)
    assert c.constant and c[0].constant
    for write in (
        lambda: c.set(0),
        lambda: hal.add(X, X, out=c),
        lambda: hal.exp(hal.asarray(X), out=c),
    ):
        with pytest.raises(hal.InvalidArgumentError, match="constant"):
            write()
    np.testing.assert_array_equal(c.numpy(), X)


def test_set_broadcasts_and_refuses_what_would_lose_values() -> None:
    a = hal.zeros((2, 3), dtype="int32")
    a[0].set([1, 2, 3])
    a[1].set(9)
    assert a.numpy().tolist() == [[1, 2, 3], [9, 9, 9]]
    with pytest.raises(hal.InvalidArgumentError):
        a.set(1.5)
    with pytest.raises(hal.InvalidArgumentError):
        a.set(np.zeros((4, 4), np.int32))


def test_dtypes_and_creation() -> None:
    assert hal.asarray([1.0, 2.0]).dtype == "float32"
    assert hal.asarray([1, 2]).dtype == "int64"
    assert hal.asarray([True]).dtype == "bool"
    assert hal.asarray(X.astype(ml_dtypes.bfloat16)).dtype == "bfloat16"
    assert hal.arange(3).numpy().tolist() == [0, 1, 2]
    assert hal.full((2,), 3.5).numpy().tolist() == [3.5, 3.5]
    big = hal.asarray(np.arange(3, dtype=">i4"))
    assert big.numpy().tolist() == [0, 1, 2]
    assert hal.asarray(np.arange(3)[::-1]).numpy().tolist() == [2, 1, 0]
    assert hal.asarray(np.float32(2)).shape == ()


@pytest.mark.parametrize("bad", [[[1], [1, 2]], object(), "text", None])
def test_asarray_refuses_what_is_no_array(bad: Any) -> None:
    with pytest.raises(hal.InvalidArgumentError):
        hal.asarray(bad)


def test_unknown_dtype_suggests_the_nearest() -> None:
    with pytest.raises(hal.InvalidArgumentError, match="float32"):
        hal.empty((2,), dtype="flaot32")


def test_rank_above_the_limit_is_refused() -> None:
    with pytest.raises(hal.InvalidArgumentError, match="8"):
        hal.empty((1,) * 9)


def test_frombuffer_checks_its_bytes() -> None:
    blocks = np.zeros(40, np.uint8)
    assert hal.frombuffer(blocks, "q4_1", (2, 32)).shape == (2, 32)
    for shape in ((2, 33), (3, 32)):
        with pytest.raises(hal.InvalidArgumentError):
            hal.frombuffer(blocks, "q4_1", shape)


def test_dev_08_dtypes_are_known_before_use() -> None:
    names = [d.name for d in hal.devices()[0].dtypes]
    assert "float32" in names and "q4_1" in names


def test_dev_09_the_device_comes_from_the_operands() -> None:
    first, second = hal.devices()[:2]
    with hal.use(device=first):
        x = hal.asarray(X, device=second)
        assert (x + x).device is second
        with pytest.raises(hal.InvalidArgumentError) as refused:
            hal.add(x, hal.asarray(X))
    assert first.name in str(refused.value) and second.name in str(refused.value)


def test_copies_between_devices_only_when_allowed() -> None:
    first, second = hal.devices()[:2]
    a, b = hal.asarray(X, device=first), hal.asarray(X, device=second)
    with hal.use(fallback="any"):
        np.testing.assert_array_equal((a + b).numpy(), X + X)


def test_numbers_take_the_dtype_of_their_operand() -> None:
    """A condition or an index says nothing about the dtype of a number beside it."""
    x = hal.asarray(X)
    np.testing.assert_array_equal(hal.where(x > 3, x, 0.0).numpy(), np.where(X > 3, X, 0))
    np.testing.assert_array_equal(hal.where(x > 3, 0.5, x).numpy(), np.where(X > 3, 0.5, X))
    np.testing.assert_array_equal(hal.where(True, x, 0.0).numpy(), X)
    np.testing.assert_array_equal(hal.take(x, 1, axis=1).numpy(), X[:, 1])
    cache = hal.zeros((1, 1, 4, 2))
    hal.cache_append(cache, hal.ones((1, 1, 1, 2)), 2)
    assert cache.numpy()[0, 0, :, 0].tolist() == [0, 0, 1, 0]


def test_an_index_that_is_no_index_is_named() -> None:
    x = hal.asarray(X)
    for key in (np.array([0, 1]), x > 3, hal.asarray([0, 1])):
        with pytest.raises(hal.InvalidArgumentError, match="use take or where"):
            x[key]


def test_repr_rows_are_aligned() -> None:
    rows = repr(hal.asarray(X[0])).splitlines()[1:]
    assert len(rows) == 3
    assert [row.index("[", 1 if i == 0 else 0) for i, row in enumerate(rows)] == [1, 1, 1]


@pytest.mark.parametrize("value", [300, -1])
def test_integers_out_of_range_are_refused_and_never_wrap(value: int) -> None:
    for make in (
        lambda: hal.asarray([value], dtype="uint8"),
        lambda: hal.full((1,), value, dtype="uint8"),
        lambda: hal.zeros((1,), dtype="uint8").set(value),
    ):
        with pytest.raises(hal.InvalidArgumentError):
            make()
    with pytest.raises(hal.InvalidArgumentError, match="holds -128 to 127"):
        hal.zeros((1,), dtype="int8").set(200)
    assert hal.asarray([255, 0], dtype="uint8").numpy().tolist() == [255, 0]
    assert hal.zeros((1,), dtype="uint8").set(200).item() == 200


@pytest.mark.parametrize("value", [300.0, -1.0, 1.9, np.nan, np.inf])
def test_floats_that_an_integer_dtype_does_not_hold_are_refused(value: float) -> None:
    for make in (
        lambda: hal.asarray([1.0, value], dtype="uint8"),
        lambda: hal.asarray(np.array([value], np.float32), dtype="uint8"),
        lambda: hal.full((1,), value, dtype="uint8"),
        lambda: hal.zeros((1,), dtype="uint8").set([value]),
    ):
        with pytest.raises(hal.InvalidArgumentError, match=r"no whole number from 0 to 255"):
            make()
    assert hal.asarray([255.0, -0.0], dtype="uint8").numpy().tolist() == [255, 0]
    assert hal.zeros((1,), dtype="uint8").set(200.0).item() == 200
    assert hal.asarray([-(2.0**63)], dtype="int64").item() == -(2**63)
    with pytest.raises(hal.InvalidArgumentError, match="no whole number"):
        hal.asarray([2.0**63], dtype="int64")


def test_a_float_beyond_float32_is_refused_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(hal.InvalidArgumentError, match="1e\\+300 does not fit float32"):
            hal.asarray([1.0, 1e300])
        assert hal.asarray([np.inf, -np.inf]).numpy().tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "bool"),
        (7, "int64"),
        (-(2**63), "int64"),
        (7.0, "float32"),
        (float("inf"), "float32"),
        (np.float64(7), "float64"),
        (np.int8(7), "int8"),
        (np.bool_(True), "bool"),
    ],
    ids=repr,
)
def test_full_and_asarray_agree_on_the_dtype_of_a_value(value: Any, kind: str) -> None:
    """Array API: the default integer, boolean or floating dtype by the value's own type."""
    filled, made = hal.full((2,), value), hal.asarray(value)
    assert (filled.dtype, made.dtype) == (kind, kind)
    assert filled.numpy().tolist() == [made.item()] * 2
    assert hal.full((2,), made).dtype == kind
    if not isinstance(value, np.generic):
        assert hal.asarray([value]).dtype == hal.asarray([[value]]).dtype == kind


def test_a_dtype_that_is_given_wins_over_the_value() -> None:
    assert hal.full((2,), 7, dtype="float32").dtype == "float32"
    assert hal.full((2,), 7.0, dtype="int32").numpy().tolist() == [7, 7]
    assert hal.full((1,), 1 << 70, dtype="float32").numpy().tolist() == [2.0**70]
    assert (hal.zeros((2,)).dtype, hal.ones((2,)).dtype) == ("float32", "float32")
    assert hal.asarray([1, 2.5]).dtype == "float32" and hal.asarray([]).dtype == "float32"
    assert hal.arange(np.float32(2.5)).dtype == "float32"


def test_unary_plus_is_a_copy_of_numbers() -> None:
    for kind in ("float32", "bfloat16", "int64", "uint8"):
        x = hal.asarray([1, 2], dtype=kind)
        y = +x
        x.set(0)
        assert (y.dtype, y.numpy().tolist()) == (kind, [1, 2])
    for bad in (hal.asarray(True), hal.frombuffer(np.zeros(20, np.uint8), "q4_1", (32,))):
        with pytest.raises(hal.UnsupportedError, match="positive"):
            operator.pos(bad)


UNARY = {"pos": X, "neg": X, "abs": -X, "invert": X.astype(np.int32)}
BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
BITWISE = ["and", "or", "xor", "lshift", "rshift"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]


@pytest.mark.parametrize("slot", UNARY)
def test_unary_operators_are_those_of_the_array_api(slot: str) -> None:
    x = UNARY[slot]
    np.testing.assert_array_equal(
        getattr(operator, slot)(hal.asarray(x)).numpy(), getattr(operator, slot)(x)
    )


@pytest.mark.parametrize("slot", [*BINARY, *BITWISE, *COMPARISONS])
def test_binary_operators_are_those_of_the_array_api(slot: str) -> None:
    kind = np.int32 if slot in BITWISE else np.float32
    x, y = (X % 5 + 1).astype(kind), (X % 3 + 1).astype(kind)
    number: Any = 2 if slot in BITWISE else 2.0
    name = {"and": "and_", "or": "or_"}.get(slot, slot)
    apply = getattr(operator, name)
    a, b = hal.asarray(x), hal.asarray(y)
    for got, want in (
        (apply(a, b), apply(x, y)),
        (apply(a, number), apply(x, number)),
        (apply(number, a), apply(number, x)),
    ):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    if slot not in COMPARISONS:
        before, view = hal.asarray(x), hal.asarray(x)
        after = getattr(operator, f"i{slot}")(before, b)
        np.testing.assert_allclose(after.numpy(), apply(x, y), rtol=1e-6)
        np.testing.assert_array_equal(view.numpy(), x)


def test_one_element_becomes_a_python_number_and_more_do_not() -> None:
    one = hal.asarray([[2]])
    assert (bool(one), int(one), float(one), complex(one)) == (True, 2, 2.0, 2 + 0j)
    assert operator.index(one) == 2 and [10, 20, 30][one] == 30
    assert len(hal.asarray(X)) == 2 and [r.shape for r in hal.asarray(X)] == [(3, 4)] * 2
    for read in (bool, int, float, complex, operator.index):
        with pytest.raises(hal.InvalidArgumentError, match="24 elements"):
            read(hal.asarray(X))


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda: len(hal.asarray(1.0)), "a 0-d array has no length"),
        (lambda: iter(hal.asarray(1.0)), "a 0-d array has no length"),
        (lambda: operator.index(hal.asarray(1.5)), "it is no integer"),
        (lambda: operator.setitem(hal.asarray(X), 0, 1), "write a\\[key\\].set"),
    ],
)
def test_protocols_an_array_does_not_have_are_refused_as_type_errors(use: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words) as caught:
        use()
    assert isinstance(caught.value, hal.InvalidArgumentError)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_int_is_not_read_as_one(value: float) -> None:
    with pytest.raises(hal.InvalidArgumentError, match=f"it holds {value}"):
        int(hal.asarray(value))


def test_reprs_say_what_and_where() -> None:
    where = hal.device()
    queue = hal.Queue()
    assert repr(where) == f"Device('{where.name}', {where.fact.state})"
    assert repr(queue).startswith(f"Queue('{where.name}', ") and "completed" in repr(queue)
    assert repr(queue.signal()).startswith("Event(")
    recorded = hal.Graph()
    assert repr(recorded) == f"Graph('{where.name}', nothing recorded)"
    x = hal.asarray(X)
    with recorded:
        y = x + x
        assert repr(recorded) == f"Graph('{where.name}', recording, 1 calls so far)"
        assert repr(y) == f"Array(f32[2,3,4], {where.name}, recording)"
    assert repr(y) == f"Array(f32[2,3,4], {where.name}, recorded)"
    assert repr(recorded) == f"Graph('{where.name}', 1 calls, {recorded.form})"
    assert recorded.form in ("compiled", "recorded", "replayed")
    scope = hal.use(device=where, fallback="never")
    assert repr(scope) == f"use(device='{where.name}', fallback='never')"
    with scope:
        assert repr(context.current()) == f"Choice('{where.name}', fallback='never')"


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("cuts", [1, 2, [2], [0, 1, 1, 6], []])
def test_split_copies_the_parts_that_numpy_cuts(axis: int, cuts: Any) -> None:
    values = np.arange(36, dtype=np.float32).reshape(6, 6)
    whole = hal.asarray(values)
    found = hal.split(whole, cuts, axis=axis)
    want = np.split(values, cuts, axis=axis)
    assert [f.numpy().tolist() for f in found] == [w.tolist() for w in want]
    hal.subtract(whole, whole, out=whole)
    assert [f.numpy().tolist() for f in found] == [w.tolist() for w in want]


@pytest.mark.parametrize("cuts", [0, 4, [3, 2], [7], [-1]])
def test_split_refuses_what_it_cannot_cut(cuts: Any) -> None:
    with pytest.raises(hal.InvalidArgumentError, match="split: .*f32"):
        hal.split(hal.zeros((6, 2)), cuts)
