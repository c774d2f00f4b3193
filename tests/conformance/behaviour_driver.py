"""Runs behaviours in a process of their own: a device, a tier or ids; one JSON line for each.

SPDX-License-Identifier: Apache-2.0
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
    name, tier, *prefixes = sys.argv[1:]
    device = hal.device(name)
    device.tested = False
    level = suite.TIERS.index(tier)
    with hal.use(device=device, allow_uncertified=(device.fact.backend,)):
        for case in behaviour.cases():
            asked = any(case.id.startswith(f"behaviour/{p}") for p in prefixes)
            if prefixes and not asked or suite.TIERS.index(case.tier) > level:
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
