"""Finds vendor libraries as absolute paths: all parts of one vendor's stack in one place.
SPDX-License-Identifier: Apache-2.0

Never by bare name, never on a search path, never without a version: the file lists of installed
distributions and the folders that a manifest lists are the only sources.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from anyhal import settings
from anyhal.records import field, mutable_record, record
from anyhal.runtime import installed
from anyhal.runtime.elf import ElfError
from anyhal.runtime.elf_cache import elf_of
from anyhal.runtime.file_rights import writable_by_others
from anyhal.runtime.manifest import PluginFiles, VendorLibrary
from anyhal.runtime.stages import Stop
from anyhal.runtime.versions import version_matches


@mutable_record
class Found:
    """What was found for the [[libraries]] of one manifest."""

    settings: dict[str, str] = field(default_factory=dict)  # "" where nothing was found
    chosen: list[str] = field(default_factory=list)  # where each stack comes from, and why
    notes: list[str] = field(default_factory=list)  # what is missing without stopping the backend
    first: list[str] = field(default_factory=list)  # to open before the backend, in this order
    stop: Stop | None = None


def find_libraries(rows: Sequence[VendorLibrary]) -> Found:
    """Each setting's first row that is found; each stack whole and from one folder."""
    found = Found()
    if not rows:
        return found
    missing: dict[str, list[_Lack]] = {}
    for stack in _stacks(rows):
        lack = _take_stack(stack, found)
        if lack is not None:
            for row in stack:
                missing.setdefault(row.setting, []).append(lack)
    for row in rows:
        found.settings.setdefault(row.setting, "")
    for setting, lacks in missing.items():
        if found.settings[setting] or found.stop is not None:
            continue
        lack = lacks[-1]
        required = next((r for r in rows if r.setting == setting and r.required), None)
        if required is not None:
            found.stop = Stop(lack.code, required.file, lack.detail, lack.hint)
        elif lack.note not in found.notes:
            found.notes.append(lack.note)
    return found


@record
class _Lack:
    """Why a stack was not taken."""

    code: str
    detail: str
    hint: str
    note: str


def _stacks(rows: Sequence[VendorLibrary]) -> Iterator[list[VendorLibrary]]:
    """The rows in order, those of one stack together."""
    seen: set[str] = set()
    for row in rows:
        if not row.stack:
            yield [row]
        elif row.stack not in seen:
            seen.add(row.stack)
            yield [other for other in rows if other.stack == row.stack]


def _take_stack(stack: list[VendorLibrary], found: Found) -> _Lack | None:
    if all(found.settings.get(row.setting) for row in stack):
        return None  # an earlier row gave it
    places = [list(_places(row)) for row in stack]
    roots = list(dict.fromkeys(p.root for row in places for p in row if p.path))
    for root in roots:
        paths = [next((p.path for p in row if p.root == root), "") for row in places]
        if all(paths):
            for row, path in zip(stack, paths, strict=True):
                found.settings[row.setting] = path
            found.first += [p for p in needed_first(paths) if p not in found.first]
            if stack[0].stack:
                found.chosen.append(f"stack {stack[0].stack} is that of {root}, which has it whole")
            return None
    return _lack_of(stack, places)


def _lack_of(stack: list[VendorLibrary], places: list[list[_Place]]) -> _Lack:
    lost = [(row, at) for row, at in zip(stack, places, strict=True) if not any(p.path for p in at)]
    if not lost:
        where = [
            f"{row.file} in {next(place.root for place in at if place.path)}"
            for row, at in zip(stack, places, strict=True)
        ]
        detail = f"the parts of stack {stack[0].stack} lie in different folders: {', '.join(where)}"
        hint = "install all of it from one source"
        return _Lack("mixed_roots", detail, hint, f"{detail}; {hint}")
    why = "; ".join(_why(row, at) for row, at in lost)
    packages = list(dict.fromkeys(row.package for row, _ in lost if row.package))
    hint = f"pip install {' '.join(repr(p) for p in packages)}" if packages else "install it"
    wrong = any(p.code == "library_version" for _, at in lost for p in at)
    row = lost[0][0]
    sentence = row.missing or f"{row.file}{f' of {row.package}' if row.package else ''} is missing"
    code = "library_version" if wrong else "missing_library"
    return _Lack(code, why, hint, f"{sentence} ({why})")


