"""Refusals are clean: the same again and from any thread, nothing written, nothing kept, and the
queue works on. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

from anyhal.conformance.capabilities.asking import Asker, shown
from anyhal.conformance.capabilities.calls import Call, Described, Placed, Told, plain_calls
from anyhal.conformance.capabilities.memory import Holdings
from anyhal.conformance.capabilities.steps import Step, steps, taken
from anyhal.conformance.suite import Case, Finding
from anyhal.conformance.worker import rng_of
from anyhal.ops import BY_NAME
from anyhal.ops._spec import OpSpec

_EACH = 6  # refused calls of an op
_MANY = 1000


def cases() -> Iterator[Case]:
    for spec in BY_NAME.values():
        yield _case(spec.name, "clean", "quick")
        yield _case(spec.name, "flat", "full")
    yield Case("capabilities/refusals/all/flat", "capabilities", tier="quick", seconds=60.0)


def _case(op: str, what: str, tier: str) -> Case:
    return Case(f"capabilities/refusals/{op}/{what}", "capabilities", op, tier=tier, seconds=60.0)


def run(case: Case, bench: Any) -> Finding:
    if case.id.endswith("flat"):
        return _flat(case, bench)
    spec = BY_NAME[case.op]
    asker = Asker(bench, case.op)
    base, refused = refused_calls(spec, bench.seed, asker)
    if base is None:
        return Finding("refused", "the op has no small samples", "no_samples")
    works = asker.outcome(base).accepted
    for call, way in refused:
        placed = Placed(bench.device, call if call.can_run else base)
        why = _unclean(asker, call, placed)
        if why is None and works and not asker.outcome(base).accepted:
            why = ("queue", "after that a call that was taken is not taken any more")
        if why is not None:
            return Finding("fail", f"{shown(base, way)}: {why[1]}", why[0])
    if not refused:
        return Finding("fail", "nothing that must be refused is refused", "lie")
    return Finding("pass", measured={"refusals": len(refused)})


def refused_calls(
    spec: OpSpec, seed: int, asker: Asker
) -> tuple[Call | None, list[tuple[Call, tuple[Step, ...]]]]:
    """A call that is taken where there is one, and refused ones near it, of many kinds."""
    rng = rng_of(seed, "refusals")
    plain = plain_calls(spec.name)
    base = next((c for c in plain[:40] if asker.accepts(c)), plain[0] if plain else None)
    if base is None:
        return None, []
    every = list(steps(base, asker.edges))
    rng.shuffle(every)
    every.sort(key=lambda s: not s.refuse)
    found: list[tuple[Call, tuple[Step, ...]]] = []
    kinds: dict[str, int] = {}
    for way in ((), *((s,) for s in every)):
        kind = way[0].kind if way else ""
        call = taken(base, way)
        if call is None or kinds.get(kind, 0) > 1 or asker.accepts(call):
            continue
        kinds[kind] = kinds.get(kind, 0) + 1
        found.append((call, way))
        if len(found) == _EACH:
            break
    return base, found


def _unclean(asker: Asker, call: Call, placed: Placed) -> tuple[str, str] | None:
    described = Described(asker.device, call, placed.frames if placed.call is call else ())
    first = (described.query(), described.prepare()[0])
    again = (described.query(), described.prepare()[0])
    elsewhere: list[tuple[Told, Told]] = []
    other = Thread(target=lambda: elsewhere.append((described.query(), described.prepare()[0])))
    other.start()
    other.join()
    if first[1].kind == "yes":
        return None  # what only prepare knows
    if again != first:
        return "lie", f"asked again it is {again[1]}, before it was {first[1]}"
    if elsewhere[0] != first:
        return "lie", f"from another thread it is {elsewhere[0][1]}, before it was {first[1]}"
    if first[1].kind == "no" and first[1].reason in ("", "none"):
        return "untyped", "it is refused without a reason"
    if not first[1].text.strip():
        return "untyped", "it is refused without a word of why"
    if not placed.untouched():
        return "written", "it is refused and has written all the same"
    return None


# ------------------------------------------------------------------------------------- kept memory


def _flat(case: Case, bench: Any) -> Finding:
    """A thousand refusals hold nothing: neither memory of host or device, nor plans, nor files."""
    specs = [BY_NAME[case.op]] if case.op else list(BY_NAME.values())
    told = []
    for spec in specs:
        base, refused = refused_calls(spec, bench.seed, Asker(bench, spec.name))
        if base is not None:
            told += [
                Described(bench.device, call) for call, _ in refused[: _EACH if case.op else 2]
            ]
    if not told:
        return Finding("refused", "nothing is refused", "no_samples")
    for one in told:  # what is made once is made now
        _refuse(one)
    grown = ""
    for _ in range(2):  # what grows once only is a cache
        before = Holdings.now(bench.device)
        for i in range(_MANY):
            _refuse(told[i % len(told)])
        grown = Holdings.now(bench.device).more_than(before, _MANY)
        if not grown:
            return Finding("pass", measured={"refusals": _MANY, "calls": len(told)})
    return Finding("fail", f"{_MANY} refusals hold {grown}", "memory")


def _refuse(one: Described) -> None:
    one.query()
    one.prepare()
