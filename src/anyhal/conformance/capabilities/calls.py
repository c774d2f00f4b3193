"""One call in the contract's form, and what a backend says to it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from anyhal import _core
from anyhal.conformance.capabilities.frames import Frame, strided
from anyhal.dtypes import DType, dtype, of_value
from anyhal.errors import (
    ExecutionFailedError,
    HalError,
    InvalidArgumentError,
    UnsupportedError,
)
from anyhal.ops import BY_NAME
from anyhal.ops._record import pack
from anyhal.ops._spec import Blocks, OpSpec, Outs, Sample, TensorSpec, dense_strides
from anyhal.records import record, replace

ABSENT: tuple[Any, ...] = (0, [], [], 1, 4, 0, 0, 0, 0)
# The core's own limits. Calls of a higher rank are described, not run; of more operands split up.
RANK_OF_ARRAYS = 8
_OPERANDS = 24
STRICT = (0, 0, 0, 0, 0, 0)


@record
class Call:
    """A sample, and in what it differs from the plain dense call."""

    spec: OpSpec
    sample: Sample
    layouts: tuple[str, ...]  # of inputs, then outputs
    words: tuple[int, ...] = STRICT  # anyhal_op_desc.numerics
    in_place: int = -1  # the input that output 0 is
    retyped: tuple[tuple[int, int], ...] = ()  # (operand, dtype) in place of the sample's
    changed: tuple[tuple[int, int], ...] = ()  # (offset, 32-bit word) of the attribute record
    tail: bytes = b""  # after the attribute record
    missing: int = -1  # an operand described as absent
    runs: bool = True  # whether there are arrays for it

    @staticmethod
    def plain(spec: OpSpec, sample: Sample) -> Call:
        count = len(sample.inputs) + len(spec.outputs)
        return Call(spec, sample, ("dense",) * count)

    @property
    def input_count(self) -> int:
        return len(self.sample.inputs)

    @property
    def attrs(self) -> dict[str, Any]:
        return {a.name: self.sample.attrs.get(a.name, a.default) for a in self.spec.attrs}

    @property
    def can_run(self) -> bool:
        ranks = (s.rank for s in (*self.input_specs(), *self.output_specs()) if s is not None)
        return self.runs and max(ranks) <= RANK_OF_ARRAYS

    def input_specs(self) -> list[TensorSpec | None]:
        return [
            None if x is None else _laid(dtype_of(x), x.shape, layout)
            for x, layout in zip(self.sample.inputs, self.layouts, strict=False)
        ]

    def alias_of(self, output: int) -> int:
        """The input that an output is, or -1."""
        if self.spec.aliasing == "required":
            return output
        return self.in_place if output == 0 else -1

    def output_specs(self) -> Outs:
        first = self.input_specs()
        if self.spec.shape_from_out:
            assert first[0] is not None
            dense: Outs = (TensorSpec.dense(first[0].dtype, self.sample.out_shape or ()),)
        else:
            dense = self.spec.infer_outs(first, self.attrs)
        return tuple(
            None
            if o is None
            else first[self.alias_of(n)]
            if self.alias_of(n) >= 0
            else _laid(o.dtype, o.shape, self.layouts[self.input_count + n])
            for n, o in enumerate(dense)
        )


def dtype_of(x: Any) -> DType:
    return x.dtype if isinstance(x, Blocks | TensorSpec) else dtype(x.dtype)


# The operand whose dtype capability rows name, where it is not the first input.
_MAIN = {"where": 1, "random_uniform": 1, "random_normal": 1, "random_integers": 1}


def main_dtype(call: Call) -> str:
    """The short name that a row of the op names for this call."""
    at = _MAIN.get(call.spec.name, 0)
    inputs = call.sample.inputs
    found = inputs[at] if at < len(inputs) else call.output_specs()[at - len(inputs)]
    return "" if found is None else dtype_of(found).short


def _laid(d: DType, shape: Sequence[int], layout: str) -> TensorSpec:
    if layout == "dense" or d.is_block:
        return TensorSpec.dense(d, shape)
    return TensorSpec(d, tuple(shape), strided(tuple(shape), layout)[0])


@record
class Told:
    """What a backend said: "yes", "no", "unknown" (prepare knows), "invalid" or "error"."""

    kind: str
    reason: str = ""
    text: str = ""
    wants: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        words = {"yes": "yes", "no": "no", "unknown": "that prepare knows", "invalid": "invalid"}
        return f"{words.get(self.kind, 'an error')}{f' ({self.reason})' if self.reason else ''}"


class Described:
    """A call as `query` and `prepare` take it; with `frames`, where its operands are."""

    def __init__(self, device: Any, call: Call, frames: Sequence[Frame | None] = ()) -> None:
        self.device, self.call = device, call
        outs = call.output_specs()
        views, lowered, targets = call.spec.lower_outs(call.input_specs(), call.attrs, outs)
        found = [*views, *targets]
        self.operands = [
            _operand(device, v, frames[i] if frames else None) for i, v in enumerate(found)
        ]
        for n, out in enumerate(outs):
            if out is not None and call.alias_of(n) >= 0:
                at = call.input_count + n
                self.operands[at] = (*self.operands[at][:5], call.alias_of(n) + 1, 0, 0, 0)
                own = self.operands[call.alias_of(n)]
                self.operands[at] = (*self.operands[at][:6], *own[6:])
        for i, value in call.retyped:
            self.operands[i] = (value, *self.operands[i][1:])
        if call.missing >= 0:
            self.operands[call.missing] = ABSENT
        bytes_ = bytearray(pack(call.spec, lowered))
        for offset, word in call.changed:
            bytes_[offset : offset + 4] = (word & 0xFFFFFFFF).to_bytes(4, "little")
        self.attributes = bytes(bytes_) + call.tail

    def _arguments(self) -> tuple[Any, ...]:
        call = self.call
        words, name = list(call.words), call.spec.called(call.sample.attrs)
        native = self.device.native
        head = (native, call.spec.id, call.input_count, self.operands)
        return (*head, self.attributes, words, name)

    def query(self) -> Told:
        try:
            said = _core.query(*self._arguments())
        except InvalidArgumentError as why:
            return Told("invalid", text=str(why))
        except HalError as why:
            return Told("error", why.code, str(why))
        kind = ("no", "yes", "unknown")[said["support"]]
        reason = "" if said["support"] else said["reason"]
        return Told(kind, reason, said["text"], tuple(said["wants"]))

    def prepare(self) -> tuple[Told, Any]:
        try:
            return Told("yes"), _core.prepare(*self._arguments())
        except UnsupportedError as why:
            return Told("no", why.reason, str(why)), None
        except InvalidArgumentError as why:
            return Told("invalid", text=str(why)), None
        except HalError as why:
            return Told("error", why.code, str(why)), None

    def satisfied(self, wants: Sequence[tuple[int, int]]) -> bool:
        """Whether all operands have what a verdict asks for; those that have not become dense, as
        the core's copies are."""
        well = True
        for i, (layout, alignment) in enumerate(wants[: len(self.operands)]):
            value, dims, strides, aligned, flags, *rest = self.operands[i]
            if flags & 4 or not (layout or alignment > aligned):
                continue
            own = TensorSpec(of_value(value), tuple(dims), tuple(strides))
            if not (own.is_dense or not layout) or alignment > aligned:
                dense = list(dense_strides(dims, own.dtype))
                self.operands[i] = (value, dims, dense, max(aligned, alignment, 64), flags, *rest)
                well = False
        return well


