"""Certification of one device: workers watched, answers judged, everything written down.
SPDX-License-Identifier: Apache-2.0

Two processes work side by side: the backend's runs cases, the oracle's judges what it gave. This
one opens no backend. A backend that crashes, hangs or eats memory costs one case: its process is
ended and another goes on. What is found goes to a journal, so that an interrupted run resumes.
"""

from __future__ import annotations

import os
import random
import selectors
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from anyhal import settings
from anyhal.conformance import judge as judging
from anyhal.conformance import spool, suite
from anyhal.conformance import waivers as reading
from anyhal.conformance import worker as working
from anyhal.conformance.journal import Journal
from anyhal.conformance.processes import Process, UnreadableError, ended
from anyhal.conformance.report import build
from anyhal.conformance.required import perf_tier
from anyhal.conformance.suite import Case, Finding
from anyhal.errors import HalError, InternalError
from anyhal.records import mutable_record

_MEMORY = 6 << 30  # bytes a worker may hold
_START_S = 120.0  # until a worker has opened its device
_LOOK_S = 0.2  # between looks at a worker's memory and clock
_IN_FLIGHT = 24  # answers on their way to the oracle
_SPOOLED = 512 << 20  # bytes of them

Progress = Callable[[int, int, "Found"], None]  # done, of all, the last one


class NotRunError(HalError):
    """The suite could not run: no such backend, no device, a defect of the suite."""

    code = "not_run"


@mutable_record
class Found:
    """One case with what was found. `reproduce` is the command that asks it again."""

    case: Case
    seed: int
    finding: Finding
    seconds: float


def certify(
    backend: str,
    tier: str = "quick",
    *,
    ops: Sequence[str] = (),
    groups: Sequence[str] = (),
    ids: Sequence[str] = (),
    seed: int | None = None,
    nonce: str = "",
    shard: tuple[int, int] = (1, 1),
    environ: dict[str, str] | None = None,
    fresh: bool = False,
    journal_folder: Path | None = None,
    waivers: Sequence[dict[str, Any]] | None = None,
    progress: Progress | None = None,
    measures: bool | None = None,
    called: str = "",
) -> dict[str, Any]:
    """Runs the cases of a tier on a device (`chip` or `chip:index`); the report as plain data.

    `environ` is the backend's environment, else this process's. With `ops`, `groups` or `ids` only
    those cases; `seed` replaces the seeds of all of them. The report is `complete` when no case was
    left out. `waivers` replace those beside the backend's manifest. `measures` the speed as well:
    else at the full tier only. `called` is how a person names the backend, in the lines that
    repeat a case. NotRunError when nothing could run.
    """
    run = _Run(backend, environ, progress, called)
    try:
        run.start()
        if waivers is None:
            known = {case.id for case in suite.all_cases()}
            waivers = reading.read(Path(run.described["manifest"]), known)
        cases = [c for c in suite.chosen(tier, ops, ids) if not groups or c.group in groups]
        if not cases:
            raise NotRunError(f"certifying {backend}: no case was chosen; ask for fewer limits")
        limits, (part, of) = (*ops, *groups, *ids), shard
        journal = Journal(run.described, tier, limits, shard, nonce, fresh, journal_folder)
        random.Random(journal.nonce).shuffle(cases)
        run.ask(cases[part - 1 :: of], journal, seed)
        limited = bool(limits) or of > 1
        report = build(run, journal.nonce, tier, complete=not limited, waivers=waivers)
        if measures or (measures is None and tier == "full" and not limited):
            run.stop()  # nothing else runs while it is timed
            report["perf"] = _speed(run, environ)
            if report["perf"]["tier"] != "not measured":
                report["perf"]["tier"] = perf_tier(report)
        return report
    finally:
        run.stop()


def smoke(backend: str) -> dict[str, Any]:
    """The report of the smoke tier, which a provisional state needs."""
    return certify(backend, "smoke", fresh=True)


