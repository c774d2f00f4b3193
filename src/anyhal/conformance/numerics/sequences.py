"""What a call must not depend on: layouts, alignment, what ran before, what the output held.
SPDX-License-Identifier: Apache-2.0

Every op, with one sample of moderate size and one of another shape: in every layout, over memory
that held something plausible, in place where the op allows it, twenty times, and in turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anyhal.conformance.capabilities.calls import dtypes_of
from anyhal.conformance.numerics.calls import spec_of
from anyhal.conformance.numerics.probes import Probe, case_of, forms
from anyhal.conformance.numerics.samples import main_dtype, size_of
from anyhal.conformance.placing import LAYOUTS
from anyhal.conformance.suite import Case
from anyhal.conformance.worker import rng_of
from anyhal.ops import BY_NAME
from anyhal.ops._spec import OpSpec, Sample

# Of ops that move data unchanged: a kernel is made for a size of elements, not for a dtype.
_OTHER_SIZES = ("i8", "f16", "f64")
_MODERATE = 1 << 13  # elements
_REPEATS = {"quick": 5, "full": 20}
_TURNS = {"quick": 3, "full": 200}


def cases() -> Iterator[Case]:
    for spec in BY_NAME.values():
        if not spec.public:
            continue
        shorts = dtypes_of(spec.name)
        main = "f32" if "f32" in shorts else shorts[0]
        for mode in forms(spec):
            for effort in ("quick", "full"):
                if mode == "fused" or effort == "full":
                    yield case_of(spec.name, "sequences", (main, effort), effort, main, mode)
            for short in _OTHER_SIZES if spec.bound == "exact" and mode == "fused" else ():
                if short in shorts and short != main:
                    yield case_of(spec.name, "sequences", (short, "layouts"), "quick", short, mode)


def probes(case: Case, seed: int) -> Iterator[Probe]:
    spec, effort = BY_NAME[case.op], case.id.split("/")[4]
    found = [s for s in spec.samples(rng_of(seed)) if size_of(s) <= _MODERATE]
    found.sort(key=size_of, reverse=True)
    mine = [s for s in found if main_dtype(spec.name, s) == case.dtype]
    if effort == "layouts":
        yield from (Probe(mine[0], (layout,) * len(mine[0].inputs)) for layout in LAYOUTS)
        return
    plain = min(mine, key=lambda s: (sum(x is not None for x in s.inputs), -size_of(s)))
    for first in [mine[0]] if mine[0] is plain else [mine[0], plain]:
        yield from _after_another(spec, first, found, effort)


def _after_another(
    spec: OpSpec, first: Sample, found: list[Sample], effort: str
) -> Iterator[Probe]:
    short = main_dtype(spec.name, first)
    others = [s for s in found if s is not first and _shapes(s) == _shapes(first)]
    other_dtype = next((s for s in others if main_dtype(spec.name, s) != short), None)
    for layout in LAYOUTS:
        yield Probe(first, (layout,) * len(first.inputs))
    for held in ("negated", "ones"):
        yield Probe(first, held=held)
    if spec.aliasing != "required":  # whose second call meets other inputs
        yield Probe(first, repeats=_REPEATS[effort])
    yield from _in_place(spec, first)
    # A kernel or plan kept for the first call must not serve the next one.
    smaller = next(
        (s for s in found if main_dtype(spec.name, s) == short and 0 < size_of(s) < size_of(first)),
        None,
    )
    turns: list[tuple[Sample | None, str]] = [(first, "dense"), (other_dtype, "dense")]
    turns += [(first, "transposed"), (smaller, "dense"), (first, "gaps"), (smaller, "offset")]
    for _ in range(_TURNS[effort]):
        for sample, layout in turns:
            if sample is not None:
                yield Probe(sample, (layout,) * len(sample.inputs))


def _in_place(spec: OpSpec, sample: Sample) -> Iterator[Probe]:
    """The output over an input of its dtype and shape, where the op says that it may be."""
    if spec.aliasing not in ("elementwise", "first"):
        return
    attrs = {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}
    specs = [spec_of(x) for x in sample.inputs]
    out = spec.infer_outs(specs, attrs)[0]
    for i, x in enumerate(specs):
        same = x is not None and out is not None and (x.dtype, x.shape) == (out.dtype, out.shape)
        if same and (i == 0 or spec.aliasing == "elementwise"):
            layouts = tuple("offset" if j == i else "dense" for j in range(len(specs)))
            yield Probe(sample, ("dense",) * len(specs), into=i)
            yield Probe(sample, layouts, into=i)


def _shapes(sample: Sample) -> list[Any]:
    return [None if x is None else x.shape for x in sample.inputs]
