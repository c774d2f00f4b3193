"""backend.toml: what a backend says about itself, read strictly before any of its code runs.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from anyhal.printable import get_close_matches
from anyhal.records import record
from anyhal.runtime import versions
from anyhal.runtime.discovery_cache import remember, stamp_of
from anyhal.runtime.small_file import read_small_file
from anyhal.runtime.versions import is_contract, is_range

FILE_NAME = "backend.toml"
CONTRACT = "0.3"  # the draft of include/anyhal/backend.h that this core speaks
MAX_BYTES = 64 * 1024  # a manifest is a page of text; more is not one
MAX_RANK = 1 << 31  # what the registry file takes


class ManifestError(ValueError):
    """What is wrong with a manifest, and what to write instead."""


@record
class VendorLibrary:
    """A vendor's library, carried by an installed distribution or lying in one of the `roots`; its
    path becomes an instance setting.

    Rows of one setting are alternatives, the first that is found is taken. Rows of one `stack` come
    from one folder or not at all.
    """

    setting: str
    package: str = ""  # the distribution that carries it, or usually does
    file: str = ""
    versions: str = ""  # of the distribution
    roots: tuple[str, ...] = ()  # absolute folders, asked in order behind the distribution
    stack: str = ""
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
class Driver:
    """The oldest driver that will do, and the file that tells its version before it is opened."""

    file: str  # absolute, such as /sys/module/NAME/version
    least: str


@record
class Hardware:
    """What must be on a machine before the backend is opened there; empty asks for nothing."""

    machine: tuple[str, ...] = ()  # as `uname -m` says it; any of them
    cpu_features: tuple[str, ...] = ()  # as /proc/cpuinfo says them; all of them
    pci: tuple[str, ...] = ()  # "10de" or "10de:2330"; one of these or of device_nodes
    device_nodes: tuple[str, ...] = ()  # absolute, with * and ?
    driver: Driver | None = None


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
    floor: str = ""  # the oldest contract that it runs on, where `abi` alone does not say it
    hardware: Hardware = Hardware()
    libraries: tuple[VendorLibrary, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()  # instance setting, and the variable that gives it
    opens: PluginFiles | None = None
    python: str = ""  # in place of `library`, which then is this file as well: a chip in Python


_NAME = r"[a-z][a-z0-9_]*"
_LIBRARY = r"[A-Za-z0-9_.+-]+\.so(\.[0-9]+)*"
_PYTHON = r"[A-Za-z0-9_]+\.py"
_PACKAGE = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSIONED = r"[^/]+\.so\.[0-9]+(\.[0-9]+)*"
_PCI = r"[0-9a-f]{4}(:[0-9a-f]{4})?"
_NUMBERS = r"[0-9]{1,9}(\.[0-9]{1,9})*"

_KEYS: dict[str, type] = {
    "name": str,
    "vendor": str,
    "library": str,
    "abi": str,
    "floor": str,
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
    "python": str,
}
_OPENS: dict[str, type] = {
    "setting": str,
    "variable": str,
    "entry_points": str,
    "packages": list,
}
_TABLES = ("hardware", "libraries", "settings", "opens")
_REQUIRED = ("name", "vendor", "library", "abi", "licence", "summary")
_HARDWARE: dict[str, type] = {
    "machine": list,
    "cpu_features": list,
    "pci": list,
    "device_nodes": list,
    "driver": dict,
}
_DRIVER: dict[str, type] = {"file": str, "least": str}
_LIBRARY_KEYS: dict[str, type] = {
    "setting": str,
    "package": str,
    "file": str,
    "versions": str,
    "roots": list,
    "stack": str,
    "required": bool,
    "missing": str,
}


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Reads and checks one manifest. ManifestError says what is wrong; OSError passes through."""
    stamp = stamp_of([path], _rules())
    data: dict[str, Any] = remember(str(path), stamp, "manifest", lambda: _checked(path))
    return _made(data)


@lru_cache(maxsize=1)
def _rules() -> str:
    """Which rules a manifest was checked by."""
    return stamp_of([__file__, versions.__file__]).text


def _made(data: dict[str, Any]) -> Manifest:
    """Of a manifest that passed all checks."""
    plain = {key: value for key, value in data.items() if key not in _TABLES}
    hardware: dict[str, Any] = {k: tuple(v) for k, v in data.get("hardware", {}).items()}
    if "driver" in hardware:
        hardware["driver"] = Driver(**data["hardware"]["driver"])
    opens = data.get("opens")
    if opens is not None:
        rows = ({"setting": opens["setting"], **row} for row in opens.get("packages", []))
        opens = PluginFiles(**opens | {"packages": tuple(map(_library_of, rows))})
    return Manifest(
        **plain,
        hardware=Hardware(**hardware),
        libraries=tuple(map(_library_of, data.get("libraries", []))),
        settings=tuple(data.get("settings", {}).items()),
        opens=opens,
    )


def _library_of(row: dict[str, Any]) -> VendorLibrary:
    return VendorLibrary(**row | {"roots": tuple(row.get("roots", []))})


