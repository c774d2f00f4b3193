"""What a call through the contract costs over the same OpenCL calls made directly, in one run.
SPDX-License-Identifier: Apache-2.0

    python benchmarks/opencl_call.py

An f32[64] addition, arguments changed for each call, an event for each command, 2000 calls before
one wait; the best of 15 rounds of each, taken in turn.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import anyhal as hal

SOURCE = Path(__file__).with_suffix(".c")


def build(folder: Path) -> Path:
    """The measuring program, compiled against the installed headers."""
    program = folder / "opencl_call"
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", f"-I{hal.get_include()}"]
    subprocess.run([*command, str(SOURCE), "-o", str(program), "-ldl"], check=True)
    return program


def measure(program: Path, device: str) -> tuple[float, float]:
    """Nanoseconds of a call through the contract, and of the direct calls."""
    library = Path(hal.__file__).parent / "backends/opencl/libanyhal_opencl.so"
    number = device.partition(":")[2]
    ran = subprocess.run(
        [str(program), str(library), "libOpenCL.so.1", number],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    ours, direct = ran.stdout.split()
    return float(ours), float(direct)


def main() -> None:
    devices = [d.name for d in hal.devices() if d.fact.backend == "opencl"]
    if not devices:
        sys.exit("there is no OpenCL device; install a driver, as with apt install pocl-opencl-icd")
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        print("device     contract us  direct us  over us")
        for device in devices:
            ours, direct = measure(program, device)
            print(
                f"{device:<10} {ours / 1e3:11.2f} {direct / 1e3:10.2f} {(ours - direct) / 1e3:8.2f}"
            )


if __name__ == "__main__":
    main()
