"""What no op has is refused before a plugin is asked to compile it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import pytest

from anyhal.conformance.capabilities.asking import Asker, edges_of
from anyhal.conformance.capabilities.calls import plain_calls
from anyhal.conformance.capabilities.steps import steps, taken
from anyhal.conformance.worker import Bench


@pytest.mark.parametrize(
    ("op", "label"),
    [
        ("unary", "fn: a choice of a later version"),
        ("binary", "fn: a choice of a later version"),
        ("binary", "operand 0 as i16"),
        ("matmul", "operand 0 as f64"),
        ("gather", "operand 0 as i16"),
        ("scatter_add", "operand 0 as i16"),
        ("reduce", "operand 0 as bool"),
    ],
)
def test_functions_and_dtypes_of_no_op_are_refused(device: Any, op: str, label: str) -> None:
    """Compilers failed on them, or, worse, took them."""
    bench = Bench(device, 1)
    asker, edges = Asker(bench, op), edges_of(bench, op)
    base = next(c for c in plain_calls(op) if c.sample.inputs[0].dtype == "float32")
    assert asker.accepts(base)
    way = tuple(s for s in steps(base, edges) if s.label == label)
    call = taken(base, way)
    assert way and call is not None and not asker.accepts(call)


def test_an_overflow_of_a_later_version_is_refused(device: Any) -> None:
    bench = Bench(device, 1)
    asker, edges = Asker(bench, "cast"), edges_of(bench, "cast")
    for base in plain_calls("cast"):
        if base.sample.attrs["overflow"] == "unstated" or not asker.accepts(base):
            continue
        (way,) = (
            s for s in steps(base, edges) if s.label == "overflow: a choice of a later version"
        )
        call = taken(base, (way,))
        assert call is not None and not asker.accepts(call), base.attrs
        break
    else:
        pytest.fail("no cast to 8 bits was taken")
