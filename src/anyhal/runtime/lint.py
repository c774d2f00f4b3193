"""Looks at a backend's folder as its maker should before others get it; opens nothing.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

from anyhal.runtime import elf as reader
from anyhal.runtime.elf import ElfFile
from anyhal.runtime.file_rights import writable_by_others
from anyhal.runtime.library import read_library, symbols_stop, system_stop
from anyhal.runtime.manifest import CONTRACT, FILE_NAME, Manifest, ManifestError, read_manifest
from anyhal.runtime.stages import Stop
from anyhal.runtime.versions import contract_fits

OLDEST_GLIBC = (2, 28)  # of the platforms that anyhal is for
# Of the C and C++ run-time libraries; whatever else a library needs by name is somebody's product.
_PLAIN = re.compile(
    r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|util|resolv)|ld-linux[a-z0-9-]*)\.so\.\d+"
)
_DT_TEXTREL, _DT_FLAGS, _DF_TEXTREL = 22, 30, 0x4


def lint(folder: Path) -> list[Stop]:
    """Everything that is wrong with it, in the order in which it would hurt; `absent` for what only
    hurts elsewhere."""
    try:
        manifest = read_manifest(folder / FILE_NAME)
    except ManifestError as why:
        detail, _, hint = str(why).rpartition("; ")
        return [Stop("bad_manifest", str(folder / FILE_NAME), detail, hint)]
    except OSError as why:
        hint = f"name a folder that holds a {FILE_NAME}"
        return [Stop("unreadable", str(folder / FILE_NAME), why.strerror or str(why), hint)]
    found = _manifest(folder, manifest)
    library = folder / manifest.library
    if manifest.python:
        return found + _python(library)
    try:
        read = read_library(str(library))
    except OSError as why:
        return [*found, Stop("no_library", str(library), why.strerror or str(why), "build it")]
    if isinstance(read, Stop):
        return [*found, read]
    judged = (symbols_stop(read, str(library)), system_stop(read, str(library)))
    found += [stop for stop in judged if stop is not None]
    return found + _needs(read, library, manifest) + _form(read, library)


def _python(file: Path) -> list[Stop]:
    """A chip in one Python file: what can be known of it without running it."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
        compile(tree, str(file), "exec", dont_inherit=True)
    except OSError as why:
        return [Stop("no_library", str(file), why.strerror or str(why), "write it")]
    except (SyntaxError, ValueError, RecursionError) as why:  # ValueError: a zero byte
        line = f", line {why.lineno}" if isinstance(why, SyntaxError) and why.lineno else ""
        text = why.msg if isinstance(why, SyntaxError) else str(why)
        return [Stop("init_failed", str(file), f"it does not compile: {text}{line}", "correct it")]
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    chips = [c.name for c in classes if any(_is_base(base) for base in c.bases)]
    derived = any(c.bases for c in classes) or any(isinstance(n, ast.Call) for n in tree.body)
    if len(chips) == 1 or (not chips and derived):  # its base may have another name there
        return []
    named = f" ({', '.join(chips)})" if chips else ""
    detail = f"it defines {len(chips)} subclasses of PythonBackend{named}"
    return [Stop("init_failed", str(file), detail, "define one in the file")]


def _is_base(base: ast.expr) -> bool:
    return (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")) == (
        "PythonBackend"
    )


def _manifest(folder: Path, manifest: Manifest) -> list[Stop]:
    file, found = str(folder / FILE_NAME), []
    if not contract_fits(manifest.abi, manifest.floor, CONTRACT):
        why = f"it is built for {manifest.abi} of the contract, this core has {CONTRACT}"
        found.append(Stop("abi_mismatch", file, why, "build it for this core's contract"))
    if folder.name != manifest.name:
        why = f"the folder is {folder.name}, the backend {manifest.name}"
        found.append(Stop("bad_manifest", file, why, "give both one name", absent=True))
    for path in (folder, folder / manifest.library):
        writer = writable_by_others(path, owner_matters=False) if path.exists() else ""
        if writer:
            found.append(Stop("untrusted", str(path), writer, "take that right away (chmod go-w)"))
    return found


def _needs(read: ElfFile, library: Path, manifest: Manifest) -> list[Stop]:
    """Vendor libraries that it is linked with: without them it cannot even say that they are
    missing, and the search path decides which copy it gets."""
    hard = [name for name in read.needed if not _PLAIN.fullmatch(name)]
    beside = [name for name in hard if (library.parent / name).is_file()]
    found = [
        Stop(
            "missing_library",
            str(library),
            f"it is linked with {name}, which the system's search path chooses",
            "open it with dlopen by the path that a [[libraries]] row gives",
        )
        for name in hard
        if name not in beside
    ]
    search = read.runpath or read.rpath
    for part in filter(None, search.split(":")):
        if not part.startswith(("$ORIGIN", "${ORIGIN}")):
            why = f"its run path has {part}, a folder of the machine that built it"
            hint = "leave it out, or write it relative to $ORIGIN"
            found.append(Stop("missing_library", str(library), why, hint))
    oldest = reader.glibc_needed(read)
    if oldest > OLDEST_GLIBC:
        needs, floor = (".".join(map(str, numbers)) for numbers in (oldest, OLDEST_GLIBC))
        why = f"it needs glibc {needs}, anyhal runs from {floor} on"
        hint = "build it on an older system before you give it away"
        found.append(Stop("glibc_too_old", str(library), why, hint, absent=True))
    return found


def _form(read: ElfFile, library: Path) -> list[Stop]:
    found = []
    if read.executable_stack:
        why = "it asks for a stack that can be executed, for the whole process"
        hint = "link it with -z noexecstack, and mark assembly files so"
        found.append(Stop("malformed", str(library), why, hint))
    if _has_text_relocations(library):
        why = "the loader has to write into its code (text relocations)"
        found.append(Stop("malformed", str(library), why, "compile all of it with -fPIC"))
    return found


def _has_text_relocations(library: Path) -> bool:
    descriptor = os.open(library, os.O_RDONLY | os.O_CLOEXEC)
    try:
        source = reader._Source(descriptor, os.fstat(descriptor))
        dynamic = reader._Dynamic(source, reader._Segments(source))
        tagged = next(dynamic.all(_DT_TEXTREL), None) is not None
        return tagged or bool(dynamic.first(_DT_FLAGS) & _DF_TEXTREL)
    finally:
        os.close(descriptor)
