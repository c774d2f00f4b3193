"""Every decomposition, run by the references of the core ops, meets its op's own reference.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from trace_machine import Machine, output_specs

from anyhal import ops
from anyhal.conformance.cases import random_case
from anyhal.conformance.tolerance import bound, mismatch
from anyhal.ops import conv, scatter
from anyhal.ops._spec import Blocks, OpSpec, Sample

CORE = (
    *("copy", "fill", "cast", "unary", "binary", "where", "reduce", "matmul", "gather"),
    "scatter_add",
)
RICH = [spec for spec in ops.BY_NAME.values() if not spec.is_core]


def test_the_ten_core_ops_are_the_ones_without_a_decomposition() -> None:
    assert sorted(s.name for s in ops.BY_NAME.values() if s.is_core) == sorted(CORE)


@pytest.mark.parametrize("spec", RICH, ids=lambda s: s.name)
def test_decomposition_meets_the_reference(spec: OpSpec) -> None:
    random = (random_case(spec.name, seed) for seed in range(60))
    for sample in itertools.chain(spec.samples(np.random.default_rng(1)), random):
        outs = output_specs(spec, sample)
        machine = Machine(spec, sample, outs)
        used = {c.op for c in machine.trace.calls}
        assert used and used <= set(CORE), sample.label
        wanted = spec.reference_outs(*sample.inputs, **sample.attrs)
        for i, (out, want) in enumerate(zip(outs, wanted, strict=True)):
            if out is None:
                continue
            name = spec.bound_of(i)
            allowed = bound(name, spec, sample.inputs, sample.attrs, want, out.dtype)
            found = machine.results[i]
            wrong = mismatch(found, want, allowed, out.dtype, bits=name == "exact")
            assert wrong is None, f"{spec.name} {sample.label} {spec.outputs[i].name}: {wrong}"


@pytest.mark.parametrize("spec", RICH, ids=lambda s: s.name)
def test_decomposition_writes_no_input(spec: OpSpec) -> None:
    for sample in spec.samples(np.random.default_rng(2)):
        machine = Machine(spec, sample, output_specs(spec, sample))
        first = len(spec.outputs) if spec.aliasing == "required" else 0
        for i, x in enumerate(sample.inputs[first:], first):
            if x is not None:
                data = x.data if isinstance(x, Blocks) else x
                assert machine.memory["operand", i].tobytes() == data.tobytes(), sample.label


@pytest.mark.parametrize("limit", [1, 50, 400])
@pytest.mark.parametrize("name", ["conv", "scatter"])
def test_parts_of_any_size_give_the_same(
    name: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conv, "_COLUMNS_MAX", limit)
    monkeypatch.setattr(scatter, "_TABLE_MAX", limit)
    spec, seeds = ops.lookup(name), range(20)
    for sample in [random_case(name, seed) for seed in seeds]:
        (out,) = output_specs(spec, sample)
        assert out is not None
        want = spec.reference(*sample.inputs, **sample.attrs)
        allowed = bound(spec.bound, spec, sample.inputs, sample.attrs, want, out.dtype)
        found = Machine(spec, sample, (out,)).results[0]
        assert mismatch(found, want, allowed, out.dtype) is None, sample.label


def test_calls_and_memory_stay_bounded() -> None:
    rng = np.random.default_rng(3)
    image, kernel = rng.standard_normal((2, 8, 40, 41)), rng.standard_normal((8, 8, 5, 5))
    many = rng.integers(0, 9, 3000)
    cases = {
        "conv": Sample("", (image, kernel, None, None)),
        "max_pool": Sample("", (image,), {"kernel": (9, 9), "strides": (1, 1), "pads": (4,) * 4}),
        "scatter": Sample("", (image[0, 0, 0], many, many * 0.5), {"axis": 0, "reduction": "none"}),
    }
    for (name, sample), calls in zip(cases.items(), (8, 4, 100), strict=True):
        spec = ops.lookup(name)
        trace = Machine(spec, sample, output_specs(spec, sample)).trace
        assert len(trace.calls) <= calls, name
        assert max((t.size for t in trace.temps), default=0) <= 1 << 22, name
