"""Whether the gate of `anyhal bench` can be believed: silent between equal builds, and not between
others. SPDX-License-Identifier: Apache-2.0

    python benchmarks/gate.py [--json] [--check] [--runs N] [--blocks N] [--device NAME]

A build of the processor's backend against itself over five ops, twenty times, and a backend of
which one op spins for 8 % of its time against the same one without. Status 3 where this machine is
not quiet enough to tell.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from timing import Figure, invalid, show

import anyhal as hal
from anyhal import settings
from anyhal.conformance.performance import baselines, gate
from anyhal.conformance.performance.items import ALWAYS
from anyhal.runtime.device import found as discovery

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from one_op import OneOpBackend  # noqa: E402

PLANTED, SLOWED = 8, "add f32"
BESIDE = ("sum f32", SLOWED, "matmul f32")  # of the slower backend; none contains the slowed op
MOST_UNCLEAR = 0.01  # of all comparisons of one build with itself


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def equal_builds(device: str, runs: int, blocks: int) -> list[Figure]:
    """Alarms of runs in which nothing differs. The rate of what had to be measured twice is of the
    first measurements alone."""
    backend = hal.device(device).fact.backend
    library = next(b.library for b in discovery().backends if b.name == backend)
    base = baselines.save("same", backend, Path(str(library)), {})
    alarms = unclear = again = 0
    widest = 0.0
    for run in range(runs):
        verdict = gate.gate(device, base, ALWAYS, blocks=blocks)
        first = gate.decided(verdict.rows)
        again += len({*first.slower, *first.noisy})
        widest = max(widest, *(one.high - one.low for one in first.shifts.values()))
        alarms += bool(verdict.slower or verdict.families)
        unclear += len(verdict.noisy)
        said = [*verdict.slower, *verdict.families, *verdict.noisy]
        say(f"run {run + 1} of {runs}: status {verdict.status} {', '.join(said)}")
        if unclear > MOST_UNCLEAR * runs * len(ALWAYS):
            invalid(f"this host cannot tell {verdict.noisy[0]!r} from itself")
    compared = runs * len(ALWAYS)
    ops = {"ops": list(ALWAYS), "blocks": blocks, "measured_twice": again, "widest": widest}
    name = f"alarms of {device} against itself"
    return [Figure(name, alarms, "runs", "of", runs, alarms / runs, details=ops),
            Figure("comparisons that stayed unclear", unclear, "comparisons", "of", compared,
                   unclear / compared)]  # fmt: skip


def slower_build(folder: Path, blocks: int) -> tuple[Figure, bool]:
    """The measured slowdown, and whether it and nothing else was found."""
    chip = OneOpBackend(folder)
    chip.build("nothing")
    environ = os.environ | {settings.BACKEND_PATH.name: str(chip.folder)}
    base = baselines.save("planted", chip.name, chip.library, {})
    chip.build("spin", PLANTED)
    verdict = gate.gate(f"{chip.name}:0", base, BESIDE, blocks=blocks, environ=environ)
    if verdict.noisy:
        invalid(f"this host cannot tell {verdict.noisy[0]!r}")
    one = verdict.shifts[SLOWED]
    percent = [100 * math.expm1(x) for x in (one.low, one.high)]
    details = {"low": percent[0], "high": percent[1], "p": one.p, "slower": list(verdict.slower)}
    figure = Figure(
        f"slowdown planted in {SLOWED}", one.percent, "%", "planted", PLANTED,
        one.percent / PLANTED, (percent[0] / PLANTED, percent[1] / PLANTED), details,
    )  # fmt: skip
    return figure, verdict.slower == (SLOWED,) and not verdict.families


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="fail on an alarm or a miss")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=gate.BLOCKS)
    parser.add_argument("--device", default="cpu:0")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="anyhal-gate-") as folder:
        os.environ[settings.CACHE.name] = folder
        planted, caught = slower_build(Path(folder) / "chip", given.blocks)
        figures = [planted, *equal_builds(given.device, given.runs, given.blocks)]
    show(figures, given.json)
    if given.check and not caught:
        failed(f"{PLANTED} % in {SLOWED} were not what was found: {planted.details['slower']}")
    if given.check and figures[1].value:
        failed(f"{figures[1].value} of {given.runs} runs of one build raised an alarm")


def failed(why: str) -> NoReturn:
    say(f"gate: {why}")
    sys.exit(1)


if __name__ == "__main__":
    main()
