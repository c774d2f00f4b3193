"""Declared dtypes, numerics and strides are taken by some plain call; others are refused.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from anyhal.conformance.capabilities.asking import Asker, declared, shown
from anyhal.conformance.capabilities.calls import Call, every_call, main_dtype, plain_calls
from anyhal.conformance.suite import Case, Finding
from anyhal.ops import BY_NAME
from anyhal.records import replace

_ACCUMULATE, _DETERMINISM = 0, 3
_LEVELS = ("run_to_run", "none", "batch_invariant", "cross_device")
_CALLS = 24  # of one dtype, smallest first, before a claim counts as empty


def cases() -> Iterator[Case]:
    for spec in BY_NAME.values():
        tier = "smoke" if spec.is_core else "quick"
        # A device may compile a kernel for each of some sixty calls: 9 s at the first meeting.
        yield Case(f"capabilities/claims/{spec.name}", "capabilities", spec.name, "", tier, 60.0)


def run(case: Case, bench: Any) -> Finding:
    asker, calls = Asker(bench, case.op), _calls(case.op)
    claimed = declared(bench, case.op)
    taken: dict[str, list[Call]] = {}
    for short, some in calls.items():
        taken[short] = list(islice((c for c in some if _works(asker, c)), 3))
        if short in claimed and not taken[short]:
            refused = asker.outcome(some[0], run=False)
            why = f"it declares {case.op} {short} and takes none of {len(some)} plain dense calls"
            said = f"{why}, as {shown(some[0], ())}: {refused.reason or refused.why}"
            return Finding("fail", said, "lie")
        if short not in claimed and taken[short]:
            why = f"it takes {shown(taken[short][0], ())} and does not declare {case.op} {short}"
            return Finding("fail", why, "lie")
    if not claimed:
        return Finding("refused", f"{case.op} is not declared", "not_declared")
    why = _numerics(bench, asker, case.op)
    if why:
        return Finding("fail", why, "lie")
    return Finding("pass", measured={"dtypes": len(claimed)})


def _works(asker: Asker, call: Call) -> bool:
    """A yes; where only prepare knows, its yes."""
    found = asker.outcome(call, run=False)
    return found.accepted


def _calls(op: str) -> dict[str, list[Call]]:
    """Plain dense calls by main dtype."""
    found: dict[str, list[Call]] = {}
    for call in plain_calls(op):
        found.setdefault(main_dtype(call), []).append(call)
    return {short: calls[:_CALLS] for short, calls in found.items()}


def _numerics(bench: Any, asker: Asker, op: str) -> str:
    for row in (r for r in bench.capabilities if r["op"] == op):
        own = [c for c in every_call(op) if main_dtype(c) in row["dtypes"]]
        asked = (
            (_ACCUMULATE, row["accumulate"], "accumulate"),
            (_DETERMINISM, _LEVELS.index(row["determinism"]), "determinism"),
        )
        for at, level, name in asked:
            if level and not any(_works(asker, _with_word(c, at, level)) for c in own):
                return f"it declares {op} with {name}={level} and takes no plain call with it"
    return ""


def _with_word(call: Call, at: int, level: int) -> Call:
    return replace(call, words=(*call.words[:at], level, *call.words[at + 1 :]))
