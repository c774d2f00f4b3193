"""Right numbers: every op, dtype and form against the references of the op files.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from anyhal.conformance.suite import Answer, Case, Finding

KINDS = ("samples",)  # one file each


def cases() -> Iterator[Case]:
    for kind in KINDS:
        yield from _kind(kind).cases()


def run(case: Case, bench: Any) -> Finding | Answer:
    found: Finding | Answer = _kind(_kind_of(case)).run(case, bench)
    return found


def judge(case: Case, seed: int, answer: Answer) -> Finding:
    found: Finding = _kind(_kind_of(case)).judge(case, seed, answer)
    return found


def _kind(name: str) -> Any:
    return import_module(f"{__name__}.{name}")


def _kind_of(case: Case) -> str:
    return case.id.split("/")[2]
