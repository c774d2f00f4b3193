"""The process's link map against the manifest: vendor libraries that came from elsewhere, and two
copies of one runtime.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from anyhal.records import record
from anyhal.runtime.discovery import BackendRecord
from anyhal.runtime.stages import Stop
from anyhal.runtime.vendor import needed_first

# Runtimes that keep state of their own for the whole process, so that two of them do harm: family,
# then a library of it by file name. Packers put a hash behind the name.
_FAMILIES = (
    ("OpenMP", r"lib(gomp|iomp5|omp|omp5)(-[0-9a-f]+)?\.so"),
    ("LLVM", r"libLLVM(-[0-9]+)?\.so"),
    ("protobuf", r"libprotobuf(-[0-9a-f]+)?\.so"),
    ("BLAS", r"lib((scipy_)?openblas[a-z0-9_]*|mkl_rt|blis|blis-mt|armpl[a-z_]*)(-[0-9a-f]+)?\.so"),
)
# How their names begin: most processes have fewer than two such files, and match no pattern.
_BEGINNINGS = (
    *("libgomp", "libiomp", "libomp", "libLLVM", "libprotobuf"),
    *("libscipy_openblas", "libopenblas", "libmkl_rt", "libblis", "libarmpl"),
)


@record
class Copies:
    """More than one library of a family in this process."""

    family: str
    files: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{len(self.files)} {self.family} runtimes are in this process: {', '.join(self.files)}"
        )


def copies_of_runtimes(mapped: Iterable[str]) -> list[Copies]:
    """Families of which more than one file is mapped."""
    names = [(name, path) for path in mapped if (name := _name_of(path)).startswith(_BEGINNINGS)]
    if len(names) < 2:
        return []
    found = []
    for family, pattern in _FAMILIES:
        members = [os.path.realpath(path) for name, path in names if re.match(pattern, name)]
        files = tuple(dict.fromkeys(members))
        if len(files) > 1:
            found.append(Copies(family, files))
    return found


def share_vendor(
    record: BackendRecord, given: Mapping[str, str], mapped: Sequence[str]
) -> tuple[dict[str, str], list[str]] | Stop:
    """The settings and the libraries to open first, with what the process has already.

    A vendor's library that is in the process from another folder, with all that belongs to it, is
    used in place of ours; a part alone would mix two copies, which is refused.
    """
    settings = dict(given)
    names = _vendor_settings(record)
    moved = False
    for setting in names:
        ours = settings.get(setting, "")
        theirs = _other_copy(ours, mapped) if ours else None
        if theirs is not None:
            settings[setting], moved = theirs, True
    chosen = [settings[name] for name in names if settings.get(name)]
    first = needed_first(chosen) if moved else list(record.first)
    for path in [*chosen, *first]:
        theirs = _other_copy(path, mapped)
        if theirs is not None:
            return _second_copy(path, theirs)
    return settings, first


def foreign_copies(wanted: Iterable[str], mapped: Sequence[str]) -> Stop | None:
    """A library that was to come from one file and is in the process from another one as well."""
    for path in (part for text in wanted for part in text.split(os.pathsep)):
        theirs = _other_copy(path, mapped) if os.path.isabs(path) and ".so" in path else None
        if theirs is not None:
            return _second_copy(path, theirs)
    return None


def _vendor_settings(record: BackendRecord) -> list[str]:
    rows = record.manifest.libraries if record.manifest is not None else ()
    return list(dict.fromkeys(row.setting for row in rows))


def _other_copy(path: str, mapped: Sequence[str]) -> str | None:
    """The file that the process has under the name of `path`, when it is another one."""
    name = _name_of(path)
    for other in mapped:
        if _name_of(other) != name:
            continue
        if os.path.realpath(other) != os.path.realpath(path):
            return other
    return None


def _name_of(path: str) -> str:
    return path[path.rfind("/") + 1 :]


def _second_copy(ours: str, theirs: str) -> Stop:
    detail = (
        f"it needs {ours}, and this process has {theirs}: two copies of one library do not know"
        " each other's handles"
    )
    return Stop("second_copy", ours, detail, "load the backend first, or use one copy for both")
