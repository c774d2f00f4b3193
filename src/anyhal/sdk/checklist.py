"""The check list that a backend passes before it is shown to others: `anyhal check-backend`.
SPDX-License-Identifier: Apache-2.0

Every claim is put to the test that users' calls would be: the op files' samples and references, the
bounds of conformance, the table that the core loaded. Nothing is taken from the backend's word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from anyhal import _core
from anyhal.dispatch.known_answers import NoAnswerError, chosen, judge
from anyhal.dtypes import ALL, DType, dtype
from anyhal.errors import HalError, UnsupportedError
from anyhal.ops import BY_NAME
from anyhal.ops._record import fields, pack
from anyhal.ops._spec import OpSpec, Sample, TensorSpec
from anyhal.runtime import array as arrays
from anyhal.runtime import context
from anyhal.runtime.device import Device
from anyhal.runtime.queue import Queue

STRICT = (0,) * 6
_UNKNOWN_OP = 60000
_LARGEST = 1 << 16  # elements of a sample
_MOST_OPERANDS = 24  # that the core takes: more is refused before the backend is asked
_CELL = tuple[OpSpec, DType]
Ask = Callable[[str], None]  # told what the backend is asked next


@dataclass(frozen=True)
class Line:
    """One line of the list: what was asked, and why it failed ("" when it holds)."""

    check: str
    failed: str = ""
    count: int = 0  # of what was looked at


def check_device(device: Device, ask: Callable[[str, str], None]) -> Iterator[Line]:
    """The whole list for one device, line by line as it is answered. `ask` is told of each question
    before it is put: the check, and what it is about."""
    for name, step in _STEPS:
        ask(name, "")
        try:
            count, failed = step(device, partial(ask, name))
        except HalError as why:
            count, failed = 0, str(why)
        yield Line(name, failed, count)


def _says_what_it_is(device: Device, ask: Ask) -> tuple[int, str]:
    fact = device.fact
    if not device.native.record["name"]:
        return 1, "the device has no name; fill name in device_list"
    if not fact.arch:
        return 1, "the device has no arch; fill arch in device_list: known answers are kept by it"
    if fact.memory_bytes == 0:
        return 1, "memory kind 0 says heap_bytes 0; give what the device has"
    return 3, ""


def _bytes_come_back(device: Device, ask: Ask) -> tuple[int, str]:
    rng = np.random.default_rng(1)
    count = 0
    for kind in (d for d in device.dtypes if d.numpy is not None and d.short != "bool"):
        ask(kind.short)
        for shape in ((), (0, 3), (1,), (3, 5), (129, 7)):
            given = np.frombuffer(
                rng.bytes(int(np.prod(shape, dtype=int)) * kind.block_bytes), kind.numpy
            ).reshape(shape)
            found = arrays.numpy(arrays.asarray(given, device=device))
            if found.tobytes() != given.tobytes():
                return count, f"{kind.short}{list(shape)} came back with other bytes"
            count += 1
    return count, ""


def _cells(device: Device) -> list[_CELL]:
    rows = device.capabilities()
    return [(BY_NAME[r["op"]], dtype(d)) for r in rows if r["op"] in BY_NAME for d in r["dtypes"]]


def _declares(device: Device, ask: Ask) -> tuple[int, str]:
    rows = device.capabilities()
    if not rows:
        return 0, "it declares nothing: answer device_query with ANYHAL_QUERY_CAPABILITIES"
    strange = [r["op"] for r in rows if r["op"] not in BY_NAME]
    if strange:
        return len(rows), f"it declares ops that the registry lacks: {', '.join(strange)}"
    return len(rows), ""


def _answers_are_known(device: Device, ask: Ask) -> tuple[int, str]:
    queue, count = Queue(device), 0
    with context.use(device=device, queue=queue):
        for spec, main in _cells(device):
            taken = 0
            for sample in _samples(spec, main):
                ask(f"{spec.name} {main.short} ({sample.label})")
                where = f"{spec.name} {main.short} ({sample.label}): "
                try:
                    why = judge(device, queue, spec, sample, STRICT)
                except NoAnswerError as error:
                    return count, f"{where}{error}"
                if why:
                    return count, f"{where}{why}"
                taken += why is not None
            if not taken and _samples(spec, main):
                return count, (
                    f"{spec.name} {main.short} is declared, and op_query refuses every sample of"
                    " it; one table of rows should answer both"
                )
            count += taken
    return count, ""


def _samples(spec: OpSpec, main: DType) -> list[Sample]:
    drawn = spec.samples(np.random.default_rng(spec.id))
    most = _MOST_OPERANDS - len(spec.outputs)
    samples = [s for s in drawn if len(s.inputs) <= most]
    if not _is_draw(spec):
        return chosen(samples, main, _LARGEST)
    return [s for s in chosen(samples, dtype("u64"), _LARGEST) if _drawn(spec, s) == main]


def _is_draw(spec: OpSpec) -> bool:
    """Whether the only input is a key, so that the main operand is the output."""
    return [arg.name for arg in spec.inputs] == ["key"]


def _drawn(spec: OpSpec, sample: Sample) -> DType | None:
    attrs = {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}
    (out, *_) = spec.infer_outs([_spec(x) for x in sample.inputs], attrs)
    return None if out is None or out.size == 0 else out.dtype


def _the_rest_is_refused(device: Device, ask: Ask) -> tuple[int, str]:
    """What is not declared is not run, and each "no" has its reason and its words."""
    declared = {(spec.name, main.short) for spec, main in _cells(device)}
    count = 0
    for spec in BY_NAME.values():
        for kind in ALL:
            takes = _is_draw(spec) or kind.short in spec.dtypes
            if (spec.name, kind.short) in declared or not takes:
                continue
            call = _asked(device, spec, kind)
            if call is None:
                continue
            count += 1
            ask(f"{spec.name} {kind.short}")
            verdict = _core.query(*call)
            if verdict["support"]:
                return count, f"{spec.name} {kind.short} is not declared, and op_query takes it"
            if verdict["reason"] == "none" or not verdict["text"]:
                return count, f"{spec.name} {kind.short} is refused without a reason or its words"
            try:
                _core.prepare(*call)
            except UnsupportedError:
                continue
            return count, f"{spec.name} {kind.short} is refused by op_query, not by op_prepare"
    return count, ""


def _asked(device: Device, spec: OpSpec, main: DType) -> Any:
    """The first sample of a cell as the table is asked; None where the op has no plain one."""
    if spec.shape_from_out or main.numpy is None or spec.aliasing == "required":
        return None
    found = _samples(spec, main)
    if not found or any(not isinstance(x, np.ndarray | None) for x in found[0].inputs):
        return None
    attrs = {a.name: found[0].attrs.get(a.name, a.default) for a in spec.attrs}
    specs = [None if x is None else _spec(x) for x in found[0].inputs]
    views, record, outs = spec.lower_outs(specs, attrs, spec.infer_outs(specs, attrs))
    operands = [_operand(view) for view in (*views, *outs)]
    return (device.native, spec.id, len(views), operands, pack(spec, record), list(STRICT))


def _spec(x: Any) -> Any:
    return TensorSpec.dense(dtype(x.dtype), x.shape)


def _operand(view: Any) -> Any:
    if view is None:
        return (0, [], [], 1, 4, 0, 0, 0, 0)
    return (view.dtype.value, list(view.shape), list(view.strides), 64, 0, 0, 0, 0, 0)


def _the_unknown_is_refused(device: Device, ask: Ask) -> tuple[int, str]:
    count = 0
    for spec, main in _first_of_each_op(device):
        call = _asked(device, spec, main)
        if call is None:
            continue
        native, op, inputs, operands, record, words = call
        rank = [(o[0], [1] * 40, [1] * 40, *o[3:]) for o in operands]
        wrong = {
            "an op of a later registry": (native, _UNKNOWN_OP, inputs, operands, record, words),
            "numerics of a later contract": (native, op, inputs, operands, record, [0] * 5 + [9]),
            "40 dims": (native, op, inputs, rank, record, words),
        }
        if fields(spec):
            flag = record[:4] + b"\1\0\0\0" + record[8:]
            wrong["an unknown attribute flag"] = (native, op, inputs, operands, flag, words)
        for what, question in wrong.items():
            count += 1
            ask(f"{spec.name} {main.short}, {what}")
            try:
                verdict = _core.query(*question)
            except HalError:
                continue  # a malformed description is an error
            if verdict["support"]:
                return count, f"{spec.name} {main.short}: op_query takes {what}"
            if verdict["reason"] == "none":
                return count, f"{spec.name} {main.short}: {what} is refused without a typed reason"
    return count, ""


def _first_of_each_op(device: Device) -> Iterator[_CELL]:
    seen: set[str] = set()
    for spec, main in _cells(device):
        if spec.name not in seen:
            seen.add(spec.name)
            yield spec, main


def _a_plan_runs_again(device: Device, ask: Ask) -> tuple[int, str]:
    """One plan, other operands, then the first again: other answers, then the same bits."""
    queue, count = Queue(device), 0
    with context.use(device=device, queue=queue):
        for spec, main in _first_of_each_op(device):
            call = _asked(device, spec, main)
            if call is None or not _core.query(*call)["support"]:
                continue
            sample = _samples(spec, main)[0]
            ask(f"{spec.name} {main.short} ({sample.label})")
            given = [None if x is None else arrays.asarray(x, device=device) for x in sample.inputs]
            specs = [None if a is None else arrays.spec_of(a) for a in given]
            attrs = {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}
            wanted = spec.infer_outs(specs, attrs)
            plan = _core.prepare(*call)
            found = []
            for _ in range(3):
                outs = [
                    None if w is None else arrays.empty(w.shape, dtype=w.dtype, device=device)
                    for w in wanted
                ]
                plan.run([*given, *outs], queue._native)
                found.append([None if o is None else arrays.numpy(o).tobytes() for o in outs])
            if found[1] != found[0] or found[2] != found[0]:
                return count, f"{spec.name} {main.short}: a second call of one plan gave other bits"
            count += 1
    return count, ""


_STEPS: tuple[tuple[str, Callable[[Device, Ask], tuple[int, str]]], ...] = (
    ("it says what it is", _says_what_it_is),
    ("bytes come back as they went", _bytes_come_back),
    ("it declares what it runs", _declares),
    ("every declared op and dtype gives the known answers", _answers_are_known),
    ("what is not declared is refused, with reason and words", _the_rest_is_refused),
    ("what this build cannot know is refused", _the_unknown_is_refused),
    ("a plan runs again with the same bits", _a_plan_runs_again),
)
