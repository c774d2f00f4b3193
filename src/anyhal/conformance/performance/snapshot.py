"""What a machine does today, as plain data: routes, libraries, answers and speed.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance import report
from anyhal.conformance.numerics.calls import values
from anyhal.conformance.performance import roofs
from anyhal.conformance.placing import call, place
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._spec import Blocks, OpSpec, Sample
from anyhal.runtime.device import found as backends_found

_LARGEST = 4096  # elements of an input whose answer is kept as a digest
_SAMPLES = 2


def taken(device: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of a device, with the rows that `gate.measure` made of it."""
    on = hal.device(device)
    backend = next(b for b in backends_found().backends if b.name == on.fact.backend)
    library = Path(str(backend.library))
    host = on.fact.integrated or not on.fact.memory_kinds or _on_host(on)
    return {
        "schema": 1,
        "kind": "snapshot",
        "device": device,
        "anyhal": metadata.version("anyhal"),
        "library": library.name,
        "library_file": str(library),
        "library_sha256": hashlib.sha256(library.read_bytes()).hexdigest(),
        "libraries": {"numpy": np.__version__},
        "platform": report.platform_of({"arch": on.fact.arch}) | {"machine": platform.machine()},
        "routes": routes(),
        "digests": digests(device),
        "perf": roofs.measured(rows, host),
        "times": {r["name"]: (r.get("cold") or r["hot"])["new"] for r in rows if "hot" in r},
    }


def _on_host(on: Any) -> bool:
    return any("host_visible" in kind for kind in on.fact.memory_kinds)


def routes() -> dict[str, str]:
    """Per op and dtype, the device that a call without a name takes, and how."""
    best = hal.device().name
    rows = {}
    for spec in BY_NAME.values():
        for short in spec.dtypes:
            declared = short in {d.short for d in hal.device(best).dtypes_of(spec.name)}
            form = "fused" if declared else "refused" if spec.is_core else "decomposed"
            rows[f"{spec.name} {short}"] = f"{best} {form}"
    return rows


def digests(device: str) -> dict[str, str]:
    """Per op and dtype, a hash over the answers to fixed inputs; a refusal by its word."""
    rows = {}
    for spec in BY_NAME.values():
        if not spec.public:
            continue
        cells: dict[str, list[Sample]] = {}
        for sample in spec.samples(np.random.default_rng(spec.id)):
            short = _main_dtype(sample)
            if short and len(cells.setdefault(short, [])) < _SAMPLES and _small(sample):
                cells[short].append(sample)
        for short, samples in cells.items():
            rows[f"{spec.name} {short}"] = _digest(spec, samples, device)
    return rows


def _digest(spec: OpSpec, samples: Sequence[Sample], device: str) -> str:
    digest = hashlib.sha256()
    for sample in samples:
        try:
            arrays = [None if x is None else place(x, "dense", device) for x in sample.inputs]
            with hal.use(device=device):
                made = call(spec, arrays, dict(sample.attrs))
            for one in values(made):
                digest.update(b"-" if one is None else np.ascontiguousarray(one).tobytes())
        except hal.UnsupportedError as why:
            digest.update(why.reason.encode())
    return digest.hexdigest()[:16]


def _main_dtype(sample: Sample) -> str:
    first = next((x for x in sample.inputs if x is not None), None)
    if first is None:
        return ""
    return first.dtype.short if isinstance(first, Blocks) else dtype(first.dtype).short


def _small(sample: Sample) -> bool:
    sizes = [int(np.prod(x.shape, dtype=np.int64)) for x in sample.inputs if x is not None]
    return max(sizes, default=0) <= _LARGEST
