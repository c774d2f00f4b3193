"""Ops by dtypes of one report: what runs fused, what by core ops, what is refused, what fails.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anyhal.conformance import suite
from anyhal.dtypes import ALL
from anyhal.errors import InvalidArgumentError
from anyhal.records import record

# How a cell is shown, worst first; the words are the keys of summaries.
FAILS, WAIVED, FUSED, DECOMPOSED, REFUSED = "fails", "waived", "fused", "decomposed", "refused"
SIGNS = {FAILS: "✗", WAIVED: "w", FUSED: "●", DECOMPOSED: "○", REFUSED: "–"}
SENTENCES = {
    FAILS: "a case failed",
    WAIVED: "fails for now, with an issue and a date",
    FUSED: "by the backend's own kernel",
    DECOMPOSED: "by its core ops",
    REFUSED: "refused with a reason",
}
_DTYPES = tuple(d.short for d in ALL)


@record
class Cell:
    """What a report says of one op with one dtype. `stale`: the op's file has changed since."""

    op: str
    dtype: str
    state: str
    stale: bool
    cases: tuple[Mapping[str, Any], ...]


def cells(report: Mapping[str, Any]) -> dict[tuple[str, str], Cell]:
    """By op and dtype; a case without a dtype counts for its op alone."""
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for case in report["cases"]:
        if case["op"] and case["dtype"]:
            rows.setdefault((case["op"], case["dtype"]), []).append(case)
    stale = stale_ops(report)
    return {
        key: Cell(*key, _state(found), key[0] in stale, tuple(found))
        for key, found in sorted(rows.items())
    }


def stale_ops(report: Mapping[str, Any]) -> frozenset[str]:
    """Ops whose file is another one now than when the report was made."""
    now, then = suite.op_hashes(), report["suite"].get("ops", {})
    return frozenset(op for op, known in now.items() if then.get(op) != known)


def _state(cases: Sequence[Mapping[str, Any]]) -> str:
    outcomes = {case["outcome"] for case in cases}
    if "fail" in outcomes:
        return FAILS
    if "waived" in outcomes:
        return WAIVED
    passed = {case["id"] for case in cases if case["outcome"] == "pass"}
    if any("/fused/" in f"{name}/" for name in passed):
        return FUSED
    return DECOMPOSED if passed else REFUSED


def dtypes_of(tables: Iterable[Mapping[tuple[str, str], Cell]]) -> list[str]:
    """The dtypes that occur, in their usual order."""
    seen = {dtype for table in tables for _, dtype in table}
    return [name for name in _DTYPES if name in seen]


def ops_of(tables: Iterable[Mapping[tuple[str, str], Cell]]) -> list[str]:
    return sorted({op for table in tables for op, _ in table})


def summary(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report without its cases, small enough to keep: what the support matrix is made from."""
    kept = {k: v for k, v in report.items() if k not in ("cases", "claims", "manifest")}
    kept["cells"] = {}
    for (op, dtype), cell in cells(report).items():
        kept["cells"].setdefault(op, {})[dtype] = cell.state
    return kept


def checked(data: Any, file: str) -> dict[str, Any]:
    """A report read from a file; InvalidArgumentError where it is none of this schema."""
    wanted = {"schema": int, "device": str, "tier": str, "suite": dict, "outcomes": dict}
    if not isinstance(data, dict) or data.get("schema") != 1:
        raise InvalidArgumentError(
            f"reading the report {file}: it is no report of schema 1; make one with anyhal certify"
            " --json"
        )
    for name, kind in (*wanted.items(), ("cases", list)):
        if not isinstance(data.get(name), kind):
            raise InvalidArgumentError(
                f"reading the report {file}: its {name!r} is missing or no {kind.__name__}; make it"
                " again with anyhal certify --json"
            )
    return data
