"""A call through the contract against the same OpenCL calls made directly, in one run.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from opencl_call import OVER_US, build, measure_apart  # noqa: E402

TRIES = 4  # a busy machine makes either side slow; it makes neither fast


def test_a_call_costs_little_over_opencl_itself(cl: str, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not on the path, so the measuring program cannot be built")
    library, over = build(tmp_path), []
    for _ in range(TRIES):
        figure = measure_apart(library, cl, blocks=5)
        over.append(figure.details["over_us"])
        if over[-1] <= OVER_US:  # type: ignore[operator]
            return
    pytest.fail(f"{over} us over the direct calls, {OVER_US} are allowed")
