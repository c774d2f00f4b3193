"""A slice of the random schedules over two backends; `tools/check.py --all` runs 2,000.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys

import pytest
from simulated import ROOT, Double

SCRIPT = str(ROOT / "tests" / "doubles" / "schedules.py")


@pytest.mark.parametrize("seed", [1, 2])
def test_every_value_is_as_in_order(double: Double, seed: int) -> None:
    done = double.run(sys.executable, SCRIPT, "--count", "60", "--seed", str(seed))
    assert done.returncode == 0 and "60 schedules" in done.stdout, done.stdout + done.stderr


def test_the_schedules_notice_waits_that_are_not_made(double: Double) -> None:
    """With cuStreamWaitEvent answered and not done, values must come out wrong."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tests' / 'doubles')!r}); import schedules\n"
        "print(len(schedules.run_schedules(200, 5, 'nowait=1')))\n"
    )
    assert int(double.python(code).split()[-1]) > 0
