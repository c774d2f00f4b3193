"""backend.toml: what a backend says about itself, read strictly before any of its code runs.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from anyhal.records import record
from anyhal.runtime.discovery_cache import remember, stamp_of
from anyhal.runtime.small_file import read_small_file

FILE_NAME = "backend.toml"
CONTRACT = "0.3"  # the draft of include/anyhal/backend.h that this core speaks
MAX_BYTES = 64 * 1024  # a manifest is a page of text; more is not one
MAX_RANK = 1 << 31  # what the registry file takes


class ManifestError(ValueError):
    """What is wrong with a manifest, and what to write instead."""


@record
class VendorLibrary:
    """A library that an installed distribution carries; its path becomes an instance setting.

    Rows of one setting are alternatives, the first that is found is taken.
    """

    setting: str
    package: str
    file: str
    versions: str = ""
    required: bool = False
    missing: str = ""  # the sentence to show when it is not there


@record
class PluginFiles:
    """Files of others that the backend opens; their paths, separated by ":", become a setting."""

    setting: str
    variable: str  # the environment variable that lists them; "none" for none
    entry_points: str = ""  # a group; each gives a path, or a function that does
    packages: tuple[VendorLibrary, ...] = ()  # distributions known to carry one


@record
class Manifest:
    """One row of text per field of backend.toml."""

    name: str
    vendor: str
    library: str
    abi: str
    licence: str
    summary: str
    rank: int = 0
    own_threads: bool = False
    test_equipment: bool = False
    deferred: bool = False  # costly to load: the last of its rank to be asked
    machines: tuple[str, ...] = ()  # empty: any
    libraries: tuple[VendorLibrary, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()  # instance setting, and the variable that gives it
    opens: PluginFiles | None = None


_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LIBRARY = re.compile(r"[A-Za-z0-9_.+-]+\.so(\.[0-9]+)*")
_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_ABI = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")

_KEYS: dict[str, type] = {
    "name": str,
    "vendor": str,
    "library": str,
    "abi": str,
    "licence": str,
    "summary": str,
    "rank": int,
    "own_threads": bool,
    "test_equipment": bool,
    "deferred": bool,
    "hardware": dict,
    "libraries": list,
    "settings": dict,
    "opens": dict,
}
_OPENS: dict[str, type] = {
    "setting": str,
    "variable": str,
    "entry_points": str,
    "packages": list,
}
_TABLES = ("hardware", "libraries", "settings", "opens")
_REQUIRED = ("name", "vendor", "library", "abi", "licence", "summary")
_HARDWARE: dict[str, type] = {"machine": list}
_LIBRARY_KEYS: dict[str, type] = {
    "setting": str,
    "package": str,
    "file": str,
    "versions": str,
    "required": bool,
    "missing": str,
}


def read_manifest(path: Path) -> Manifest:
    """Reads and checks one manifest. ManifestError says what is wrong; OSError passes through."""
    data = remember(str(path), stamp_of([path]), "toml", lambda: _parsed(path))
    _check(data, _KEYS, _REQUIRED, "")
    hardware = data.get("hardware", {})
    _check(hardware, _HARDWARE, (), "hardware.")
    manifest = Manifest(
        **{k: data[k] for k in _KEYS if k in data and k not in _TABLES},
        machines=_strings(hardware.get("machine", []), "hardware.machine"),
        libraries=tuple(_vendor_library(row) for row in data.get("libraries", [])),
        settings=tuple(data.get("settings", {}).items()),
        opens=_plugin_files(data["opens"]) if "opens" in data else None,
    )
    if not _NAME.fullmatch(manifest.name):
        raise ManifestError(f"name {manifest.name!r} is not one lower-case word; rename it")
    if not -MAX_RANK <= manifest.rank < MAX_RANK:
        raise ManifestError("rank does not fit 32 bits; write a small number")
    if not _LIBRARY.fullmatch(manifest.library):
        raise ManifestError(
            f"library {manifest.library!r} is not a file name ending in .so; write the name of the"
            " file beside this manifest, without a folder"
        )
    for setting, variable in manifest.settings:
        if not isinstance(variable, str):
            raise ManifestError(f"settings.{setting} is no text; write a variable's name")
    if not _ABI.fullmatch(manifest.abi):
        raise ManifestError(f"abi {manifest.abi!r} is not a version; write it like 0.1")
    return manifest


def _parsed(path: Path) -> dict[str, Any]:
    import tomllib  # what is remembered needs no parser

    try:
        raw = read_small_file(path, MAX_BYTES)
    except OSError as why:
        if why.errno != errno.EFBIG:
            raise
        raise ManifestError(f"{why.strerror}; a manifest is a page of text") from None
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as why:  # numbers and tables without end among them
        raise ManifestError(f"it is not TOML ({why}); write it as the guide shows") from None


def _check(
    data: Mapping[str, Any], keys: Mapping[str, type], required: tuple[str, ...], where: str
) -> None:
    for key, value in data.items():
        if key not in keys:
            near = get_close_matches(key, list(keys), n=1)
            hint = f"did you mean {where}{near[0]}?" if near else "remove it"
            raise ManifestError(f"key {where}{key} is not known; {hint}")
        if type(value) is not keys[key]:
            raise ManifestError(
                f"{where}{key} is {type(value).__name__}, not {keys[key].__name__}; correct it"
            )
        if isinstance(value, str) and "\0" in value:
            raise ManifestError(f"{where}{key} holds a zero byte; take it out")
    for key in required:
        if key not in data:
            raise ManifestError(f"key {where}{key} is missing; add it")


def _strings(values: list[Any], where: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise ManifestError(f"{where} holds something other than text; correct it")
    return tuple(values)


def _vendor_library(row: Any) -> VendorLibrary:
    if not isinstance(row, dict):
        raise ManifestError("libraries holds something other than tables; write [[libraries]]")
    _check(row, _LIBRARY_KEYS, ("setting", "package", "file"), "libraries.")
    if not _PACKAGE.fullmatch(row["package"]):
        raise ManifestError(f"libraries.package {row['package']!r} is no distribution; correct it")
    if "/" in row["file"]:
        raise ManifestError(f"libraries.file {row['file']!r} has a folder; write the file name")
    return VendorLibrary(**row)


def _plugin_files(table: dict[str, Any]) -> PluginFiles:
    _check(table, _OPENS, ("setting", "variable"), "opens.")
    rows = table.get("packages", [])
    if not all(isinstance(row, dict) for row in rows):
        raise ManifestError("opens.packages holds something other than tables; write { package }")
    packages = tuple(_vendor_library({"setting": table["setting"], **row}) for row in rows)
    return PluginFiles(**(table | {"packages": packages}))
