"""One call of an op on the device under test, and one judgement of what it gave.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import anyhal as hal
from anyhal.conformance.placing import Output, OutsideError, call, place, shown_array
from anyhal.conformance.suite import Part
from anyhal.conformance.tolerance import bound, mismatch, nearest, wrong_elements
from anyhal.dtypes import DType, dtype, of_value
from anyhal.ops import BY_NAME
from anyhal.ops._oracle import rounded
from anyhal.ops._spec import Blocks, OpSpec, Sample, TensorSpec

if TYPE_CHECKING:
    from anyhal.conformance.numerics.probes import Probe

FLUSHED = {"f32": 2.0**-126, "bf16": 2.0**-126, "f64": 2.0**-1022}  # below it, by dtype
Held = Literal["nan", "ones", "negated"]  # NaN; all bits set; the right answer with another sign
# Exact functions whose op files say what becomes of the sign, that of zero included.
_SIGNED = {"unary": ("neg", "abs", "positive"), "binary": ("copysign",)}
_INFORMATIVE = 16  # a tolerance past this part of the root mean square says nothing
_VACUOUS = 0.01  # and more than this share of the elements may not have such a one


def run_sample(
    spec: OpSpec, probe: Probe, device: Any, mode: str, repeatable: bool = False
) -> Part:
    """Inputs in their layouts, outputs poisoned between guards; inputs looked at afterwards.
    `device` is a Device, whose name need not be looked up at every operand."""
    sample = probe.sample
    layouts = probe.layouts or ("dense",) * len(sample.inputs)
    try:
        arrays = [
            None if x is None else place(x, kind, device)
            for x, kind in zip(sample.inputs, layouts, strict=True)
        ]
        results = _called(spec, probe, arrays, device, mode, layouts)
        for _ in range(probe.repeats - 1):
            again = _called(spec, probe, arrays, device, mode, layouts)
            if repeatable and _bits(again) != _bits(results):
                why = "the same call gave other bits, though it declares that it does not"
                return Part(sample.label, code="not_deterministic", failed=why)
            results = again
    except hal.UnsupportedError as why:
        return Part(sample.label, refusal=str(why), code=why.reason)
    except OutsideError as why:
        operands = ["absent" if a is None else shown_array(a) for a in arrays]
        said = f"{' '.join([spec.name, *operands])}: {why}"
        return Part(sample.label, code="outside_written", failed=said)
    changed = _changed(spec, probe, arrays)
    return Part(sample.label, results, "", "input_changed" if changed else "", changed)


def _bits(results: tuple[Any, ...]) -> list[Any]:
    return [None if r is None else r.tobytes() for r in results]


def _called(
    spec: OpSpec,
    probe: Probe,
    arrays: list[Any],
    device: Any,
    mode: str,
    layouts: tuple[str, ...],
) -> tuple[Any, ...]:
    sample = probe.sample
    attrs = dict(sample.attrs)
    if spec.aliasing == "required":
        call(spec, arrays, attrs, mode=mode)
        return tuple(None if a is None else a.numpy() for a in arrays[: len(spec.outputs)])
    full = {a.name: attrs.get(a.name, a.default) for a in spec.attrs}
    wanted = outs_of(spec, sample, full)
    if any(w is not None and w.dtype.is_block for w in wanted):
        return values(call(spec, arrays, attrs, mode=mode))
    outs = [None if w is None else Output(w.shape, w.dtype, layouts[0], device) for w in wanted]

    def once() -> None:
        views = [None if o is None else o.view for o in outs]
        if probe.into >= 0:
            views[0] = arrays[probe.into]
        call(spec, arrays, attrs, tuple(views) if spec.more_outputs else views[0], mode)

    once()
    if probe.held != "nan":
        for out in outs:
            if out is not None:
                out.hold(probe.held)
        once()
    results = [None if o is None else o.values() for o in outs]
    if probe.into >= 0:
        results[0] = arrays[probe.into].numpy()
    return tuple(results)


def _changed(spec: OpSpec, probe: Probe, arrays: list[Any]) -> str:
    """Which input is no longer what it was."""
    written = len(spec.outputs) if spec.aliasing == "required" else 0
    for i, (x, a) in enumerate(zip(probe.sample.inputs, arrays, strict=True)):
        if i < written or x is None or isinstance(x, Blocks) or i == probe.into:
            continue
        if a.numpy().tobytes() != np.ascontiguousarray(x).tobytes():
            return f"the call changed its input {i}"
    return ""


def values(made: Any) -> tuple[Any, ...]:
    """NumPy values of what a call gave; blocks decoded."""
    rows = made if isinstance(made, tuple) else (made,)
    return tuple(
        None
        if m is None
        else call(BY_NAME["cast"], [m], {"dtype": "float64"}).numpy()
        if of_value(m._dtype_value).is_block
        else m.numpy()
        for m in rows
    )


def outs_of(spec: OpSpec, sample: Sample, full: dict[str, Any]) -> tuple[TensorSpec | None, ...]:
    specs = [spec_of(x) for x in sample.inputs]
    if spec.shape_from_out:
        assert specs[0] is not None
        return (TensorSpec.dense(specs[0].dtype, sample.out_shape or ()),)
    return spec.infer_outs(specs, full)


def spec_of(x: Any) -> TensorSpec | None:
    if x is None:
        return None
    return TensorSpec.dense(x.dtype if isinstance(x, Blocks) else dtype(x.dtype), x.shape)


class Judged:
    """`wrong` is a sentence or ""; `worst` the largest error as a part of what is allowed;
    `informative` whether the tolerance could have told right from wrong."""

    def __init__(self, wrong: str, worst: float, informative: bool) -> None:
        self.wrong, self.worst, self.informative = wrong, worst, informative


def judge_sample(
    spec: OpSpec, sample: Sample, arrays: tuple[Any, ...], flushes: bool, exact: bool = False
) -> Judged:
    """The outputs of a call against reference and bound; with `exact`, as the bits must be."""
    answers = answers_of(spec, sample, exact, flushes)
    found = judge_answers(answers, arrays, flushes)
    if found.wrong and flushes:
        zeroed = _flushed(sample)
        if zeroed is not None:
            # Of the steps of one op some may flush and others not: each element has its choice.
            other = answers_of(spec, zeroed, exact, flushes)
            either = [_nearer(*pair) for pair in zip(answers, other, arrays, strict=True)]
            found = judge_answers(either, arrays, flushes)
    return found


def _nearer(one: Right | None, other: Right | None, actual: Any) -> Right | None:
    """For each element the answer that it meets, if it meets one. A subnormal number that was
    chosen among others, which compare like it, is as good as the zero that they count as."""
    if one is None or other is None or np.shape(actual) != np.shape(other.want):
        return one

    def wrong(values: Any) -> Any:
        return wrong_elements(
            values, other.want, other.allowed, other.kind, bits=other.bits, flushes=True
        )

    as_it_is, as_zero = wrong(actual), wrong(_zeroed(actual))
    want = np.where(as_it_is, one.want, other.want)
    allowed = np.where(as_it_is, one.allowed, other.allowed)
    chosen = as_it_is & ~as_zero & (wrong_elements(actual, one.want, one.allowed, one.kind))
    return Right(one.name, np.where(chosen, actual, want), allowed, one.kind, one.bits)


def judge_answers(
    answers: Sequence[Right | None], arrays: tuple[Any, ...], flushes: bool = False
) -> Judged:
    worst, informative = 0.0, False
    for answer, actual in zip(answers, arrays, strict=True):
        if answer is None:
            continue
        want, allowed, kind = answer.want, answer.allowed, answer.kind
        wrong = mismatch(actual, want, allowed, kind, bits=answer.bits, flushes=flushes)
        if wrong is not None:
            return Judged(wrong if len(arrays) == 1 else f"{answer.name}: {wrong}", worst, True)
        worst = max(worst, _worst(actual, want, allowed, kind))
        informative = informative or is_informative(want, allowed, kind)
    return Judged("", worst, informative)


class Right:
    """One output as it should be: the reference in wide numbers and what is allowed beside it."""

    def __init__(self, name: str, want: Any, allowed: Any, kind: DType, bits: bool) -> None:
        self.name, self.want, self.allowed, self.kind, self.bits = name, want, allowed, kind, bits


def answers_of(
    spec: OpSpec, sample: Sample, exact: bool = False, flushes: bool = False
) -> list[Right | None]:
    full = {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}
    found: list[Right | None] = []
    wanted = outs_of(spec, sample, full)
    references = spec.reference_outs(*sample.inputs, **sample.attrs)
    for i, (out, want) in enumerate(zip(wanted, references, strict=True)):
        if out is None:
            found.append(None)
            continue
        want = np.asarray(want)
        if spec.shape_from_out:
            want = np.broadcast_to(want, out.shape)
        name, kind = spec.bound_of(i), dtype("f64") if out.dtype.is_block else out.dtype
        if exact:
            want, allowed = _as_stored(sample, want, kind), np.zeros(want.shape)
        else:
            given = (name, spec, sample.inputs, sample.attrs, want, out.dtype)
            allowed = bound(*given, flushes=flushes)
            if spec.name == "cast" and kind.kind == "float":  # which says how it rounds
                want, allowed = nearest(want, allowed, kind)
        bits = name == "exact" or full.get("fn") in _SIGNED.get(spec.name, ())
        found.append(Right(spec.outputs[i].name, want, allowed, kind, bits))
    return found


def _as_stored(sample: Sample, want: Any, kind: DType) -> Any:
    """The reference of an exact probe, which must need no rounding: else the probe is wrong."""
    if kind.kind != "float":
        return want
    stored = rounded(want, kind)
    if not np.array_equal(stored.astype(want.dtype), want, equal_nan=True):
        raise ValueError(f"{sample.label}: an exact probe whose answer is not exact")
    return stored


def is_informative(want: Any, allowed: Any, kind: DType) -> bool:
    """Whether most of the tolerances are far below the numbers that they judge."""
    if not np.size(want):
        return False
    if kind.kind != "float":
        return True
    with np.errstate(all="ignore"):
        wide = np.asarray(want, np.float64)
        finite = np.isfinite(wide)
        if not finite.any():
            return False
        rms = np.sqrt(np.mean(np.square(wide[finite])))
        limits = np.asarray(allowed, np.float64)[finite]
        return bool(np.mean((limits >= rms / _INFORMATIVE) & (limits > 0)) <= _VACUOUS)


def _worst(actual: Any, want: Any, allowed: Any, kind: DType) -> float:
    """The largest error as a part of what is allowed."""
    if kind.kind != "float" or not np.size(want):
        return 0.0
    with np.errstate(all="ignore"):
        wide = np.asarray(allowed, np.float64)
        error = np.abs(np.asarray(actual).astype(np.float64) - np.asarray(want, np.float64))
        ratio = np.where((wide > 0) & np.isfinite(error), error / wide, 0)
    return float(np.max(ratio, initial=0))


def _flushed(sample: Sample) -> Sample | None:
    """With zeros of their sign for inputs below the smallest normal number; None where there is
    none. Not of f16, whose small numbers are normal ones of the f32 it is computed in."""

    inputs = tuple(map(_zeroed, sample.inputs))
    pairs = zip(inputs, sample.inputs, strict=True)
    if all(a is b or a.tobytes() == b.tobytes() for a, b in pairs):
        return None
    return Sample(sample.label, inputs, sample.attrs, sample.out_shape)


def _zeroed(x: Any) -> Any:
    below = None if x is None or isinstance(x, Blocks) else FLUSHED.get(dtype(x.dtype).short)
    if below is None:
        return x
    wide = x.astype(np.float64)
    return np.where(np.abs(wide) < below, np.copysign(0, wide), x).astype(x.dtype)
