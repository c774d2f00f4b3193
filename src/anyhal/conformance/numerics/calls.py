"""One call of an op on the device under test, and one judgement of what it gave.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.placing import Output, OutsideError, call, place
from anyhal.conformance.suite import Part
from anyhal.conformance.tolerance import bound, mismatch
from anyhal.dtypes import DType, dtype, of_value
from anyhal.ops import BY_NAME
from anyhal.ops._spec import Blocks, OpSpec, Sample, TensorSpec

FLUSHED = 2.0**-126


def run_sample(
    spec: OpSpec, sample: Sample, device: str, mode: str, layouts: tuple[str, ...]
) -> Part:
    """Inputs in those layouts, the output poisoned between guards; inputs looked at afterwards."""
    try:
        arrays = [
            None if x is None else place(x, kind, device)
            for x, kind in zip(sample.inputs, layouts, strict=True)
        ]
        results = _called(spec, sample, arrays, device, mode, layouts)
    except hal.UnsupportedError as why:
        return Part(sample.label, refusal=str(why), code=why.reason)
    except OutsideError as why:
        return Part(sample.label, code="outside_written", failed=str(why))
    changed = _changed(spec, sample, arrays)
    return Part(sample.label, results, "", "input_changed" if changed else "", changed)


def _called(
    spec: OpSpec,
    sample: Sample,
    arrays: list[Any],
    device: str,
    mode: str,
    layouts: tuple[str, ...],
) -> tuple[Any, ...]:
    attrs = dict(sample.attrs)
    if spec.aliasing == "required":
        call(spec, arrays, attrs, mode=mode)
        return tuple(None if a is None else a.numpy() for a in arrays[: len(spec.outputs)])
    full = {a.name: attrs.get(a.name, a.default) for a in spec.attrs}
    wanted = outs_of(spec, sample, full)
    if any(w is not None and w.dtype.is_block for w in wanted):
        return values(call(spec, arrays, attrs, mode=mode))
    outs = [None if w is None else Output(w.shape, w.dtype, layouts[0], device) for w in wanted]
    views = tuple(None if o is None else o.view for o in outs)
    call(spec, arrays, attrs, views if spec.more_outputs else views[0], mode)
    return tuple(None if o is None else o.values() for o in outs)


def _changed(spec: OpSpec, sample: Sample, arrays: list[Any]) -> str:
    """Which input is no longer what it was."""
    written = len(spec.outputs) if spec.aliasing == "required" else 0
    for i, (x, a) in enumerate(zip(sample.inputs, arrays, strict=True)):
        if i < written or x is None or isinstance(x, Blocks):
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


def judge_sample(spec: OpSpec, sample: Sample, arrays: tuple[Any, ...], flushes: bool) -> Judged:
    """The worst element of a call's outputs; a sentence where it is outside its bound."""
    wrong, worst = _judged(spec, sample, arrays, flushes)
    if wrong and flushes:
        zeroed = _flushed(sample)
        if zeroed is not None:
            wrong, worst = _judged(spec, zeroed, arrays, flushes)
    return Judged(wrong, worst)


class Judged:
    def __init__(self, wrong: str, worst: float) -> None:
        self.wrong, self.worst = wrong, worst


def _judged(
    spec: OpSpec, sample: Sample, arrays: tuple[Any, ...], flushes: bool
) -> tuple[str, float]:
    full = {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}
    wanted = outs_of(spec, sample, full)
    references = spec.reference_outs(*sample.inputs, **sample.attrs)
    worst = 0.0
    for i, (out, want, actual) in enumerate(zip(wanted, references, arrays, strict=True)):
        if out is None:
            continue
        want = np.asarray(want)
        if spec.shape_from_out:
            want = np.broadcast_to(want, out.shape)
        name, kind = spec.bound_of(i), dtype("f64") if out.dtype.is_block else out.dtype
        allowed = bound(name, spec, sample.inputs, sample.attrs, want, out.dtype)
        wrong = mismatch(actual, want, allowed, kind, bits=name == "exact", flushes=flushes)
        if wrong is not None:
            return (wrong if len(wanted) == 1 else f"{spec.outputs[i].name}: {wrong}"), worst
        worst = max(worst, _worst(actual, want, allowed, kind))
    return "", worst


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
    """With 0 for f32 and bf16 inputs below the smallest normal number; None where there is none."""

    def zeroed(x: Any) -> Any:
        if x is None or isinstance(x, Blocks) or dtype(x.dtype).short not in ("f32", "bf16"):
            return x
        return np.where(np.abs(x.astype(np.float64)) < FLUSHED, 0, x).astype(x.dtype)

    inputs = tuple(map(zeroed, sample.inputs))
    pairs = zip(inputs, sample.inputs, strict=True)
    if all(a is b or a.tobytes() == b.tobytes() for a, b in pairs):
        return None
    return Sample(sample.label, inputs, sample.attrs, sample.out_shape)
