"""Two snapshots or reports compared: did the upgrade change routes or numbers, or lose speed?
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anyhal.errors import InvalidArgumentError
from anyhal.records import record

ALPHA = 0.01


@record
class Change:
    """One difference. `kind`: library, route, answer, outcome, speed."""

    kind: str
    what: str
    old: str
    new: str


@record
class Comparison:
    """All changes, and what could not be compared, one sentence each."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...]


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Comparison:
    """Both from `anyhal bench --json` or `anyhal certify --json`."""
    for which, data in (("old", old), ("new", new)):
        if not isinstance(data, Mapping) or data.get("schema") != 1 or "device" not in data:
            raise InvalidArgumentError(
                f"comparing: the {which} file is no snapshot or report of schema 1; make one with"
                " anyhal bench --json or anyhal certify --json"
            )
    changes: list[Change] = []
    notes: list[str] = []
    if old["device"] != new["device"]:
        notes.append(f"the devices differ: {old['device']} and {new['device']}")
    changes += _libraries(old, new)
    changes += _words("route", old.get("routes"), new.get("routes"), notes)
    changes += _words("answer", old.get("digests"), new.get("digests"), notes)
    if "cases" in old and "cases" in new:
        changes += _words("outcome", _outcomes(old), _outcomes(new), notes)
    changes += _speed(old, new, notes)
    return Comparison(tuple(changes), tuple(notes))


def _libraries(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    def rows(data: Mapping[str, Any]) -> dict[str, str]:
        found = {str(data.get("library", "library")): str(data.get("library_sha256", ""))[:16]}
        found |= {str(k): str(v) for k, v in (data.get("libraries") or {}).items()}
        for d in data.get("dependencies") or ():
            found[str(d["file"])] = str(d["sha256"])[:16]
        version = data.get("anyhal") or (data.get("suite") or {}).get("anyhal")
        return found | ({"anyhal": str(version)} if version else {})

    return _words("library", rows(old), rows(new), [])


def _words(kind: str, old: Any, new: Any, notes: list[str]) -> list[Change]:
    if old is None or new is None:
        if (old is None) != (new is None):
            notes.append(f"only one of the two files has {kind}s")
        return []
    names = sorted({*old, *new})
    return [
        Change(kind, name, str(old.get(name, "absent")), str(new.get(name, "absent")))
        for name in names
        if old.get(name) != new.get(name)
    ]


def _outcomes(data: Mapping[str, Any]) -> dict[str, str]:
    return {case["id"]: case["outcome"] for case in data["cases"]}


def _speed(old: Mapping[str, Any], new: Mapping[str, Any], notes: list[str]) -> list[Change]:
    """Slower beyond 3 % by unpaired ranks of block times; only on the same machine."""
    before, after = old.get("times"), new.get("times")
    if not before or not after:
        return []
    if _machine(old) != _machine(new):
        notes.append("speed is not compared: the two files are of different machines")
        return []
    from scipy import stats

    changes = []
    shared = [name for name in before if name in after]
    a = {name: np.min(np.asarray(before[name], float), axis=1) for name in shared}
    b = {name: np.min(np.asarray(after[name], float), axis=1) for name in shared}
    ps = [float(stats.mannwhitneyu(b[n], a[n], alternative="greater").pvalue) for n in shared]
    qs = stats.false_discovery_control(ps) if ps else []
    for name, q in zip(shared, qs, strict=True):
        ratio = float(np.median(b[name]) / np.median(a[name]))
        if q < ALPHA and ratio > 1.03:
            times = (f"{np.median(x[name]) * 1e6:.1f} us" for x in (a, b))
            changes.append(Change("speed", name, *times))
    return changes


def _machine(data: Mapping[str, Any]) -> tuple[Any, ...]:
    found = data.get("platform") or {}
    return tuple(found.get(k) for k in ("cpu", "arch", "machine"))
