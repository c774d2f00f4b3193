"""Puts every device of this machine to the conformance suite, and writes down what was found.
SPDX-License-Identifier: Apache-2.0

    python tools/certify_all.py --tier full [--json]           every device; summaries and matrix
    python tools/certify_all.py --tier quick --seed 7 [--json] ours, and a part of a foreign device

A driver that is missing is an error: `eval "$(python tools/drivers.py build/drivers)"` names them.
An interrupted full run goes on where it was: a device that it finished within the last day, with
the same library and the same suite, is not asked again.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import support_matrix

from anyhal.conformance import runner, suite
from anyhal.conformance.reports import matrix
from anyhal.errors import HalError
from anyhal.runtime.device import found as discovery

OURS = ("cpu:0", "cpu_ref:0", "dayone:0")
FOREIGN = ("opencl:0", "opencl:1", "pjrt:0", "pjrt:1")  # two platforms, two plugins
BUDGET_S = {"smoke": 3.0, "quick": 30.0, "full": 1200.0}  # of one CPU backend on two cores
PARTS = 24  # of the cases; a vendor's compiler takes a moment for each call, minutes for them all
DRIVERS = ("OCL_ICD_VENDORS", "PJRT_TEST_PLUGINS")
_SHOWN = 5
_DAY_S = 86400.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def name_drivers() -> None:
    """Lets backends see the drivers that tools/drivers.py gathered, or ends the program."""
    if missing := [name for name in DRIVERS if not os.environ.get(name)]:
        sys.exit(
            f"certify_all: {' and '.join(missing)} not set: there are no drivers of others; run"
            ' eval "$(python tools/drivers.py build/drivers)" first'
        )
    os.environ["ANYHAL_PJRT_PLUGINS"] = os.environ["PJRT_TEST_PLUGINS"]


def chosen(seed: int | None) -> tuple[str, ...]:
    """All devices, or ours with the foreign one that the seed takes."""
    return (*OURS, *FOREIGN) if seed is None else (*OURS, FOREIGN[seed % len(FOREIGN)])


def summary_file(device: str) -> Path:
    return support_matrix.FOLDER / f"{device.replace(':', '-')}.json"


def finished(device: str, tier: str) -> dict[str, Any] | None:
    """The summary of a run that need not be made again."""
    try:
        known: dict[str, Any] = json.loads(summary_file(device).read_text(encoding="utf-8"))
        begun = datetime.datetime.fromisoformat(known["started"]).timestamp()
        digest = known["suite"]["digest"]
        library = Path(str(next(
            b.library for b in discovery().backends if b.name == device.partition(":")[0]
        )))  # fmt: skip
        sha256 = hashlib.sha256(library.read_bytes()).hexdigest()
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return None
    young = datetime.datetime.now(datetime.UTC).timestamp() - begun < _DAY_S
    equal = (known["tier"], digest, known["library_sha256"]) == (tier, suite.digest(), sha256)
    return known if young and equal and known["certified"] else None


def certify(device: str, tier: str, nonce: str, shard: tuple[int, int]) -> dict[str, Any]:
    """The summary; what failed is printed with the command that asks it again."""
    report = runner.certify(device, tier, nonce=nonce, shard=shard)
    failed = [case for case in report["cases"] if case["outcome"] == "fail"]
    for case in failed[:_SHOWN]:
        say(f"  fail {case['id']}: {case['reason']}\n       {case['reproduce']}")
    if len(failed) > _SHOWN:
        say(f"  and {len(failed) - _SHOWN} more")
    return matrix.summary(report)


def figure(found: dict[str, Any]) -> dict[str, Any]:
    seconds, budget = found["seconds"], BUDGET_S[found["tier"]]
    return {
        "name": f"{found['device']} at {found['tier']}",
        "value": seconds,
        "unit": "s",
        "baseline": "budget of a CPU backend",
        "baseline_value": budget,
        "ratio": seconds / budget,
        "details": {
            "certified": found["certified"],
            "why_not": found["why_not"],
            "outcomes": found["outcomes"],
            "restarts": found["workers"]["restarts"],
            "library_sha256": found["library_sha256"],
            "perf": found["perf"]["tier"],
            "arch": found["platform"]["arch"],
        },
    }


def run(devices: Sequence[str], tier: str, seed: int | None, writes: bool) -> list[dict[str, Any]]:
    rows = []
    nonce = "" if seed is None else f"slice {seed}"
    for device in devices:
        found = finished(device, tier) if writes else None
        if found is None:
            whole = seed is None or device in OURS
            shard = (1, 1) if whole or seed is None else (seed // len(FOREIGN) % PARTS + 1, PARTS)
            found = certify(device, tier, nonce, shard)
            if writes:
                support_matrix.FOLDER.mkdir(parents=True, exist_ok=True)
                text = json.dumps(found, indent=1, allow_nan=False) + "\n"
                summary_file(device).write_text(text, encoding="utf-8")
        counts = ", ".join(f"{n} {name}" for name, n in found["outcomes"].items())
        state = "certified" if found["certified"] else "; ".join(found["why_not"])
        say(f"{device}: {state} at {tier} in {found['seconds']:.1f} s: {counts}")
        rows.append(found)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tier", choices=suite.TIERS, default="quick")
    parser.add_argument("--seed", type=int, help="a slice: one foreign device, nothing written")
    parser.add_argument("--device", action="append", help="only this one; repeatable")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    devices = given.device or chosen(given.seed)
    if set(devices) - set(OURS):
        name_drivers()
    writes = given.seed is None and not given.device
    try:
        rows = run(devices, given.tier, given.seed, writes)
    except HalError as why:
        say(f"certify_all: {why}")
        return 2
    if writes:
        support_matrix.write()
    if given.json:
        print(json.dumps({"schema": 1, "figures": [figure(row) for row in rows]}))
    return 0 if all(map(holds, rows)) else 1


def holds(row: dict[str, Any]) -> bool:
    """A part of the cases earns no certificate, and may hold no failure."""
    return row["certified"] or not (row["complete"] or row["outcomes"]["fail"])


if __name__ == "__main__":
    sys.exit(main())
