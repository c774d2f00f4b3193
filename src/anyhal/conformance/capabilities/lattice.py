"""op_query equals op_prepare and op_enqueue, and what is accepted works, around each kind of call.
SPDX-License-Identifier: Apache-2.0

Where a backend lies, the finding names the fewest differences from a call that it takes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

from anyhal.conformance.capabilities.asking import Asker, Outcome, shown, smallest
from anyhal.conformance.capabilities.calls import Call, dtypes_of, main_dtype, possible, small
from anyhal.conformance.capabilities.judging import wrong
from anyhal.conformance.capabilities.steps import Edges, Step, steps, taken
from anyhal.conformance.cases import CASES, random_case
from anyhal.conformance.suite import Answer, Case, Finding, Part
from anyhal.conformance.worker import rng_of
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._spec import OpSpec, Sample

# Of one step: how many of each kind on the first dtype of a group; then pairs of steps, plain
# samples of the op file, and drawn shapes.
_QUICK = {"each": 5, "dtypes": 1, "pairs": 4, "samples": 3, "drawn": 2}
_FULL = {"each": 40, "dtypes": 9, "pairs": 60, "samples": 60, "drawn": 40}
_SMOKE = ("matmul", "binary")


def cases() -> Iterator[Case]:
    for spec in BY_NAME.values():
        for name in dict.fromkeys(group_of(short) for short in dtypes_of(spec.name)):
            tier = "smoke" if spec.name in _SMOKE and name == "floats" else "quick"
            yield _case(spec, name, "near", tier, _QUICK)
            yield _case(spec, name, "far", "full", _FULL)


def _case(spec: OpSpec, name: str, reach: str, tier: str, given: dict[str, int]) -> Case:
    short = next(s for s in dtypes_of(spec.name) if group_of(s) == name)
    id_ = f"capabilities/lattice/{spec.name}/{name}/{reach}"
    return Case(id_, "capabilities", spec.name, short, tier, 120.0, {**given, "group": name})


def group_of(short: str) -> str:
    d = dtype(short)
    if d.is_block:
        return "blocks"
    if d.kind == "float":
        return "f8" if d.block_bytes == 1 else "floats"
    return "integers"


# --------------------------------------------------------------------------------------- points


class Points:
    """The calls of a case; the same from the same seed in both processes."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case, self.seed = case, seed
        self.spec = BY_NAME[case.op]
        every = [Call.plain(self.spec, s) for s in self.spec.samples(rng_of(seed, "values"))]
        own = [c for c in every if self._fits(c)]
        count = case.given["drawn"] if self.spec.name in CASES else 0
        samples = (random_case(self.spec.name, seed % (1 << 31) + i) for i in range(4 * count))
        drawn = (Call.plain(self.spec, s) for s in samples)
        fitting = (c for c in drawn if self._fits(c))
        self.calls = [*own, *islice(fitting, count)]
        self.own = len(own)

    def _fits(self, call: Call) -> bool:
        return group_of(main_dtype(call)) == str(self.case.given["group"])

    def plain(self) -> list[int]:
        """Calls asked as they are: some of the op file's, and all drawn ones."""
        order = rng_of(self.seed, "plain").permutation(self.own)
        return [int(i) for i in order[: self.case.given["samples"]]] + list(
            range(self.own, len(self.calls))
        )

    def bases(self, short: str) -> list[int]:
        """Calls of a dtype to step away from: rich in operands first, then with two dims or more,
        then small."""
        able = [i for i, c in enumerate(self.calls) if main_dtype(c) == short and small(c.sample)]
        able.sort(key=lambda i: _order(self.calls[i].sample))
        return able

    def ways(self, i: int, edges: Edges) -> Iterator[tuple[Step, ...]]:
        """The fixed steps, as many others of each kind as the case wants, then pairs."""
        call, rng = self.calls[i], rng_of(self.seed, f"ways {i}")
        every = list(steps(call, edges))
        rng.shuffle(every)
        kinds: dict[str, int] = {}
        for step in every:
            fixed = step.refuse or step.always
            kinds[step.kind] = kinds.get(step.kind, 0) + (not fixed)
            if fixed or kinds[step.kind] <= self.case.given["each"]:
                yield (step,)
        free = [s for s in every if not s.refuse]
        for _ in range(self.case.given["pairs"] if len(free) > 1 else 0):
            a, b = rng.choice(len(free), 2, replace=False)
            yield (free[int(a)], free[int(b)])


