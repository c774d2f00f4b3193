"""A decomposition as data: core calls over operands, temporaries, constants and views of them.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import DType, dtype
from anyhal.ops._spec import REQUIRED, TensorSpec
from anyhal.records import field, mutable_record, record


@record
class Value:
    """A view of operand, temporary or constant number `index`, `offset` bytes into it."""

    kind: str  # "operand", "temp", "constant"
    index: int
    spec: TensorSpec
    offset: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        return self.spec.dtype

    def broadcast_to(self, shape: Sequence[int]) -> Value:
        return Value(self.kind, self.index, self.spec.broadcast_to(shape), self.offset)

    def expand_dims(self, axis: int) -> Value:
        return Value(self.kind, self.index, self.spec.expand_dims(axis), self.offset)

    def permute(self, *axes: int) -> Value:
        return Value(self.kind, self.index, self.spec.permute(axes), self.offset)

    def split(self, axis: int, outer: int, inner: int) -> Value:
        return Value(self.kind, self.index, self.spec.split(axis, outer, inner), self.offset)

    def mT(self) -> Value:
        r = self.spec.rank
        return self.permute(*range(r - 2), r - 1, r - 2)

    def slice(self, axis: int, start: int, stop: int) -> Value:
        """Elements start..stop of one axis; on a blocked innermost axis whole blocks only."""
        d, shape = self.spec.dtype, list(self.spec.shape)
        axis %= self.spec.rank
        per = d.block_elements if axis == self.spec.rank - 1 else 1
        assert 0 <= start <= stop <= shape[axis] and start % per == 0 and stop % per == 0
        shape[axis] = stop - start
        offset = self.offset + start // per * self.spec.strides[axis] * d.block_bytes
        return Value(self.kind, self.index, TensorSpec(d, tuple(shape), self.spec.strides), offset)

    def at(self, axis: int, i: int) -> Value:
        """Element i of one axis, which goes away."""
        axis %= self.spec.rank
        one = self.slice(axis, i, i + 1)
        return Value(one.kind, one.index, one.spec.squeeze(axis), one.offset)

    def reshape(self, *shape: int) -> Value:
        """A dense value under another shape."""
        assert self.spec.is_dense, "only dense values reshape without a copy"
        return Value(self.kind, self.index, TensorSpec.dense(self.spec.dtype, shape), self.offset)


@record
class Call:
    """One op of the trace, in public form (before `lower`)."""

    op: str
    inputs: tuple[Value | None, ...]
    attrs: dict[str, Any]
    outs: tuple[Value | None, ...]

    @property
    def out(self) -> Value:
        """The output of an op that has one."""
        (out,) = self.outs
        assert out is not None
        return out


# The longest row of consecutive numbers that is kept as a constant.
_ROW = 16384


@mutable_record
class Trace:
    """Records calls. `infer` is the registry's look-up, handed in to keep this file below it."""

    lookup: Any  # name -> OpSpec
    calls: list[Call] = field(default_factory=list)
    temps: list[TensorSpec] = field(default_factory=list)
    constants: list[np.ndarray[Any, Any]] = field(default_factory=list)

    def temp(self, shape: Sequence[int], dt: DType | str) -> Value:
        spec = TensorSpec.dense(dtype(dt), shape)
        self.temps.append(spec)
        return Value("temp", len(self.temps) - 1, spec)

    def constant(self, array: Any, dt: DType | str) -> Value:
        """A small constant known at prepare (indices, frequencies, a scalar)."""
        d = dtype(dt)
        data = np.ascontiguousarray(np.asarray(array).astype(d.numpy))
        data = data.reshape(np.shape(array))  # ascontiguousarray turns 0-d into 1-d
        self.constants.append(data)
        return Value("constant", len(self.constants) - 1, TensorSpec.dense(d, data.shape))

    def numbers(self, count: int, dt: DType | str) -> Value:
        """0 to count - 1, [count]. Many are added on the device from two short constants, so that a
        decomposition takes no time or host memory in proportion to a shape."""
        if count <= _ROW:
            return self.constant(np.arange(count), dt)
        rows = -(-count // _ROW)
        first = self.constant(np.arange(rows)[:, None] * _ROW, dt)
        grid = self("binary", first, self.constant(np.arange(_ROW), dt), fn="add")
        return grid.reshape(rows * _ROW).slice(0, 0, count)

    def __call__(
        self, op: str, *inputs: Value | None, out: Value | None = None, **attrs: Any
    ) -> Value:
        """Records an op with one output; without `out` the result goes to a new temporary. Missing
        attributes take their defaults."""
        (made,) = self.several(op, *inputs, outs=None if out is None else (out,), **attrs)
        assert made is not None
        return made

    def several(
        self,
        op: str,
        *inputs: Value | None,
        outs: tuple[Value | None, ...] | None = None,
        **attrs: Any,
    ) -> tuple[Value | None, ...]:
        """The same for an op with any number of outputs."""
        spec = self.lookup(op)
        for a in spec.attrs:
            if a.name not in attrs:
                assert a.default is not REQUIRED, f"{op}: {a.name} has no default"
                attrs[a.name] = a.default
        if outs is None:
            found = spec.infer_outs([None if v is None else v.spec for v in inputs], attrs)
            outs = tuple(None if s is None else self.temp(s.shape, s.dtype) for s in found)
        self.calls.append(Call(op, inputs, attrs, outs))
        return outs

    # The two shorthands that nearly every decomposition uses.
    def unary(self, fn: str, x: Value, out: Value | None = None) -> Value:
        return self("unary", x, out=out, fn=fn)

    def binary(self, fn: str, a: Value, b: Value, out: Value | None = None) -> Value:
        return self("binary", a, b, out=out, fn=fn)

    def zeros(self, out: Value) -> Value:
        """0 everywhere. Also what an output without elements gets: a decomposition is never
        empty, so that there is something to ask a backend about."""
        return self("fill", self.constant(0, out.dtype), out=out)

    def cast(self, x: Value, dt: DType | str, out: Value | None = None) -> Value:
        """x in another dtype; x itself when it already has it and no `out` is given."""
        d = dtype(dt)
        if x.dtype == d:
            return x if out is None else self("copy", x, out=out)
        return self("cast", x, out=out, dtype=d.name)
