"""The smoke set of a certified backend that meets a driver which its certificate does not cover.
SPDX-License-Identifier: Apache-2.0

Some seconds, once per library, certificate, device and driver. One process of the machine runs it,
others wait for its answer; the suite's own processes never do.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from anyhal import _core, settings
from anyhal.printable import printable
from anyhal.runtime.kept_json import read_kept_json, write_kept_json
from anyhal.runtime.log import say

_FORM = "anyhal-smoke 1"
_MOST_BYTES = 1 << 16


def run_suite(backend: str) -> dict[str, Any]:
    """The report of the smoke tier; a seam of the tests."""
    report: dict[str, Any] = import_module("anyhal.conformance.runner").smoke(backend)
    return report


def verdict(backend: str, device: str, of: str) -> str | None:
    """ "" when the smoke set passed, else what failed; None where it may not run (ANYHAL_SMOKE).

    `of` is all that the answer depends on.
    """
    path = f"{settings.cache_folder()}/smoke/{_core.sha256(of.encode())[:32]}.json"
    known = _known(path, of)
    if known is not None or not settings.SMOKE.read():
        return known
    with _alone(f"{os.path.splitext(path)[0]}.lock"):
        known = _known(path, of)  # another process may just have got it
        if known is not None:
            return known
        say(
            "warning",
            f"{device} has a driver that its certificate does not cover; running the smoke set of"
            f" {backend}, some seconds, once",
        )
        failed = _failure(backend)
        if failed is not None:
            write_kept_json(path, _FORM, {"of": of, "failed": failed})
            return failed
    return None


def _known(path: str, of: str) -> str | None:
    data = read_kept_json(path, _FORM, _MOST_BYTES)
    if not isinstance(data, dict) or data.get("of") != of:
        return None
    failed = data.get("failed")
    return failed if isinstance(failed, str) else None


def _failure(backend: str) -> str | None:
    """None when it could not run, which says nothing of the backend."""
    before = os.environ.get(settings.SMOKE.name)
    os.environ[settings.SMOKE.name] = "0"  # for the processes that the suite starts
    try:
        report = run_suite(backend)
    except Exception as why:
        say("warning", f"the smoke set of {backend} could not run: {why}")
        return None
    finally:
        if before is None:
            del os.environ[settings.SMOKE.name]
        else:
            os.environ[settings.SMOKE.name] = before
    wrong = next((c for c in report.get("cases", ()) if c.get("outcome") == "fail"), None)
    if wrong is not None:
        return printable(f"{wrong.get('id')}: {wrong.get('reason')}")
    if not report.get("complete") or not report.get("outcomes", {}).get("pass"):
        return "it did not come to its end"
    return ""


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Until the end no other process runs it; where there can be no lock, it may run twice."""
    file = -1
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if file >= 0:
            os.close(file)
