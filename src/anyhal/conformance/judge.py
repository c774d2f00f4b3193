"""The oracle's process: makes a case's inputs again, computes what is right, compares.
SPDX-License-Identifier: Apache-2.0

It opens no backend. Lines of JSON in and out, in order.
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
    """Arguments: descriptor to read from, descriptor to write to."""
    read, write = sys.argv[1:]
    with os.fdopen(int(read), encoding="utf-8") as asked, os.fdopen(int(write), "w") as told:
        for line in asked:
            told.write(json.dumps(_judged(json.loads(line))) + "\n")
            told.flush()


def _judged(words: dict[str, Any]) -> dict[str, Any]:
    case, file = Case(**words["case"]), Path(words["file"])
    try:
        answer = spool.read(words["rows"], file)
        finding: Finding = suite.group(case.group).judge(case, words["seed"], answer)
        return {"kind": "finding", "finding": plain(finding)}
    except Exception:  # a defect of the suite, never of the backend
        return {"kind": "error", "sentence": traceback.format_exc()}
    finally:
        file.unlink(missing_ok=True)
