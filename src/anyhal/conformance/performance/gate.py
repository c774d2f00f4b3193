"""Old and new build in one process, in turns, and the decision: as fast, slower, or not to be told.
SPDX-License-Identifier: Apache-2.0

Each block times old, new, new, old (or the other way round), so that the two legs of the old build
also answer whether this machine can tell at all. It cannot where they differ by the same rule that
a slower build is found with, nor where the interval of an item is so wide that 8 % could hide in
it. What is not in order is measured once more in a process of its own: what fails twice is slower,
and what is neither in order once nor slower twice leaves the host unfit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from anyhal.conformance.performance import clock
from anyhal.conformance.performance.baselines import Baseline
from anyhal.conformance.performance.statistics import Shift, shift, slower, slower_families
from anyhal.errors import HalError
from anyhal.records import field, record

PASSED, SLOWER, UNFIT = 0, 1, 2
BLOCKS, LEG_SECONDS = 15, 0.05  # two legs of a side: 100 ms of device work in each block

Progress = Callable[[str], None]


class NotMeasuredError(HalError):
    """The process that times ended without an answer."""

    code = "not_run"


@record
class Verdict:
    """Of a gate, by names of items: how much slower, what two legs of one build differ by, what is
    slower beyond doubt, and what this host cannot tell."""

    shifts: dict[str, Shift]
    noise: dict[str, Shift]
    slower: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    noisy: tuple[str, ...] = ()
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def status(self) -> int:
        """0 passed, 1 slower, 2 this host cannot tell."""
        return UNFIT if self.noisy else SLOWER if self.slower or self.families else PASSED


def measure(
    device: str,
    items: Sequence[str] = (),
    baseline: Baseline | None = None,
    *,
    blocks: int = BLOCKS,
    seconds: float = LEG_SECONDS,
    environ: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """One row per item, as `clock` prints them."""
    words = {
        "device": device,
        "library": str(baseline.library) if baseline else "",
        "sha256": baseline.sha256 if baseline else "",
        "items": list(items),
        "blocks": blocks,
        "seconds": seconds,
    }
    rows = []
    with _child(words, environ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            rows.append(json.loads(line))
            if progress is not None:
                progress(rows[-1]["name"])
        status = process.wait()
        if status:
            assert process.stderr is not None
            said = process.stderr.read().strip().splitlines()
            raise NotMeasuredError(
                f"timing {device}: the process ended with status {status} after {len(rows)} items:"
                f" {said[-1] if said else 'it said nothing'}"
            )
    return rows


@contextmanager
def _child(
    words: dict[str, Any], environ: Mapping[str, str] | None
) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", clock.COMMAND, json.dumps(words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ if environ is None else environ) | {"PYTHONPATH": path},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def gate(
    device: str,
    baseline: Baseline,
    items: Sequence[str] = (),
    *,
    blocks: int = BLOCKS,
    seconds: float = LEG_SECONDS,
    environ: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Whether the backend as it is now is slower than the baseline."""

    def once(names: Sequence[str]) -> Verdict:
        rows = measure(
            device,
            names,
            baseline,
            blocks=blocks,
            seconds=seconds,
            environ=environ,
            progress=progress,
        )
        return decided(rows)

    first = once(items)
    again = sorted({*first.slower, *first.noisy} | _of_families(first))
    if not again:
        return first
    second = once(again)
    failed = set(first.slower) & set(second.slower)
    doubted = {*first.slower, *first.noisy} & {*second.slower, *second.noisy}
    return Verdict(
        first.shifts | second.shifts,
        first.noise | second.noise,
        tuple(sorted(failed)),
        tuple(sorted(set(first.families) & set(second.families))),
        tuple(sorted(doubted - failed)),
        first.rows,
    )


def _of_families(verdict: Verdict) -> set[str]:
    return {r["name"] for r in verdict.rows if r["family"] in verdict.families and "hot" in r}


def decided(rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """From block times alone. Without an old side nothing is compared."""
    times: dict[str, tuple[Any, Any]] = {}
    legs: dict[str, tuple[Any, Any]] = {}
    families: dict[str, list[str]] = {}
    for row in rows:
        heat = row.get("cold") or row.get("hot")
        if not heat or "old" not in heat:
            continue
        old, new = np.asarray(heat["old"]), np.asarray(heat["new"])
        times[row["name"]] = (old.min(axis=1), new.min(axis=1))
        legs[row["name"]] = (old[:, 0], old[:, 1])
        families.setdefault(row["family"], []).append(row["name"])
    shifts = {name: shift(*pair) for name, pair in times.items()}
    there = {name: shift(*pair) for name, pair in legs.items()}
    back = {name: shift(*pair[::-1]) for name, pair in legs.items()}
    found = slower(shifts)
    noisy = {*slower(there), *slower(back)}
    noisy |= {name for name, one in shifts.items() if one.hides and name not in found}
    return Verdict(
        shifts,
        there,
        tuple(name for name in found if name not in noisy),
        tuple(slower_families(families, times)),
        tuple(sorted(noisy)),
        [dict(r) for r in rows],
    )
