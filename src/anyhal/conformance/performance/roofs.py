"""What the device could do at most, measured by probes of the suite, and the score of each item.
SPDX-License-Identifier: Apache-2.0

A score is the time that the roof allows over the time taken: t = max(flops / P, bytes / B). P and B
are the best that was seen: of the device's own products and moves and, where it computes on the
host, of NumPy's, so that a slow backend is not its own measure. What cannot be makes the
measurement invalid: a score above 1.05, a wrong output while timed, known inputs done faster than
new ones, clocks that disagree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from anyhal.conformance.performance import conditions
from anyhal.conformance.performance.audit import MOST_FASTER
from anyhal.conformance.required import tier_of_scores

_PROBE_SECONDS = 0.3
CLOCKS_DIFFER = 0.05


def host_roofs() -> dict[str, Any]:
    """Flops and bytes per second of this machine's processors, all threads that NumPy uses."""
    a = np.random.default_rng(1).standard_normal((1024, 1024))
    flops = {}
    for short, kind in (("f32", np.float32), ("f64", np.float64)):
        x = a.astype(kind)
        out = np.empty_like(x)
        flops[short] = 2 * 1024.0**3 / _least(partial(np.matmul, x, x, out=out))
    source, target = np.ones(1 << 24, np.float32), np.empty(1 << 24, np.float32)
    copied = 2.0 * source.nbytes / _least(partial(np.copyto, target, source))
    read = source.nbytes / _least(partial(np.add.reduce, source))
    return {"flops_per_s": flops, "bytes_per_s": max(copied, read)}


def _least(call: Callable[[], Any]) -> float:
    call()
    least, until = float("inf"), time.perf_counter() + _PROBE_SECONDS
    while time.perf_counter() < until:
        started = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - started)
    return least


def points(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Least seconds of each item that ran."""
    return [
        {
            "name": row["name"],
            "family": row["family"],
            "op": row["op"],
            "dtype": row["dtype"],
            "flops": row["flops"],
            "bytes": row["bytes"],
            "seconds": float(np.min((row.get("cold") or row["hot"])["new"])),
        }
        for row in rows
        if "hot" in row
    ]


def measured(rows: Sequence[Mapping[str, Any]], on_host: bool) -> dict[str, Any]:
    """The `perf` part of a report."""
    found = points(rows)
    roofs: dict[str, Any] = host_roofs() if on_host else {"flops_per_s": {}, "bytes_per_s": 0.0}
    for point in found:
        if point["family"] == "gemm":
            rate, known = point["flops"] / point["seconds"], roofs["flops_per_s"]
            known[point["dtype"]] = max(known.get(point["dtype"], 0.0), rate)
        if point["family"] == "bandwidth":
            rate = point["bytes"] / point["seconds"]
            roofs["bytes_per_s"] = max(roofs["bytes_per_s"], rate)
    scores = _scores(found, roofs)
    refused = sorted(row["name"] for row in rows if "refused" in row)
    doubts, busy = _doubts(rows), _elsewhere(rows) if on_host else []
    return {
        "tier": "invalid" if doubts else "not measured" if busy else tier_of_scores(scores),
        "why": "; ".join(doubts or busy),
        "conditions": conditions.over([r["conditions"] for r in rows if "conditions" in r]),
        "scores": scores,
        "families": _families(scores, found),
        "roofs": roofs,
        "points": found,
        "refused": refused,
    }


def _doubts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why the times are none, one sentence each."""
    said = []
    for row in rows:
        audit = row.get("audit", {})
        if wrong := row.get("wrong") or audit.get("wrong"):
            said.append(f"{row['name']}: {wrong}")
        if audit.get("replayed", 1.0) < MOST_FASTER:
            part = f"{audit['replayed']:.0%}"
            said.append(f"{row['name']}: known inputs take {part} of the time of new ones")
        for heat in (row[name] for name in ("hot", "cold") if "clocks" in row.get(name, {})):
            if abs(heat["clocks"]["raw"] - 1) > CLOCKS_DIFFER:
                said.append(f"{row['name']}: two clocks of this machine differ by more than 5 %")
    return said


def _elsewhere(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Items that the processors did not work on all the time, on a device that computes there."""
    least = {
        row["name"]: min(row[h]["clocks"]["busy"] for h in ("hot", "cold") if h in row)
        for row in rows
        if "clocks" in row.get("hot", {})
    }
    slow = sorted(name for name, busy in least.items() if busy < 1 - CLOCKS_DIFFER)
    if not slow:
        return []
    return [f"other programs had the processors while it was timed ({', '.join(slow)})"]


def _scores(found: Sequence[Mapping[str, Any]], roofs: Mapping[str, Any]) -> dict[str, float]:
    """By op, dtype and item: "matmul/f32/matmul_wide"."""
    scores: dict[str, float] = {}
    for point in found:
        known, moved = roofs["flops_per_s"], roofs["bytes_per_s"]
        flops = max(known.get(point["dtype"], 0.0), known.get("f32", 0.0))
        at_best = max(
            point["flops"] / flops if flops else 0.0, point["bytes"] / moved if moved else 0.0
        )
        scores[score_name(point)] = round(at_best / point["seconds"], 4)
    return scores


def score_name(point: Mapping[str, Any]) -> str:
    return f"{point['op']}/{point['dtype']}/{point['name'].split()[0]}"


def _families(scores: Mapping[str, float], found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows: dict[str, list[float]] = {}
    for point in found:
        rows.setdefault(point["family"], []).append(scores[score_name(point)])
    return {
        family: {
            "geomean": float(np.exp(np.mean(np.log(np.maximum(row, 1e-9))))),
            "worst_decile": float(np.quantile(row, 0.1)),
        }
        for family, row in rows.items()
    }
