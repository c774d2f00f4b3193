"""The oracle of the numerics: two implementations agree, and sums over nothing are zeros.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from anyhal.conformance.cases import random_case
from anyhal.conformance.numerics.calls import answers_of
from anyhal.ops import BY_NAME
from anyhal.ops._spec import Sample


def test_gradients_over_no_batch_are_zeros() -> None:
    """einsum leaves the output of such a sum as it found it when operands repeat by strides."""
    sample = random_case("conv_backward", 291877031)
    assert sample.inputs[0].shape[0] == 0
    for _ in range(20):
        junk = [np.full((1, 1, 3), np.nan, np.longdouble) for _ in range(50)]
        del junk
        _, dw, dbias = BY_NAME["conv_backward"].reference_outs(*sample.inputs, **sample.attrs)
        assert not np.any(dw) and not np.any(dbias)


def _by_hand(op: str, inputs: Any, attrs: Any) -> Any:
    """A second implementation, from the op's sentence: Python integers and fractions, loops."""
    if op == "matmul":
        a, b = (x.astype(np.float64) for x in inputs)
        rows = [[math.fsum(p * q for p, q in zip(r, c, strict=True)) for c in b.T] for r in a]
        return np.array(rows).reshape(a.shape[0], b.shape[1])
    if op == "reduce":
        return np.array([math.fsum(row) for row in inputs[0].astype(np.float64)])
    if op == "softmax":
        found = []
        for row in inputs[0].astype(np.float64):
            e = [math.exp(v - max(row)) for v in row]
            found.append([v / math.fsum(e) for v in e])
        return np.array(found)
    if op == "layer_norm":
        found = []
        for row in inputs[0].astype(np.float64):
            mean = math.fsum(row) / len(row)
            spread = math.fsum((v - mean) ** 2 for v in row) / len(row)
            found.append([(v - mean) / math.sqrt(spread + attrs["eps"]) for v in row])
        return np.array(found)
    if op == "attention":
        q, k, v = (x.astype(np.float64) for x in inputs[:3])
        out = np.zeros((*q.shape[:3], v.shape[-1]))
        for b, h, t in np.ndindex(q.shape[:3]):
            kv = h * k.shape[1] // q.shape[1]
            scores = [attrs["scale"] * math.fsum(q[b, h, t] * k[b, kv, j]) for j in range(t + 1)]
            e = [math.exp(s - max(scores)) for s in scores]
            for d in range(v.shape[-1]):
                out[b, h, t, d] = math.fsum(
                    w * v[b, kv, j, d] for j, w in enumerate(e)
                ) / math.fsum(e)
        return out
    assert op == "conv"
    x, w = (a.astype(np.float64) for a in inputs[:2])
    out = np.zeros((x.shape[0], w.shape[0], x.shape[2] - w.shape[2] + 1))
    for n, o, p in np.ndindex(out.shape):
        out[n, o, p] = math.fsum((x[n, :, p : p + w.shape[2]] * w[o]).reshape(-1))
    return out


@pytest.mark.parametrize("op", ["matmul", "reduce", "softmax", "layer_norm", "attention", "conv"])
def test_two_oracles_agree_on_a_fixed_corpus(op: str) -> None:
    rng = np.random.default_rng(20260817)

    def x(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    corpus: dict[str, tuple[Any, dict[str, Any]]] = {
        "matmul": ((x(7, 129), x(129, 5)), {}),
        "reduce": ((x(5, 1025),), {"fn": "sum", "axis": (1,), "keepdims": False}),
        "softmax": ((x(5, 257),), {"axis": -1}),
        "layer_norm": ((x(5, 257) + 100, None, None, None), {"eps": 0.0}),
        "attention": (
            (x(2, 4, 6, 8), x(2, 2, 6, 8), x(2, 2, 6, 3), None, None, None),
            {"scale": 0.5, "causal": "first_key"},
        ),
        "conv": ((x(2, 3, 17), x(4, 3, 3), None, None), {}),
    }
    inputs, attrs = corpus[op]
    right = answers_of(BY_NAME[op], Sample("corpus", inputs, attrs))[0]
    assert right is not None
    np.testing.assert_allclose(
        np.asarray(right.want, np.float64), _by_hand(op, inputs, attrs), rtol=2e-12, atol=1e-13
    )
    # And both are far inside what a backend is allowed.
    off = np.abs(np.asarray(right.want, np.float64) - _by_hand(op, inputs, attrs))
    assert np.all(off < np.asarray(right.allowed, np.float64) / 1000)
