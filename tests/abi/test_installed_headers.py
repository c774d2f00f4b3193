"""A vendor needs the installed package and a compiler, nothing of this tree.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DAYONE = ROOT / "backends" / "dayone"

PROGRAM = """
import anyhal as hal, numpy as np
with hal.use(device="mychip", allow_uncertified=("mychip",)):
    x = hal.asarray(np.ones((3, 4), np.float32))
    np.testing.assert_array_equal(hal.add(x, x).numpy(), np.full((3, 4), 2))
    try:
        hal.take(x, hal.asarray(np.int32([7])), axis=0)
    except hal.InvalidArgumentError as refused:
        print(refused)
"""


@pytest.fixture
def include() -> Path:
    import anyhal as hal

    return Path(hal.get_include())


def test_the_headers_are_installed_as_they_are(include: Path) -> None:
    public = [p.relative_to(ROOT / "include") for p in (ROOT / "include").rglob("*.h*")]
    public = [p for p in public if "history" not in p.parts]
    assert len(public) > 5
    for name in public:
        assert (include / name).read_bytes() == (ROOT / "include" / name).read_bytes(), name
    assert {p.relative_to(include) for p in include.rglob("*") if p.is_file()} == set(public)


def test_a_copy_of_dayone_is_a_backend_of_its_own(include: Path, tmp_path: Path) -> None:
    """Step 1 of its README, outside this tree: the name changes in the manifest alone."""
    folder = tmp_path / "mychip"
    shutil.copytree(DAYONE, folder)
    manifest = (folder / "backend.toml").read_text().replace("dayone", "mychip")
    (folder / "backend.toml").write_text(manifest)
    sources = [str(p) for p in sorted(folder.rglob("*.c"))]
    command = ["gcc", "-std=c11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{include}"]
    command += [*sources, "-lm", "-o", str(folder / "libanyhal_mychip.so")]
    subprocess.run(command, check=True)
    environment = os.environ | {"ANYHAL_BACKEND_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("take (gather) on mychip:0: index 7 ")
    assert "dayone" not in done.stdout


def test_the_kit_compiles_from_there(include: Path, tmp_path: Path) -> None:
    source = tmp_path / "kit.cc"
    names = sorted(p.name for p in (include / "anyhal" / "sdk").glob("*.hpp"))
    source.write_text("".join(f'#include "anyhal/sdk/{name}"\n' for name in names))
    command = ["g++", "-std=c++20", "-Wall", "-Werror", "-fsyntax-only", f"-I{include}"]
    subprocess.run([*command, str(source)], check=True)
