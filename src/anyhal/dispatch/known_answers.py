"""The known-answer test of one cell: small samples of its op file, judged by the op's bound.
SPDX-License-Identifier: Apache-2.0

Each operand lies between bytes that are NaN, or all ones, and stay so. One sample runs a second
time with other values, and once more with NaN between its rows where the device takes that layout.
Imported when a cell is tested, which happens once per machine: `selftest` keeps the verdicts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from anyhal import _core
from anyhal.conformance.tolerance import bound, mismatch, rounded_factors
from anyhal.dtypes import DType, dtype
from anyhal.errors import DeviceLostError, HalError, OutOfMemoryError, UnsupportedError
from anyhal.ops import BY_NAME
from anyhal.ops._oracle import wide
from anyhal.ops._record import pack
from anyhal.ops._spec import Blocks, OpSpec, Sample, TensorSpec, dense_strides
from anyhal.records import mutable_record, replace
from anyhal.runtime import array as arrays
from anyhal.runtime import context
from anyhal.runtime.device import KNOWN_ANSWERS, Device
from anyhal.runtime.queue import Queue

SAMPLES = 3  # per cell: a few milliseconds
_ENOUGH_S = 0.1  # a device that compiles for so long is asked for no further sample
_LARGEST = 4096  # elements
_LARGEST_ROUNDED = 1 << 16  # where factors are rounded, which pays for larger products only
_GUARD = 256  # bytes in front of and behind an operand: what any device aligns to
_PITCH = 3  # elements between two rows

_queues: dict[str, Queue] = {}


class NoAnswerError(Exception):
    """The cell was asked and refused, for a reason that may be gone in another process."""


def run(device: Device, spec: OpSpec, main: DType, words: Sequence[int], variant: str = "") -> str:
    """ "" for right answers, else the sentence that says what was wrong. NoAnswerError for none.

    `variant` is the function of an op that has several, such as exp of unary.
    """
    queue = _queues.get(device.name)
    if queue is None:
        # Its own queue: the caller's may be capturing.
        queue = _queues[device.name] = Queue(device)
    judged, pitch = 0, _PITCH
    until = time.monotonic() + _ENOUGH_S
    largest = _LARGEST_ROUNDED if words[0] else _LARGEST
    with context.use(device=device, queue=queue):
        samples = (x for x in _small_samples(spec.name) if variant in ("", called_of(spec, x)))
        for sample in _various(chosen(samples, main, largest)):
            if judged == SAMPLES or (judged and time.monotonic() > until):
                break
            said = f"{spec.name} {main.short} on {device.name} failed its known-answer test"
            failed = f"{said} ({sample.label}): "
            try:
                places = _Guarded(device, again=not judged)
                why = judge(device, queue, spec, sample, words, places)
                if why is None:  # perhaps not there: a device may want a block's beginning
                    why = judge(device, queue, spec, sample, words)
                if why == "" and pitch and _has_rows(sample):
                    places, pitch = _Guarded(device, pitch=pitch), 0
                    wrong = judge(device, queue, spec, sample, words, places)
                    why = f"with NaN between the rows: {wrong}" if wrong else ""
            except NoAnswerError as error:
                raise NoAnswerError(f"{failed}{error}; it is left out in this process") from error
            judged += why is not None
            if why:
                return f"{failed}{why}; the cell is quarantined"
    return ""


@lru_cache(maxsize=4)
def _small_samples(op: str) -> tuple[Sample, ...]:
    """An op with forty functions has as many cells, which come one after another."""
    spec = BY_NAME[op]
    rng = np.random.default_rng(spec.id)
    return tuple(s for s in spec.samples(rng) if all(n <= _LARGEST_ROUNDED for n in _sizes(s)))


def _has_rows(sample: Sample) -> bool:
    return any(_can_be_guarded(x) and np.ndim(x) > 1 for x in sample.inputs)


def called_of(spec: OpSpec, sample: Sample) -> str:
    """The function that the sample is of, "" where the op has one alone."""
    attrs = {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}
    return variant_of(spec, spec.called(attrs))


def variant_of(spec: OpSpec, called: str) -> str:
    """The function in a call's name, "" where the op has one alone."""
    name = called.partition(" ")[0]
    return name if spec.variants.get(name) else ""


def _various(samples: list[Sample]) -> list[Sample]:
    """The largest, one of another rank or size, the smallest; then the others."""
    shapes = [tuple(x.shape for x in s.inputs if x is not None) for s in samples]
    other = next((i for i, shape in enumerate(shapes) if shape[0] != shapes[0][0]), 0)
    first = dict.fromkeys([0, other, len(samples) - 1]) if samples else {}
    return [samples[i] for i in [*first, *(i for i in range(len(samples)) if i not in first)]]


