"""OpenCL devices for the tests, and what makes their absence a failure.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
for folder in (HERE, ROOT / "tests", ROOT / "tests" / "fake"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from opencl_devices import WANTED, found, missing  # noqa: E402
from opencl_double import Double, build  # noqa: E402


@pytest.fixture(scope="session")
def opencl() -> list[str]:
    """Names of the OpenCL devices; skipped, or failed where CI promised some, without one."""
    names = found()
    if len(names) < WANTED:
        pytest.fail(f"TEST_OPENCL promises {WANTED} OpenCL devices: {missing()}")
    if not names:
        pytest.skip(missing())
    return names


@pytest.fixture
def both(opencl: list[str]) -> tuple[str, str]:
    """Two devices at once."""
    if len(opencl) < 2:
        pytest.skip("there is one OpenCL device only, and this needs two")
    return opencl[0], opencl[1]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`cl` runs over every OpenCL device, and once without any, to say so."""
    if "cl" in metafunc.fixturenames:
        metafunc.parametrize("cl", found() or [None], indirect=True)


@pytest.fixture
def cl(request: pytest.FixtureRequest, opencl: list[str]) -> str:
    """The name of one OpenCL device."""
    assert request.param in opencl
    return str(request.param)


@pytest.fixture(scope="session")
def built_double(opencl: list[str], tmp_path_factory: pytest.TempPathFactory) -> Double:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not on the path, so the double of the loader cannot be built")
    return Double(build(tmp_path_factory.mktemp("double")))


@pytest.fixture
def double(built_double: Double) -> Iterator[Double]:
    """A loader that fails when its script says so; harmless again afterwards."""
    yield built_double
    built_double.script()
