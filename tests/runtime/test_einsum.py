"""einsum against NumPy's, on every device.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.errors import InvalidArgumentError, UnsupportedError
from device_runs import devices

CASES = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("i,j->ij", (3,), (4,)),
    ("i,j->ji", (3,), (4,)),
    ("i,i", (5,), (5,)),
    ("ij,ij->i", (3, 4), (3, 4)),
    ("ij->ji", (3, 4)),
    ("ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ii", (4, 4)),
    ("ii->i", (4, 4)),
    ("iji->j", (4, 3, 4)),
    ("iiij->ij", (3, 3, 3, 2)),
    ("ij,jj->ij", (2, 3), (3, 3)),
    ("ijk,l->kl", (2, 3, 4), (5,)),
    ("...ij,...jk->...ik", (2, 6, 3, 4), (6, 4, 5)),
    ("...ij,...jk", (2, 1, 3, 4), (6, 4, 5)),
    ("i...->...", (3, 2, 4)),
    ("...,...", (3, 1), (2, 3, 4)),
    ("b...,b->...b", (2, 3, 4), (2,)),
    ("ij,jk,kl->il", (3, 4), (4, 5), (5, 2)),
    ("ij,jk,kl,lm,mi", (3, 4), (4, 5), (5, 2), (2, 6), (6, 3)),
    ("ai,bi,ci->abc", (2, 3), (4, 3), (5, 3)),
    ("ij,jk->ik", (3, 0), (0, 5)),
    (" i j , j -> i ", (3, 4), (4,)),
    ("Ab,bA->A", (3, 4), (4, 3)),
    (",i->i", (), (3,)),
]


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_as_numpy(device: str, case: Any) -> None:
    subscripts, *shapes = case
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.int32):
        operands = [np.asarray(3 * rng.standard_normal(s)).astype(dtype) for s in shapes]
        want = np.einsum(subscripts, *operands)
        made = hal.einsum(subscripts, *(hal.asarray(x, device=device) for x in operands))
        found = made.numpy()
        assert found.shape == want.shape and found.dtype == want.dtype
        assert np.allclose(found, want, rtol=1e-4, atol=1e-4)


WRONG = [
    ("ij,jk->ik", ((3, 4),), "lists of letters"),
    ("ijk->i", ((3, 4),), "does not name 2 axes"),
    ("i->i", ((3, 4),), "does not name 2 axes"),
    ("ij,jk->ik", ((3, 4), (5, 6)), "sizes 4 and 5"),
    ("ij->k", ((3, 4),), "no operand has it"),
    ("ij->ii", ((3, 4),), "twice"),
    ("i1->i", ((3, 4),), "letters"),
    ("...i->i", ((3, 4),), "has no ..."),
]


@pytest.mark.parametrize(("subscripts", "shapes", "why"), WRONG)
def test_mistakes_are_told(subscripts: str, shapes: Any, why: str) -> None:
    operands = [hal.asarray(np.zeros(s, np.float32)) for s in shapes]
    with pytest.raises(InvalidArgumentError, match=why):
        hal.einsum(subscripts, *operands)


def test_dtypes_are_not_mixed() -> None:
    x, y = (hal.asarray(np.zeros(3, t)) for t in (np.float32, np.float64))
    with pytest.raises(UnsupportedError, match="astype"):
        hal.einsum("i,i", x, y)


def test_without_the_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opt_einsum", None)
    x = hal.asarray(np.ones((2, 2), np.float32))
    assert hal.einsum("ij,jk->", x, x).numpy() == 8
    with pytest.raises(UnsupportedError, match=r'pip install "anyhal\[einsum\]"') as caught:
        hal.einsum("ij,jk,kl", x, x, x)
    assert caught.value.reason == "missing_library"


def test_a_transpose_is_a_view() -> None:
    x = hal.asarray(np.zeros((2, 3), np.float32))
    view = hal.einsum("ij->ji", x)
    hal.copy(hal.asarray(np.full((2, 3), 5, np.float32)), out=x)
    assert view.numpy()[1, 0] == 5