def chosen(samples: Iterable[Sample], main: DType, largest: int) -> list[Sample]:
    found = []
    for sample in samples:
        first = _main_input(sample)
        if first is None or _dtype_of(first) != main:
            continue
        sizes = _sizes(sample)
        if min(sizes) > 0 and max(sizes) <= largest:
            found.append(sample)
    found.sort(key=lambda s: -sum(_sizes(s)))
    return found


def _main_input(sample: Sample) -> Any:
    return next((x for x in sample.inputs if x is not None), None)


def _sizes(sample: Sample) -> list[int]:
    """Elements of each operand."""
    return [math.prod(x.shape) for x in sample.inputs if x is not None]


def _dtype_of(x: Any) -> DType:
    return x.dtype if isinstance(x, Blocks) else dtype(x.dtype)


def judge(
    device: Device,
    queue: Queue,
    spec: OpSpec,
    sample: Sample,
    words: Sequence[int],
    places: _Places | None = None,
) -> str | None:
    """None: the backend does not claim this form of the op, which is no wrong answer."""
    places = places or _Places(device)
    inputs, outs, wanted = _laid_out(spec, sample, places)
    call = _call(device, spec, sample, words, inputs, outs, wanted)
    try:
        try:
            plan = _core.prepare(*call) if _core.query(*call)["support"] else None
        except UnsupportedError:  # what only prepare knows
            plan = None
        if plan is None:
            return None
        known = f"known answers of {spec.name}"
        plan.describe(spec.name, call[-1], device.fact.state, known, False, 0, True, KNOWN_ANSWERS)
        plan.run([*inputs, *outs], queue._native)
        found = [None if out is None else arrays.numpy(out) for out in outs]
        wrong = _wrong(device, spec, sample, wanted, found, words) or places.disturbed()
        if wrong or not places.again:
            return wrong
        sample = _other_values(sample)
        inputs, outs, _ = _laid_out(spec, sample, places)
        plan.run([*inputs, *outs], queue._native)
        found = [None if out is None else arrays.numpy(out) for out in outs]
    except (OutOfMemoryError, DeviceLostError):
        raise  # says nothing about answers, and the verdict is kept for ever
    except HalError as why:
        raise NoAnswerError(str(why)) from why
    wrong = _wrong(device, spec, sample, wanted, found, words) or places.disturbed()
    return f"in its second call: {wrong}" if wrong else ""


_Wanted = tuple[TensorSpec | None, ...]


def _laid_out(
    spec: OpSpec, sample: Sample, places: _Places
) -> tuple[list[Any], list[Any], _Wanted]:
    """Inputs and outputs on the device, and what the outputs must be."""
    attrs = {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}
    inputs = [None if x is None else places.put(x) for x in sample.inputs]
    specs = [None if a is None else arrays.spec_of(a) for a in inputs]
    wanted: _Wanted
    if spec.shape_from_out:
        first = TensorSpec.dense(specs[0].dtype, sample.out_shape or ())  # type: ignore[union-attr]
        wanted = (first,)
    else:
        wanted = spec.infer_outs(specs, attrs)
    in_place = spec.aliasing == "required"
    outs = [
        None if w is None else inputs[i] if in_place else places.room(w)
        for i, w in enumerate(wanted)
    ]
    return inputs, outs, wanted


def _call(
    device: Device,
    spec: OpSpec,
    sample: Sample,
    words: Sequence[int],
    inputs: Sequence[Any],
    outs: Sequence[Any],
    wanted: _Wanted,
) -> Any:
    """The call in the contract's form."""
    attrs = {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}
    specs = [None if a is None else arrays.spec_of(a) for a in inputs]
    views, lowered, targets = spec.lower_outs(specs, attrs, wanted)
    operands = [_operand(a, v) for a, v in zip(inputs, views, strict=True)]
    for i, (out, target) in enumerate(zip(outs, targets, strict=True)):
        operand = _operand(out, target)
        in_place = spec.aliasing == "required"
        operands.append((*operand[:5], i + 1, *operand[6:]) if in_place else operand)
    called, record = spec.called(sample.attrs), pack(spec, lowered)
    return (
        *(device.native, spec.id, len(inputs), operands),
        *(record, list(words), called),
    )