def _order(sample: Sample) -> tuple[int, bool, int]:
    present = [x for x in sample.inputs if x is not None]
    flat = all(sum(n > 1 for n in x.shape) < 2 for x in present)
    return -len(present), flat, sum(math.prod(x.shape) for x in present)


# ------------------------------------------------------------------------------------------ run


def run(case: Case, bench: Any) -> Finding | Answer:
    points, asker = Points(case, bench.seed), Asker(bench, case.op)
    parts: list[Part] = []
    counts = {"accepted": 0, "refused": 0}

    taken_plain: dict[int, bool] = {}

    def tried(i: int, way: tuple[Step, ...]) -> Finding | None:
        base = points.calls[i]
        near = taken_plain.get(i, False)
        call = taken(base, way)
        if call is None:
            return None
        found = asker.outcome(call, way, near=near)
        if found.code:
            return told(asker, base, way, found, near)
        if not way:
            taken_plain[i] = found.accepted
        counts["accepted" if found.accepted else "refused"] += 1
        if found.arrays:
            label = json.dumps([i, [s.label for s in way]])
            parts.append(Part(label, found.arrays))
        return None

    for i, way in _walk(points, asker):
        finding = tried(i, way)
        if finding is not None:
            return finding
    if not counts["accepted"]:
        return Finding("refused", f"none of {counts['refused']} calls is taken", "not_declared")
    facts = {**asdict(asker.edges), "flushes": bench.device.flushes_denormals, **counts}
    return Answer((*parts, Part(json.dumps(facts))))


def _walk(points: Points, asker: Asker) -> Iterator[tuple[int, tuple[Step, ...]]]:
    for i in points.plain():
        if possible(points.calls[i]):
            yield i, ()
    shorts = list(dict.fromkeys(main_dtype(c) for c in points.calls))
    turn = points.seed % max(len(shorts), 1)
    for short in (shorts[turn:] + shorts[:turn])[: points.case.given["dtypes"]]:
        able = [i for i in points.bases(short) if possible(points.calls[i])]
        base = next((i for i in able if asker.accepts(points.calls[i])), able[0] if able else None)
        if base is None:
            continue
        yield base, ()
        for way in points.ways(base, asker.edges):
            yield base, way


def told(asker: Asker, base: Call, way: tuple[Step, ...], found: Outcome, near: bool) -> Finding:
    way, found = smallest(asker, base, way, found, near)
    said = "; without that it is accepted" if way and near else ""
    return Finding("fail", f"{shown(base, way)}: {found.why}{said}", found.code)


# ---------------------------------------------------------------------------------------- judge


def judge(case: Case, seed: int, answer: Answer) -> Finding:
    points = Points(case, seed)
    *parts, last = answer.parts
    facts = json.loads(last.label)
    flushes, counts = facts.pop("flushes"), {k: facts.pop(k) for k in ("accepted", "refused")}
    edges = Edges(**facts)
    known: dict[int, dict[str, Step]] = {}
    for part in parts:
        i, labels = json.loads(part.label)
        base = points.calls[i]
        if labels and i not in known:
            known[i] = {step.label: step for step in steps(base, edges)}
        way = tuple(known[i][label] for label in labels)
        call = taken(base, way)
        assert call is not None
        why = wrong(call, part.arrays, flushes)
        if why:
            said = f"{shown(base, way)}: it is accepted and gives wrong values: {why}"
            return Finding("fail", said, "wrong_value")
    return Finding("pass", measured={**counts, "ran": len(parts)})
