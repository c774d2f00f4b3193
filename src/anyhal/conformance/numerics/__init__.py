"""Right numbers: every op, dtype and form against the references of the op files.
SPDX-License-Identifier: Apache-2.0

Each kind of cases is a file with `cases` and `probes`; one that judges more than single elements
has a `judge` of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from anyhal.conformance.numerics import probes
from anyhal.conformance.suite import Answer, Case, Finding

KINDS = (
    "samples",
    "exact",
    "elementwise",
    "special",
    "bounded",
    "sequences",
    "classes",
    "public_bugs",
)  # one file each


def cases() -> Iterator[Case]:
    for kind in KINDS:
        yield from _kind(kind).cases()


def run(case: Case, bench: Any) -> Finding | Answer:
    with np.errstate(all="ignore"):  # NaN and infinities are among the inputs
        return probes.run(case, bench, _kind_of(case).probes(case, bench.seed))


def judge(case: Case, seed: int, answer: Answer) -> Finding:
    kind = _kind_of(case)
    with np.errstate(all="ignore"):
        judged: Finding = getattr(kind, "judge", probes.judge)(
            case, answer, kind.probes(case, seed)
        )
    return judged


def _kind(name: str) -> Any:
    return import_module(f"{__name__}.{name}")


def _kind_of(case: Case) -> Any:
    return _kind(case.id.split("/")[2])
