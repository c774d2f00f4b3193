"""Steps away from an accepted call, each in one aspect, up to one beyond each declared edge.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from anyhal.conformance.capabilities.calls import (
    RANK_OF_ARRAYS,
    Call,
    dtype_of,
    main_dtype,
    possible,
    with_attrs,
    with_input,
)
from anyhal.conformance.capabilities.frames import LAYOUTS, repeated_axis
from anyhal.dtypes import ALL, dtype
from anyhal.ops._record import HEADER_BYTES, fields
from anyhal.ops._spec import Attr, Blocks, Shape
from anyhal.records import record, replace

_WORDS = ("accumulate", "rounding", "denormals", "determinism", "math", "reserved")
_KNOWN = {"accumulate": (1, 2, 3), "determinism": (1, 2, 3)}
_UNKNOWN = 29  # no value of any word or choice
# Operands whose values say where: other values, or another axis, may be out of range.
_PLACES = frozenset(
    ("indices", "ids", "position", "positions", "lengths", "query_starts", "block_table")
) | {"kv_length", "group_sizes", "targets", "step"}


@record
class Edges:
    """What a device declares, as far as steps depend on it; plain numbers, so that the oracle's
    process can take the same steps."""

    rank_max: int
    dim_max: int
    accumulate: int
    offset_alignment: int
    cells: bool


@record
class Step:
    """`refuse`: no device may take the call, whatever it declares. `reason`: the only one that a
    refusal for this step alone can have. `always`: asked whatever is drawn."""

    label: str
    kind: str
    take: Callable[[Call], Call | None]
    refuse: bool = False
    reason: str = ""
    always: bool = False


def steps(call: Call, edges: Edges) -> Iterator[Step]:
    yield from _layouts(call, edges)
    yield from _attributes(call)
    yield from _operands(call)
    yield from _numerics(edges)
    yield from _dtypes(call)
    yield from _ranks(call, edges)
    yield from _aliases(call)


def taken(call: Call, way: tuple[Step, ...]) -> Call | None:
    """The call after those steps, or None where the op has no such call."""
    for step in way:
        found = step.take(call)
        if found is None or not possible(found):
            return None
        call = found
    return call


# -------------------------------------------------------------------------------------- layouts


def _layouts(call: Call, edges: Edges) -> Iterator[Step]:
    names = [a.name for a in call.spec.inputs]
    for i, x in enumerate(call.sample.inputs):
        if x is None or isinstance(x, Blocks) or 0 in x.shape:
            continue
        name = names[i] if i < len(names) else f"{names[0]} {i}"
        written = call.spec.aliasing == "required" and i < len(call.spec.outputs)
        for layout in _of_operand(x.shape, dtype_of(x).block_bytes, edges):
            if layout != "repeated" or not written:
                take, always = _laying(i, layout), layout == "gaps"
                yield Step(f"{name}: {layout}", "layout", take, always=always)
    if call.spec.aliasing == "required":
        return
    for n, out in enumerate(call.output_specs()):
        if out is None or out.dtype.is_block or 0 in out.shape:
            continue
        at, name = call.input_count + n, call.spec.outputs[n].name
        for layout in _of_operand(out.shape, out.dtype.block_bytes, edges):
            take, repeats = _laying(at, layout), layout == "repeated"
            yield Step(f"{name}: {layout}", "layout", take, repeats, always=layout == "gaps")


def _of_operand(shape: Shape, width: int, edges: Edges) -> Iterator[str]:
    for layout in LAYOUTS:
        if layout == "transposed" and len(shape) < 2:
            continue
        if layout == "repeated" and repeated_axis(shape) < 0:
            continue
        if layout == "odd" and (edges.cells or edges.offset_alignment > 1 or width == 1):
            continue
        if layout in ("offset", "gaps", "shifted") and width % edges.offset_alignment:
            continue
        yield layout


def _laying(i: int, layout: str) -> Callable[[Call], Call | None]:
    def take(call: Call) -> Call | None:
        gone = i < call.input_count and call.sample.inputs[i] is None
        if gone or call.layouts[i] != "dense":
            return None
        layouts = (*call.layouts[:i], layout, *call.layouts[i + 1 :])
        if layout == "repeated":
            if i >= call.input_count:
                return replace(call, layouts=layouts, runs=False)
            x = call.sample.inputs[i]
            axis = repeated_axis(x.shape)
            if axis < 0:
                return None
            repeated = np.ascontiguousarray(np.broadcast_to(x.take([0], axis), x.shape))
            call = with_input(call, i, repeated)
            if _says_where(call, i):
                call = replace(call, runs=False)
        return replace(call, layouts=layouts)

    return take


def _says_where(call: Call, i: int) -> bool:
    names = call.spec.inputs
    return i < len(names) and names[i].name in _PLACES and call.sample.inputs[i] is not None


# ----------------------------------------------------------------------- attributes and operands


def _attributes(call: Call) -> Iterator[Step]:
    for attr in call.spec.attrs:
        now = call.attrs[attr.name]
        others: tuple[Any, ...] = ()
        if attr.kind == "enum":
            others = tuple(c for c in attr.choices if c != now)
        elif attr.kind == "bool":
            others = (not now,)
        elif attr.kind == "axis":
            others = (0, -1)
        for value in others:
            if value != now:
                yield Step(f"{attr.name}={value}", "attribute", _setting(attr, value))
    offset = HEADER_BYTES
    layout = fields(call.spec)
    for c_type, name, field in layout:
        width = 8 if c_type == "uint64_t" else 4
        if field is None:
            yield _changed(f"{name} word of the attributes", offset, 1)
        elif field.kind == "enum":
            yield _changed(f"{field.name}: a choice of a later version", offset, 10_000)
        offset += width * (1 if field is None else field.c_count)
    if layout:
        yield _changed("a flag of the attributes", 4, 1)
        newer = (1).to_bytes(8, "little")
        yield Step("a later attribute", "attribute", lambda c: _with_tail(c, newer), True)
        none = bytes(8)
        yield Step("a later attribute that is 0", "attribute", lambda c: _with_tail(c, none))


def _setting(attr: Attr, value: Any) -> Callable[[Call], Call | None]:
    def take(call: Call) -> Call:
        moved = attr.kind == "axis" and any(_says_where(call, i) for i in range(call.input_count))
        return replace(with_attrs(call, **{attr.name: value}), runs=call.runs and not moved)

    return take


def _with_tail(call: Call, tail: bytes) -> Call | None:
    return None if call.tail else replace(call, tail=tail, runs=not any(tail) and call.runs)


def _changed(label: str, offset: int, word: int) -> Step:
    def take(call: Call) -> Call:
        return replace(call, changed=(*call.changed, (offset, word)), runs=False)

    return Step(label, "attribute", take, True)


def _operands(call: Call) -> Iterator[Step]:
    for i, arg in enumerate(call.spec.inputs):
        if arg.variadic:
            return
        if call.sample.inputs[i] is None:
            continue
        if arg.optional:
            yield Step(f"without {arg.name}", "operand", partial(_without, i))
        else:
            yield Step(f"{arg.name} missing", "operand", partial(_missing, i), True)


def _without(i: int, call: Call) -> Call:
    return with_input(call, i, None)


def _missing(i: int, call: Call) -> Call:
    return replace(call, missing=i, runs=False)


# ------------------------------------------------------------------------------ numerics, dtypes


def _numerics(edges: Edges) -> Iterator[Step]:
    for at, name in enumerate(_WORDS):
        for value in (*_KNOWN.get(name, ()), _UNKNOWN):
            beyond = value == _UNKNOWN or (name == "accumulate" and value > edges.accumulate)
            yield Step(f"{name}={value}", "numerics", _wording(at, value), beyond, "numerics")


def _wording(at: int, value: int) -> Callable[[Call], Call | None]:
    def take(call: Call) -> Call | None:
        if call.words[at]:
            return None
        return replace(call, words=(*call.words[:at], value, *call.words[at + 1 :]))

    return take


def _dtypes(call: Call) -> Iterator[Step]:
    """Every operand of the main dtype as another one, and the main operand alone."""
    own = dtype(main_dtype(call))
    if own.is_block:
        return
    operands = [*call.input_specs(), *call.output_specs()]
    same = [i for i, s in enumerate(operands) if s is not None and s.dtype == own]
    first = next(i for i, s in enumerate(operands) if s is not None)
    for other in ALL:
        if other == own or other.is_block:
            continue
        yield Step(f"all {own.short} as {other.short}", "dtype", _typing(same, other.value))
        if len(same) > 1 or len(operands) > len(same):
            label = f"operand {first} as {other.short}"
            yield Step(label, "dtype", _typing([first], other.value))
    yield Step("an unknown dtype", "dtype", _typing([first], 60), True, "dtype")


def _typing(operands: list[int], value: int) -> Callable[[Call], Call | None]:
    def take(call: Call) -> Call | None:
        if call.retyped:
            return None
        return replace(call, retyped=tuple((i, value) for i in operands), runs=False)

    return take


# -------------------------------------------------------------------------- ranks, dims, aliases


def _ranks(call: Call, edges: Edges) -> Iterator[Step]:
    widened = [
        i
        for i, arg in enumerate(call.spec.inputs)
        if arg.axes.startswith(("[...", "as ")) and i < len(call.sample.inputs)
    ]
    if 0 not in widened or call.sample.inputs[0] is None or not edges.rank_max:
        return
    if isinstance(call.sample.inputs[0], Blocks):
        return
    own = call.sample.inputs[0].ndim
    tops = {own + 1, RANK_OF_ARRAYS, edges.rank_max}
    for rank in sorted(r for r in tops if own < r <= edges.rank_max):
        yield Step(f"rank {rank}", "rank", _widening(widened, rank))
    beyond = edges.rank_max + 1
    yield Step(f"rank {beyond}", "rank", _widening(widened, beyond), True, "rank")
    if edges.dim_max and own and all(call.spec.inputs[i].axes == "[...]" for i in widened):
        for dim in (edges.dim_max, edges.dim_max + 1):
            over = dim > edges.dim_max
            yield Step(f"a dim of {dim}", "dim", _stretching(dim), over, "shape_limit")


def _widening(operands: list[int], rank: int) -> Callable[[Call], Call | None]:
    def take(call: Call) -> Call | None:
        own = call.sample.inputs[0].ndim
        if own >= rank:
            return None
        made = call
        for i in operands:
            x = call.sample.inputs[i]
            if x is None:
                continue
            if isinstance(x, Blocks):
                return None
            made = with_input(made, i, x.reshape((1,) * (rank - own) + x.shape))
        for attr in call.spec.attrs:
            made = _counted_from_end(made, attr.name, attr.kind, own)
        return replace(made, runs=made.runs and rank <= RANK_OF_ARRAYS)

    return take


def _counted_from_end(call: Call, name: str, kind: str, rank: int) -> Call:
    value = call.attrs[name]
    if kind == "axis" and isinstance(value, int) and value >= 0:
        return with_attrs(call, **{name: value - rank})
    if kind == "axes" and value is not None:
        axes = (value,) if isinstance(value, int) else value
        return with_attrs(call, **{name: tuple(a - rank if a >= 0 else a for a in axes)})
    return call


def _stretching(dim: int) -> Callable[[Call], Call | None]:
    def take(call: Call) -> Call | None:
        made = call
        for i, x in enumerate(call.sample.inputs):
            if x is not None:
                made = with_input(made, i, np.broadcast_to(x.reshape(-1)[:1], (dim,)))
        return replace(made, runs=False)

    return take


def _aliases(call: Call) -> Iterator[Step]:
    if call.spec.aliasing == "required":
        return
    out = call.output_specs()[0]
    for i, spec in enumerate(call.input_specs()):
        if out is None or spec is None or (spec.dtype, spec.shape) != (out.dtype, out.shape):
            continue
        if call.spec.aliasing == "none" or (call.spec.aliasing == "first" and i > 0):
            continue  # the core never asks for what an op rules out
        name = call.spec.inputs[min(i, len(call.spec.inputs) - 1)].name
        yield Step(f"in place of {name}", "alias", partial(_in_place, i))


def _in_place(i: int, call: Call) -> Call | None:
    outs, inputs = call.output_specs(), call.input_specs()
    out, own = outs[0], inputs[i]
    if call.in_place >= 0 or out is None or own is None:
        return None
    if (out.dtype, out.shape) != (own.dtype, own.shape) or call.layouts[i] == "repeated":
        return None
    if call.layouts[call.input_count] != "dense":
        return None
    return replace(call, in_place=i)
