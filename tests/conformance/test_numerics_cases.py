"""The numerics of the suite: its cases and what they catch.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.conformance import numerics, report, suite
from anyhal.conformance.numerics import bounded, classes, elementwise, exact, public_bugs, special
from anyhal.conformance.numerics.calls import answers_of, is_informative
from anyhal.conformance.suite import Answer, Case, Part
from anyhal.conformance.worker import Bench
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._oracle import rounded

LAST = Part("")


def case(name: str) -> Case:
    return next(c for c in numerics.cases() if c.id == name)


def right_answers(of: Case, seed: int) -> list[Part]:
    """What an ideal backend gives."""
    kind = numerics._kind_of(of)
    parts = []
    for probe in kind.probes(of, seed):
        found = answers_of(BY_NAME[of.op], probe.sample)
        arrays = tuple(None if a is None else rounded(a.want, a.kind) for a in found)
        parts.append(Part(probe.sample.label, arrays))
    return parts


def judged(of: Case, seed: int, parts: list[Part]) -> suite.Finding:
    return numerics.judge(of, seed, Answer((*parts, LAST)))


def test_ids_are_unique_and_of_one_form() -> None:
    ids = [c.id for c in numerics.cases()]
    assert len(set(ids)) == len(ids)
    for made in numerics.cases():
        assert made.id.startswith(f"numerics/{made.op}/") and made.tier in suite.TIERS
        assert made.id.endswith(f"/{made.given['mode']}")


def test_every_op_has_every_kind_that_fits_it() -> None:
    quick = [c for c in numerics.cases() if c.tier != "full"]
    for spec in BY_NAME.values():
        if not spec.public:
            continue
        kinds = {c.id.split("/")[2] for c in quick if c.op == spec.name}
        assert {"samples", "sequences"} <= kinds, spec.name
        forms = {c.given["mode"] for c in quick if c.op == spec.name}
        assert forms == {"fused"} if spec.is_core else {"fused", "decomposed"}, spec.name


@pytest.mark.parametrize(
    "name",
    [
        "numerics/matmul/exact/bf16/products/quick/fused",
        "numerics/softmax/special/f32/all/fused",
        "numerics/unary/elementwise/f32/quick/fused",
        "numerics/layer_norm/bounded/f16/fills/fused",
        "numerics/matmul/classes/f32/bits/fused",
        "numerics/attention/public_bugs/059-pytorch-103963/fused",
    ],
)
def test_both_processes_make_the_same_inputs_from_a_seed(name: str) -> None:
    def digest(seed: int) -> str:
        of = case(name)
        found = hashlib.sha256()
        for probe in numerics._kind_of(of).probes(of, seed):
            found.update(repr((probe.sample.label, probe.layouts, probe.exact)).encode())
            for x in probe.sample.inputs:
                found.update(b"-" if x is None else np.ascontiguousarray(x).tobytes())
        return found.hexdigest()

    assert digest(7) == digest(7) != digest(8)


def test_both_forms_of_an_op_share_their_inputs() -> None:
    fused = case("numerics/conv/exact/f32/products/kernel_1/quick/fused")
    decomposed = case("numerics/conv/exact/f32/products/kernel_1/quick/decomposed")
    assert suite.seed_for("n", fused) == suite.seed_for("n", decomposed)
    assert suite.seed_for("n", fused) != suite.seed_for("m", fused)


# ------------------------------------------------------------------------------- what is caught


def spoiled(parts: list[Part], change: Any, output: int = 0) -> list[Part]:
    """The answers with `change(array)` in place of one output of every call."""
    found = []
    for part in parts:
        arrays = list(part.arrays)
        arrays[output] = change(arrays[output].copy())
        found.append(Part(part.label, tuple(arrays)))
    return found


def one_element(x: Any) -> Any:
    if x.size:
        x.reshape(-1)[-1] = x.reshape(-1)[-1] + 1
    return x


@pytest.mark.parametrize("op", sorted(exact.PRODUCTS) + ["cumsum", "reduce", "scatter_add"])
def test_an_exact_case_allows_no_other_bits(op: str) -> None:
    of = next(c for c in exact.cases() if c.op == op and c.tier == "quick")
    parts = right_answers(of, 3)
    assert judged(of, 3, parts).outcome == "pass"
    wrong = [
        Part(p.label, (*(one_element(a.copy()) if a is not None else a for a in p.arrays),))
        for p in parts
    ]
    assert judged(of, 3, wrong).code == "wrong_value"


def matmul_with(accumulate: Any, probes: Any) -> list[Part]:
    """The answers of a kernel that sums products one after the other with `accumulate`."""
    parts = []
    for probe in probes:
        a, b = (x.astype(np.float32) for x in probe.sample.inputs)
        total = np.zeros(
            (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), np.float32
        )
        for k in range(a.shape[-1]):
            total = accumulate(total, a[..., k : k + 1], b[..., k : k + 1, :])
        right = answers_of(BY_NAME["matmul"], probe.sample)[0]
        assert right is not None
        parts.append(Part(probe.sample.label, (total.astype(right.kind.numpy),)))
    return parts


def _short(name: str) -> Any:
    kind = dtype(name).numpy

    def accumulate(total: Any, a: Any, b: Any) -> Any:
        return (total + a * b).astype(kind).astype(np.float32)

    return accumulate


def _tf32(x: Any) -> Any:
    return (x.view(np.uint32) + 0x1000 & 0xFFFFE000).view(np.float32)


BROKEN = {
    "sums in f16": _short("f16"),
    "sums in bf16": _short("bf16"),
    "factors of TF32": lambda t, a, b: (
        t + _tf32(np.ascontiguousarray(a)) * _tf32(np.ascontiguousarray(b))
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_the_phases_find_short_sums_and_short_factors(broken: str) -> None:
    found = []
    with np.errstate(all="ignore"):
        for name in ("exact/f32/products/quick", "bounded/f32/long", "classes/f32/bits"):
            of = case(f"numerics/matmul/{name}/fused")
            probes = list(numerics._kind_of(of).probes(of, 5))
            found.append(judged(of, 5, matmul_with(BROKEN[broken], probes)).outcome)
    assert found == ["fail"] * 3


@pytest.mark.parametrize("order", ["forward", "fused multiply-add", "blocks"])
def test_other_orders_of_summation_pass(order: str) -> None:
    """Correct kernels that differ: no phase may refuse them."""

    def sequential(total: Any, a: Any, b: Any) -> Any:
        return total + a * b

    def fma(total: Any, a: Any, b: Any) -> Any:
        return (total.astype(np.float64) + a.astype(np.float64) * b).astype(np.float32)

    def blocks(probes: Any) -> list[Part]:
        parts = []
        for probe in probes:
            a, b = (x.astype(np.float32) for x in probe.sample.inputs)
            cut = a.shape[-1] // 3
            ends = ((0, cut), (cut, 2 * cut), (2 * cut, a.shape[-1]))
            total = sum(np.matmul(a[..., i:j], b[..., i:j, :]) for i, j in ends)
            right = answers_of(BY_NAME["matmul"], probe.sample)[0]
            assert right is not None
            parts.append(Part(probe.sample.label, (np.asarray(total).astype(right.kind.numpy),)))
        return parts

    for name in (
        "exact/f32/products/quick",
        "bounded/f32/long",
        "classes/f32/bits",
        "classes/bf16/bias",
    ):
        of = case(f"numerics/matmul/{name}/fused")
        probes = list(numerics._kind_of(of).probes(of, 11))
        by = {"forward": sequential, "fused multiply-add": fma}.get(order)
        parts = blocks(probes) if by is None else matmul_with(by, probes)
        finding = judged(of, 11, parts)
        assert finding.outcome == "pass", (name, finding)


def test_a_truncating_store_is_biased() -> None:
    def truncated(x: Any) -> Any:
        wide = x.astype(np.float32).view(np.uint32) & 0xFFFF0000
        return wide.view(np.float32).astype(dtype("bf16").numpy)

    of = case("numerics/binary/classes/bf16/bias/fused")
    parts = []
    for probe in classes.probes(of, 2):
        a, b = (x.astype(np.float32) for x in probe.sample.inputs)
        parts.append(Part("", (truncated(a * b),)))
    assert judged(of, 2, parts).outcome == "fail"
    assert judged(of, 2, right_answers(of, 2)).outcome == "pass"


def test_a_one_pass_variance_is_found() -> None:
    of = case("numerics/layer_norm/special/f32/all/fused")
    parts = []
    for probe, right in zip(special.probes(of, 4), right_answers(of, 4), strict=True):
        x, weight, bias, residual = probe.sample.inputs
        t = x if residual is None else x + residual
        n = np.float32(t.shape[-1])
        mean = t.sum(-1, keepdims=True, dtype=np.float32) / n
        square = (t * t).sum(-1, keepdims=True, dtype=np.float32) / n
        with np.errstate(all="ignore"):
            y = (t - mean) / np.sqrt(square - mean * mean + np.float32(probe.sample.attrs["eps"]))
            y = y if weight is None else y * weight
            y = y if bias is None else y + bias
        parts.append(Part("", (y.astype(np.float32), *right.arrays[1:])))
    assert judged(of, 4, parts).outcome == "fail"


@pytest.mark.parametrize("causal", ["first_key", "last_key"])
def test_a_mask_that_is_one_off_is_found(causal: str) -> None:
    of = case("numerics/attention/special/f32/all/fused")
    found = []
    for probe, right in zip(special.probes(of, 6), right_answers(of, 6), strict=True):
        attrs = dict(probe.sample.attrs)
        if attrs["causal"] == causal and not attrs.get("window") and probe.sample.inputs[3] is None:
            shifted = dict(probe.sample.attrs, causal="none")
            scores_seen = BY_NAME["attention"].reference_outs(*probe.sample.inputs, **shifted)
            found.append(Part("", (scores_seen[0].astype(np.float32), *right.arrays[1:])))
        else:
            found.append(right)
    assert judged(of, 6, found).outcome == "fail"


# ------------------------------------------------------------------------------ vacuity, coverage


def test_a_tolerance_as_wide_as_the_answer_says_nothing() -> None:
    f32, want = dtype("f32"), np.ones((10, 10))
    assert is_informative(want, np.full((10, 10), 1 / 17), f32)
    assert not is_informative(want, np.full((10, 10), 1 / 16), f32)
    some = np.zeros((10, 10))
    some[0, 0] = 1
    assert is_informative(want, some, f32)  # one of a hundred
    some[0, 1] = 1
    assert not is_informative(want, some, f32)
    assert not is_informative(np.full(3, np.nan), np.zeros(3), f32)  # cubecl#1070
    assert not is_informative(np.zeros((0, 3)), np.zeros((0, 3)), f32)
    assert is_informative(np.zeros(3), np.zeros(3), dtype("i32"))


def test_vacuous_passes_cover_nothing() -> None:
    row: dict[str, Any] = {"group": "numerics", "op": "matmul"}
    rows = [
        {**row, "outcome": "pass", "measured": {"informative": True}},
        {**row, "outcome": "pass", "measured": {"informative": False}},
        {**row, "outcome": "refused", "measured": {}},
    ]
    assert report.coverage(rows) == {"matmul": {"informative": 1, "refused": 1}}


def test_exact_and_special_cases_at_quick_are_informative() -> None:
    """A case of which nothing can be said would not count; none of these may be so."""
    for of in [c for c in exact.cases() if c.tier == "quick" and c.given["mode"] == "fused"][::7]:
        finding = judged(of, 1, right_answers(of, 1))
        assert finding.outcome == "pass" and finding.measured["vacuous"] < finding.measured["calls"]


# --------------------------------------------------------------------------------- public defects


def test_public_bugs_name_their_issue_once() -> None:
    named = [(row.number, row.issue) for row in public_bugs.ROWS]
    assert len(set(named)) == len(named) and all("#" in issue for _, issue in named)
    ids = [c.id for c in public_bugs.cases() if c.tier == "quick"]
    assert "numerics/matmul/public_bugs/048-pytorch-53635/fused" in ids


def test_what_the_public_bug_gave_is_found() -> None:
    """pytorch#53635 gave 1025; rocBLAS#340 90 for 105."""
    for name, value in (("048-pytorch-53635", 1025), ("039-rocBLAS-340", 90)):
        of = case(f"numerics/matmul/public_bugs/{name}/fused")
        right = right_answers(of, 0)
        assert judged(of, 0, right).outcome == "pass"

        def as_reported(x: Any, value: int = value) -> Any:
            x.reshape(-1)[-1] = value
            return x

        assert judged(of, 0, spoiled(right, as_reported)).outcome == "fail"


# ---------------------------------------------------------------------------- on a real backend


@pytest.mark.parametrize("kind", [elementwise, bounded, special, exact])
def test_the_reference_backend_passes(kind: Any) -> None:
    """A slice of each kind in this process; the runner's tests have the rest."""
    device = hal.device("cpu_ref")
    chosen = [
        c for c in kind.cases() if c.tier == "quick" and c.op in ("matmul", "cast", "softmax")
    ]
    assert chosen
    for of in chosen:
        found = numerics.run(of, Bench(device, 9))
        finding = numerics.judge(of, 9, found) if isinstance(found, Answer) else found
        assert finding.outcome in ("pass", "refused"), (of.id, finding)
