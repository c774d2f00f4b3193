"""Who vouches for a backend: the words for it, and whether anything but the build can.
SPDX-License-Identifier: Apache-2.0

What every start needs. Certificates themselves are `runtime/certified.py`'s, which is read where
one lies.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from anyhal import settings
from anyhal.records import record

if TYPE_CHECKING:
    from anyhal.runtime.certified import Certificate, Known

BESIDE, ISSUED = "certificate.dsse.json", "issued"
CERTIFIED, SELF_TESTED, PROVISIONAL, UNCERTIFIED = (
    "certified",
    "self-tested",
    "provisional",
    "uncertified",
)


@record
class Standing:
    """Who vouches for a backend on a device, and why nobody better does. `code` is a key of
    stages.CODES, "" where nothing is in the way."""

    state: str
    code: str = ""
    sentence: str = ""
    hint: str = ""
    certificate: Certificate | None = None


NOBODY = Standing(UNCERTIFIED, "uncertified", "nobody vouches for it", "certify it: anyhal certify")


class Trust:
    """This user's folder of certificates and keys, looked at when that is first needed."""

    def __init__(self, folder: Path | None = None) -> None:
        self._given = folder

    @cached_property
    def folder(self) -> Path:
        return settings.trust_folder() if self._given is None else self._given

    @cached_property
    def has_issued(self) -> bool:
        return os.path.isdir(f"{self.folder}/{ISSUED}")

    @cached_property
    def known(self) -> Known:
        from anyhal.runtime.certified import Known  # most programs meet no certificate

        return Known(self.folder)
