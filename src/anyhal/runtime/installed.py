"""What installed distributions carry: their entry points, and files by the list of a distribution.
SPDX-License-Identifier: Apache-2.0

`importlib.metadata` answers, which takes a while to import and reads every distribution. What it
said is kept while the folders that Python searches hold the same distributions (discovery_cache).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from anyhal.records import record
from anyhal.runtime.discovery_cache import Stamp, remember, stamp_of

_METADATA = (".dist-info", ".egg-info", ".egg")
_OBJECT = r"([\w.]+)\s*(?::\s*([\w.]+))?\s*(?:\[.*\])?\s*"


@record
class EntryPoint:
    """A name that a distribution gives to an object of its own."""

    name: str
    value: str  # module:object
    group: str

    def load(self) -> Any:
        """The object, its module imported; raises whatever that raises."""
        found = re.fullmatch(_OBJECT, self.value)
        if found is None:
            raise ValueError(f"{self.value!r} is not of the form module:object")
        thing: Any = import_module(found[1])
        for part in found[2].split(".") if found[2] else ():
            thing = getattr(thing, part)
        return thing


def entry_points(group: str) -> list[EntryPoint]:
    """Those of the group, by name."""

    def look() -> list[list[str]]:
        from importlib import metadata

        return sorted([e.name, e.value] for e in metadata.entry_points(group=group))

    rows = _ask(f"entry points {group}", look)
    return [EntryPoint(str(name), str(value), group) for name, value in rows]


def path_of(entry: EntryPoint) -> tuple[str, str]:
    """The absolute path that an entry point is, or that it returns; else "" and why."""
    try:
        value = entry.load()
        path = os.fspath(value() if callable(value) else value)
        if not isinstance(path, str):
            raise TypeError(f"{path!r} is no text")
        os.fsencode(path)
        if "\0" in path:
            raise ValueError("its path holds a zero byte")
        if not os.path.isabs(path):
            raise ValueError(f"{path} is no absolute path")
    except KeyboardInterrupt:
        raise
    except BaseException as why:  # whatever a foreign package does when imported: also what is
        return "", _said(why)  # no Exception, as Rust's panics are not
    return path, ""


def _said(why: BaseException) -> str:
    try:
        text = str(why)
    except Exception:  # its own text is broken
        text = ""
    return text or type(why).__name__


def file_of(package: str, name: str) -> tuple[str, str]:
    """(version, absolute path) of a file in the distribution's list; "" for what is not there."""

    def look() -> list[str]:
        from importlib import metadata

        try:
            distribution = metadata.distribution(package)
        except metadata.PackageNotFoundError:
            return ["", ""]
        for entry in distribution.files or ():
            if entry.name == name:
                path = os.path.realpath(str(distribution.locate_file(entry)))
                if os.path.isfile(path):
                    return [distribution.version, path]
        return [distribution.version, ""]

    version, path = _ask(f"file {name} of {package}", look)
    if path and not os.path.isfile(path):
        version, path = look()  # it was taken away since, or moved
    return version, path


def home_of(package: str) -> str:
    """The folder that an installed distribution was installed into."""

    def look() -> str:
        from importlib import metadata

        return os.path.realpath(str(metadata.distribution(package).locate_file("")))

    found: str = _ask(f"home of {package}", look)
    return found


def _ask(question: str, look: Any) -> Any:
    if any(hasattr(f, "find_distributions") for f in sys.meta_path if not _is_pythons(f)):
        return look()  # somebody else finds distributions too, who knows where
    return remember("installed", _stamp(), question, look)


def _is_pythons(finder: Any) -> bool:
    return getattr(finder, "__module__", "") in ("_frozen_importlib", "_frozen_importlib_external")


_stamps: dict[tuple[str, ...], Stamp] = {}


def look_again() -> None:
    """What is installed is looked at anew at the next question; each discovery starts with it."""
    _stamps.clear()


def _stamp() -> Stamp:
    """Of every distribution's folder on Python's path. The time of the path's folders would say too
    little: files come and go beside a script."""
    searched = tuple(sys.path)
    if searched not in _stamps:
        here = list(_distributions())
        _stamps[searched] = stamp_of(here, given="|".join(here))
    return _stamps[searched]


def _distributions() -> Iterator[str]:
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or ".")
        except NotADirectoryError:
            yield folder  # an archive
            continue
        except OSError:
            continue
        whole = os.path.abspath(folder)
        yield from (f"{whole}/{name}" for name in sorted(names) if name.endswith(_METADATA))
