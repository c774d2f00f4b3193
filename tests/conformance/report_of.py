"""A small report as `anyhal certify` makes them, for tests of what is made from one.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

from anyhal.conformance import suite


def case(name: str, outcome: str, dtype: str = "f32", **rest: Any) -> dict[str, Any]:
    group, op = name.split("/")[:2]
    row = {
        "id": name,
        "group": group,
        "op": op if group == "numerics" else "",
        "dtype": dtype if group == "numerics" else "",
        "outcome": outcome,
        "code": "" if outcome == "pass" else "wrong_value",
        "reason": "" if outcome == "pass" else "3 of 4 elements are wrong",
        "seconds": 0.25,
        "measured": {},
        "reproduce": f"anyhal certify chip:0 --case {name} --seed 7",
    }
    return row | rest


def report(*cases: dict[str, Any], **rest: Any) -> dict[str, Any]:
    outcomes = {o: sum(c["outcome"] == o for c in cases) for o in suite.OUTCOMES}
    found = {
        "schema": 1,
        "backend": "chip",
        "device": "chip:0",
        "library": "libanyhal_chip.so",
        "library_sha256": "ab" * 32,
        "manifest": "/nowhere/backend.toml",
        "dependencies": [{"file": "libvendor.so.1", "sha256": "cd" * 32}],
        "suite": {
            "version": suite.VERSION,
            "digest": "ef" * 32,
            "tolerances": "01" * 32,
            "ops": suite.op_hashes(),
            "nonce": "23" * 16,
            "anyhal": "0.1.0",
        },
        "tier": "quick",
        "complete": True,
        "platform": {"arch": "x9", "driver": "", "os": "", "kernel": "", "cpu": "", "libc": ""},
        "claims": [],
        "outcomes": outcomes,
        "coverage": {},
        "classes": {},
        "cases": list(cases),
        "started": "2026-11-30T20:00:00+00:00",
        "seconds": 1.5,
        "workers": {"restarts": 0},
        "waivers": [],
        "perf": {"tier": "not measured", "scores": {}},
        "certificate": None,
        "why_not": [],
        "certified": True,
    }
    return found | rest
