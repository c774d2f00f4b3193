"""Programs are built once per machine; a damaged or foreign entry is built again, never run.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from opencl_double import Double

PROGRAM = """
import sys, numpy as np, anyhal as hal
with hal.use(device=sys.argv[1]):
    x = hal.asarray(np.arange(70, dtype=np.float32).reshape(7, 10))
    assert (hal.add(x, x).numpy() == 2 * x.numpy()).all()
    assert (hal.sum(x, axis=1).numpy() == x.numpy().sum(1)).all()
device = hal.device(sys.argv[1])
print(device.counter(3), device.counter(4))
"""


def counts(cl: str, folder: Path) -> tuple[int, int]:
    """Programs built from source, and from the cache, by a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, cl],
        env=os.environ | {"ANYHAL_CACHE": str(folder)},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    built, cached = map(int, ran.stdout.split())
    return built, cached


@pytest.mark.parametrize("damage", ["bytes", "cut", "stale", "huge"])
def test_programs_are_kept_and_damage_is_harmless(cl: str, tmp_path: Path, damage: str) -> None:
    built, cached = counts(cl, tmp_path)
    assert built > 0 and cached == 0
    entries = sorted((tmp_path / "artefacts").rglob("*.bin"))
    assert len(entries) == built
    again, cached = counts(cl, tmp_path)
    assert again == 0 and cached > 0
    for entry in entries:
        if damage == "huge":
            os.truncate(entry, 1 << 40)
            continue
        data = bytearray(entry.read_bytes())
        if damage == "bytes":
            data[-20] ^= 0xFF
        elif damage == "cut":
            data = data[:-100]
        else:  # another driver's: the key, which the file begins with, is another
            data[20] ^= 1
        entry.write_bytes(data)
    again, cached = counts(cl, tmp_path)
    assert again > 0 and cached == 0
    assert counts(cl, tmp_path)[0] == 0  # and written anew


OTHER_DRIVER = """
import sys, numpy as np, anyhal as hal
hal.load_backend("opencl", instance="kept", settings={"opencl_library": sys.argv[1]})
device = hal.device("kept:" + sys.argv[2])
x = hal.asarray(np.arange(70, dtype=np.float32), device=device)
assert (hal.add(x, x).numpy() == 2 * x.numpy()).all()
print(device.counter(3), device.counter(4))
"""


def test_prf_02_programs_of_another_driver_are_not_taken(
    cl: str, double: Double, tmp_path: Path
) -> None:
    """Each part of the driver's identity is part of the key, and its entries come back with it."""
    found = []
    for script in (
        "driver=1.0",
        "driver=1.0",
        "driver=1.1",
        "version=OpenCL 1.2 new",
        "driver=1.0",
    ):
        ran = subprocess.run(
            [sys.executable, "-c", OTHER_DRIVER, double.path, cl.partition(":")[2]],
            env=os.environ | {"ANYHAL_CACHE": str(tmp_path), "OPENCL_DOUBLE": script},
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        found.append(tuple(map(int, ran.stdout.split())))
    assert [built > 0 for built, _ in found] == [True, False, True, True, False], found
    assert all((built > 0) != (cached > 0) for built, cached in found), found
