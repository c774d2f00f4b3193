"""What library files say of themselves, read once for as long as they stay the same.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from anyhal.runtime.discovery_cache import remember, stamp_of
from anyhal.runtime.elf import ElfError, ElfFile, VersionNeed, read_elf

_need = lru_cache(VersionNeed)  # most libraries need the same


def elf_of(path: str | os.PathLike[str], *, exports: bool = True) -> ElfFile:
    """As `read_elf`, with its errors."""

    def look() -> dict[str, Any]:
        try:
            from dataclasses import asdict  # only who reads the file needs it

            said = asdict(read_elf(os.fspath(path), exports=exports))
            return said | {"versions": [tuple(row.values()) for row in said["versions"]]}
        except ElfError as why:
            return {"code": why.code, "sentence": str(why)}

    question = "elf" if exports else "elf without exports"
    said = remember(os.fspath(path), stamp_of([path]), question, look)
    if "code" in said:
        raise ElfError(said["code"], said["sentence"])
    return ElfFile(**said | {"versions": tuple(_need(*row) for row in said["versions"])})
