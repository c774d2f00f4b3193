"""The report of a run as plain data: what `--json` writes, and what pages and certificates read.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import datetime
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from anyhal.conformance import suite
from anyhal.conformance.required import missing
from anyhal.conformance.suite import Finding
from anyhal.conformance.waivers import NEVER

SCHEMA = 1


def build(
    run: Any, nonce: str, tier: str, *, complete: bool, waivers: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Of a finished run; `run` is the runner's."""
    from importlib import metadata

    cases = sorted((_row(run, f, waivers) for f in run.found), key=lambda row: row["id"])
    outcomes = {name: sum(c["outcome"] == name for c in cases) for name in suite.OUTCOMES}
    described = run.described
    report = {
        "schema": SCHEMA,
        "backend": described["backend"],
        "device": described["device"],
        "library": os.path.basename(described["library"]),
        "library_sha256": described["library_sha256"],
        "manifest": described["manifest"],
        "dependencies": described["dependencies"],
        "suite": {
            "version": suite.VERSION,
            "digest": suite.digest(),
            "tolerances": suite.tolerance_digest(),
            "ops": suite.op_hashes(),
            "nonce": nonce,
            "anyhal": metadata.version("anyhal"),
        },
        "tier": tier,
        "complete": complete,
        "platform": platform_of(described),
        "claims": described["claims"],
        "outcomes": outcomes,
        "coverage": coverage(cases),
        "classes": classes(cases),
        "cases": cases,
        "started": datetime.datetime.fromtimestamp(run.started, datetime.UTC).isoformat(),
        "seconds": round(run.seconds, 3),
        "workers": {"restarts": run.restarts},
        "waivers": list(waivers),
        "perf": {"tier": "not measured", "scores": {}},
        "certificate": None,
    }
    report["why_not"] = why_not(report)
    report["certified"] = not report["why_not"]
    return report


def _row(run: Any, found: Any, waivers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    case, finding = found.case, waived(found.case, found.finding, waivers)
    return {
        "id": case.id,
        "group": case.group,
        "op": case.op,
        "dtype": case.dtype,
        "outcome": finding.outcome,
        "code": finding.code,
        "reason": finding.reason,
        "seconds": round(found.seconds, 6),
        "measured": dict(finding.measured),
        "reproduce": " ".join(
            ["anyhal certify", shlex.quote(run.called), "--case", case.id, f"--seed {found.seed}"]
        ),
    }


def waived(case: suite.Case, finding: Finding, waivers: Sequence[dict[str, Any]]) -> Finding:
    """A failure that a waiver names is waived; a waiver of what passes is a failure itself."""
    waiver = next((w for w in waivers if w["case"] == case.id), None)
    if waiver is None or finding.outcome == "refused":
        return finding
    if finding.outcome == "fail" and finding.code in NEVER:
        why = f"{finding.reason}; no waiver excuses {finding.code.replace('_', ' ')}"
        return Finding("fail", why, finding.code, finding.measured)
    if finding.outcome == "fail":
        return Finding("waived", f"{waiver['issue']}: {finding.reason}", finding.code)
    why = f"it passes, though a waiver until {waiver['expires']} says it fails; remove the waiver"
    return Finding("fail", why, "unexpected_pass")


def platform_of(described: Mapping[str, Any]) -> dict[str, str]:
    system = platform.freedesktop_os_release() if os.path.exists("/etc/os-release") else {}
    return {
        "arch": described["arch"],
        "driver": described.get("driver", ""),
        "os": system.get("PRETTY_NAME", platform.system()),
        "kernel": platform.release(),
        "cpu": _processor(),
        "libc": " ".join(platform.libc_ver()),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def coverage(cases: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Per op: answers that were judged right by the oracle, and cases that were refused. What
    passed without having been able to fail counts as neither."""
    found: dict[str, dict[str, int]] = {}
    for case in cases:
        measured = case["measured"]
        judged = measured.get("calls") if case["group"] == "numerics" else measured.get("ran")
        if not case["op"] or (judged is None and case["group"] != "numerics"):
            continue
        row = found.setdefault(case["op"], {"informative": 0, "refused": 0})
        if case["outcome"] == "refused":
            row["refused"] += 1
        elif case["outcome"] == "pass" and measured.get("informative", True):
            row["informative"] += 1 if judged is None else int(judged)
    return dict(sorted(found.items()))


def classes(cases: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Measured precision classes by cell, where cases measured them."""
    found: dict[str, dict[str, Any]] = {}
    for case in cases:
        if "class" in case["measured"]:
            found[f"{case['op']}/{case['dtype']}"] = dict(case["measured"])
    return found


def why_not(report: Mapping[str, Any]) -> list[str]:
    """Why no certificate follows, one sentence each."""
    said = []
    if failed := report["outcomes"]["fail"]:
        said.append(f"{failed} {'case' if failed == 1 else 'cases'} failed")
    if not report["complete"]:
        said.append("not all cases of the tier were asked")
    if report["tier"] == "smoke":
        said.append("the smoke tier certifies nothing; use quick or full")
    elif report["complete"]:
        said += missing(report)
    return said
