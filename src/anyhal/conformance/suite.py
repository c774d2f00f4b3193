"""The suite: its cases, what a case finds, and the digest that a certificate names.
SPDX-License-Identifier: Apache-2.0

The list is the same for every backend: what a backend does not declare, it must refuse. Each group
is a package of this folder with `cases`, `run` and, where an oracle judges, `judge`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from anyhal.errors import InvalidArgumentError
from anyhal.ops import BY_NAME
from anyhal.printable import get_close_matches
from anyhal.records import field, record

VERSION = "1"
TIERS = ("smoke", "quick", "full")
GROUPS = ("numerics", "capabilities", "behaviour")
BY_ORACLE = ("numerics",)  # groups of which no backend's process passes a case by itself
OUTCOMES = ("pass", "refused", "waived", "fail")


@record
class Case:
    """One question to a backend.

    `id` is stable and unique; `tier` the lowest one that asks it; `seconds` how long an answer may
    take; `given` what `run` and `judge` need besides the seed, as plain JSON data.
    """

    id: str
    group: str
    op: str = ""
    dtype: str = ""
    tier: str = "quick"
    seconds: float = 10.0
    given: Mapping[str, Any] = field(default_factory=dict)


@record
class Finding:
    """What a case found. `code` is the typed reason of a refusal or failure."""

    outcome: str
    reason: str = ""
    code: str = ""
    measured: Mapping[str, Any] = field(default_factory=dict)


def checked(words: Any) -> Finding:
    """A finding that another process made; ValueError for what is none."""
    finding = Finding(**words)
    texts = (finding.outcome, finding.reason, finding.code)
    if finding.outcome not in OUTCOMES or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{finding.outcome!r} is no outcome")
    if finding.outcome == "waived" or not isinstance(finding.measured, dict):
        raise ValueError("that is no finding of a case")
    return finding


def group(name: str) -> ModuleType:
    return import_module(f"anyhal.conformance.{name}")


def present_groups() -> tuple[str, ...]:
    folder = Path(__file__).parent
    return tuple(g for g in GROUPS if (folder / g).is_dir())


def all_cases() -> Iterator[Case]:
    for name in present_groups():
        yield from group(name).cases()


def chosen(tier: str, ops: Iterable[str] = (), ids: Sequence[str] = ()) -> list[Case]:
    """The cases of a tier, in their order; of those ops alone, or with those ids of any tier."""
    if tier not in TIERS:
        raise InvalidArgumentError(
            f"choosing cases: there is no tier {tier!r}; use one of {', '.join(TIERS)}"
        )
    every = list(all_cases())
    if ids:
        known = {case.id: case for case in every}
        for asked in ids:
            if asked not in known:
                near = get_close_matches(asked, list(known), 1)
                hint = f"did you mean {near[0]!r}?" if near else "certify --list shows them"
                raise InvalidArgumentError(f"choosing cases: there is no case {asked!r}; {hint}")
        return [known[asked] for asked in ids]
    level, wanted = TIERS.index(tier), frozenset(ops)
    return [
        case
        for case in every
        if TIERS.index(case.tier) <= level and (not wanted or case.op in wanted)
    ]


def seed_of(nonce: str, case_id: str) -> int:
    """Every number of a case comes from this one."""
    return int.from_bytes(hashlib.sha256(f"{VERSION} {nonce} {case_id}".encode()).digest()[:8])


def digest() -> str:
    """Over all that decides what is asked and how it is judged: cases, oracle and tolerances."""
    package = Path(__file__).parent.parent
    found = hashlib.sha256(VERSION.encode())
    for folder in ("conformance", "ops"):
        for base, folders, files in os.walk(package / folder):
            folders.sort()
            for file in sorted(files):
                if file.endswith((".py", ".toml")):
                    path = Path(base) / file
                    found.update(str(path.relative_to(package)).encode() + b"\0")
                    found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def op_hashes() -> dict[str, str]:
    """Of each op's file: what was found of an op is stale when its file has moved on."""
    folder = Path(__file__).parent.parent / "ops"
    return {
        spec.name: hashlib.sha256((folder / f"{spec.name}.py").read_bytes()).hexdigest()[:16]
        for spec in BY_NAME.values()
    }


def tolerance_digest() -> str:
    """Over the formulas of error bounds alone."""
    found = hashlib.sha256()
    for name in ("tolerance", "rows", "gradients", "growth"):
        found.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return found.hexdigest()


def seed_for(nonce: str, case: Case) -> int:
    """Cases with the same `inputs` share their numbers, so that both forms of an op meet them."""
    return seed_of(nonce, case.given.get("inputs", case.id))


@record
class Part:
    """One call that an oracle judges: its label, and its outputs or why it was refused."""

    label: str
    arrays: tuple[Any, ...] = ()
    refusal: str = ""
    code: str = ""  # of the refusal, or of what was seen while it ran
    failed: str = ""  # what was seen while it ran, such as a changed input


@record
class Answer:
    """What a case's calls gave, for the oracle's process to judge."""

    parts: tuple[Part, ...]