class _Run:
    """The two processes and what they said."""

    def __init__(
        self,
        backend: str,
        environ: dict[str, str] | None,
        progress: Progress | None,
        called: str,
    ) -> None:
        path = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)
        self._environ = (os.environ.copy() if environ is None else environ) | {"PYTHONPATH": path}
        self._environ[settings.SMOKE.name] = "0"  # a worker is not to start the suite once more
        self.backend = backend
        self.device = backend if ":" in backend else f"{backend}:0"
        self.called = called or self.device
        self._progress = progress
        self._library: dict[str, Any] = {}  # as the oracle's process found it
        self.described: dict[str, Any] = {}
        self.found: list[Found] = []
        self.restarts = 0
        self.folder, self._lock = spool.make_folder()
        self._worker: Process | None = None
        self._judge: Process | None = None
        self.started = time.time()
        self._clock = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._clock

    def start(self) -> None:
        chip = self.device.partition(":")[0]
        self._judge = Process(judging.COMMAND, (chip,), self._environ)
        self._library = self._first_line(self._judge, "library")
        self._begin_worker()

    def stop(self) -> None:
        for one in (self._worker, self._judge):
            if one is not None:
                one.end()
        self._worker = self._judge = None
        spool.remove_folder(self.folder, self._lock)

    def _begin_worker(self) -> None:
        words = (self.device, str(self.folder))
        self._worker = Process(working.COMMAND, words, self._environ)
        said = self._first_line(self._worker, "ready")
        here = said["library"], said["library_sha256"]
        if here != (self._library["library"], self._library["sha256"]):
            raise NotRunError(
                f"certifying {self.backend}: its process says that it holds {here[0]} ({here[1]}),"
                f" the search path has {self._library['library'] or 'no such backend'}"
                f" ({self._library['sha256']}); a library that changes or hides is not judged"
            )
        for name in ("device", "arch", "driver", "manifest"):
            if self.described and said[name] != self.described[name]:
                raise NotRunError(
                    f"certifying {self.backend}: its {name} was {self.described[name]!r} and is"
                    f" {said[name]!r} in a new process; run it again where nothing changes"
                )
        self.described = said

    def _first_line(self, one: Process, kind: str) -> dict[str, Any]:
        """What a new process says before anything else."""
        until = time.monotonic() + _START_S
        with selectors.DefaultSelector() as selector:
            selector.register(one.reads, selectors.EVENT_READ)
            while time.monotonic() < until and not one.closed:
                selector.select(_LOOK_S)
                for said in _heard(one, self.backend):
                    if said["kind"] != kind:
                        raise NotRunError(
                            f"certifying {self.backend}: {said.get('sentence', said['kind'])}"
                        )
                    del said["kind"]
                    return said
        why = f"it ended ({ended(one.status())}): {one.tail()}" if one.closed else "it hangs"
        raise NotRunError(
            f"certifying {self.backend}: its process did not come up: {why}; anyhal doctor says how"
            " far it comes"
        )

    def ask(self, cases: Sequence[Case], journal: Journal, given: int | None) -> None:
        todo: deque[tuple[Case, int]] = deque()
        total = len(cases)
        for case in cases:
            row = journal.known.get(case.id)
            seed = suite.seed_for(journal.nonce, case) if given is None else given
            if row is None:
                todo.append((case, seed))
                continue
            words = {k: row[k] for k in ("outcome", "reason", "code", "measured")}
            self.found.append(Found(case, seed, Finding(**words), row["seconds"]))
        loop = _Loop(self, todo, total, journal)
        try:
            loop.run()
        except BaseException:
            journal.close(False)
            raise
        journal.close(True)

    def keep(self, found: Found, total: int, journal: Journal) -> None:
        self.found.append(found)
        journal.add(found.case.id, found.seconds, working.plain(found.finding))
        if self._progress is not None:
            self._progress(len(self.found), total, found)

    @property
    def worker(self) -> Process:
        assert self._worker is not None
        return self._worker

    @property
    def judge(self) -> Process:
        assert self._judge is not None
        return self._judge

    def replace_worker(self) -> None:
        self.worker.end()
        self._worker = None
        self.restarts += 1
        self._begin_worker()


