"""The known-answer test of one cell: small samples of its op file, judged by the op's bound.
SPDX-License-Identifier: Apache-2.0

Imported when a cell is tested, which happens once per machine: `selftest` keeps the verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from anyhal import _core
from anyhal.conformance.tolerance import bound, mismatch, rounded_factors
from anyhal.dtypes import DType, dtype
from anyhal.errors import DeviceLostError, HalError, OutOfMemoryError
from anyhal.ops._oracle import wide
from anyhal.ops._record import pack
from anyhal.ops._spec import Blocks, OpSpec, Sample, TensorSpec
from anyhal.runtime import array as arrays
from anyhal.runtime import context
from anyhal.runtime.device import KNOWN_ANSWERS, Device
from anyhal.runtime.queue import Queue

SAMPLES = 2  # per cell: a few milliseconds
_LARGEST = 4096  # elements
_LARGEST_ROUNDED = 1 << 16  # where factors are rounded, which pays for larger products only

_queues: dict[str, Queue] = {}


class NoAnswerError(Exception):
    """The cell was asked and refused, for a reason that may be gone in another process."""


def run(device: Device, spec: OpSpec, main: DType, words: Sequence[int]) -> str:
    """ "" for right answers, else the sentence that says what was wrong. NoAnswerError for none."""
    queue = _queues.get(device.name)
    if queue is None:
        # Its own queue: the caller's may be capturing.
        queue = _queues[device.name] = Queue(device)
    rng = np.random.default_rng(spec.id)
    judged = 0
    with context.use(device=device, queue=queue):
        largest = _LARGEST_ROUNDED if words[0] else _LARGEST
        for sample in chosen(spec.samples(rng), main, largest):
            if judged == SAMPLES:
                break
            failed = (
                f"{spec.name} {main.short} on {device.name} failed its known-answer test"
                f" ({sample.label}): "
            )
            try:
                why = judge(device, queue, spec, sample, words)
            except NoAnswerError as error:
                raise NoAnswerError(f"{failed}{error}; it is left out in this process") from error
            judged += why is not None
            if why:
                return f"{failed}{why}; the cell is quarantined"
    return ""


def chosen(samples: Iterable[Sample], main: DType, largest: int) -> list[Sample]:
    found = []
    for sample in samples:
        first = _main_input(sample)
        if first is None or _dtype_of(first) != main:
            continue
        sizes = [_size(x) for x in sample.inputs if x is not None]
        if min(sizes) > 0 and max(sizes) <= largest:
            found.append(sample)
    found.sort(key=lambda s: -sum(_size(x) for x in s.inputs if x is not None))
    return found


def _main_input(sample: Sample) -> Any:
    return next((x for x in sample.inputs if x is not None), None)


def _size(x: Any) -> int:
    return int(np.prod(x.shape, dtype=np.int64))


def _dtype_of(x: Any) -> DType:
    return x.dtype if isinstance(x, Blocks) else dtype(x.dtype)


def judge(
    device: Device, queue: Queue, spec: OpSpec, sample: Sample, words: Sequence[int]
) -> str | None:
    """None: the backend does not claim this form of the op, which is no wrong answer."""
    attrs = {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}
    inputs = [None if x is None else _on_device(device, x) for x in sample.inputs]
    specs = [None if a is None else arrays.spec_of(a) for a in inputs]
    wanted: tuple[TensorSpec | None, ...]
    if spec.shape_from_out:
        first = TensorSpec.dense(specs[0].dtype, sample.out_shape or ())  # type: ignore[union-attr]
        wanted = (first,)
    else:
        wanted = spec.infer_outs(specs, attrs)
    in_place = spec.aliasing == "required"
    outs = [
        None
        if w is None
        else inputs[i]
        if in_place
        else arrays.empty(w.shape, dtype=w.dtype, device=device)
        for i, w in enumerate(wanted)
    ]
    views, lowered, targets = spec.lower_outs(specs, attrs, wanted)
    operands = [_operand(a, v) for a, v in zip(inputs, views, strict=True)]
    for i, (out, target) in enumerate(zip(outs, targets, strict=True)):
        operand = _operand(out, target)
        operands.append((*operand[:5], i + 1, *operand[6:]) if in_place else operand)
    called, record = spec.called(sample.attrs), pack(spec, lowered)
    call: Any = (
        *(device.native, spec.id, len(inputs), operands),
        *(record, list(words), called),
    )
    try:
        if not _core.query(*call)["support"]:
            return None
        plan = _core.prepare(*call)
        known = f"known answers of {spec.name}"
        plan.describe(spec.name, called, device.fact.state, known, False, 0, True, KNOWN_ANSWERS)
        plan.run([*inputs, *outs], queue._native)
        found = [None if out is None else arrays.numpy(out) for out in outs]
    except (OutOfMemoryError, DeviceLostError):
        raise  # says nothing about answers, and the verdict is kept for ever
    except HalError as why:
        raise NoAnswerError(str(why)) from why
    references = spec.reference_outs(*sample.inputs, **sample.attrs)
    for i, want in enumerate(wanted):
        if want is None:
            continue
        args = (want, found[i], references[i], words[0], device.flushes_denormals)
        wrong = _compare(spec, sample, i, *args)
        if wrong:
            return wrong if len(wanted) == 1 else f"{spec.outputs[i].name}: {wrong}"
    return ""


def _compare(
    spec: OpSpec,
    sample: Sample,
    i: int,
    want: TensorSpec,
    actual: Any,
    reference: Any,
    accumulate: int,
    flushes: bool,
) -> str:
    reference = np.asarray(reference)
    if spec.shape_from_out:
        reference = np.broadcast_to(reference, want.shape)
    if want.dtype.is_block:  # moved, never computed: the values must be equal
        actual = wide(Blocks(actual, want.dtype, want.shape))
        return mismatch(actual, reference, np.zeros(want.shape), dtype("float64")) or ""
    limit = bound(spec.bound_of(i), spec, sample.inputs, sample.attrs, reference, want.dtype)
    limit = limit + rounded_factors(accumulate, spec, sample.inputs, sample.attrs)
    return mismatch(actual, reference, limit, want.dtype, flushes=flushes) or ""


def _on_device(device: Device, x: Any) -> Any:
    if isinstance(x, Blocks):
        return arrays.frombuffer(
            np.ascontiguousarray(x.data), x.dtype, x.shape, device=device, constant=True
        )
    return arrays.asarray(x, device=device)


def _operand(a: Any, view: TensorSpec | None) -> Any:
    if a is None or view is None:
        return (0, [], [], 1, 4, 0, 0, 0, 0)
    cell, block_bytes, offset = _core.block_range(a)
    return (
        view.dtype.value,
        list(view.shape),
        list(view.strides),
        _core.alignment(a),
        int(a.constant),
        0,
        block_bytes if cell else 0,
        offset if cell else 0,
        0,
    )
