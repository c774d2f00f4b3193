"""The bounds of norms, log-sums and running sums catch broken kernels and let honest ones pass.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anyhal import ops
from anyhal.conformance.tolerance import bound, mismatch
from anyhal.dtypes import dtype

RNG = np.random.default_rng(11)
X, OTHER = (RNG.standard_normal((2, 6, 64)) + 0.5).astype(np.float32)
ROW, SECOND = RNG.uniform(0.5, 2, (2, 64)).astype(np.float32)

CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "rms_norm with residual": ("rms_norm", (X, ROW, OTHER), {"eps": 1e-5}),
    "layer_norm": ("layer_norm", (X, ROW, SECOND, None), {"eps": 1e-5, "axes": 1}),
    "layer_norm with residual": ("layer_norm", (X, ROW, SECOND, OTHER), {"eps": 1e-5, "axes": 1}),
    "group_norm": ("group_norm", (X, ROW, SECOND, None), {"eps": 1e-5, "groups": 4}),
    "batch_norm": ("batch_norm", (X, ROW, SECOND, ROW, SECOND, None), {"eps": 1e-5}),
    "log_softmax": ("log_softmax", (X,), {"axis": -1}),
    "logsumexp": ("logsumexp", (X,), {"axis": -1}),
    "cumsum": ("cumsum", (X,), {"axis": -1}),
}


def judge(op: str, inputs: Any, attrs: Any, actual: Any) -> str | None:
    spec = ops.lookup(op)
    want = spec.reference_outs(*inputs, **attrs)[0]
    allowed = bound(spec.bound, spec, inputs, attrs, want, dtype("f32"))
    return mismatch(np.asarray(actual, np.float32), want, allowed, dtype("f32"))


@pytest.mark.parametrize("case", CASES)
def test_half_precision_is_caught(case: str) -> None:
    op, inputs, attrs = CASES[case]
    good = ops.lookup(op).reference_outs(*inputs, **attrs)[0]
    assert judge(op, inputs, attrs, good.astype(np.float32)) is None
    assert judge(op, inputs, attrs, good.astype(np.float16)) is not None
    assert judge(op, inputs, attrs, good * (1 + 3e-5)) is not None


def one_pass(x: Any, eps: Any) -> Any:
    variance = (x * x).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(variance + eps)


def sample_variance(x: Any, eps: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, ddof=1, keepdims=True) + eps)


def eps_outside(x: Any, eps: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + eps)


@pytest.mark.parametrize("mutant", [one_pass, sample_variance, eps_outside])
def test_other_variances_are_caught(mutant: Callable[[Any, Any], Any]) -> None:
    x = (200 + X).astype(np.float32)
    inputs, attrs = (x, None, None, None), {"eps": 1e-5, "axes": 1}
    assert judge("layer_norm", inputs, attrs, mutant(x, np.float32(1e-5))) is not None


def test_a_log_softmax_that_adds_the_maximum_back_is_caught() -> None:
    x = (1e6 + X).astype(np.float32)
    top = x.max(-1, keepdims=True)
    log = np.log(np.exp(x - top).sum(-1, keepdims=True))
    assert judge("log_softmax", (x,), {"axis": -1}, (x - top) - log) is None
    assert judge("log_softmax", (x,), {"axis": -1}, x - (top + log)) is not None


def test_running_sums_in_any_order_pass_and_others_do_not() -> None:
    x = RNG.standard_normal((2, 1000)).astype(np.float32)
    sums = np.cumsum(x, axis=1, dtype=np.float32)
    assert judge("cumsum", (x,), {"axis": 1}, sums) is None
    assert judge("cumsum", (x,), {"axis": 1}, sums - x) is not None
    half = np.cumsum(x.astype(np.float16), axis=1, dtype=np.float16)
    assert judge("cumsum", (x,), {"axis": 1}, half) is not None


@pytest.mark.parametrize("fn", ["tan", "asin", "atanh", "sinh", "log2", "exp2", "softplus"])
def test_further_functions_in_half_precision_are_caught(fn: str) -> None:
    x = RNG.uniform(0.1, 0.9, 100).astype(np.float32)
    good = ops.lookup("unary").reference(x, fn)
    assert judge("unary", (x,), {"fn": fn}, good) is None
    assert judge("unary", (x,), {"fn": fn}, good.astype(np.float16)) is not None


@pytest.mark.parametrize("fn", ["hypot", "logaddexp", "copysign", "nextafter"])
def test_further_pairs_in_half_precision_are_caught(fn: str) -> None:
    a, b = RNG.uniform(0.1, 0.9, (2, 100)).astype(np.float32)
    good = ops.lookup("binary").reference(a, b, fn)
    assert judge("binary", (a, b), {"fn": fn}, good) is None
    assert judge("binary", (a, b), {"fn": fn}, good.astype(np.float16)) is not None
