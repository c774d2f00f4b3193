"""The devices that a family of tests runs on. SPDX-License-Identifier: Apache-2.0"""

from __future__ import annotations

import os

import anyhal as hal
from anyhal.conformance.placing import (
    LAYOUTS,
    Output,
    OutsideError,
    call,
    forced,
    framed,
    layouts_of,
    modes,
    place,
    poison,
    public_call,
    run,
)

__all__ = [
    "LAYOUTS",
    "OutsideError",
    "Output",
    "call",
    "devices",
    "forced",
    "framed",
    "layouts_of",
    "modes",
    "place",
    "poison",
    "public_call",
    "run",
]


def devices() -> list[str]:
    """The devices of this machine that a whole family runs on.

    A vendor's runtime with threads of its own compiles a kernel for each cell: minutes for a
    family. Its backend's tests run a slice; TEST_DEVICES=vendors takes these devices, all takes
    every one.
    """
    asked = os.environ.get("TEST_DEVICES", "")
    wanted = {"all": (True, False), "vendors": (True,)}.get(asked, (False,))
    return [d.name for d in hal.devices() if bool(d.fact.own_threads) in wanted]
