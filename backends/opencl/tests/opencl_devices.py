"""Which OpenCL devices this process has.
SPDX-License-Identifier: Apache-2.0

TEST_OPENCL=N says that N devices must be there; CI sets it.
"""

from __future__ import annotations

import os
from functools import cache

import anyhal as hal

WANTED = int(os.environ.get("TEST_OPENCL", "0"))


@cache
def found() -> list[str]:
    return [d.name for d in hal.devices() if d.fact.backend == "opencl"]


def missing() -> str:
    """Why there are none, in the backend's own words."""
    from anyhal.runtime.device import facts

    refused = [r.sentence for r in facts().refused if r.name == "opencl"]
    return refused[0] if refused else "no OpenCL device was found"