def _why(row: VendorLibrary, places: list[_Place]) -> str:
    """One missing file: where it was looked for, and who usually has it."""
    asked = [p.why for p in places if p.why]
    folders = [p.root for p in places if not p.why]
    if folders:
        usually = f"; package {row.package} usually has it" if row.package else ""
        asked.append(f"{row.file} is not in {', '.join(folders)}{usually}")
    return "; ".join(asked)


@record
class _Place:
    """One place where a row's file may lie."""

    root: str
    path: str  # "" where it does not
    why: str = ""
    code: str = "missing_library"


def _places(row: VendorLibrary) -> Iterator[_Place]:
    if row.package:
        path, why = locate_library(row)
        root = _home_of(row.package) if path else ""
        wrong = " is needed" in why
        yield _Place(root, path, why, "library_version" if wrong else "missing_library")
    for root in row.roots:
        path = f"{root}/{row.file}"
        if not os.path.isfile(path):
            yield _Place(root, "")
            continue
        writer = writable_by_others(path)
        yield _Place(root, "" if writer else path, writer and f"{row.file} is not used: {writer}")


def _home_of(package: str) -> str:
    """The folder that a distribution was installed into."""
    return installed.home_of(package)


def needed_first(paths: Iterable[str]) -> list[str]:
    """What those libraries need and have with them (beside themselves, or where $ORIGIN in them
    points), the deepest first: opened by path before them, no other copy can take its place."""
    order: list[str] = []

    def visit(path: str, depth: int) -> None:
        for near in companions(path) if depth < _DEEPEST else ():
            if near not in order:
                visit(near, depth + 1)
                if near not in order:
                    order.append(near)

    for path in paths:
        visit(path, 0)
    return order


_DEEPEST = 16  # libraries that need each other in a circle end there


def companions(path: str) -> list[str]:
    """The files that a library needs and that lie with it."""
    try:
        elf = elf_of(path, exports=False)
    except (OSError, ElfError):
        return []
    folder = os.path.dirname(path)
    folders = [folder, *origin_folders(elf.runpath or elf.rpath, folder)]
    found = []
    for name in elf.needed:
        places = (os.path.realpath(os.path.join(f, name)) for f in folders if "/" not in name)
        near = next((place for place in places if os.path.isfile(place)), None)
        if near is not None and near != os.path.realpath(path):
            found.append(near)
    return found


def origin_folders(search: str, folder: str) -> list[str]:
    """Those folders of a run path that lie relative to the library."""
    found = []
    for part in search.split(":"):
        for word in ("$ORIGIN", "${ORIGIN}"):
            if part.startswith(word):
                found.append(os.path.normpath(folder + part[len(word) :]))
    return found


def locate_library(wanted: VendorLibrary) -> tuple[str, str]:
    """The library's path, or "" and why: not installed, wrong version, file absent."""
    version, path = installed.file_of(wanted.package, wanted.file)
    if not version:
        return "", f"{wanted.package} is not installed"
    if wanted.versions and not version_matches(version, wanted.versions):
        return "", f"{wanted.package} {version} is installed, {wanted.versions} is needed"
    if not path:
        return "", f"{wanted.package} {version} has no file {wanted.file}"
    return path, ""


def plugin_paths(wanted: PluginFiles) -> tuple[list[str], list[str]]:
    """The files to open, each once, and what was named but is none, as sentences.

    What the variable lists is all; without it, what entry points and known packages carry.
    """
    listed = settings.setting(wanted.variable).read()
    if isinstance(listed, tuple):
        once = list(dict.fromkeys(listed))
        twice = [path for path in once if listed.count(path) > 1]
        name = wanted.variable
        return once, [f"{name} names {p} more than once; it is opened once" for p in twice]
    found: list[str] = []
    notes: list[str] = []
    for entry in installed.entry_points(wanted.entry_points):
        path, failed = installed.path_of(entry)
        if path:
            try:
                found.append(os.path.realpath(path, strict=True))
            except OSError as why:
                failed = str(why)
        if failed:
            notes.append(f"entry point {entry.name} of {wanted.entry_points} failed: {failed}")
    for row in wanted.packages:
        located, _ = locate_library(row)
        if located:
            found.append(located)
    return list(dict.fromkeys(found)), notes
