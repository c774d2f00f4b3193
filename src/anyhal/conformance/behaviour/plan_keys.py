"""What a plan was made for: calls that differ in one thing alone, in turns.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotApplicableError,
    behaviour,
    require_equal,
)

_Pair = tuple[Callable[[], Any], np.ndarray]


def _numbers(rows: int, columns: int, first: int = 0) -> np.ndarray:
    return (np.arange(rows * columns) % 37 + first).reshape(rows, columns).astype(np.float32)


def _there(bench: Bench, values: np.ndarray) -> Any:
    return hal.asarray(values, device=bench.device)


def _dtype(bench: Bench) -> list[_Pair]:
    declared = {d.short for d in bench.device.dtypes_of("binary")}
    pairs: list[_Pair] = []
    for short, kind in (("f32", np.float32), ("i32", np.int32), ("u32", np.uint32)):
        if short in declared:
            values = (np.arange(256) - 128 if short == "i32" else np.arange(256)).astype(kind)
            x = _there(bench, values)
            pairs.append((lambda x=x: hal.add(x, x), values + values))  # type: ignore[misc]
    return pairs


def _shape(bench: Bench) -> list[_Pair]:
    pairs: list[_Pair] = []
    for rows, columns in ((8, 32), (32, 8), (16, 16)):
        values = _numbers(rows, columns)
        x = _there(bench, values)
        pairs.append((lambda x=x: hal.sum(x, axis=1), values.sum(1)))  # type: ignore[misc]
    return pairs


def _strides(bench: Bench) -> list[_Pair]:
    values, other = _numbers(24, 24), _numbers(24, 24, 100)
    x, y = _there(bench, values), _there(bench, other)
    row, column = _there(bench, other[:1].copy()), _there(bench, other[:, :1].copy())
    return [
        (lambda: hal.subtract(x, y), values - other),
        (lambda: hal.subtract(x, y.T), values - other.T),
        (lambda: hal.subtract(x.T, y), values.T - other),
        (lambda: hal.subtract(x, row), values - other[:1]),
        (lambda: hal.subtract(x, column), values - other[:, :1]),
    ]


def _offset(bench: Bench) -> list[_Pair]:
    values = _numbers(1, 400)[0]
    x = _there(bench, values)
    return [
        (lambda at=at: hal.add(x[at : at + 256], 1.0), values[at : at + 256] + 1)  # type: ignore[misc]
        for at in (0, 1, 64, 3, 16)
    ]


def _function(bench: Bench) -> list[_Pair]:
    values, other = _numbers(16, 16), _numbers(16, 16, 5)
    x, y = _there(bench, values), _there(bench, other)
    return [
        (lambda: hal.add(x, y), values + other),
        (lambda: hal.subtract(x, y), values - other),
        (lambda: hal.multiply(x, y), values * other),
        (lambda: hal.maximum(x, y), np.maximum(values, other)),
    ]


def _attribute(bench: Bench) -> list[_Pair]:
    values = _numbers(16, 16)
    x, indices = _there(bench, values), _there(bench, np.array([3, 1], np.int64))
    return [
        (lambda: hal.sum(x, axis=0, keepdims=True), values.sum(0, keepdims=True)),
        (lambda: hal.sum(x, axis=1, keepdims=True), values.sum(1, keepdims=True)),
        (lambda: hal.max(x, axis=0, keepdims=True), values.max(0, keepdims=True)),
        (lambda: hal.take(x, indices, axis=0), values[[3, 1]]),
        (lambda: hal.take(x, indices, axis=1), values[:, [3, 1]]),
    ]


def _scalar(bench: Bench) -> list[_Pair]:
    values = _numbers(16, 16)
    x = _there(bench, values)
    return [
        (lambda s=s: hal.multiply(x, s), values * np.float32(s))  # type: ignore[misc]
        for s in (2.0, 3.0, -1.0, 0.5)
    ]


def _in_place(bench: Bench) -> list[_Pair]:
    values = _numbers(16, 16)
    x = _there(bench, values)

    def into_itself() -> Any:
        y = _there(bench, values)
        hal.add(y, x, out=y)
        return y

    def into_another() -> Any:
        y = _there(bench, np.full_like(values, np.nan))
        hal.add(x, x, out=y)
        return y

    return [(into_another, values + values), (into_itself, values + values)]


def _target(bench: Bench) -> list[_Pair]:
    values = _numbers(16, 16)
    x = _there(bench, values)
    declared = {d.short for d in bench.device.dtypes_of("cast")}
    return [
        (lambda name=name: x.astype(name), values.astype(name))  # type: ignore[misc]
        for name, short in (("int32", "i32"), ("float64", "f64"), ("float16", "f16"))
        if short in declared
    ]


_FIELDS = {
    "dtype": _dtype,
    "shape": _shape,
    "strides": _strides,
    "offset": _offset,
    "function": _function,
    "attribute": _attribute,
    "scalar": _scalar,
    "in-place": _in_place,
    "target-dtype": _target,
}


def _in_turns(bench: Bench, field: str) -> Measured:
    pairs = _FIELDS[field](bench)
    if len(pairs) < 2:
        raise NotApplicableError(f"the device has no two calls that differ in {field} alone")
    for turn in range(3):
        for number in range(len(pairs)):
            call, right = pairs[(number * (turn + 1)) % len(pairs)]
            found = call().numpy()
            require_equal(
                found, right.astype(found.dtype), "plan_key", f"turn {turn}, call {number}"
            )
    return None


for _field in _FIELDS:

    def _check(bench: Bench, field: str) -> Measured:
        return _in_turns(bench, field)

    _check.__doc__ = "Calls that differ in {field} alone, in turns, are each right."
    behaviour(
        f"plan_keys/{_field}", 13, tier="smoke" if _field == "strides" else "quick", field=_field
    )(_check)