def _operand(device: Any, view: TensorSpec | None, frame: Frame | None) -> Any:
    if view is None:
        return ABSENT
    cell, block_bytes, offset, alignment, constant = False, 0, 0, 64, False
    if frame is not None:
        cell, block_bytes, offset = _core.block_range(frame.view)
        alignment, constant = _core.alignment(frame.view), frame.view.constant
    elif device.native.cells:
        cell, block_bytes = True, max(1, view.nbytes)
    place = (block_bytes, offset) if cell else (0, 0)
    shape, strides = list(view.shape), list(view.strides)
    return (view.dtype.value, shape, strides, alignment, int(constant), 0, *place, 0)


class Placed:
    """The arrays of a call: inputs with their values, outputs poisoned, all between guards."""

    def __init__(self, device: Any, call: Call) -> None:
        self.call = call
        self.inputs = [
            None if x is None else Frame(device, dtype_of(x), x.shape, layout, x)
            for x, layout in zip(call.sample.inputs, call.layouts, strict=False)
        ]
        self.outputs: list[Frame | None] = []
        for n, out in enumerate(call.output_specs()):
            own = call.alias_of(n)
            layout = call.layouts[call.input_count + n]
            self.outputs.append(
                None
                if out is None
                else self.inputs[own]
                if own >= 0
                else Frame(device, out.dtype, out.shape, layout)
            )

    @property
    def frames(self) -> list[Frame | None]:
        return [*self.inputs, *self.outputs]

    def run(self, plan: Any, queue: Any) -> None:
        """Raises what the call, or waiting for it, says."""
        spec, attrs = self.call.spec, self.call.sample.attrs
        name = spec.called(attrs)
        plan.describe(spec.name, name, "", f"capabilities of {name}", False, 0.0, True, "strict")
        plan.run([None if f is None else f.view for f in self.frames], queue)
        queue.wait_all()

    def damage(self) -> tuple[str, str]:
        """(code, sentence) when guards or inputs are no longer what they were."""
        for i, frame in enumerate(self.inputs):
            if frame is not None and frame not in self.outputs and frame.changed():
                return "input_changed", f"input {i} was changed"
        for frame in self.outputs:
            if frame is not None and frame.outside():
                return "outside_written", "something beside the output was written"
        return "", ""

    def untouched(self) -> bool:
        """Whether a refused call changed nothing. What was lost with work that had been accepted
        the core lets nobody read."""
        for frame in self.frames:
            with suppress(ExecutionFailedError, InvalidArgumentError):
                if frame is not None and frame.changed():
                    return False
        return True

    def values(self) -> tuple[Any, ...]:
        return tuple(None if f is None else f.values() for f in self.outputs)


