"""The cases found so far, on disk, so that an interrupted run goes on where it was.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from anyhal.conformance import suite
from anyhal.settings import cache_folder


class Journal:
    """One line for each case; none is kept where the folder cannot be written."""

    def __init__(
        self,
        described: dict[str, Any],
        tier: str,
        limits: Sequence[str],
        nonce: str,
        fresh: bool,
        folder: Path | None,
    ) -> None:
        key = json.dumps(
            [described["device"], described["library_sha256"], suite.digest(), tier, list(limits)]
        )
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        self._path = (folder or cache_folder() / "certify") / f"{name}.jsonl"
        self.nonce = nonce or secrets.token_hex(16)
        self.known: dict[str, dict[str, Any]] = {}
        if not fresh and not limits:
            self._resume(nonce)
        self._file: Any = None
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a" if self.known else "w", encoding="utf-8")
            if not self.known:
                self._line({"nonce": self.nonce})

    def _resume(self, nonce: str) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError, IndexError):
            lines = self._path.read_text(encoding="utf-8").split("\n")[:-1]  # whole lines only
            first = json.loads(lines[0])["nonce"]
            if nonce and nonce != first:
                return
            found = {}
            for line in lines[1:]:
                row = json.loads(line)
                found[str(row["id"])] = row
            self.nonce, self.known = str(first), found

    def add(self, case_id: str, seconds: float, finding: dict[str, Any]) -> None:
        self._line({"id": case_id, "seconds": seconds, **finding})

    def _line(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            with suppress(OSError):  # a full disk costs only the resumption
                self._file.write(json.dumps(row) + "\n")
                self._file.flush()

    def close(self, done: bool) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            if done:
                self._path.unlink(missing_ok=True)
