"""Runs a decomposition with the registry's references: what an ideal backend would answer.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anyhal import ops
from anyhal.dtypes import DType, dtype
from anyhal.ops._checks import PACKED
from anyhal.ops._oracle import decode, pack_nibbles, rounded
from anyhal.ops._spec import Blocks, OpSpec, Outs, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value


def spec_of(x: Any) -> TensorSpec | None:
    """The dense description of a sample's input."""
    if x is None:
        return None
    return TensorSpec.dense(x.dtype if isinstance(x, Blocks) else dtype(x.dtype), x.shape)


def full_attrs(spec: OpSpec, sample: Sample) -> dict[str, Any]:
    return {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}


def output_specs(spec: OpSpec, sample: Sample) -> Outs:
    if spec.shape_from_out:
        assert sample.out_shape is not None
        return (TensorSpec.dense(dtype(sample.inputs[0].dtype), sample.out_shape),)
    return spec.infer_outs([spec_of(x) for x in sample.inputs], full_attrs(spec, sample))


def _buffer(x: Any) -> Any:
    data = x.data if isinstance(x, Blocks) else np.ascontiguousarray(x)
    return np.frombuffer(data.tobytes(), np.uint8).copy()


class Machine:
    """Operands, temporaries and constants as bytes; `calls` are executed one by one."""

    def __init__(self, spec: OpSpec, sample: Sample, outs: Outs) -> None:
        self.trace = Trace(ops.lookup)
        inputs = [spec_of(x) for x in sample.inputs]
        values = [None if s is None else Value("operand", i, s) for i, s in enumerate(inputs)]
        first = 0 if spec.aliasing == "required" else len(inputs)
        places = tuple(
            None if out is None else Value("operand", first + i, out) for i, out in enumerate(outs)
        )
        spec.decompose_outs(self.trace, values, full_attrs(spec, sample), places)
        self.memory: dict[tuple[str, int], Any] = {
            ("operand", i): _buffer(x) for i, x in enumerate(sample.inputs) if x is not None
        }
        # Poisoned: a float read before it is written is NaN.
        for place in (p for p in places if p is not None):
            poison = np.full(place.spec.nbytes, 0xFF, np.uint8)
            self.memory.setdefault(("operand", place.index), poison)
        for i, temp in enumerate(self.trace.temps):
            self.memory["temp", i] = np.full(temp.nbytes, 0xFF, np.uint8)
        for i, constant in enumerate(self.trace.constants):
            self.memory["constant", i] = _buffer(constant)
        for call in self.trace.calls:
            self._run(call)
        self.results = [None if p is None else self._result(p) for p in places]

    def view(self, v: Value) -> Any:
        """The elements as an ndarray over the memory; blocks as opaque items."""
        d: DType = v.dtype
        item = np.dtype((np.void, d.block_bytes)) if d.is_block else d.numpy
        assert item is not None
        shape = v.shape
        if d.is_block:
            shape = (*shape[:-1], shape[-1] // d.block_elements)
        strides = tuple(s * item.itemsize for s in v.spec.strides)
        if 0 in shape:
            return np.empty(shape, item)
        return np.ndarray(shape, item, self.memory[v.kind, v.index].data, v.offset, strides)

    def _result(self, v: Value) -> Any:
        return decode(self._load(v)) if v.dtype.is_block else self.view(v)

    def _load(self, v: Value | None) -> Any:
        if v is None:
            return None
        a = self.view(v)
        if v.dtype.is_block:
            data = np.frombuffer(a.tobytes(), np.uint8).reshape(-1, v.dtype.block_bytes)
            return Blocks(data, v.dtype, v.shape)
        return a.copy()

    def _run(self, call: Any) -> None:
        op, outs = ops.lookup(call.op), call.outs
        inputs = [None if v is None else v.spec for v in call.inputs]
        specs = tuple(None if v is None else v.spec for v in outs)
        if not op.shape_from_out:
            for want, out in zip(op.infer_outs(inputs, call.attrs), outs, strict=True):
                assert out is None or (want.dtype, want.shape) == (out.dtype, out.shape), call
        lowered, attrs, out_views = op.lower_outs(inputs, call.attrs, specs)
        assert len(lowered) == len(inputs)
        assert all(v is None or v.size == s.size for v, s in zip(out_views, specs, strict=True))
        assert set(attrs) == {a.name for a in op.attrs if a.c_type}
        if outs[0].dtype.is_block and call.op == "gather":  # of whole blocks
            rows = self.view(call.inputs[0])
            self.view(outs[0])[...] = np.take(rows, self._load(call.inputs[1]), call.attrs["axis"])
            return
        if outs[0].dtype.is_block and call.op == "copy":
            self.view(outs[0])[...] = self.view(call.inputs[0])
            return
        found = op.reference_outs(*(self._load(v) for v in call.inputs), **call.attrs)
        for value, out in zip(found, outs, strict=True):
            if out is not None and out.dtype.is_block:
                assert out.dtype.short in PACKED, "block formats of files are not made"
                packed = pack_nibbles(value, out.dtype.short).data
                self.view(out)[...] = packed.view(self.view(out).dtype).reshape(
                    self.view(out).shape
                )
            elif out is not None:
                stored = rounded(np.asarray(value), out.dtype)
                self.view(out)[...] = np.broadcast_to(stored, out.shape)
