"""The inputs of the op files and random small ones, by cell: op, dtype and form.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from anyhal.conformance.capabilities import calls
from anyhal.conformance.cases import CASES, random_case
from anyhal.conformance.numerics.probes import Probe, case_of, forms
from anyhal.conformance.placing import LAYOUTS
from anyhal.conformance.suite import Case
from anyhal.conformance.worker import rng_of
from anyhal.ops import BY_NAME
from anyhal.ops._spec import Sample

_MAIN = "f32"
_RANDOM = {"quick": 4, "full": 100}  # cases of each cell beyond the op file's
_FEW = {"smoke": 2, "main": 10, "quick": 1}  # samples that stand for all of a dtype


def cases() -> Iterator[Case]:
    """Quick runs every sample of a backend's own kernel. How an op decomposes is no choice of the
    backend, so of a decomposed form quick runs some samples, most of the main dtype.
    """
    for spec in BY_NAME.values():
        if not spec.public:
            continue
        shorts = calls.dtypes_of(spec.name)
        main = _MAIN if _MAIN in shorts else shorts[0]
        for mode in forms(spec):
            for short in shorts:
                if short == main:
                    yield _own(spec.name, short, mode, "few", "smoke", _FEW["smoke"])
                if mode == "decomposed":
                    count = _FEW["main"] if short == main else _FEW["quick"]
                    yield _own(spec.name, short, mode, "some", "quick", count)
                yield _own(spec.name, short, mode, "own", "full" if mode != "fused" else "quick", 0)
            if spec.name in CASES:
                few = _RANDOM["quick"] if mode == "fused" else 1
                yield _random(spec.name, mode, "random", few, "quick")
                yield _random(spec.name, mode, "many", _RANDOM["full"], "full")


def _own(op: str, short: str, mode: str, source: str, tier: str, count: int) -> Case:
    # The op file makes the samples of all dtypes at once.
    inputs = f"numerics/{op}/samples"
    given = {"source": source, "count": count, "inputs": inputs}
    return case_of(op, "samples", (short, source), tier, short, mode, **given)


def _random(op: str, mode: str, source: str, count: int, tier: str) -> Case:
    return case_of(op, "samples", ("any", source), tier, "", mode, source=source, count=count)


@lru_cache(maxsize=256)
def _samples(op: str, seed: int) -> tuple[Sample, ...]:
    return tuple(BY_NAME[op].samples(rng_of(seed, "values")))


def probes(case: Case, seed: int) -> Iterator[Probe]:
    """Samples with the layout of each input; the same in both processes."""
    rng = rng_of(seed, f"layouts {case.dtype} {case.given['mode']}")
    count = case.given["count"]
    if case.given["source"] in ("random", "many"):
        first = seed % (1 << 31)
        found = [random_case(case.op, first + i) for i in range(count)]
    else:
        found = [s for s in _samples(case.op, seed) if main_dtype(case.op, s) == case.dtype]
        if count:  # spread over the list, small ones first
            found = sorted(found[:: max(1, len(found) // count)][:count], key=size_of)
    for sample in found:
        layouts = tuple(LAYOUTS[int(rng.integers(len(LAYOUTS)))] for _ in sample.inputs)
        yield Probe(sample, layouts)


def size_of(sample: Sample) -> int:
    """Elements of all operands together."""
    return sum(int(np.prod(x.shape)) for x in sample.inputs if x is not None)


def main_dtype(op: str, sample: Sample) -> str:
    """The dtype by which a backend declares the cell."""
    return calls.main_dtype(calls.Call.plain(BY_NAME[op], sample))
