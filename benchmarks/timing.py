"""Side by side timing: ABBA blocks, medians, one line per figure, one JSON schema.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import NoReturn

# Idle before each block: OpenMP's threads go on spinning for milliseconds after their last task,
# and would take cores from the side that is timed next. Both sides start with sleeping threads.
SETTLE_SECONDS = 0.05


@dataclass(frozen=True)
class Figure:
    """One measured claim. `ratio` is value / baseline_value."""

    name: str
    value: float
    unit: str
    baseline: str
    baseline_value: float
    ratio: float
    interval: tuple[float, float] = (0.0, 0.0)  # quartiles of the ratio over blocks
    details: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.name}: {self.value:.4g} {self.unit}, {self.baseline} {self.baseline_value:.4g}"
            f" {self.unit}, ratio {self.ratio:.3f} [{low:.3f}, {high:.3f}]"
        )


# Exit status of a run whose peer was held back: it says nothing about us, good or bad.
INVALID = 3


def invalid(why: str) -> NoReturn:
    print(f"invalid: {why}; run again on a quiet machine", file=sys.stderr)
    sys.exit(INVALID)


def threads() -> int:
    """What this process may use."""
    return len(os.sched_getaffinity(0))


def compare(
    ours: Callable[[], None], theirs: Callable[[], None], blocks: int = 15
) -> tuple[float, float, tuple[float, float]]:
    """Median seconds of each in ABBA order, and the quartiles of the ratio per block."""
    ours(), theirs()  # first calls prepare plans and warm caches
    mine: list[float] = []
    other: list[float] = []
    ratios: list[float] = []
    for block in range(blocks):
        order = (ours, theirs, theirs, ours) if block % 2 == 0 else (theirs, ours, ours, theirs)
        seen: dict[Callable[[], None], float] = {ours: 0.0, theirs: 0.0}
        for function in order:
            time.sleep(SETTLE_SECONDS)
            started = time.perf_counter()
            function()
            took = time.perf_counter() - started
            seen[function] += took
            (mine if function is ours else other).append(took)
        ratios.append(seen[ours] / seen[theirs])
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return statistics.median(mine), statistics.median(other), (quartiles[0], quartiles[2])


def show(figures: list[Figure], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"schema": 1, "figures": [asdict(f) for f in figures]}, allow_nan=False))
    else:
        print("\n".join(map(str, figures)))
