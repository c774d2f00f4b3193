"""anyhal certify --self-test: the suite is shown broken backends and must refuse every one.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anyhal.cli.terminal import printable


def self_test(
    sample: int = 0,
    seed: int | None = None,
    ids: Sequence[str] = (),
    json_file: Path | None = None,
) -> int:
    """0: all broken backends were refused and all correct ones not; 1: not so; 2: cannot run."""
    from anyhal.conformance.mutants.building import CannotBuildError
    from anyhal.conformance.mutants.proof import prove
    from anyhal.errors import NotFoundError

    try:
        with _Bar() as bar:
            proof = prove(sample, seed, ids, progress=bar.show)
    except (CannotBuildError, NotFoundError) as why:
        print(printable(str(why)), file=sys.stderr)
        return 2
    if json_file is not None:
        text = json.dumps(proof.plain(), indent=1)
        json_file.write_text(text + "\n", encoding="utf-8")
    for sentence in proof.sentences():
        print(printable(sentence))
    return 0 if proof.holds else 1


class _Bar:
    """A bar with the time that is left, on stderr, for a terminal."""

    def __enter__(self) -> _Bar:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Left

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Left())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._tasks: dict[str, Any] = {}
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, done: int, of: int, what: str) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=of)
        self._bar.update(self._tasks[what], completed=done, total=of)
