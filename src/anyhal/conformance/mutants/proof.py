"""Builds and judges the mutants, and the unchanged and the otherwise correct libraries beside them.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import random
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

from anyhal.conformance.mutants import catalogue
from anyhal.conformance.mutants.answers import ordinary_test
from anyhal.conformance.mutants.building import BuildFailedError, Workshop
from anyhal.conformance.mutants.catalogue import Mutant
from anyhal.conformance.mutants.judging import DEVICE, NOT_JUDGED, failures, judge
from anyhal.records import record, replace

CONTROL = "control"  # the family of unchanged libraries
NOT_BUILT = "not built"


@record
class Outcome:
    """What became of one library. `survived_ordinary` is None where nobody claims it."""

    mutant: Mutant
    failed: str  # the case that refused it, "" for none, or why there is no answer
    why: str
    survived_ordinary: bool | None
    seconds: float

    @property
    def must_pass(self) -> bool:
        return self.mutant.family in (CONTROL, catalogue.VARIANTS)

    @property
    def good(self) -> bool:
        """As it should be: broken ones refused and as subtle as claimed, correct ones not."""
        right = (self.failed == "") if self.must_pass else self.killed
        return right and self.survived_ordinary is not False

    @property
    def killed(self) -> bool:
        return self.failed not in ("", NOT_BUILT, NOT_JUDGED)


@record
class Proof:
    outcomes: tuple[Outcome, ...]

    @property
    def broken(self) -> tuple[Outcome, ...]:
        return tuple(o for o in self.outcomes if not o.must_pass)

    @property
    def correct(self) -> tuple[Outcome, ...]:
        return tuple(o for o in self.outcomes if o.must_pass)

    @property
    def holds(self) -> bool:
        return all(o.good for o in self.outcomes)

    def sentences(self) -> list[str]:
        """What is to be said at the end: the totals, and each library that is not as it should."""
        said = []
        for o in self.outcomes:
            if o.good:
                continue
            name = f"{o.mutant.family}/{o.mutant.id}"
            if o.failed in (NOT_BUILT, NOT_JUDGED):
                said.append(f"{o.failed}: {name}: {o.why}")
            elif o.must_pass and o.failed:
                said.append(f"refused, though correct: {name}: {o.failed}: {o.why}")
            elif not o.failed:
                said.append(f"survived: {name}: {o.mutant.wrong}")
            else:
                said.append(f"not subtle: {name}: the ordinary test sees it")
        correct, broken = self.correct, self.broken
        passed = sum(o.failed == "" for o in correct)
        killed = sum(o.killed for o in broken)
        subtle = [o for o in broken if o.survived_ordinary is not None]
        proven = sum(o.survived_ordinary is True for o in subtle)
        said.append(f"correct kernels passed {passed} of {len(correct)}")
        said.append(f"survived an ordinary test, as claimed: {proven} of {len(subtle)}")
        said.append(f"killed {killed} of {len(broken)}")
        return said

    def plain(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "killed": sum(o.killed for o in self.broken),
            "mutants": len(self.broken),
            "correct": len(self.correct),
            "correct_passed": sum(o.failed == "" for o in self.correct),
            "outcomes": [
                {
                    "id": o.mutant.id,
                    "family": o.mutant.family,
                    "failed": o.failed,
                    "why": o.why,
                    "survived_ordinary": o.survived_ordinary,
                    "seconds": round(o.seconds, 3),
                    "good": o.good,
                }
                for o in self.outcomes
            ],
        }


Progress = Callable[[int, int, str], None]  # done, of all, what was done last


def prove(
    sample: int = 0,
    seed: int | None = None,
    ids: Sequence[str] = (),
    *,
    jobs: int = 2,
    progress: Progress = lambda done, of, what: None,
) -> Proof:
    """The proof with all mutants, `sample` of them drawn by seed, or those with `ids`.

    CannotBuildError without a compiler or sources. Two at a time; interrupted, it leaves nothing.
    """
    nonce = secrets.token_hex(16) if seed is None else f"{seed:032x}"
    chosen = catalogue.chosen(sample, int(nonce, 16), ids)
    controls = _controls(chosen)
    others = [*chosen, *_variants(chosen, sample, ids, int(nonce, 16))]
    with tempfile.TemporaryDirectory(prefix="anyhal-mutants-") as folder:
        workshop = Workshop(Path(folder), jobs)
        backends = sorted({m.backend for m in (*controls, *others)})
        for backend in backends:
            what = f"compiling {backend}"
            workshop.objects(backend, partial(_told, progress, what))
        pool = ThreadPoolExecutor(jobs)
        try:
            # First: what fails on an unchanged library says nothing of a changed one.
            found = [pool.submit(_control, workshop, m, nonce) for m in controls]
            _watch(found, progress, "judging unchanged libraries")
            right = [task.result() for task in found]
            ignored = frozenset(case for _, failed in right for case in failed)
            tasks = [pool.submit(_outcome, workshop, m, nonce, ignored) for m in others]
            _watch(tasks, progress, "judging")
            return Proof((*(o for o, _ in right), *(task.result() for task in tasks)))
        finally:
            workshop.stop()
            pool.shutdown(cancel_futures=True)


def _told(progress: Progress, what: str, done: int, of: int) -> None:
    progress(done, of, what)


def _watch(tasks: Sequence[Any], progress: Progress, what: str) -> None:
    shown = 0
    while True:
        done, left = wait(tasks, 0.2, FIRST_EXCEPTION)
        for task in done:
            task.result()  # raises what the task did
        if len(done) != shown:
            shown = len(done)
            progress(shown, len(tasks), what)
        if not left:
            return


def _controls(chosen: Sequence[Mutant]) -> list[Mutant]:
    """The unchanged libraries, asked all that their mutants are asked."""
    found: dict[tuple[str, str, bool], Mutant] = {}
    for m in chosen:
        if m.family == catalogue.VARIANTS:
            continue
        key = (m.backend, m.script, bool(m.ops))  # cases of a group alone have no op
        text = "the unchanged library"
        name = " ".join((m.backend, *filter(None, [m.script]), "ops" if m.ops else "groups"))
        one = found.get(key, Mutant(name, CONTROL, m.backend, text, (), script=m.script))
        ops, groups = dict.fromkeys((*one.ops, *m.ops)), dict.fromkeys((*one.groups, *m.groups))
        found[key] = replace(one, ops=tuple(ops), groups=tuple(groups))
    return list(found.values())


def _variants(chosen: Sequence[Mutant], sample: int, ids: Sequence[str], seed: int) -> list[Mutant]:
    """All correct variants beside all mutants; one for ten beside a sample."""
    if ids:
        return []
    every = catalogue.variants()
    if sample == 0:
        return list(every)
    return random.Random(seed).sample(every, min(len(every), max(1, len(chosen) // 10)))


def _control(workshop: Workshop, control: Mutant, nonce: str) -> tuple[Outcome, Mapping[str, str]]:
    """An unchanged library with all that it fails."""
    begun = time.monotonic()
    folder = workshop.build(control)
    try:
        failed = failures(
            folder,
            ops=control.ops,
            groups=control.groups,
            nonce=nonce,
            stopped=lambda: workshop.stopped,
        )
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)
    first = next(iter(failed), "")
    seconds = time.monotonic() - begun
    return Outcome(control, first, failed.get(first, ""), None, seconds), failed


def _outcome(
    workshop: Workshop, mutant: Mutant, nonce: str, ignored: Collection[str] = ()
) -> Outcome:
    begun = time.monotonic()
    try:
        folder = workshop.build(mutant)
    except BuildFailedError as why:
        return Outcome(mutant, NOT_BUILT, str(why), None, time.monotonic() - begun)
    try:
        found = judge(
            folder,
            ops=mutant.ops,
            groups=mutant.groups,
            nonce=nonce,
            ignored=ignored,
            stopped=lambda: workshop.stopped,
        )
        claimed = None
        if mutant.subtle:
            said = ordinary_test(folder, DEVICE, mutant.ops)
            claimed = not any(said.values())
        return Outcome(mutant, found.failed, found.why, claimed, time.monotonic() - begun)
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)
