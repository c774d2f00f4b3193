"""The inputs of the op files and random small ones, by cell: op, dtype and form.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anyhal.conformance.cases import CASES, random_case
from anyhal.conformance.numerics.calls import judge_sample, run_sample
from anyhal.conformance.placing import LAYOUTS
from anyhal.conformance.suite import Answer, Case, Finding, Part
from anyhal.conformance.worker import rng_of
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._spec import Blocks, OpSpec, Sample

_RANDOM = {"smoke": 0, "quick": 4, "full": 100}  # cases of each cell beyond the op file's


def cases() -> Iterator[Case]:
    for spec in BY_NAME.values():
        if not spec.public:
            continue
        for mode in ("fused",) if spec.is_core else ("fused", "decomposed"):
            for short in spec.dtypes:
                yield _case(spec, short, mode, "own", 0, "smoke" if _is_main(short) else "quick")
            if spec.name in CASES:
                yield _case(spec, "", mode, "random", _RANDOM["quick"], "quick")
                yield _case(spec, "", mode, "many", _RANDOM["full"], "full")


def _is_main(short: str) -> bool:
    return short == "f32"


def _case(spec: OpSpec, short: str, mode: str, source: str, count: int, tier: str) -> Case:
    words = ["numerics", spec.name, "samples", short or "any", mode, source]
    given = {"mode": mode, "source": source, "count": count}
    return Case("/".join(words), "numerics", spec.name, short, tier, 120.0, given)


def drawn(case: Case, seed: int) -> Iterator[tuple[Sample, tuple[str, ...]]]:
    """Samples with the layout of each input; the same in both processes."""
    spec = BY_NAME[case.op]
    rng = rng_of(seed, "layouts")
    if case.given["source"] == "own":
        found: Any = (
            s for s in spec.samples(rng_of(seed, "values")) if _main_dtype(s) == case.dtype
        )
    else:
        first = seed % (1 << 31)
        found = (random_case(spec.name, first + i) for i in range(case.given["count"]))
    for sample in found:
        yield sample, tuple(LAYOUTS[int(rng.integers(len(LAYOUTS)))] for _ in sample.inputs)


def _main_dtype(sample: Sample) -> str:
    first = next((x for x in sample.inputs if x is not None), None)
    if first is None:
        return ""
    return first.dtype.short if isinstance(first, Blocks) else dtype(first.dtype).short


def run(case: Case, bench: Any) -> Finding | Answer:
    spec, mode = BY_NAME[case.op], case.given["mode"]
    parts = [
        run_sample(spec, sample, bench.device_name, mode, layouts)
        for sample, layouts in drawn(case, bench.seed)
    ]
    return answered(case, bench, parts)


def answered(case: Case, bench: Any, parts: list[Part]) -> Finding | Answer:
    """What to judge; or that all was refused, which a declared cell may not do."""
    if not parts:
        return Finding("refused", "the op has no samples of this dtype", "no_samples")
    failed = next((p for p in parts if p.failed), None)
    if failed is not None:
        return Finding("fail", f"{failed.label}: {failed.failed}", failed.code)
    refused = [p for p in parts if p.refusal]
    if len(refused) < len(parts):
        return Answer((*parts, Part("", code="flushes" if bench.device.flushes_denormals else "")))
    first = refused[0]
    if case.given["mode"] == "fused" and case.dtype in _declared(bench, case.op):
        why = f"it declares {case.op} {case.dtype} and refuses all of it: {first.refusal}"
        return Finding("fail", why, "lie")
    return Finding("refused", first.refusal, first.code)


def _declared(bench: Any, op: str) -> set[str]:
    return {name for row in bench.capabilities if row["op"] == op for name in row["dtypes"]}


def judge(case: Case, seed: int, answer: Answer) -> Finding:
    spec = BY_NAME[case.op]
    *parts, last = answer.parts
    worst, refused = 0.0, 0
    for (sample, _), part in zip(drawn(case, seed), parts, strict=True):
        if part.refusal:
            refused += 1
            continue
        found = judge_sample(spec, sample, part.arrays, last.code == "flushes")
        if found.wrong:
            return Finding("fail", f"{sample.label}: {found.wrong}", "wrong_value")
        worst = max(worst, found.worst)
    measured = {"calls": len(parts) - refused, "refused": refused, "worst": round(worst, 4)}
    return Finding("pass", measured=measured)
