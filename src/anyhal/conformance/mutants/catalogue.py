"""The broken backends: rows of data, each an edit of the source of a complete backend.
SPDX-License-Identifier: Apache-2.0

`rows/<family>.toml` has one table per mutant. The text to find occurs exactly once in its file, so
that a change of the source that moves a mutant is noticed.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from anyhal.errors import InvalidArgumentError, NotFoundError
from anyhal.printable import get_close_matches
from anyhal.records import field, record

ROWS = Path(__file__).parent / "rows"
BACKENDS_FILE = "backends.toml"  # how each is built; no family
VARIANTS = "variants"  # the family of correct kernels


@record
class Edit:
    """One change of a file below the backend's folder, or of `include/...`."""

    file: str
    find: str
    replace: str


@record
class Mutant:
    """One backend that differs from a complete one.

    `ops` or `groups` are what the suite is asked about; `wrong` says in a sentence what is broken,
    `like` which public bug it imitates ("" for none); `subtle`: a test of ordinary data with
    rtol=1e-2 does not see it. `script` is what a scriptable backend begins with, `bad` the name of
    its behaviour that is played beside, `row` the number of the behaviour that is broken (0: an op
    is).
    """

    id: str
    family: str
    backend: str
    wrong: str
    edits: tuple[Edit, ...]
    ops: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    like: str = ""
    subtle: bool = False
    script: str = ""
    bad: str = ""
    row: int = 0
    flags: tuple[str, ...] = ()
    compile: tuple[str, ...] = ()  # units, where the edited files do not tell


@record
class Recipe:
    """How a backend is built: flags of its compiler, and where its script is set."""

    name: str
    flags: tuple[str, ...] = ()
    script: Mapping[str, str] = field(default_factory=dict)  # file, find, replace with {script}


@cache
def recipes() -> Mapping[str, Recipe]:
    rows = tomllib.loads((ROWS / BACKENDS_FILE).read_text(encoding="utf-8"))
    return {
        name: Recipe(name, tuple(row.get("flags", ())), row.get("script", {}))
        for name, row in rows.items()
    }


@cache
def _rows() -> tuple[Mutant, ...]:
    found: list[Mutant] = []
    for file in sorted(ROWS.glob("*.toml")):
        if file.name == BACKENDS_FILE:
            continue
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        found += [_mutant(file.stem, data, row) for row in data["mutant"]]
    return tuple(found)


def _mutant(family: str, data: Mapping[str, Any], row: Mapping[str, Any]) -> Mutant:
    edits = [Edit(**e) for e in row.get("also", ())]
    if "find" in row:
        edits.insert(0, Edit(row["file"], row["find"], row["replace"]))
    return Mutant(
        row["id"],
        family,
        row.get("backend", data["backend"]),
        row["wrong"],
        tuple(edits),
        tuple(row.get("ops", ())),
        tuple(row.get("groups", data.get("groups", ()))),
        row.get("like", ""),
        row.get("subtle", False),
        row.get("script", data.get("script", "")),
        row.get("bad", ""),
        row.get("row", 0),
        tuple(row.get("flags", ())),
        tuple(row.get("compile", ())),
    )


def mutants() -> tuple[Mutant, ...]:
    """All that must be refused, in the order of families and rows."""
    return tuple(m for m in _rows() if m.family != VARIANTS)


def variants() -> tuple[Mutant, ...]:
    """Correct kernels that compute otherwise: the suite must let them pass."""
    return tuple(m for m in _rows() if m.family == VARIANTS)


def chosen(sample: int = 0, seed: int = 0, ids: Sequence[str] = ()) -> list[Mutant]:
    """`sample` of the mutants by seed (0: all), or those with these ids, variants included."""
    if ids:
        known = {m.id: m for m in _rows()}
        for asked in ids:
            if asked not in known:
                near = get_close_matches(asked, list(known), 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {len(known)}"
                raise NotFoundError(f"choosing mutants: there is no {asked!r}; {hint}")
        return [known[asked] for asked in ids]
    everything = list(mutants())
    if sample < 0:
        raise InvalidArgumentError(f"choosing mutants: a sample of {sample}; use 1 or more")
    if sample == 0 or sample >= len(everything):
        return everything
    return random.Random(seed).sample(everything, sample)
