"""Loses one device of a process that has all of them. SPDX-License-Identifier: Apache-2.0

    python tests/foreigners/victims.py KIND FAILURE

KIND is cuda, opencl or pjrt: the device that fails stands behind a double, the others are as they
are. FAILURE is memory (none left), late (accepted work that fails) or lost (the device goes). It
must reach whoever waits, by its type, and every other device must go on. Prints type and words.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "backends" / b / "tests") for b in ("cuda", "opencl", "pjrt")]

from everywhere import DEVICES  # noqa: E402

X = np.arange(12, dtype=np.float32).reshape(3, 4)
LARGE = np.ones(48 << 20, np.float32)

# What each double is told, in its own words. A CUDA kernel that dies takes its context with it.
FAILURES = {
    "cuda": {
        "memory": "cuMemAlloc_v2@1+:2; cuMemCreate@1+:2",
        "late": "anyhal_binary@1:719",
        "lost": "anyhal_binary@1:700",
    },
    "opencl": {
        "memory": "fail=clCreateBuffer@1+:-4",
        "late": "fault=clEnqueueNDRangeKernel@1:-5",
        "lost": "gone=clEnqueueNDRangeKernel@1:-36",
    },
    "pjrt": {
        "memory": "fail=Client_BufferFromHostBuffer@1+:8",
        "late": "fault=run@1:13",
        "lost": "gone=LoadedExecutable_Execute@1:14",
    },
}


class Victim:
    """A device behind a double, and the double's ear."""

    def __init__(self, kind: str, folder: Path) -> None:
        import anyhal as hal

        if kind == "cuda":
            library = ctypes.CDLL(os.environ["ANYHAL_CUDA_DRIVER"] + "/libcuda.so.1")
            self._tell, self.device = library.cuda_double_fail, hal.device("cuda:0")
            return
        if kind == "opencl":
            from opencl_double import build

            path, setting = build(folder), "opencl_library"
        else:
            from plugin_double import build_double

            path, setting = build_double(), "plugins"
            os.environ["PJRT_DOUBLE_PLUGIN"] = os.environ["ANYHAL_PJRT_PLUGINS"].split(":")[0]
        library = ctypes.CDLL(str(path))
        self._tell = getattr(library, f"{kind}_double_script")
        self.device = hal.load_backend(kind, instance="victim", settings={setting: str(path)})[0]

    def tell(self, script: str) -> None:
        self._tell(script.encode())


def works(name: str) -> bool:
    import anyhal as hal

    x = hal.asarray(X, device=name)
    return np.array_equal(hal.matmul(hal.add(x, x), x.T).numpy(), (X + X) @ X.T)


def lose(victim: Victim, script: str, others: list[str]) -> Any:
    """What the failure raised."""
    import anyhal as hal

    name = victim.device.name
    x = hal.asarray(X, device=name)
    assert works(name), "before"
    assert all(map(works, others)), "before"
    pending = [hal.add(hal.asarray(X, device=other), 1.0) for other in others]
    victim.tell(script)
    raised = None
    try:
        for _ in range(4):
            x = hal.add(x, hal.asarray(X, device=name))
            hal.asarray(LARGE, device=name)  # more than any pool has left
        x.numpy()
    except hal.HalError as why:
        raised = why
    for other, array in zip(others, pending, strict=True):
        assert np.array_equal(array.numpy(), X + 1), f"{other} lost what it was doing"
    assert all(map(works, others)), "others do not go on"
    return raised


def main(kind: str, failure: str) -> None:
    import anyhal as hal

    others = [n for n in DEVICES if n != "cuda:0"] + ["cuda:1"]
    with tempfile.TemporaryDirectory() as folder:
        victim = Victim(kind, Path(folder))
        others += [] if kind == "cuda" else ["cuda:0"]
        raised = lose(victim, FAILURES[kind][failure], others)
        print(type(raised).__name__, raised, sep="\n")
        if isinstance(raised, hal.DeviceLostError):
            again = lose_again(victim.device.name)
            assert again is not None, "a lost device answered"
            return
        victim.tell("")
        assert works(victim.device.name), "it does not go on itself"


def lose_again(name: str) -> Any:
    import anyhal as hal

    try:
        works(name)
    except hal.DeviceLostError as why:
        return why
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
