"""Writes the registry file: what discovery found and trusted, for programs without Python.
SPDX-License-Identifier: Apache-2.0

Fields are separated by tabs; \\t, \\n and \\\\ stand for a tab, a line's end, a backslash. A
line that starts with # is a comment.

    anyhal-registry  2 or, with certificates, 3
    backend  NAME  ABI  STATE  ALLOWED  RANK  SHA256  PATH
    setting  NAME  VALUE                                        of the backend above
    x-first  PATH                                               to open before the backend above
    certified  UNTIL  OTHERWISE  ARCH  LEAST  MOST              of the backend above
    quarantine  ARCH  OP  DTYPE  WHY                            a cell of the backend above
    end  COUNT                                                  of backends: nothing was cut off

A certified backend is that until UNTIL (seconds since 1970), on devices of ARCH whose driver is one
of LEAST and MOST or a version between them, and OTHERWISE elsewhere and afterwards. ALLOWED is yes
when the backend may be chosen unnamed though its state would not allow that. A cell in quarantine
gave wrong answers in the self-test; cells that were not tested yet are not there. The reader is
core/api/registry.cc, which trusts the file only where nobody else can write it. It skips fields
behind those it knows and lines whose word begins with x-; what a reader must not miss gets a new
form. The text is UTF-8.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from anyhal import settings
from anyhal.errors import InvalidArgumentError, NotFoundError
from anyhal.runtime.certified import CERTIFIED, SELF_TESTED, UNCERTIFIED, held
from anyhal.runtime.discovery import BackendRecord, discover
from anyhal.runtime.manifest import CONTRACT
from anyhal.runtime.verdicts import fingerprint_of, quarantined

FORM, FORM_WITH_CERTIFICATES = 2, 3
FILE_NAME = "registry.tsv"


def default_path() -> Path:
    """Where a C program looks: ANYHAL_REGISTRY, else the cache folder."""
    return Path(settings.REGISTRY.read() or f"{settings.cache_folder()}/{FILE_NAME}")


def registry_text(records: Iterable[BackendRecord], allowed: Iterable[str] = ()) -> str:
    """The file's text for the backends that passed every stage."""
    allow = frozenset(allowed)
    lines: list[str] = []
    form = FORM
    count = 0
    for record in records:
        if record.error is not None:
            lines.append("# refused: " + " ".join(record.error.split()))
            continue
        if record.hidden:
            continue
        if not _is_utf8(record.library):
            lines.append(f"# refused: the path of backend {record.name} is not UTF-8; rename it")
            continue
        assert record.manifest is not None
        count += 1
        yes = "yes" if record.name in allow else "no"
        known = (record.name, CONTRACT, record.state, yes, record.manifest.rank)
        lines.append(_line("backend", *known, record.sha256, record.library))
        lines += [_line("setting", name, value) for name, value in record.settings]
        lines += [_line("x-first", path) for path in record.first]
        for one in held(record.certificates) if record.state == CERTIFIED else ():
            otherwise = SELF_TESTED if record.built else UNCERTIFIED
            form = FORM_WITH_CERTIFICATES
            lines.append(_line("certified", one.expires, otherwise, one.arch, *one.drivers))
        wrong = quarantined(fingerprint_of(record.sha256, dict(record.settings)))
        lines += [_line("quarantine", *cell) for cell in wrong]
    return "\n".join([_line("anyhal-registry", form), *lines, _line("end", count), ""])


def _is_utf8(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:  # os.fsdecode keeps foreign bytes as lone surrogates
        return False
    return True


def _line(*fields: object) -> str:
    table = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n"})
    return "\t".join(str(field).translate(table) for field in fields)


def write_registry(path: Path | None = None, allowed: Iterable[str] = ()) -> Path:
    """Finds backends and writes the file whole, for this user alone to change; returns its path.

    `allowed` are names of uncertified backends that C programs may choose unnamed.
    """
    found = discover().backends
    names = {record.name for record in found}
    for name in allowed:
        if name not in names:
            raise NotFoundError(
                f"writing the registry: --allow {name} names no backend that was found; known:"
                f" {', '.join(sorted(names)) or 'none'}"
            )
    target = path if path is not None else default_path()
    part = target.parent / f"{target.name}.{os.getpid()}.part"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # O_NONBLOCK: a pipe of that name, left in the folder, is refused and not waited for.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = os.open(part, flags, 0o644)
        with os.fdopen(handle, "wb") as file:
            file.write(os.fsencode(registry_text(found, allowed)))
            os.fchmod(file.fileno(), 0o644)
        os.replace(part, target)
    except (OSError, ValueError) as why:  # ValueError: a name with NUL
        reason = (getattr(why, "strerror", None) or str(why)).lower()
        raise InvalidArgumentError(
            f"writing the registry to {target}: {reason}; name a file that can be written"
        ) from None
    finally:
        with suppress(OSError, ValueError):
            part.unlink()
    return target
