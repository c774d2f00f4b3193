"""Copies of a library that count as builds of their own: the same build twice is refused.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from anyhal.runtime.elf import read_elf


def copy_as_other_build(library: Path, to: Path) -> None:
    """The same bytes but for the build id, which comes from the new file's name."""
    data, build = library.read_bytes(), bytes.fromhex(read_elf(library).build_id)
    other = hashlib.sha1(to.name.encode()).digest()
    assert len(build) == len(other) and data.count(build) == 1
    to.write_bytes(data.replace(build, other))