class _Loop:
    """Keeps the worker busy with one case, and the judge with those that have been answered."""

    def __init__(
        self, run: _Run, todo: deque[tuple[Case, int]], total: int, journal: Journal
    ) -> None:
        self._run, self._todo, self._total, self._journal = run, todo, total, journal
        self._asked: tuple[Case, int] | None = None
        self._since = 0.0
        self._judged: deque[tuple[Case, int, float, int]] = deque()  # in the judge's order

    def run(self) -> None:
        while self._todo or self._asked or self._judged:
            if self._asked is None and self._todo and self._may_ask():
                self._asked, self._since = self._todo.popleft(), time.monotonic()
                case, seed = self._asked
                self._run.worker.send({"case": _plain_case(case), "seed": seed})
            self._wait()

    def _may_ask(self) -> bool:
        held = sum(size for *_, size in self._judged)
        return len(self._judged) < _IN_FLIGHT and held < _SPOOLED

    def _wait(self) -> None:
        worker, judge = self._run.worker, self._run.judge
        with selectors.DefaultSelector() as selector:
            selector.register(worker.reads, selectors.EVENT_READ)
            selector.register(judge.reads, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(_LOOK_S)}
        if judge.reads in ready:
            self._hear_judge(judge)
        if worker.reads in ready:
            self._hear_worker(worker)
        elif self._asked is not None:
            self._watch(worker)

    def _hear_judge(self, judge: Process) -> None:
        for said in judge.receive():
            case, seed, seconds, _ = self._judged.popleft()
            self._keep(case, seed, Finding(**said["finding"]), seconds)
        if judge.closed:
            raise InternalError(f"the oracle's process ended: {judge.tail()}; report it")

    def _hear_worker(self, worker: Process) -> None:
        try:
            for said in worker.receive():
                if self._asked is None:
                    raise UnreadableError("an answer that nobody asked for")
                if self._take(said):
                    self._run.replace_worker()
                    return
        except (UnreadableError, LookupError, TypeError, ValueError, OSError) as why:
            self._lost(f"what its process said is no answer: {why}", "protocol")
            return
        if worker.closed:
            self._lost(f"its process ended ({ended(worker.status())}): {worker.tail()}", "crash")

    def _take(self, said: dict[str, Any]) -> bool:
        """Keeps an answer, or hands it on to the oracle; whether the device is unwell since."""
        assert self._asked is not None
        (case, seed), unwell, seconds = self._asked, str(said["unwell"]), float(said["seconds"])
        finding = None
        if said["kind"] == "finding":
            finding = suite.checked(said["finding"])
            if finding.outcome == "pass" and case.group in suite.BY_ORACLE:
                why = "its process passed a case by itself that the oracle has to judge"
                finding = Finding("fail", why, "protocol")
        elif not unwell:
            file = self._run.folder / Path(str(said["file"])).name
            size = os.lstat(file).st_size
            words = {"case": _plain_case(case), "seed": seed, "rows": said["rows"]}
            self._asked = None
            self._judged.append((case, seed, seconds, size))
            self._run.judge.send({**words, "file": str(file)})
            return False
        if unwell and (finding is None or finding.outcome != "fail"):
            finding = Finding("fail", f"afterwards {unwell}", "unhealthy")
        assert finding is not None
        self._asked = None
        self._keep(case, seed, finding, seconds)
        return bool(unwell)

    def _watch(self, worker: Process) -> None:
        assert self._asked is not None
        limit = self._asked[0].seconds
        if time.monotonic() - self._since > limit:
            self._lost(f"it gave no answer within {limit:g} s", "hang")
        elif worker.held_bytes() > _MEMORY:
            self._lost(f"its process held more than {_MEMORY >> 30} GiB", "memory")

    def _lost(self, why: str, code: str) -> None:
        if self._asked is None:
            raise NotRunError(f"certifying {self._run.backend}: {why}, between two cases")
        (case, seed), self._asked = self._asked, None
        spent = time.monotonic() - self._since
        self._keep(case, seed, Finding("fail", why, code), spent)
        self._run.replace_worker()

    def _keep(self, case: Case, seed: int, finding: Finding, seconds: float) -> None:
        self._run.keep(Found(case, seed, finding, seconds), self._total, self._journal)


def _heard(one: Process, backend: str) -> Iterator[dict[str, Any]]:
    try:
        yield from one.receive()
    except UnreadableError as why:
        raise NotRunError(
            f"certifying {backend}: what its process said is no answer: {why}"
        ) from None


def _plain_case(case: Case) -> dict[str, Any]:
    return {
        "id": case.id,
        "group": case.group,
        "op": case.op,
        "dtype": case.dtype,
        "tier": case.tier,
        "seconds": case.seconds,
        "given": dict(case.given),
    }


def _speed(run: _Run, environ: dict[str, str] | None) -> dict[str, Any]:
    """The `perf` part; what could not be timed says so and takes nothing from the rest."""
    from anyhal.conformance.performance import gate, roofs

    try:
        rows = gate.measure(run.device, blocks=6, environ=environ)
    except gate.NotMeasuredError as why:
        return {"tier": "not measured", "scores": {}, "why": str(why)}
    kinds = run.described["memory_kinds"]
    return roofs.measured(rows, any("host_visible" in kind for kind in kinds))
