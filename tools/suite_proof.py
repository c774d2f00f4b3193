"""The proof of the conformance suite as heavy checks: mutants, source flips, unchanged runs.
SPDX-License-Identifier: Apache-2.0

    python tools/suite_proof.py mutants [--sample N] [--seed N]   broken backends are refused
    python tools/suite_proof.py flips [--count N] [--seed N]      and so are flipped kernels
    python tools/suite_proof.py runs [--count N] [BACKEND]        the unchanged one never is

Prints figures as one JSON object; exit 0 when all holds, 1 when not, 2 when it could not run.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from anyhal.conformance.mutants import flips
from anyhal.conformance.mutants.building import Workshop
from anyhal.conformance.mutants.proof import prove
from anyhal.errors import HalError


def mutants(given: argparse.Namespace) -> tuple[bool, list[Any]]:
    proof = prove(given.sample, given.seed, progress=_shown)
    bad = [sentence for sentence in proof.sentences() if ": " in sentence]
    plain = proof.plain()
    plain.pop("outcomes")
    return proof.holds, [plain, *({"name": "not as it should", "what": s} for s in bad)]


def flipped(given: argparse.Namespace) -> tuple[bool, list[Any]]:
    seed = secrets.randbits(32) if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="anyhal-flips-") as folder:
        flipping = flips.Flipping(Workshop(Path(folder)), given.backend, seed)
        results = flipping.run(given.count, 2, lambda n: _shown(n, given.count, "flips"))
    found = flips.summary(results, seed)
    return found["share"] >= flips.REQUIRED, [found]


def runs(given: argparse.Namespace) -> tuple[bool, list[Any]]:
    figures, runner = [], import_module("anyhal.conformance.runner")
    for number in range(given.count):
        report = runner.certify(given.backend, "quick", nonce=secrets.token_hex(16), fresh=True)
        failed = [row["reproduce"] for row in report["cases"] if row["outcome"] == "fail"]
        figures.append(
            {
                "name": f"run {number + 1}",
                "nonce": report["suite"]["nonce"],
                "cases": len(report["cases"]),
                "failed": failed,
                "seconds": report["seconds"],
            }
        )
        _shown(number + 1, given.count, "runs")
    return not any(row["failed"] for row in figures), figures


def _shown(done: int, of: int, what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{what}: {done} of {of} ", end="", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(required=True)
    one = kinds.add_parser("mutants")
    one.add_argument("--sample", type=int, default=0, help="how many, drawn by seed; 0 is all")
    one.add_argument("--seed", type=int, default=None)
    one.set_defaults(run=mutants)
    one = kinds.add_parser("flips")
    one.add_argument("--count", type=int, default=200)
    one.add_argument("--seed", type=int, default=None)
    one.add_argument("--backend", default="cpu_ref")
    one.set_defaults(run=flipped)
    one = kinds.add_parser("runs")
    one.add_argument("backend", nargs="?", default="cpu_ref")
    one.add_argument("--count", type=int, default=10)
    one.set_defaults(run=runs)
    given = parser.parse_args()
    try:
        holds, figures = given.run(given)
    except HalError as why:
        print(why, file=sys.stderr)
        return 2
    print(json.dumps({"schema": 1, "figures": figures}))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
