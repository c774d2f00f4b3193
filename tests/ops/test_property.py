"""Every op on every device against its reference: dtypes, layouts, edges, poisoned outputs.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

import anyhal as hal
from anyhal.conformance.cases import CASES, random_case
from anyhal.conformance.numerics.calls import (
    Right,
    answers_of,
    judge_answers,
    judge_sample,
    run_sample,
    values,
)
from anyhal.conformance.numerics.probes import Probe
from anyhal.conformance.tolerance import mismatch
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._spec import OpSpec, Sample
from device_runs import Output, call, devices, layouts_of, modes, place

REASONS_SHOWN = 6
# A third of the profile's examples: each one runs in two layouts and, for rich ops, in two forms.
EFFORT = settings(max_examples=settings.default.max_examples // 3)
Judged = tuple[Sample, list[Right | None]]


def judged(op: str, sample: Sample) -> Judged:
    return sample, answers_of(BY_NAME[op], sample)


@cache
def samples(op: str) -> tuple[Judged, ...]:
    """The samples of the op's file; references are the same for every device."""
    return tuple(judged(op, s) for s in BY_NAME[op].samples(np.random.default_rng(5)))


def wrong_with(spec: OpSpec, case: Judged, arrays: tuple[Any, ...], flushes: bool) -> str:
    sample, answers = case
    found = judge_answers(answers, arrays, flushes).wrong
    return judge_sample(spec, sample, arrays, flushes).wrong if found and flushes else found


def check(spec: OpSpec, case: Judged, device: str, mode: str, seed: int) -> str:
    """Runs one case twice: dense into new outputs, then in odd layouts into poisoned ones."""
    sample, answers = case
    there, attrs = hal.device(device), dict(sample.attrs)
    arrays = [None if x is None else place(x, "dense", device) for x in sample.inputs]
    made = iter(values(call(spec, arrays, attrs, mode=mode)))
    results = tuple(None if a is None else next(made) for a in answers)
    wrong = wrong_with(spec, case, results, there.flushes_denormals)
    if wrong:
        return f"dense: {wrong}"
    layouts = tuple(layouts_of(sample, seed))
    part = run_sample(spec, Probe(sample, layouts), there, mode)
    wrong = part.refusal or part.failed
    wrong = wrong or wrong_with(spec, case, part.arrays, there.flushes_denormals)
    return f"{'/'.join(layouts)}: {wrong}" if wrong else ""


def outcome(spec: OpSpec, case: Judged, device: str, mode: str, seed: int) -> str | None:
    """What is wrong, with all that is needed to run it again. A refusal is wrong too: what a
    device lacks it decomposes, and the ten core ops it must have."""
    try:
        found = check(spec, case, device, mode, seed)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    return f"{spec.name} on {device} ({mode}), {case[0].label}: {found}" if found else None


@pytest.mark.parametrize("op", CASES)
@pytest.mark.parametrize("device", devices())
def test_samples_meet_their_reference(device: str, op: str) -> None:
    spec = BY_NAME[op]
    for mode in modes(spec):
        found = [outcome(spec, c, device, mode, i) for i, c in enumerate(samples(op))]
        wrong = [f for f in found if f is not None]
        shown = "\n".join(wrong[:REASONS_SHOWN])
        assert not wrong, f"{len(wrong)} of {len(found)} cases are wrong\n{shown}"


@pytest.mark.parametrize("op", CASES)
@pytest.mark.parametrize("device", devices())
@EFFORT
@given(seed=integers(0, 2**32 - 1))
def test_random_cases_meet_their_reference(device: str, op: str, seed: int) -> None:
    spec, case = BY_NAME[op], judged(op, random_case(op, seed))
    for mode in modes(spec):
        wrong = outcome(spec, case, device, mode, seed)
        assert wrong is None, wrong


@pytest.mark.parametrize("device", devices())
def test_the_decomposed_form_is_core_ops_alone(device: str) -> None:
    def calls() -> Counter[tuple[str, bool]]:
        found: Counter[tuple[str, bool]] = Counter()
        for r in hal.routes():
            found[r["op"], r["decomposed"]] += r["calls"]
        return found

    for spec in (s for s in BY_NAME.values() if not s.is_core):
        sample, _ = samples(spec.name)[0]
        arrays = [None if x is None else place(x, "dense", device) for x in sample.inputs]
        before = calls()
        call(spec, arrays, dict(sample.attrs), mode="decomposed")
        used = calls() - before
        assert used and all(BY_NAME[op].is_core and whole for op, whole in used), spec.name


@pytest.mark.parametrize("short", ["f32", "i64", "bool"])
@pytest.mark.parametrize("layout", ["offset", "gaps"])
def test_a_missing_or_stray_write_is_seen(layout: str, short: str) -> None:
    device, d = devices()[0], dtype(short)
    nothing = np.zeros((3, 4), d.numpy)
    zero = place(nothing, "dense", device)
    out = Output((3, 4), d, layout, device)
    assert mismatch(out.values(), nothing, nothing.astype(float), d) is not None
    call(BY_NAME["copy"], [zero], {}, out.view)
    assert mismatch(out.values(), nothing, nothing.astype(float), d) is None
    call(BY_NAME["copy"], [zero[:1, :1]], {}, out.frame[:1, :1])
    with pytest.raises(AssertionError, match="outside the output"):
        out.values()
