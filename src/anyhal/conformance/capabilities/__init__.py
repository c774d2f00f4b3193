"""Honest capabilities: what is declared works, what is not is refused, and `op_query` knows which.
SPDX-License-Identifier: Apache-2.0

Calls are described to the backend as the contract has them, since routing would copy operands and
decompose ops until something is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from anyhal.conformance.suite import Answer, Case, Finding

KINDS = ("rows", "claims", "lattice", "refusals", "values")  # one file each


def cases() -> Iterator[Case]:
    for kind in KINDS:
        yield from _kind(kind).cases()


def run(case: Case, bench: Any) -> Finding | Answer:
    found: Finding | Answer = _kind(case.id.split("/")[1]).run(case, bench)
    return found


def judge(case: Case, seed: int, answer: Answer) -> Finding:
    found: Finding = _kind(case.id.split("/")[1]).judge(case, seed, answer)
    return found


def _kind(name: str) -> Any:
    return import_module(f"{__name__}.{name}")
