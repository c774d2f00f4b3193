"""One program on the double, over and over with one failure at another place; prints what came out.
SPDX-License-Identifier: Apache-2.0

    one_failure.py LIBRARY CACHE CODE SLOT...

Each run opens the plugin anew, so that opening is part of it, and compiles anew the first time that
the process runs with this cache. Prints one JSON line per run.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from plugin_double import Report  # noqa: E402

import anyhal as hal  # noqa: E402
from anyhal import _core  # noqa: E402

LIBRARY, CACHE = sys.argv[1:3]
A = np.arange(16, dtype=np.float32).reshape(4, 4)


def results(device: Any) -> Iterator[tuple[str, Any, Any]]:
    """Every kind of call: what it gave and what is right."""
    x = hal.asarray(A, device=device)
    y = hal.add(x, x)
    yield "add", y.numpy(), A + A
    yield "matmul", hal.matmul(y, x).numpy(), (A + A) @ A
    hal.add(y[1:], x[1:], out=y[1:])
    yield "in place", y.numpy(), np.concatenate([2 * A[:1], 3 * A[1:]])
    at = hal.asarray(np.array([3, 0]), device=device)
    yield "take", hal.take(x, at, axis=0).numpy(), A[[3, 0]]
    fixed = hal.asarray(A, device=device, constant=True)
    with hal.graph(device) as graph:
        z = hal.add(hal.matmul(x, fixed), hal.multiply(fixed, fixed))
        picked = hal.take(z, hal.add(at, at)[1:], axis=0)
    for factor in (1, 2):
        x.set(A * factor)
        graph.launch()
        want = (A * factor) @ A + A * A
        yield "region", z.numpy(), want
        yield "picked", picked.numpy(), want[[0]]
    yield "never written", hal.empty((3,), device=device).numpy().shape, (3,)


def run(double: Any, instance: str, script: str) -> dict[str, Any]:
    double.pjrt_double_script(script.encode())
    before = Report.read(double.pjrt_double_report().decode())
    told: dict[str, Any] = {"script": script, "outcome": "right", "text": ""}
    device = None
    settings = {"plugins": LIBRARY, "cache_dir": CACHE}
    try:
        made = hal.load_backend("pjrt", instance=instance, settings=settings)
        device = made[0] if made else None
        if device is None:
            told["outcome"] = "no device"
        else:
            for name, got, want in results(device):
                if not np.array_equal(got, want):
                    told |= {"outcome": "WRONG", "text": name}
            device.synchronize()
    except hal.BackendLoadError as why:
        told |= {"outcome": "no device", "text": str(why)}
        del why
    except hal.HalError as why:
        told |= {"outcome": type(why).__name__, "text": str(why)}
        del why
    for _ in range(2):  # a failed queue's blocks come free when somebody has asked
        gc.collect()
        if device is not None:
            with contextlib.suppress(hal.HalError):
                device.synchronize()
            with contextlib.suppress(hal.HalError):
                device.native.trim()
    after = Report.read(double.pjrt_double_report().decode())
    left = {kind: n - before.left[kind] for kind, n in after.left.items()}
    plans = [p for p in _core.plans() if p["device"] == f"{instance}:0" and not p["composite"]]
    told["left"] = left | {"plans": len(plans)}
    told["calls"] = dict(after.calls)
    told["violations"] = after.violations
    return told


def places(calls: int) -> list[int]:
    """Which calls fail: all of a few, else the first ones, some between, the last."""
    if calls <= 12:
        return list(range(1, calls + 1))
    return sorted({*range(1, 7), *range(7, calls, max(1, calls // 6)), calls})


def main() -> None:
    double = ctypes.CDLL(LIBRARY)
    double.pjrt_double_report.restype = ctypes.c_char_p
    numbers = iter(range(1 << 30))
    code = sys.argv[3]
    for slot in sys.argv[4:]:
        clean = run(double, f"r{next(numbers)}", "")
        print(json.dumps(clean | {"slot": slot}), flush=True)
        for place in places(clean["calls"].get(slot, 0)):
            told = run(double, f"r{next(numbers)}", f"fail={slot}@{place}:{code}")
            print(json.dumps(told | {"slot": slot}), flush=True)


main()
