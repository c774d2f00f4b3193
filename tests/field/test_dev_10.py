"""DEV-10: any number of accelerators of others in one process (pytorch/pytorch#133288).
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from anyhal.sdk.scaffold import new_backend

AROUND = """
import anyhal as hal, numpy as np
given = np.arange(12, dtype=np.float32).reshape(3, 4)
names = ("firstchip", "cpu", "secondchip", "firstchip", "secondchip", "cpu")
x = hal.asarray(given, device="cpu")
for name in names:
    x = hal.asarray(x, device=name)
    x = hal.matmul(hal.add(x, x), hal.asarray(np.eye(4, dtype=np.float32), device=name))
    assert x.device.name == name + ":0", x.device
np.testing.assert_array_equal(x.numpy(), given * 2 ** len(names))
ran = {(r["op"], r["device"]) for r in hal.routes()}
assert ran >= {(op, f"{n}:0") for op in ("binary", "matmul") for n in names}, ran
"""
CLASH = """
import anyhal as hal
from anyhal.runtime.discovery import discover
found = [r for r in discover().backends if r.name == "firstchip"]
assert len(found) == 2 and found[0].error is None
print(found[1].error)
print(hal.device("firstchip").name)
try:
    hal.load_backend("secondchip", instance="firstchip")
except hal.InvalidArgumentError as why:
    print(why)
"""


def run(code: str, *folders: Path) -> str:
    env = {**os.environ, "ANYHAL_BACKEND_PATH": os.pathsep.join(map(str, folders))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def two_chips(folder: Path) -> Path:
    """One in C and one in Python: outside this tree, and each with the same ops."""
    folder.mkdir(mode=0o755)
    first = new_backend("firstchip", "c", folder)
    subprocess.run(["make", f"PYTHON={sys.executable}"], cwd=first, check=True, capture_output=True)
    new_backend("secondchip", "python", folder)
    return folder


def test_dev_10_two_accelerators_of_others_and_the_processor(tmp_path: Path) -> None:
    run(AROUND, two_chips(tmp_path / "chips"))


def test_dev_10_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    chips, more = two_chips(tmp_path / "chips"), tmp_path / "more"
    more.mkdir(mode=0o755)
    shutil.copytree(chips / "secondchip", more / "other")
    manifest = more / "other" / "backend.toml"
    manifest.write_text(manifest.read_text().replace('"secondchip"', '"firstchip"'))
    refused, device, loaded = run(CLASH, chips, more).splitlines()
    assert "the name 'firstchip' is taken by " in refused and str(chips / "firstchip") in refused
    assert device == "firstchip:0"
    assert "the name 'firstchip' is taken by a loaded instance" in loaded
