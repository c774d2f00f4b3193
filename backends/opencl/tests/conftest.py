"""OpenCL devices for the tests, and what makes their absence a failure.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
for folder in (HERE, ROOT / "tests", ROOT / "tests" / "fake"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from opencl_devices import WANTED, found, missing  # noqa: E402


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
def double(opencl: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A loader that lies when OPENCL_DOUBLE says so."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not on the path, so the double of the loader cannot be built")
    library = tmp_path_factory.mktemp("double") / "libOpenCL_double.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", str(HERE / "loader_double.c"),
         "-o", str(library), "-Wl,--no-as-needed", "-l:libOpenCL.so.1", "-ldl"],
        check=True,
    )  # fmt: skip
    return str(library)