def possible(call: Call) -> bool:
    """Whether the op has such a call, and the core would pass it on."""
    if len(call.layouts) > _OPERANDS:
        return False
    try:
        outs = call.output_specs()
        call.spec.lower_outs(call.input_specs(), call.attrs, outs)
    except (HalError, ValueError, TypeError, AssertionError, IndexError, KeyError):
        return False
    return True


def with_attrs(call: Call, **attrs: Any) -> Call:
    sample = call.sample
    return replace(call, sample=replace(sample, attrs={**sample.attrs, **attrs}))


def with_input(call: Call, i: int, x: Any) -> Call:
    inputs = list(call.sample.inputs)
    inputs[i] = x
    return replace(call, sample=replace(call.sample, inputs=tuple(inputs)))


@cache
def every_call(op: str) -> tuple[Call, ...]:
    """The samples of an op, for questions to which values do not matter; fewest operands first."""
    spec = BY_NAME[op]
    found = [Call.plain(spec, s) for s in spec.samples(np.random.default_rng(spec.id))]
    able = (call for call in found if possible(call))
    return tuple(sorted(able, key=lambda c: sum(x is not None for x in c.sample.inputs)))


@cache
def plain_calls(op: str) -> tuple[Call, ...]:
    """Those of `every_call` that are small and not empty."""
    return tuple(call for call in every_call(op) if small(call.sample))


@cache
def dtypes_of(op: str) -> tuple[str, ...]:
    """The dtypes that a row of the op can name."""
    spec = BY_NAME[op]
    if _MAIN.get(op, 0) < len(spec.inputs):
        return tuple(spec.dtypes)
    return tuple(dict.fromkeys(main_dtype(call) for call in plain_calls(op)))


def small(sample: Sample) -> bool:
    sizes = [int(np.prod(x.shape, dtype=np.int64)) for x in sample.inputs if x is not None]
    return bool(sizes) and min(sizes) > 0 and max(sizes) <= 4096
