"""A call through the contract against the same OpenCL calls made directly, in one run.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from opencl_call import build, measure  # noqa: E402

OVER_NS = 5000
TRIES = 4  # a busy machine makes either side slow; it makes neither fast


def test_a_call_costs_little_over_opencl_itself(cl: str, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not on the path, so the measuring program cannot be built")
    program, over = build(tmp_path), []
    for _ in range(TRIES):
        ours, direct = measure(program, cl)
        over.append(ours - direct)
        if over[-1] <= OVER_NS:
            return
    pytest.fail(f"{min(over):.0f} ns over the direct calls, {OVER_NS} are allowed")
