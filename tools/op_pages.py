"""Pieces of the op reference pages: the drawing of a decomposition, who runs the op fused.
SPDX-License-Identifier: Apache-2.0

The registry knows no backend: who has a fused form is read from the backends' own tables of rows.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from anyhal import ops
from anyhal.dtypes import dtype
from anyhal.ops._spec import Blocks, OpSpec, Outs, Sample, TensorSpec, describe
from anyhal.ops._trace import Call, Trace, Value

BACKENDS = Path(__file__).resolve().parent.parent / "backends"
MOST_CALLS = 16
_BY_NAME = {spec.name: spec for spec in ops.specs_of_folder()}
# A row of a backend's table: {ANYHAL_OP_SOFTMAX, "softmax", ... or {OP(SOFTMAX, softmax), ...
_ROW = re.compile(r'\{\s*(?:ANYHAL_OP_[A-Z0-9_]+,\s*"|OP\([A-Z0-9_]+, )([a-z0-9_]+)[")]')


def fused_on() -> dict[str, list[str]]:
    """Op name -> the backends of this tree that have a row for it, test equipment left out."""
    found: dict[str, list[str]] = {}
    for manifest in sorted(BACKENDS.glob("*/backend.toml")):
        if tomllib.loads(manifest.read_text("utf-8")).get("test_equipment"):
            continue
        sources = [p for p in manifest.parent.rglob("*") if p.suffix in (".c", ".cc")]
        names = {name for p in sources for name in _ROW.findall(p.read_text("utf-8"))}
        for name in names:
            found.setdefault(name, []).append(manifest.parent.name)
    return found


def fused_line(spec: OpSpec, rows: dict[str, list[str]]) -> str:
    backends = ", ".join(f"`{name}`" for name in rows.get(spec.name, []))
    return f"{backends}; elsewhere it is decomposed" if backends else "no backend of this tree yet"


# ---------------------------------------------------------------------------- the drawing


def drawing(spec: OpSpec) -> str:
    """The core calls of one sample as a flowchart; "" for core ops."""
    traced = None if spec.is_core else _traced(spec)
    if traced is None:
        return ""
    sample, trace = traced
    calls = trace.calls
    cut = len(calls) if len(calls) <= MOST_CALLS else MOST_CALLS - 1
    lines = list(_lines(spec, trace, calls[:cut]))
    if cut < len(calls):
        lines.append(f'  more["... {len(calls) - cut} more calls"]')
        lines.append(f"  c{cut} -.-> more")
    count = "1 core call" if len(calls) == 1 else f"{len(calls)} core calls"
    shown = ", ".join(describe(s) for s in _specs(sample) if s is not None)
    return (
        f"Decomposed, here for {shown}{_attributes(sample.attrs)}, it is {count}:\n\n"
        "```mermaid\nflowchart TD\n" + "".join(f"{line}\n" for line in lines) + "```\n"
    )


def _traced(spec: OpSpec) -> tuple[Sample, Trace] | None:
    """The first sample that shows the op at work: no size 0, and no size 1 if it can be."""
    second = None
    for number, sample in enumerate(spec.samples(np.random.default_rng(0))):
        sizes = [n for x in sample.inputs if x is not None for n in x.shape]
        if 0 in sizes:
            continue
        second = second or sample
        if 1 not in sizes and () not in [x.shape for x in sample.inputs[:1] if x is not None]:
            return sample, _trace(spec, sample)
        if number > 40:
            break
    return None if second is None else (second, _trace(spec, second))


def output_counts(spec: OpSpec) -> set[int]:
    """How many outputs the samples' calls have."""
    return {
        sum(out is not None for out in _outs(spec, sample))
        for sample in spec.samples(np.random.default_rng(0))
    }


def _attrs(spec: OpSpec, sample: Sample) -> dict[str, Any]:
    return {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}


def _outs(spec: OpSpec, sample: Sample) -> Outs:
    specs = _specs(sample)
    if not spec.shape_from_out:
        return spec.infer_outs(specs, _attrs(spec, sample))
    assert sample.out_shape is not None and specs[0] is not None
    return (TensorSpec.dense(specs[0].dtype, sample.out_shape),)


def _specs(sample: Sample) -> list[TensorSpec | None]:
    return [
        None
        if x is None
        else TensorSpec.dense(x.dtype if isinstance(x, Blocks) else dtype(x.dtype), x.shape)
        for x in sample.inputs
    ]


def _trace(spec: OpSpec, sample: Sample) -> Trace:
    attrs, specs, outs = _attrs(spec, sample), _specs(sample), _outs(spec, sample)
    first = 0 if spec.aliasing == "required" else len(specs)
    trace = Trace(_BY_NAME.__getitem__)
    spec.decompose_outs(
        trace,
        [None if s is None else Value("operand", i, s) for i, s in enumerate(specs)],
        attrs,
        tuple(None if s is None else Value("operand", first + i, s) for i, s in enumerate(outs)),
    )
    return trace


def _lines(spec: OpSpec, trace: Trace, calls: list[Call]) -> Iterator[str]:
    """Mermaid, one node for each call in order; an edge from where each of its inputs was made."""
    made: dict[tuple[str, int], list[str]] = {}  # who wrote what a value holds now, in parts maybe
    for number, call in enumerate(calls, 1):
        outs = ", ".join(_written(spec, o) for o in call.outs if o is not None)
        yield f'  c{number}["{number}. {call.op}{_attributes(call.attrs)} → {outs}"]'
        sources = [
            source
            for v in call.inputs
            if v is not None
            for source in made.get((v.kind, v.index)) or [_leaf(spec, trace, v)]
        ]
        for source in dict.fromkeys(sources):
            yield f"  {source} --> c{number}"
        for out in (o for o in call.outs if o is not None):
            whole = out.kind == "temp" and out.spec.size == trace.temps[out.index].size
            before = [] if whole else made.get((out.kind, out.index), [])
            made[out.kind, out.index] = [*before, f"c{number}"]


def _written(spec: OpSpec, value: Value) -> str:
    if value.kind != "operand":
        return describe(value.spec)
    variadic = any(a.variadic for a in spec.inputs)
    name = spec.output.name if variadic else _operand(spec, value.index)
    return f"{name} {describe(value.spec)}"


def _operand(spec: OpSpec, index: int) -> str:
    """The operand's name; the inputs of a variadic op have numbers."""
    names = [a.name for a in (*spec.inputs, *spec.outputs)]
    if any(a.variadic for a in spec.inputs):
        return f"{names[0]} {index}"
    return names[index]


def _leaf(spec: OpSpec, trace: Trace, value: Value) -> str:
    """An operand or a constant: a rounded node."""
    if value.kind != "constant":
        return f'o{value.index}(["{_operand(spec, value.index)}"])'
    data = trace.constants[value.index]
    number = f"{data.item():.4g}" if data.dtype.kind in "fV" and data.size == 1 else ""
    text = number or (str(data.item()) if data.size == 1 else f"constant {list(data.shape)}")
    return f'k{value.index}(["{text}"])'


def _attributes(attrs: Any) -> str:
    """fn=exp is the word exp, a flag that is set its name; what is not set is left out."""
    words = [
        str(v) if k == "fn" else k if v is True else f"{k}={v}"
        for k, v in attrs.items()
        if v is not None and v is not False
    ]
    return "".join(f" {word}" for word in words).replace('"', "'")
