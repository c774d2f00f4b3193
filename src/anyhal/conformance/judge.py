"""The oracle's process: makes a case's inputs again, computes what is right, compares.
SPDX-License-Identifier: Apache-2.0

It opens no backend. Lines of JSON in and out, in order; the first names the library that is to be
judged, since the process that holds it could name another.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from anyhal.conformance import spool, suite
from anyhal.conformance.suite import Case, Finding
from anyhal.conformance.worker import plain

COMMAND = "from anyhal.conformance.judge import main; main()"


def main() -> None:
    """Arguments: name of the backend, descriptor to read from, descriptor to write to."""
    backend, read, write = sys.argv[1:]
    with os.fdopen(int(read), encoding="utf-8") as asked, os.fdopen(int(write), "w") as told:
        told.write(json.dumps({"kind": "library", **_library(backend)}) + "\n")
        told.flush()
        for line in asked:
            told.write(json.dumps(_judged(json.loads(line))) + "\n")
            told.flush()


def _library(backend: str) -> dict[str, str]:
    """Where the search path has it and the hash of its bytes; empty where it has none."""
    from anyhal.runtime.discovery import discover, hashed

    found = discover(hash_all=False, asked=(backend,)).backends
    record = next((hashed(r) for r in found if r.name == backend), None)
    if record is None or not record.library:
        return {"library": "", "sha256": ""}
    return {"library": str(record.library), "sha256": record.sha256}


def _judged(words: dict[str, Any]) -> dict[str, Any]:
    case, file = Case(**words["case"]), Path(words["file"])
    try:
        answer = spool.read(words["rows"], file)
        finding: Finding = suite.group(case.group).judge(case, words["seed"], answer)
    except Exception as why:  # an answer that is none, or a defect of the suite
        place = traceback.extract_tb(why.__traceback__)[-1]
        said = f"{type(why).__name__}: {why} ({os.path.basename(place.filename)}:{place.lineno})"
        finding = Finding("fail", f"its answer could not be judged: {said}", "not_judged")
    finally:
        file.unlink(missing_ok=True)
    return {"kind": "finding", "finding": plain(finding)}
