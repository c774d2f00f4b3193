"""Decompositions hold nothing on the host in proportion to a shape, where core ops can count.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trace_machine import Machine, output_specs

from anyhal import ops
from anyhal.conformance.cases import random_case
from anyhal.conformance.tolerance import bound, mismatch
from anyhal.dtypes import dtype
from anyhal.ops import _trace
from anyhal.ops._spec import TensorSpec
from anyhal.ops._trace import Trace, Value

HUGE = 1 << 28
KEY = ("u64", 2)
CALLS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("random_uniform", [KEY], {"shape": (HUGE,)}),
    ("random_normal", [KEY], {"shape": (HUGE,)}),
    ("random_integers", [KEY], {"low": 0, "high": 9, "shape": (HUGE,)}),
    ("dropout", [("f32", HUGE), KEY], {"p": 0.5}),
    ("argmax", [("f32", HUGE)], {}),
    ("argmin", [("f32", HUGE)], {"axis": 0}),
    ("one_hot", [("i64", 4)], {"depth": HUGE}),
    ("cross_entropy", [("f32", 1, HUGE), ("i64", 1)], {"reduction": "mean"}),
    ("cross_entropy_backward", [("f32", 1, HUGE), ("i64", 1), ("f32",)], {"reduction": "mean"}),
    ("slice_update", [("f32", HUGE), ("f32", 8), ("i64", 1)], {}),
    ("take_along_axis", [("f32", HUGE // 4, 4), ("i64", HUGE // 4, 1)], {"axis": 1}),
    ("topk", [("f32", HUGE // 256, 256)], {"k": 2, "axis": 1, "largest": True}),
]


@pytest.mark.parametrize("name, shapes, given", CALLS, ids=[c[0] for c in CALLS])
def test_constants_do_not_grow_with_the_shape(
    name: str, shapes: list[Any], given: dict[str, Any]
) -> None:
    spec, trace = ops.lookup(name), Trace(ops.lookup)
    inputs: list[TensorSpec | None] = [TensorSpec.dense(dtype(d), s) for d, *s in shapes]
    inputs += [None] * (len(spec.inputs) - len(inputs))
    attrs = {a.name: given.get(a.name, a.default) for a in spec.attrs}
    values = [None if s is None else Value("operand", i, s) for i, s in enumerate(inputs)]
    outs = spec.infer_outs(inputs, attrs)
    places = tuple(
        None if o is None else Value("operand", len(inputs) + i, o) for i, o in enumerate(outs)
    )
    spec.decompose_outs(trace, values, attrs, places)
    assert sum(c.nbytes for c in trace.constants) < 1 << 20


@pytest.mark.parametrize(
    "name",
    [
        *("argmax", "one_hot", "cross_entropy", "cross_entropy_backward", "slice_update", "sort"),
        *("topk", "take_along_axis", "scatter", "cache_append", "attention", "attention_backward"),
    ],
)
def test_numbers_counted_on_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_trace, "_ROW", 3)
    spec = ops.lookup(name)
    for sample in (random_case(name, seed) for seed in range(25)):
        outs = output_specs(spec, sample)
        machine = Machine(spec, sample, outs)
        wanted = spec.reference_outs(*sample.inputs, **sample.attrs)
        for i, (out, want) in enumerate(zip(outs, wanted, strict=True)):
            if out is None:
                continue
            bound_name = spec.bound_of(i)
            allowed = bound(bound_name, spec, sample.inputs, sample.attrs, want, out.dtype)
            wrong = mismatch(machine.results[i], want, allowed, out.dtype)
            assert wrong is None, f"{name} {sample.label}: {wrong}"


def test_the_numbers_are_consecutive() -> None:
    for count in (0, 1, _trace._ROW, _trace._ROW + 1, 3 * _trace._ROW):
        trace = Trace(ops.lookup)
        numbers = trace.numbers(count, "i32")
        assert numbers.shape == (count,) and numbers.spec.is_dense
        if numbers.kind == "constant":
            assert (trace.constants[numbers.index] == np.arange(count)).all()
        else:
            first, row = trace.constants
            assert ((first + row).reshape(-1)[:count] == np.arange(count)).all()
