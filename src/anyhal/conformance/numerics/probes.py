"""A probe: one call with a known right answer. Run on the device, judged elsewhere.
SPDX-License-Identifier: Apache-2.0

Each kind of numerics cases is a file that lists its cases and, from a case and its seed, makes the
same probes in both processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anyhal.conformance.numerics.calls import Held, judge_sample, run_sample
from anyhal.conformance.suite import Answer, Case, Finding, Part
from anyhal.ops import BY_NAME
from anyhal.ops._spec import OpSpec, Sample
from anyhal.records import record

CASE_S = 120.0


@record
class Probe:
    """A sample with how it is placed and judged.

    `layouts` of its inputs, dense where empty; `exact`: any right kernel gives the same bits, so
    that nothing is allowed; `held`: what the outputs held before; `into`: the input that is the
    output too; `repeats`: calls that must give the same bits where the device declares so.
    """

    sample: Sample
    layouts: tuple[str, ...] = ()
    exact: bool = False
    held: Held = "nan"
    into: int = -1
    repeats: int = 1


def case_of(
    op: str, kind: str, path: Iterable[str], tier: str, dtype: str, mode: str, **given: Any
) -> Case:
    """Both forms of an op have the same inputs: their seed comes from the name without the form."""
    name = "/".join(("numerics", op, kind, *path))
    words = {"inputs": name, "mode": mode, **given}
    return Case(f"{name}/{mode}", "numerics", op, dtype, tier, CASE_S, words)


def forms(spec: OpSpec) -> tuple[str, ...]:
    return ("fused",) if spec.is_core else ("fused", "decomposed")


def run(case: Case, bench: Any, probes: Iterable[Probe]) -> Finding | Answer:
    spec, mode = BY_NAME[case.op], case.given["mode"]
    rows = [row for row in bench.capabilities if row["op"] == case.op]
    repeatable = all(row["determinism"] != "none" for row in rows)
    parts = [run_sample(spec, p, bench.device, mode, repeatable) for p in probes]
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
    whole = case.given.get("source") == "own" and case.given["mode"] == "fused"
    if whole and case.dtype in _declared(bench, case.op):
        why = f"it declares {case.op} {case.dtype} and refuses all of it: {first.refusal}"
        return Finding("fail", why, "lie")
    return Finding("refused", first.refusal, first.code)


def _declared(bench: Any, op: str) -> set[str]:
    return {name for row in bench.capabilities if row["op"] == op for name in row["dtypes"]}


def judge(case: Case, answer: Answer, probes: Iterable[Probe]) -> Finding:
    """`informative` says whether any call could have been found wrong; `vacuous` counts those whose
    tolerance was too wide for that."""
    spec = BY_NAME[case.op]
    *parts, last = answer.parts
    worst, refused, vacuous = 0.0, 0, 0
    for probe, part in zip(probes, parts, strict=True):
        if part.refusal:
            refused += 1
            continue
        found = judge_sample(spec, probe.sample, part.arrays, last.code == "flushes", probe.exact)
        if found.wrong:
            return Finding("fail", f"{probe.sample.label}: {found.wrong}", "wrong_value")
        worst = max(worst, found.worst)
        vacuous += not found.informative
    calls = len(parts) - refused
    return Finding(
        "pass",
        measured={
            "calls": calls,
            "refused": refused,
            "worst": round(worst, 4),
            "vacuous": vacuous,
            "informative": vacuous < calls,
        },
    )
