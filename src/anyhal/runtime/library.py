"""What a backend's library file says of itself, judged before anything opens it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import lru_cache

from anyhal import _core
from anyhal.runtime.elf import ElfError, ElfFile, c_library_refusal
from anyhal.runtime.elf_cache import elf_of
from anyhal.runtime.stages import Stop
from anyhal.runtime.vendor import origin_folders

ENTRY = "anyhal_backend_main"
# What some linkers export of every library.
_OF_LINKERS = {"_init", "_fini", "_edata", "_end", "__bss_start"}
_AGAIN = "build it, or install the backend again"
_CACHE = "/etc/ld.so.cache"
_SYSTEM = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_MOST_NEEDED = 256  # libraries that are followed


def read_library(library: str) -> ElfFile | Stop:
    """The file as it describes itself, or why it is no library for this machine."""
    try:
        elf = elf_of(library)
    except ElfError as why:
        code = {"truncated": "cut_off", "not_elf": "not_elf"}.get(why.code, "malformed")
        detail = "it is not an ELF library" if why.code == "not_elf" else str(why)
        return Stop(code, library, detail, _AGAIN)
    here = os.uname().machine
    if elf.machine != here:
        detail = f"it is built for {elf.machine}, this machine is {here}"
        return Stop("other_machine", library, detail, "install the build for this machine")
    if elf.kind != "shared library":
        return Stop("not_elf", library, f"it is a {elf.kind}, not a shared library", _AGAIN)
    return elf


def symbols_stop(elf: ElfFile, library: str) -> Stop | None:
    """A backend exports one symbol; what else it shows can be taken for another library's."""
    if ENTRY not in elf.exports:
        hint = "it is not a backend of this contract: export its entry function"
        return Stop("no_entry", library, f"it exports no {ENTRY}", hint)
    more = [name for name in elf.exports if name != ENTRY and name not in _OF_LINKERS]
    if not more:
        return None
    unique = f", {len(elf.unique)} of them GNU-unique" if elf.unique else ""
    shown = ", ".join(more[:3]) + (", ..." if len(more) > 3 else "")
    detail = f"it exports {len(more)} symbols beside {ENTRY} ({shown}{unique})"
    hint = "link it with a version script that names the entry alone"
    return Stop("symbols", library, detail, hint)


def system_stop(elf: ElfFile, library: str) -> Stop | None:
    """Whether this system has the C library and the libraries that it needs."""
    refusal = c_library_refusal(elf)
    if refusal:
        return Stop("glibc_too_old", library, refusal, "install a build for this system")
    lost = next(unresolved(elf, library), None)
    if lost is None:
        return None
    name, needed_by, searched = lost
    detail = f"{name}, which {needed_by} needs, is not on this machine"
    hint = f"install it (searched: {', '.join(searched) or 'no folder of its own'}, the system's)"
    return Stop("missing_library", library, detail, hint)


def unresolved(elf: ElfFile, library: str) -> Iterator[tuple[str, str, list[str]]]:
    """Each needed library that nothing has: its name, who needs it, the folders searched. Those
    found beside the library are asked as well."""
    waiting, seen = [(elf, library)], {library}
    mapped: set[str] | None = None
    while waiting and len(seen) < _MOST_NEEDED:
        at, file = waiting.pop()
        own = _own_folders(at, file)
        for name in at.needed:
            places = [name] if "/" in name else [f"{folder}/{name}" for folder in own]
            near = next((place for place in places if os.path.isfile(place)), None)
            if near is not None:
                if near not in seen:
                    seen.add(near)
                    try:
                        waiting.append((elf_of(near, exports=False), near))
                    except (OSError, ElfError):
                        continue  # the system's loader says what is wrong with it
                continue
            if "/" not in name and _system_has(name):
                continue
            mapped = mapped if mapped is not None else _mapped_names()
            if name not in mapped:
                yield name, os.path.basename(file), own


def _own_folders(elf: ElfFile, file: str) -> list[str]:
    search, given = elf.runpath or elf.rpath, os.environ.get("LD_LIBRARY_PATH", "")
    if not search and not given:
        return []
    plain = [part for part in search.split(":") if part.startswith("/")]
    near = origin_folders(search, os.path.dirname(file))
    listed = given.replace(";", ":").split(":")
    return [*near, *plain, *(f for f in listed if f[:1] == "/")]


@lru_cache(maxsize=1024)
def _system_has(name: str) -> bool:
    if name.encode() + b"\0" in _loader_cache():
        return True
    return any(os.path.exists(f"{folder}/{name}") for folder in _system_folders())


@lru_cache(maxsize=1)
def _loader_cache() -> bytes:
    """Holds each library's name, ended by a zero byte."""
    try:
        with open(_CACHE, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


@lru_cache(maxsize=1)
def _system_folders() -> tuple[str, ...]:
    triplet = f"{os.uname().machine}-linux-gnu"
    own = (f"{sys.base_exec_prefix}/lib",)  # what the interpreter's own run path often names
    return (f"/lib/{triplet}", f"/usr/lib/{triplet}", *_SYSTEM, *own)


def _mapped_names() -> set[str]:
    return {os.path.basename(path) for path in _core.mapped_libraries()}
