"""The cases found so far, on disk, so that an interrupted run goes on where it was.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from anyhal.conformance import suite
from anyhal.runtime.file_rights import writable_by_others
from anyhal.settings import cache_folder


class Journal:
    """One line for each case; none is kept where the folder cannot be written."""

    def __init__(
        self,
        described: dict[str, Any],
        tier: str,
        limits: Sequence[str],
        shard: tuple[int, int],
        nonce: str,
        fresh: bool,
        folder: Path | None,
    ) -> None:
        key = json.dumps(
            [
                described["device"],
                described["library_sha256"],
                *(described[name] for name in ("arch", "driver", "dependencies")),
                suite.digest(),
                tier,
                list(limits),
                shard,
            ]
        )
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        self._path = (folder or Path(cache_folder()) / "certify") / f"{name}.jsonl"
        self.nonce = nonce or secrets.token_hex(16)
        self.known: dict[str, dict[str, Any]] = {}
        self._file = self._open()
        if not fresh and not limits:
            self._resume(nonce)
        if self._file is not None:
            with suppress(OSError):
                self._file.seek(0)
                self._file.truncate()
            self._line({"nonce": self.nonce})
            for row in self.known.values():
                self._line(row)

    def _open(self) -> Any:
        """The file, held by this run alone; None where it cannot be, or is another run's."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            number = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError:
            return None
        file = os.fdopen(number, "r+", encoding="utf-8")
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        return file

    def _resume(self, nonce: str) -> None:
        """Takes what an earlier run found, unless somebody else may have written it."""
        if self._file is None or any(map(writable_by_others, (self._path.parent, self._path))):
            return
        with suppress(OSError, ValueError, KeyError, TypeError, IndexError):
            first, *lines = self._file.read().split("\n")[:-1]  # whole lines only
            begun = str(json.loads(first)["nonce"])
            if nonce and nonce != begun:
                return
            rows = [json.loads(line) for line in lines]
            self.nonce, self.known = begun, {str(row["id"]): row for row in rows}

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
                if done:
                    self._path.unlink(missing_ok=True)
                self._file.close()
