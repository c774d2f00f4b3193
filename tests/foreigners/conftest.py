"""Every kind of device in one process: processors, OpenCL, XLA plugins, and CUDA simulated.
SPDX-License-Identifier: Apache-2.0

    eval "$(python tools/drivers.py build/drivers)"
    pytest -n 0 -m foreign tests/foreigners

A device that is missing skips its tests; with TEST_FOREIGN=1 it fails them instead.
FOREIGN_SEED and FOREIGN_COUNT say which random programs are run, and how many.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "backends" / "cuda" / "tests"), str(Path(__file__).parent)]

from everywhere import DEVICES  # noqa: E402
from simulated import build_double, need  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def drivers() -> Iterator[None]:
    """Says where the drivers are, before any device is looked for."""
    if "ANYHAL_CUDA_DRIVER" not in os.environ:
        folder = ROOT / "build" / "cuda-double"
        build_double(folder)
        os.environ["ANYHAL_CUDA_DRIVER"] = str(folder)
    seed = os.environ.get("FOREIGN_SEED", "1")
    os.environ.setdefault("CUDA_DOUBLE", f"seed={seed}")
    if plugins := os.environ.get("PJRT_TEST_PLUGINS"):
        os.environ.setdefault("ANYHAL_PJRT_PLUGINS", plugins)
    yield


@pytest.fixture(scope="session")
def needs(drivers: None) -> Callable[..., None]:
    """needs(name, ...): those devices, or the test ends here."""
    import anyhal as hal

    here = {d.name for d in hal.devices()}

    def check(*names: str) -> None:
        missing = sorted(set(names) - here)
        need(
            not missing,
            f"{', '.join(missing)}: not here; run"
            ' eval "$(python tools/drivers.py build/drivers)" first',
        )

    return check


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, needs: Callable[..., None]) -> str:
    needs(request.param)
    return str(request.param)
