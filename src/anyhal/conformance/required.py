"""What a tier asks of a backend: required ops, coverage, scores. The lists are in required-1.toml.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from anyhal.conformance.suite import VERSION
from anyhal.errors import InvalidArgumentError

TIERS = ("supported", "recommended")
TOO_GOOD = 1.05  # a score beyond it was measured wrongly


@lru_cache
def rules() -> Mapping[str, Any]:
    file = Path(__file__).with_name(f"required-{VERSION}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def required(tier: str) -> tuple[str, ...]:
    """The ops that a tier asks for, those of the tiers below among them."""
    if tier not in TIERS:
        raise InvalidArgumentError(
            f"reading the required ops: there is no tier {tier!r}; use {' or '.join(TIERS)}"
        )
    levels = TIERS[: TIERS.index(tier) + 1]
    return tuple(op for level in levels for op in rules()[level]["ops"])


def floor_of(op: str) -> int:
    """The fewest right answers that say something about the op."""
    floors = rules()["floors"]
    return int(floors.get(op, floors["default"]))


def missing(report: Mapping[str, Any], tier: str = "supported") -> list[str]:
    """What keeps the backend of a report from the tier, one sentence each; [] when nothing does.

    An op that the tier asks for, or that the backend declares, has too few right answers.
    """
    coverage = report.get("coverage", {})
    declared = {str(row["op"]) for row in report.get("claims", ())}
    asked = required(tier)
    said = []
    for op in dict.fromkeys([*asked, *sorted(declared | set(coverage))]):
        right = int(coverage.get(op, {}).get("informative", 0))
        if right >= floor_of(op) or not (op in asked or op in declared):
            continue
        why = f"every {tier} backend must have it" if op in asked else "the backend declares it"
        said.append(
            f"{op}: {right} right answers, at least {floor_of(op)} are needed, since {why};"
            f" see its refusals in the report"
        )
    return said


def perf_tier(report: Mapping[str, Any]) -> str:
    """ "recommended", "supported", "none", "invalid", or "not measured" where no score was taken.

    `perf.scores` gives a score by case, whose first part is the op: "matmul/f32/large". A score
    that is missing spoils the run, so that such a run has no tier.
    """
    found = report.get("perf") or {}
    tier = tier_of_scores(found.get("scores") or {})
    if found.get("tier") == "invalid" or tier in ("invalid", "not measured"):
        return "invalid" if found.get("tier") == "invalid" else tier
    if missing(report):
        return "none"
    return "supported" if tier == "recommended" and not _is_recommended(report) else tier


def tier_of_scores(given: Mapping[str, Any]) -> str:
    """What the speed alone would earn. A score beyond its roof is "invalid"."""
    scores = {name: _score(value) for name, value in given.items()}
    if not scores:
        return "not measured"
    if max(scores.values()) > TOO_GOOD:
        return "invalid"
    rule = rules()["supported"]
    asked = [s for name, s in scores.items() if _op(name) in required("supported")]
    if (
        min(scores.values()) <= 0
        or _mean(list(scores.values())) < rule["geometric_mean"]
        or min(asked, default=0) < rule["least"]
    ):
        return "none"
    rule, ordered = rules()["recommended"], sorted(scores.values())
    compute = [s for name, s in scores.items() if _op(name) in rule["compute"]]
    others = [s for name, s in scores.items() if _op(name) not in rule["compute"]]
    reaches = (
        _mean(compute) >= rule["geometric_mean_compute"]
        and _mean(others) >= rule["geometric_mean_bandwidth"]
        and ordered[(len(ordered) - 1) // 10] >= rule["worst_decile"]
    )
    return "recommended" if reaches else "supported"


def _is_recommended(report: Mapping[str, Any]) -> bool:
    """All that the tier asks for besides speed."""
    rule, asked = rules()["recommended"], required("recommended")
    waived = [c for c in report.get("cases", ()) if c["outcome"] == "waived" and c["op"] in asked]
    classes = (str(c.get("declared", "")).lower() for c in (report.get("classes") or {}).values())
    loose = [c for c in classes if c.startswith(tuple(rule["not_classes"]))]
    claims = (row for row in report.get("claims", ()) if row["op"] in asked)
    return not (waived or loose or missing(report, "recommended")) and all(
        row.get("determinism") != "none" for row in claims
    )


def _op(case: str) -> str:
    return case.partition("/")[0]


def _score(value: Any) -> float:
    found = value.get("score") if isinstance(value, Mapping) else value
    good = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
    return float(found) if good else 0.0  # type: ignore[arg-type]


def _mean(scores: Sequence[float]) -> float:
    """The geometric one; 0 of nothing."""
    return math.exp(sum(map(math.log, scores)) / len(scores)) if scores else 0.0
