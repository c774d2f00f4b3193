"""Makes a new backend: a copy of a small one that builds and passes its check list as it is.
SPDX-License-Identifier: Apache-2.0

The templates are whole backends named `mychip`; only the name is replaced.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from anyhal.errors import InvalidArgumentError
from anyhal.runtime.discovery import discover

LANGUAGES = ("c", "cpp", "python")
TEMPLATES = Path(__file__).resolve().parent / "templates"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_TEMPLATE_NAME = "mychip"
# A device's name begins with the backend's; these mean something else there or in C.
RESERVED = frozenset(
    [
        "anyhal",
        "hal",
        "auto",
        "any",
        "all",
        "none",
        "default",
        "device",
        "devices",
        "host",
        "backend",
        "backends",
        "sdk",
        "test",
        "cpu",
        "gpu",
        "and",
        "as",
        "assert",
        "async",
        "await",
        "break",
        "case",
        "char",
        "class",
        "const",
        "continue",
        "def",
        "del",
        "do",
        "double",
        "elif",
        "else",
        "enum",
        "except",
        "extern",
        "false",
        "finally",
        "float",
        "for",
        "from",
        "global",
        "goto",
        "if",
        "import",
        "in",
        "inline",
        "int",
        "is",
        "lambda",
        "long",
        "main",
        "match",
        "nonlocal",
        "not",
        "or",
        "pass",
        "raise",
        "register",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "true",
        "try",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "with",
        "yield",
    ]
)


def new_backend(name: str, language: str, into: Path) -> Path:
    """Writes the folder `into`/`name`, which nobody else has, and returns it. InvalidArgumentError
    for a bad or taken name, an unknown language, a folder that exists or cannot be written."""
    what = f"making the backend {name!r}"
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"{what}: the name is not one lower-case word of at most 31 letters, digits and _; it"
            " names folder, library and devices, as in mychip"
        )
    if name in RESERVED:
        raise InvalidArgumentError(f"{what}: the name is reserved; take another, as in my{name}")
    if language not in LANGUAGES:
        raise InvalidArgumentError(
            f"{what}: there is no template in {language!r}; choose {', '.join(LANGUAGES)}"
        )
    taken = next((r for r in discover().backends if r.name == name), None)
    if taken is not None:
        raise InvalidArgumentError(
            f"{what}: the name is taken by the backend in {taken.path}; take another"
        )
    folder = into / name
    try:
        folder.mkdir()
    except FileExistsError:
        raise InvalidArgumentError(
            f"{what}: {folder} is there already; take it away or take another name"
        ) from None
    except OSError as why:
        raise InvalidArgumentError(
            f"{what}: {into} cannot take it: {(why.strerror or str(why)).lower()}; name a folder"
            " that can be written with --into"
        ) from None
    for source in sorted((TEMPLATES / language).iterdir()):
        if not source.is_file():
            continue
        text = source.read_text(encoding="utf-8").replace(_TEMPLATE_NAME, name)
        (folder / source.name).write_text(text, encoding="utf-8")
    # Discovery refuses what others can write, whatever the umask was.
    for path in (folder, *folder.iterdir()):
        path.chmod(path.stat().st_mode & ~0o022)
    return Path(os.path.relpath(folder)) if not into.is_absolute() else folder
