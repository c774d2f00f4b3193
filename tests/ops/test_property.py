"""Every op on every device against its reference: dtypes, layouts, edges, poisoned outputs.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

import anyhal as hal
from anyhal.conformance.cases import CASES, random_case
from anyhal.conformance.tolerance import bound, mismatch
from anyhal.dtypes import DType, dtype, of_value
from anyhal.ops import BY_NAME
from anyhal.ops._spec import Blocks, OpSpec, Sample, TensorSpec
from device_runs import Output, call, devices, layouts_of, modes, place

REASONS_SHOWN = 6
SMALLEST_NORMAL = 2.0**-126
# A third of the profile's examples: each one runs in two layouts and, for rich ops, in two forms.
EFFORT = settings(max_examples=settings.default.max_examples // 3)


@dataclass(frozen=True)
class Answer:
    """One output as it should be."""

    name: str
    bits: bool
    reference: Any
    tolerance: Any
    out: DType


@dataclass(frozen=True)
class Judged:
    """A sample with its references and how far off a result may be."""

    op: str
    sample: Sample
    answers: tuple[Answer | None, ...]  # None: an output that the call does not have

    @property
    def present(self) -> tuple[Answer, ...]:
        return tuple(a for a in self.answers if a is not None)


def judged(op: str, sample: Sample) -> Judged:
    spec = BY_NAME[op]
    attrs = {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}
    outs = spec.infer_outs([_spec(x) for x in sample.inputs], attrs)
    wanted = spec.reference_outs(*sample.inputs, **sample.attrs)
    answers: list[Answer | None] = []
    for i, (out, want) in enumerate(zip(outs, wanted, strict=True)):
        if out is None:
            answers.append(None)
            continue
        name, want = spec.bound_of(i), np.asarray(want)
        allowed = bound(name, spec, sample.inputs, sample.attrs, want, out.dtype)
        answers.append(Answer(spec.outputs[i].name, name == "exact", want, allowed, out.dtype))
    return Judged(op, sample, tuple(answers))


@cache
def samples(op: str) -> tuple[Judged, ...]:
    """The samples of the op's file; references are the same for every device."""
    return tuple(judged(op, s) for s in BY_NAME[op].samples(np.random.default_rng(5)))


def _spec(x: Any) -> TensorSpec | None:
    if x is None:
        return None
    return TensorSpec.dense(x.dtype if isinstance(x, Blocks) else dtype(x.dtype), x.shape)


def flushed(case: Judged) -> Judged | None:
    """The case with 0 for f32 and bf16 inputs below the smallest normal number, as a device may
    declare that it takes them; None where there are none."""

    def zeroed(x: Any) -> Any:
        if x is None or isinstance(x, Blocks) or dtype(x.dtype).short not in ("f32", "bf16"):
            return x
        return np.where(np.abs(x.astype(np.float64)) < SMALLEST_NORMAL, 0, x).astype(x.dtype)

    inputs = tuple(map(zeroed, case.sample.inputs))
    if all(
        a is b or a.tobytes() == b.tobytes()
        for a, b in zip(inputs, case.sample.inputs, strict=True)
    ):
        return None
    return judged(case.op, replace(case.sample, inputs=inputs))


def judge(case: Judged, found: Any, flushes: bool = False) -> str | None:
    """What is wrong with the outputs of a call, present ones only and in order."""
    results = found if isinstance(found, tuple) else (found,)
    for answer, actual in zip(case.present, results, strict=True):
        args = (answer.reference, answer.tolerance, answer.out)
        wrong = mismatch(actual, *args, bits=answer.bits, flushes=flushes)
        if wrong is not None:
            return wrong if len(results) == 1 else f"{answer.name}: {wrong}"
    return None


def values(made: Any) -> Any:
    """NumPy values of what a call gave; blocks decoded."""
    if isinstance(made, tuple):
        return tuple(values(m) for m in made)
    if of_value(made._dtype_value).is_block:
        return call(BY_NAME["cast"], [made], {"dtype": "float64"}).numpy()
    return made.numpy()


def check(spec: OpSpec, case: Judged, device: str, mode: str, seed: int) -> str | None:
    """Runs one case twice: dense into new outputs, then in odd layouts into poisoned ones."""
    sample, attrs = case.sample, dict(case.sample.attrs)
    flushes = hal.device(device).flushes_denormals
    arrays = [None if x is None else place(x, "dense", device) for x in sample.inputs]
    made = call(spec, arrays, attrs, mode=mode)
    if any(a.out.is_block for a in case.present):
        wide = replace(case, answers=tuple(replace(a, out=dtype("f64")) for a in case.present))
        return judge(wide, values(made), flushes)
    wrong = judge(case, values(made), flushes)
    if wrong is not None:
        return f"dense: {wrong}"
    layouts = list(layouts_of(sample, seed))
    arrays = [
        None if x is None else place(x, kind, device)
        for x, kind in zip(sample.inputs, layouts, strict=True)
    ]
    if spec.aliasing == "required":
        call(spec, arrays, attrs, mode=mode)
        wrong = judge(case, tuple(a.numpy() for a in arrays[: len(spec.outputs)]), flushes)
    else:
        outs = [
            None if a is None else Output(a.reference.shape, a.out, layouts[0], device)
            for a in case.answers
        ]
        views = tuple(None if o is None else o.view for o in outs)
        call(spec, arrays, attrs, views if spec.more_outputs else views[0], mode)
        wrong = judge(case, tuple(o.values() for o in outs if o is not None), flushes)
    return None if wrong is None else f"{'/'.join(layouts)}: {wrong}"


def outcome(spec: OpSpec, case: Judged, device: str, mode: str, seed: int) -> str | None:
    """What is wrong, with all that is needed to run it again. A refusal is wrong too: what a
    device lacks it decomposes, and the ten core ops it must have."""
    try:
        found = check(spec, case, device, mode, seed)
        if found and hal.device(device).flushes_denormals and (other := flushed(case)):
            found = check(spec, other, device, mode, seed) and found
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    label = f"{spec.name} on {device} ({mode}), {case.sample.label}"
    return None if found is None else f"{label}: {found}"


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
        case = samples(spec.name)[0]
        arrays = [None if x is None else place(x, "dense", device) for x in case.sample.inputs]
        before = calls()
        call(spec, arrays, dict(case.sample.attrs), mode="decomposed")
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
