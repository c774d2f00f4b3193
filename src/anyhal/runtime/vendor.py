"""Finds a vendor library by what an installed distribution says it carries, as an absolute path.
SPDX-License-Identifier: Apache-2.0

Never by bare name, never on a search path: the file list of the distribution is the only source.
"""

from __future__ import annotations

import re
from pathlib import Path

from anyhal import settings
from anyhal.runtime import installed
from anyhal.runtime.manifest import PluginFiles, VendorLibrary

_CLAUSE = re.compile(r"(==|!=|>=|<=|>|<)\s*([0-9]{1,9}(?:\.[0-9]{1,9})*)")


def locate_library(wanted: VendorLibrary) -> tuple[Path | None, str]:
    """The library's path, or None and why: not installed, wrong version, file absent."""
    version, path = installed.file_of(wanted.package, wanted.file)
    if not version:
        return None, f"{wanted.package} is not installed"
    if wanted.versions and not version_matches(version, wanted.versions):
        return None, f"{wanted.package} {version} is installed, {wanted.versions} is needed"
    if not path:
        return None, f"{wanted.package} {version} has no file {wanted.file}"
    return Path(path), ""


def plugin_paths(wanted: PluginFiles) -> tuple[list[Path], list[str]]:
    """The files to open, each once, and what was named but is none, as sentences.

    What the variable lists is all; without it, what entry points and known packages carry.
    """
    listed = settings.setting(wanted.variable).read()
    if isinstance(listed, tuple):
        once = list(dict.fromkeys(listed))
        twice = [path for path in once if listed.count(path) > 1]
        name = wanted.variable
        return once, [f"{name} names {p} more than once; it is opened once" for p in twice]
    found: list[Path] = []
    notes: list[str] = []
    for entry in installed.entry_points(wanted.entry_points):
        try:
            value = entry.load()
            path = Path(value() if callable(value) else value)
            if not path.is_absolute():
                raise ValueError(f"{path} is no absolute path")
            found.append(path.resolve(strict=True))
        except Exception as why:  # any import error of a foreign package
            notes.append(f"entry point {entry.name} of {wanted.entry_points} failed: {why}")
    for row in wanted.packages:
        located, _ = locate_library(row)
        if located is not None:
            found.append(located)
    return list(dict.fromkeys(found)), notes


def version_matches(version: str, clauses: str) -> bool:
    """Whether a release such as 2023.2.0 meets ">=2023.2,<2024". Unreadable clauses never match."""
    release = _release(version)
    for clause in clauses.split(","):
        found = _CLAUSE.fullmatch(clause.strip())
        if found is None:
            return False
        sign, bound = found[1], _release(found[2])
        order = (release > bound) - (release < bound)
        allowed = {"==": (0,), "!=": (-1, 1), ">=": (0, 1), "<=": (-1, 0), ">": (1,), "<": (-1,)}
        if order not in allowed[sign]:
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    """The numbers before any pre-release letter, without trailing zeros: 2.0 equals 2."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