def _wrong(
    device: Device,
    spec: OpSpec,
    sample: Sample,
    wanted: Sequence[TensorSpec | None],
    found: Sequence[Any],
    words: Sequence[int],
) -> str:
    references = spec.reference_outs(*sample.inputs, **sample.attrs)
    for i, want in enumerate(wanted):
        if want is None:
            continue
        args = (want, found[i], references[i], words[0], device.flushes_denormals)
        wrong = _compare(spec, sample, i, *args)
        if wrong:
            return wrong if len(wanted) == 1 else f"{spec.outputs[i].name}: {wrong}"
    return ""


def _other_values(sample: Sample) -> Sample:
    """The same values in the reverse order, so that they stay what the op takes; integers may be
    positions and lengths, which depend on each other."""
    inputs = tuple(
        np.flip(x).copy() if _can_be_guarded(x) and dtype(x.dtype).kind == "float" else x
        for x in sample.inputs
    )
    return replace(sample, inputs=inputs)


# ---------------------------------------------------------------------------------------- places


@mutable_record
class _Places:
    """Where operands lie: each in a block of its own, from its beginning."""

    device: Device
    again: bool = False  # run the plan a second time

    def put(self, x: Any) -> Any:
        if isinstance(x, Blocks):
            data = np.ascontiguousarray(x.data)
            return arrays.frombuffer(data, x.dtype, x.shape, device=self.device, constant=True)
        return arrays.asarray(x, device=self.device)

    def room(self, want: TensorSpec) -> Any:
        return arrays.empty(want.shape, dtype=want.dtype, device=self.device)

    def disturbed(self) -> str:
        return ""


class _Guarded(_Places):
    """Each between bytes of ones: NaN, or -1. With a `pitch`, inputs have as much of that between
    their rows."""

    def __init__(self, device: Device, again: bool = False, pitch: int = 0) -> None:
        self.device, self.again, self.pitch = device, again, pitch
        self._blocks: list[tuple[Any, int]] = []  # with the bytes of what lies in the middle

    def put(self, x: Any) -> Any:
        if not _can_be_guarded(x):
            return super().put(x)
        x, kind = np.asarray(x), dtype(x.dtype)
        strides = list(dense_strides(x.shape, kind))
        if self.pitch and x.ndim > 1 and x.size:
            rows = (*x.shape[:-1], x.shape[-1] + self.pitch)
            strides, padded = list(dense_strides(rows, kind)), _ones(rows, x.dtype)
            padded[..., : x.shape[-1]] = x
            flat = padded.reshape(-1)
        else:
            flat = x.reshape(-1)
        return self._between(flat, kind, x.shape, strides)

    def room(self, want: TensorSpec) -> Any:
        if want.dtype.is_block or want.dtype.kind == "bool":
            return super().room(want)
        flat = _ones((int(np.prod(want.shape, dtype=np.int64)),), want.dtype.numpy)
        return self._between(flat, want.dtype, want.shape, list(want.strides))

    def _between(self, flat: Any, kind: DType, shape: Any, strides: list[int]) -> Any:
        guard = _ones((_GUARD // flat.dtype.itemsize,), flat.dtype)
        block = arrays.asarray(np.concatenate([guard, flat, guard]), device=self.device)
        self._blocks.append((block, flat.nbytes))
        return _core.view(block, kind.value, list(shape), strides, _GUARD)

    def disturbed(self) -> str:
        """What was written outside of all operands since they were placed."""
        for block, middle in self._blocks:
            raw = np.ascontiguousarray(arrays.numpy(block)).view(np.uint8)
            outside = np.concatenate([raw[:_GUARD], raw[_GUARD + middle :]])
            if (outside != 0xFF).any():
                before = bool((raw[:_GUARD] != 0xFF).any())
                return f"it wrote {'in front of' if before else 'behind'} an operand"
        self._blocks.clear()
        return ""


def _can_be_guarded(x: Any) -> bool:
    """Arrays of whole bytes whose every pattern is a value."""
    return x is not None and not isinstance(x, Blocks) and dtype(x.dtype).kind != "bool"


def _ones(shape: tuple[int, ...], kind: Any) -> Any:
    made = np.empty(shape, kind)
    made.reshape(-1).view(np.uint8)[...] = 0xFF
    return made


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
    given = (spec.bound_of(i), spec, sample.inputs, sample.attrs, reference, want.dtype)
    limit = bound(*given, flushes=flushes)
    limit = limit + rounded_factors(accumulate, spec, sample.inputs, sample.attrs)
    return mismatch(actual, reference, limit, want.dtype, flushes=flushes) or ""


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
