"""What a call through the contract costs over the same OpenCL calls made directly in C.
SPDX-License-Identifier: Apache-2.0

    python benchmarks/opencl_call.py [--json] [--check] [--blocks N]

An f32[64] addition on every OpenCL device, arguments changed for each call, an event for each
command, 2000 calls before one wait. Each device is measured in a process of its own. `--check`
exits 1 where a call costs more than 5 us over the direct ones.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import Figure, compare, show

import anyhal as hal

SOURCE = Path(__file__).with_suffix(".c")
OVER_US = 5.0


def build(folder: Path) -> Path:
    """The two sides, compiled against the installed headers."""
    library = folder / "opencl_call.so"
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC"]
    command += [f"-I{hal.get_include()}", str(SOURCE), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)
    return library


def measure(library: Path, device: str, blocks: int) -> Figure:
    """One device, in this process."""
    sides = ctypes.CDLL(str(library))
    backend = Path(hal.__file__).parent / "backends/opencl/libanyhal_opencl.so"
    number = ctypes.c_uint64(int(device.partition(":")[2]))
    sides.opencl_call_open(str(backend).encode(), b"libOpenCL.so.1", number)
    calls: int = sides.opencl_call_count()

    def contract() -> None:
        sides.opencl_call_contract()

    def direct_calls() -> None:
        sides.opencl_call_direct()

    ours, direct, quartiles = compare(contract, direct_calls, blocks=blocks)
    ours, direct = ours / calls * 1e6, direct / calls * 1e6
    details: dict[str, object] = {
        "over_us": ours - direct,
        "platform": hal.device(device).fact.arch,
    }
    return Figure(
        f"{device} add f32[64]", ours, "us per call", "direct", direct, ours / direct, quartiles,
        details,
    )  # fmt: skip


def measure_apart(library: Path, device: str, blocks: int) -> Figure:
    """The same in a process of its own: drivers' threads do not meet."""
    command = [sys.executable, __file__, "--one", device, str(library), "--blocks", str(blocks)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return Figure(**json.loads(ran.stdout)["figures"][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help=f"fail above {OVER_US} us")
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--one", nargs=2, metavar=("DEVICE", "LIBRARY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        device, built = given.one
        show([measure(Path(built), device, given.blocks)], as_json=True)
        return
    devices = sorted(d.name for d in hal.devices() if d.fact.backend == "opencl")
    if not devices:
        sys.exit("there is no OpenCL device; install a driver, as with apt install pocl-opencl-icd")
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        figures = [measure_apart(library, device, given.blocks) for device in devices]
    show(figures, given.json)
    over = {f.name: f.details["over_us"] for f in figures}
    for name, more in over.items():
        if not given.json:
            print(f"{name}: {more:.2f} us over the direct calls")
    late = [name for name, more in over.items() if float(str(more)) > OVER_US]
    if given.check and late:
        sys.exit(f"over {OVER_US} us: {', '.join(late)}; run again on a quiet machine")


if __name__ == "__main__":
    main()
