"""Asks the suite about a backend that was built here, until the first case fails.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from anyhal.conformance.mutants.answers import environ
from anyhal.conformance.mutants.building import NAME, StoppedError
from anyhal.errors import HalError
from anyhal.records import record

DEVICE = f"{NAME}:0"
NOT_JUDGED = "not judged"


@record
class Judged:
    """`failed`: the id of the case that refused the backend, "" for none, NOT_JUDGED where
    the suite could not run; `why` its sentence."""

    failed: str
    why: str
    cases: int


class _FoundError(Exception):
    def __init__(self, judged: Judged) -> None:
        super().__init__(judged.why)
        self.judged = judged


def judge(
    folder: Path,
    *,
    ops: Sequence[str] = (),
    groups: Sequence[str] = (),
    nonce: str = "",
    ignored: Collection[str] = (),
    stopped: Callable[[], bool] = lambda: False,
) -> Judged:
    """The suite at its quick tier on the backend in `folder`; one failed case is enough, but for
    those that are `ignored`."""

    def progress(done: int, _: int, last: Any) -> None:
        if stopped():
            raise StoppedError
        if last.finding.outcome == "fail" and last.case.id not in ignored:
            raise _FoundError(Judged(last.case.id, last.finding.reason, done))

    try:
        report = _certified(folder, ops, groups, nonce, progress)
    except _FoundError as found:
        return found.judged
    except HalError as why:
        return Judged(NOT_JUDGED, str(why), 0)
    return Judged("", "", len(report["cases"]))


def failures(
    folder: Path,
    *,
    ops: Sequence[str] = (),
    groups: Sequence[str] = (),
    nonce: str = "",
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, str]:
    """All cases that fail, by id with their sentences; NOT_JUDGED where the suite could not run."""

    def progress(*_: Any) -> None:
        if stopped():
            raise StoppedError

    try:
        report = _certified(folder, ops, groups, nonce, progress)
    except HalError as why:
        return {NOT_JUDGED: str(why)}
    return {row["id"]: row["reason"] for row in report["cases"] if row["outcome"] == "fail"}


def _certified(
    folder: Path, ops: Sequence[str], groups: Sequence[str], nonce: str, progress: Any
) -> dict[str, Any]:
    found: dict[str, Any] = import_module("anyhal.conformance.runner").certify(
        DEVICE,
        "quick",
        ops=ops,
        groups=groups,
        nonce=nonce,
        environ=environ(folder),
        fresh=True,
        journal_folder=folder.parent,
        progress=progress,
    )
    return found
