"""PJRT plugins of other people as devices: found by package, loaded as an instance of their own.
SPDX-License-Identifier: Apache-2.0

PJRT_TEST_PLUGINS names the files (tools/drivers.py fetches two); without it installed packages are
looked through. Without a plugin these tests are skipped; with TEST_FOREIGN=1 they fail.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[3] / "tests"
sys.path[:0] = [
    str(TESTS),
    str(TESTS / "ops"),
    str(TESTS / "frontends"),
    str(Path(__file__).parent),
]

from plugin_double import Double, build_double  # noqa: E402

from anyhal.runtime.manifest import read_manifest  # noqa: E402
from anyhal.runtime.vendor import plugin_paths  # noqa: E402

NEEDED = 2  # two plugins of different ages in one process


def found() -> list[Path]:
    manifest = read_manifest(Path(__file__).parents[1] / "backend.toml")
    assert manifest.opens is not None
    given = os.environ.get("PJRT_TEST_PLUGINS", "")
    return [Path(p) for p in given.split(":") if p] or plugin_paths(manifest.opens)[0]


@pytest.fixture(scope="session")
def paths() -> list[Path]:
    """The plugin files, two at least."""
    plugins = found()
    if len(plugins) >= NEEDED:
        return plugins[:NEEDED]
    why = (
        f"{len(plugins)} of {NEEDED} PJRT plugins are here; pip install --no-deps"
        " lammps-jax-pjrt-cpu xla-cpu-pjrt"
    )
    if os.environ.get("TEST_FOREIGN") == "1" or "PJRT_TEST_PLUGINS" in os.environ:
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="session")
def plugins(paths: list[Path]) -> list[Any]:
    """Their devices, in one instance."""
    import anyhal as hal

    settings = {"plugins": ":".join(map(str, paths))}
    return hal.load_backend("pjrt", instance="pjrtx", settings=settings)


@pytest.fixture(scope="session", params=range(NEEDED))
def device(request: pytest.FixtureRequest, plugins: list[Any]) -> Any:
    return plugins[request.param]


@pytest.fixture(scope="session")
def double_library() -> Path:
    if shutil.which("cmake") is None or shutil.which("g++") is None:
        pytest.fail("cmake and g++ build the plugin double; install them")
    return build_double()


def before(number: int, paths: list[Path], library: Path, folder: Path) -> Double:
    others = tuple(p for p in paths if p is not paths[number])
    return Double(library, paths[number], folder, others)


@pytest.fixture
def double(paths: list[Path], double_library: Path, tmp_path: Path) -> Double:
    """The double before the first plugin, with the other one beside it."""
    return before(0, paths, double_library, tmp_path)


@pytest.fixture(params=range(NEEDED))
def each_double(
    request: pytest.FixtureRequest, paths: list[Path], double_library: Path, tmp_path: Path
) -> Double:
    """The same before each plugin in turn."""
    return before(request.param, paths, double_library, tmp_path)
