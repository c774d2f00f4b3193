"""attention over many rows and few, caches with stale contents, masks and lengths.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contract_client import Cpu, Refused
from test_products import judge

from anyhal.dtypes import dtype


def operands(rng: np.random.Generator, t: int, s: int, d: int, dv: int, name: str) -> list[Any]:
    np_type = dtype(name).numpy
    shapes = ((2, 6, t, d), (2, 2, s, d), (2, 2, s, dv))
    return [rng.standard_normal(shape).astype(np_type) for shape in shapes]


def attend(cpu: Cpu, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Without sinks and log-sum-exp."""
    return cpu.run("attention", [*inputs, None], attrs)[0]


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("causal", ["none", "first_key", "last_key"])
@pytest.mark.parametrize("size", [(1, 70, 16, 16), (2, 33, 24, 40), (40, 130, 16, 20)], ids=str)
def test_lengths(cpu: Cpu, size: tuple[int, int, int, int], causal: str, name: str) -> None:
    q, k, v = operands(np.random.default_rng(1), *size, name)
    attrs = {"scale": 0.25, "causal": causal}
    length = np.array([size[1] - 3, size[1] // 2])
    for kv_length in (None, np.array(size[1] // 3 + 1), length):
        inputs = [q, k, v, kv_length, None]
        judge("attention", inputs, attrs, attend(cpu, inputs, attrs), cpu.kernel)


@pytest.mark.parametrize("t", [1, 2, 50])
def test_masks(cpu: Cpu, t: int) -> None:
    rng = np.random.default_rng(2)
    q, k, v = operands(rng, t, 75, 16, 18, "f32")
    seen = rng.integers(0, 3, (2, 6, t, 75)) > 0
    seen[1, 2] = False
    seen[0, 1, :, :60] = False
    added = np.where(rng.integers(0, 3, (t, 75)) > 0, 0.5, -np.inf).astype(np.float32)
    added[0, :70] = -np.inf
    for mask in (seen, seen[:, :1], added):
        for causal in ("none", "last_key"):
            attrs = {"scale": 0.25, "causal": causal}
            inputs = [q, k, v, np.array(74), mask]
            judge("attention", inputs, attrs, attend(cpu, inputs, attrs), cpu.kernel)


@pytest.mark.parametrize("t", [1, 3, 40])
def test_stale_cache_does_not_leak(cpu: Cpu, t: int) -> None:
    """NaN and infinity beyond the length or the diagonal have no part; a visible NaN has."""
    q, k, v = operands(np.random.default_rng(3), t, 90, 16, 16, "f32")
    attrs = {"scale": 0.25, "causal": "last_key"}
    clean = attend(cpu, [q, k, v, np.array(80), None], attrs)
    k[:, :, 80:], v[:, :, 80:] = np.nan, np.inf
    np.testing.assert_array_equal(attend(cpu, [q, k, v, np.array(80), None], attrs), clean)
    v[:, :, 79] = np.nan  # seen by the last query only
    inputs = [q, k, v, np.array(80), None]
    out = attend(cpu, inputs, attrs)
    assert np.isnan(out[:, :, -1]).all() and np.isfinite(out[:, :, :-1]).all()
    judge("attention", inputs, attrs, out, cpu.kernel)


def test_cache_with_gaps(cpu: Cpu) -> None:
    """Keys and values as views of a larger cache, heads innermost."""
    rng = np.random.default_rng(4)
    cache = rng.standard_normal((2, 100, 2, 2, 16)).astype(np.float32)
    k, v = (cache[:, :64, i].transpose(0, 2, 1, 3) for i in (0, 1))
    for t in (1, 30):
        q = rng.standard_normal((2, 6, t, 16)).astype(np.float32)
        attrs = {"scale": 0.25, "causal": "last_key"}
        inputs = [q, k, v, np.array(50, np.int32), None]
        judge("attention", inputs, attrs, attend(cpu, inputs, attrs), cpu.kernel)


def test_same_bits_for_any_number_of_threads() -> None:
    few, many = Cpu(threads=1), Cpu(threads=4)
    attrs = {"scale": 0.25, "causal": "last_key"}
    for t, s in ((1, 2000), (120, 300)):
        inputs = [*operands(np.random.default_rng(5), t, s, 32, 32, "f32"), None, None]
        np.testing.assert_array_equal(attend(few, inputs, attrs), attend(many, inputs, attrs))


@pytest.mark.parametrize("more", [{"window": 3}, {"softcap": 2.0}, {"return_lse": True}, None])
def test_forms_without_a_kernel_are_refused_by_type(cpu: Cpu, more: dict[str, Any] | None) -> None:
    q, k, v = operands(np.random.default_rng(5), 2, 9, 8, 8, "f32")
    sinks = np.zeros(6, np.float32) if more is None else None
    attrs = {"scale": 0.25, "causal": "last_key", **(more or {})}
    with pytest.raises(Refused, match="no window, softcap, sinks or log-sum-exp"):
        cpu.run("attention", [q, k, v, None, None, sinks], attrs)
