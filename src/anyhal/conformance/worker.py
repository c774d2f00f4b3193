"""The process that holds the backend: runs case after case, one line of JSON for each.
SPDX-License-Identifier: Apache-2.0

It never sees a reference: inputs come from the case's seed, outputs go to the oracle's process.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from anyhal.conformance import spool, suite
from anyhal.conformance.suite import Answer, Case, Finding
from anyhal.errors import DeviceLostError, HalError
from anyhal.routing.facts import DeviceFact
from anyhal.runtime.device import Device

_HEALTHY_EVERY = 64  # cases
_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>
COMMAND = "from anyhal.conformance.worker import main; main()"


class Bench:
    """What a case runs on."""

    def __init__(self, device: Device, seed: int) -> None:
        self.device = device
        self.seed = seed

    @property
    def device_name(self) -> str:
        return self.device.name

    @property
    def facts(self) -> DeviceFact:
        return self.device.fact

    @cached_property
    def capabilities(self) -> list[dict[str, Any]]:
        return self.device.capabilities()

    def rng(self, tensor: str = "") -> np.random.Generator:
        """Numbers of this case and tensor, whatever ran before."""
        return rng_of(self.seed, tensor)


def rng_of(seed: int, tensor: str = "") -> np.random.Generator:
    return np.random.default_rng([seed, *hashlib.sha256(tensor.encode()).digest()[:4]])


def main() -> None:
    """Arguments: device, descriptor to read from, descriptor to write to, spool folder."""
    name, read, write, folder = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # whatever the backend does then
    with os.fdopen(int(read), encoding="utf-8") as asked, os.fdopen(int(write), "w") as told:
        _serve(name, asked, told, Path(folder))


def _serve(name: str, asked: Any, told: Any, folder: Path) -> None:
    def tell(**words: Any) -> None:
        told.write(json.dumps(words) + "\n")
        told.flush()

    import anyhal as hal

    try:
        device = hal.device(name)
        device.tested = False  # every answer is judged here, so none is tested before
        tell(kind="ready", **_described(device))
    except HalError as why:
        tell(kind="error", sentence=str(why), code=why.code)
        return
    with hal.use(device=name):
        for count, line in enumerate(asked):
            words = json.loads(line)
            case = Case(**words["case"])
            started = time.monotonic()
            found = _run(case, Bench(device, words["seed"]))
            seconds = time.monotonic() - started
            failed = isinstance(found, Finding) and found.outcome == "fail"
            well = _well(device) if failed or count % _HEALTHY_EVERY == _HEALTHY_EVERY - 1 else ""
            if isinstance(found, Answer):
                file = folder / f"{count}.{os.getpid()}"
                rows = spool.write(found, file)
                tell(kind="answer", seconds=seconds, file=file.name, rows=rows, unwell=well)
            else:
                tell(kind="finding", seconds=seconds, finding=plain(found), unwell=well)


def _run(case: Case, bench: Bench) -> Finding | Answer:
    try:
        found: Finding | Answer = suite.group(case.group).run(case, bench)
        return found
    except DeviceLostError as why:
        return Finding("fail", str(why), "device_lost")
    except HalError as why:
        return Finding("fail", f"{type(why).__name__}: {why}", why.code)
    except MemoryError as why:
        return Finding("fail", f"memory ran out: {why}", "memory")


def plain(finding: Finding) -> dict[str, Any]:
    return {
        "outcome": finding.outcome,
        "reason": finding.reason,
        "code": finding.code,
        "measured": dict(finding.measured),
    }


def _well(device: Device) -> str:
    """ "" when the device still copies and adds, else what is wrong."""
    import anyhal as hal

    numbers = np.arange(64, dtype=np.float32)
    try:
        with hal.use(device=device.name):
            there = hal.asarray(numbers)
            if not np.array_equal(there.numpy(), numbers):
                return "a copy there and back gave other numbers"
            with suppress(hal.UnsupportedError):
                if not np.array_equal(hal.add(there, there).numpy(), numbers + numbers):
                    return "1 + 1 is no longer 2"
    except (HalError, MemoryError) as why:
        return f"{type(why).__name__}: {why}"
    return ""


def _described(device: Device) -> dict[str, Any]:
    """What the report says of backend and device."""
    from anyhal import _core
    from anyhal.runtime.device import found

    fact = device.fact
    record = next(b for b in found().backends if b.name == fact.backend)
    library = record.library
    return {
        "device": fact.name,
        "backend": fact.backend,
        "arch": fact.arch,
        "driver": fact.driver,
        "state": fact.state,
        "simulated": fact.simulated,
        "memory_kinds": list(fact.memory_kinds),
        "manifest": str(record.path),
        "library": str(library),
        "library_sha256": record.sha256 or _core.sha256(Path(str(library)).read_bytes()),
        "claims": device.capabilities(),
        "dependencies": _dependencies(str(library)),
    }


_SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")
_OF_PYTHON = ("/lib-dynload/", "/libpython", "/numpy/", "/numpy.libs/", "/ml_dtypes/")


def _dependencies(library: str) -> list[Mapping[str, str]]:
    """Mapped libraries that belong neither to the system nor to Python, NumPy or anyhal itself."""
    from anyhal import _core

    rows: list[Mapping[str, str]] = []
    ours = str(Path(__file__).parent.parent) + os.sep
    for file in sorted(set(_core.mapped_libraries())):
        if file == library or file.startswith((*_SYSTEM, ours)):
            continue
        if any(part in file for part in _OF_PYTHON):
            continue
        with suppress(OSError):  # a sealed copy has no path
            rows.append({"file": os.path.basename(file), "sha256": _sha256(file)})
    return rows


def _sha256(file: str) -> str:
    with open(file, "rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