def _checked(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest as TOML has it, which `_made` can rely on."""
    data = _parsed(path)
    if "python" in data:
        _check(data, _KEYS, tuple(key for key in _REQUIRED if key != "library"), "")
        _check_python(data)
    else:
        _check(data, _KEYS, _REQUIRED, "")
    _check_hardware(data.get("hardware", {}))
    for row in data.get("libraries", []):
        _check_library(row)
    if "opens" in data:
        _check_opens(data["opens"])
    if not re.fullmatch(_NAME, data["name"]):
        raise ManifestError(f"name {data['name']!r} is not one lower-case word; rename it")
    if not -MAX_RANK <= data.get("rank", 0) < MAX_RANK:
        raise ManifestError("rank does not fit 32 bits; write a small number")
    if "python" not in data and not re.fullmatch(_LIBRARY, data["library"]):
        raise ManifestError(
            f"library {data['library']!r} is not a file name ending in .so; write the name of the"
            " file beside this manifest, without a folder"
        )
    for setting, variable in data.get("settings", {}).items():
        if not isinstance(variable, str):
            raise ManifestError(f"settings.{setting} is no text; write a variable's name")
    if not is_contract(data["abi"]):
        raise ManifestError(
            f"abi {data['abi']!r} is neither a version nor a range; write it like 0.3 or >=1.0,<2"
        )
    if data.get("floor") and not re.fullmatch(_NUMBERS, data["floor"]):
        raise ManifestError(f"floor {data['floor']!r} is not a version; write it like 1.0")
    return data


def _check_python(data: dict[str, Any]) -> None:
    """A chip in Python has its file in the place of a library's."""
    if "library" in data:
        raise ManifestError("it names a library and a Python file; remove one of the two")
    if not re.fullmatch(_PYTHON, data["python"]):
        raise ManifestError(
            f"python {data['python']!r} is not a file name ending in .py; write the name of the"
            " file beside this manifest, without a folder"
        )
    data["library"] = data["python"]


def _parsed(path: str | os.PathLike[str]) -> dict[str, Any]:
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


def _check_strings(values: list[Any], where: str) -> None:
    if not all(isinstance(value, str) for value in values):
        raise ManifestError(f"{where} holds something other than text; correct it")


def _check_absolute(values: list[Any], where: str) -> None:
    _check_strings(values, where)
    for path in values:
        if not path.startswith("/") or ".." in path.split("/"):
            raise ManifestError(f"{where} {path!r} is no absolute path; write one without ..")


def _check_hardware(table: dict[str, Any]) -> None:
    _check(table, _HARDWARE, (), "hardware.")
    if "driver" in table:
        driver = table["driver"]
        _check(driver, _DRIVER, ("file", "least"), "hardware.driver.")
        _check_absolute([driver["file"]], "hardware.driver.file")
        if not re.fullmatch(_NUMBERS, driver["least"]):
            least = driver["least"]
            raise ManifestError(f"hardware.driver.least {least!r} is no version; correct it")
    for key in ("machine", "cpu_features", "pci"):
        _check_strings(table.get(key, []), f"hardware.{key}")
    for name in table.get("pci", []):
        if not re.fullmatch(_PCI, name):
            raise ManifestError(
                f"hardware.pci {name!r} is no PCI id; write vendor or vendor:device in lower-case"
                " hexadecimal, such as 10de or 10de:2330"
            )
    _check_absolute(table.get("device_nodes", []), "hardware.device_nodes")


def _check_library(row: Any, versioned: bool = True) -> None:
    if not isinstance(row, dict):
        raise ManifestError("libraries holds something other than tables; write [[libraries]]")
    _check(row, _LIBRARY_KEYS, ("setting", "file"), "libraries.")
    roots = row.get("roots", [])
    _check_absolute(roots, "libraries.roots")
    if "package" not in row and not roots:
        raise ManifestError("key libraries.package is missing; add it, or libraries.roots")
    if "package" in row and not re.fullmatch(_PACKAGE, row["package"]):
        raise ManifestError(f"libraries.package {row['package']!r} is no distribution; correct it")
    if "/" in row["file"]:
        raise ManifestError(f"libraries.file {row['file']!r} has a folder; write the file name")
    if versioned and not re.fullmatch(_VERSIONED, row["file"]):
        # A name without a number is whatever lies there, in any version.
        raise ManifestError(
            f"libraries.file {row['file']!r} names no version; write the one that it was built"
            " for, such as libname.so.3"
        )
    if row.get("versions") and not is_range(row["versions"]):
        raise ManifestError(
            f"libraries.versions {row['versions']!r} is no range; write it like >=1.2,<2"
        )


def _check_opens(table: dict[str, Any]) -> None:
    _check(table, _OPENS, ("setting", "variable"), "opens.")
    rows = table.get("packages", [])
    if not all(isinstance(row, dict) for row in rows):
        raise ManifestError("opens.packages holds something other than tables; write { package }")
    for row in rows:
        _check_library({"setting": table["setting"], **row}, False)
