"""Runs behaviours in a process of their own, one JSON line for each.

Arguments: device, tier; `also` and ids that are run whatever their tier, or `only` and beginnings
of ids. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance import behaviour, suite


class Bench:
    def __init__(self, device: Any, seed: int) -> None:
        self.device, self.seed = device, seed
        self.device_name, self.facts = device.name, device.fact
        self.capabilities = device.capabilities()

    def rng(self, tensor: str = "") -> np.random.Generator:
        return np.random.default_rng([self.seed, *tensor.encode()])


def main() -> None:
    name, tier, *rest = sys.argv[1:]
    word, names = (rest[0], tuple(rest[1:])) if rest else ("also", ())
    device = hal.device(name)
    device.tested = False
    level = suite.TIERS.index(tier)
    with hal.use(device=device, allow_uncertified=(device.fact.backend,)):
        for case in behaviour.cases():
            tail = case.id.removeprefix("behaviour/")
            due = suite.TIERS.index(case.tier) <= level
            named = tail.startswith(names) if word == "only" else tail in names
            if not (due and named if word == "only" else due or named):
                continue
            print(json.dumps({"begun": case.id}), flush=True)
            began = time.monotonic()
            found = behaviour.run(case, Bench(device, suite.seed_of("tests", case.id)))
            row = {
                "id": case.id,
                "outcome": found.outcome,
                "code": found.code,
                "reason": found.reason,
                "seconds": round(time.monotonic() - began, 4),
                "tier": case.tier,
                "measured": dict(found.measured),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
