"""First contact: a library that this build did not make is opened in a process of its own first.
SPDX-License-Identifier: Apache-2.0

`anyhal-probe` opens it, shakes hands, lists devices and ends, and says how that went. What it saw
is judged here: what would take the program with it, or change it for everybody in it, is refused;
the rest is noted. What the core itself refuses is no matter of the probe: the core says it again.

Answers are kept in the cache folder, by library, settings and what the system would load for it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from anyhal import _core, settings
from anyhal.errors import BackendLoadError
from anyhal.printable import printable
from anyhal.runtime.discovery import UNCERTIFIED, BackendRecord, package_folder
from anyhal.runtime.discovery_cache import stamp_of
from anyhal.runtime.kept_json import read_kept_json, write_kept_json

_FORM = "anyhal-probe 3"
_MOST_BYTES = 1 << 20
_MEMORY_BYTES = 4 << 30
_KEPT_SECONDS = 3600  # of what the state of the machine may have caused
_CLEAN_SECONDS = 24 * 3600  # a library may depend on what the dynamic loader does not see
_PLACES = {
    "start": ("open", "before the library was opened"),
    "open": ("open", "while the library was opened"),
    "init": ("init", "in the handshake"),
    "devices": ("devices", "while it listed its devices"),
    "exit": ("gate", "when the process ended"),
}
# What changes the program for everybody in it, and what it is called in a sentence.
_REFUSED = {
    "floating_point": "how the thread computes",
    "locale": "the locale",
    "signal": "a signal handler of the program",
    "signal_mask": "the signal mask",
    "environment": "the environment",
    "directory": "the working directory",
    "umask": "the umask",
    "limit": "a resource limit",
    "affinity": "the processor cores of the program",
    "user": "the user or group that the program runs as",
    "priority": "the priority of the program",
    "process": "a flag of the process",
    "timer": "the timers of the program",
    "closed_files": "a file of the program",
}
# What vendors' run-time libraries do when they are asked to start, and no library may do that was
# only opened.
_REFUSED_AT_OPEN = {
    "variable": "the environment",
    "signal_in_front": "a signal handler of the program",
    "fault_signal": "what a fault of the processor does",
    "raised_limit": "a resource limit",
}


@dataclass(frozen=True)
class Stranger:
    """A library to meet, as an instance of what name and with which settings."""

    library: Path
    sha256: str
    name: str
    settings: tuple[tuple[str, str], ...] = ()
    own_threads: bool = False
    descriptor: int | None = None  # a sealed copy that is open already
    python: bool = False  # it is a chip in Python

    @cached_property  # the system may change meanwhile
    def key(self) -> str:
        """Of all that the answer depends on, as far as it is known before."""
        given = sorted(pair for pair in self.settings if pair[0] != "cache_dir")
        beside = self.library.parent  # what it needs may lie there, too
        text = f"{_FORM} {self.sha256} {beside} {given} {_machine()}"
        if self.python:
            text += f" {sys.version} {sys.executable} {sys.path}"
        return _core.sha256(text.encode("utf-8", "surrogateescape"))[:32]


@dataclass(frozen=True)
class Answer:
    """What the probe saw. Stages: start, open, init, devices, exit."""

    ended: str  # clean, signal, exited, hung, memory; changed or not_run: no process was made
    why: str = ""
    number: int = 0  # of the signal, or the exit status
    stage: str = "start"  # the last one begun
    core_stage: str = ""  # where the core refused, "" where it did not
    core_status: str = "ok"
    core_text: str = ""
    devices: int = -1
    forks: int = 0
    copies: int = 0
    copied: str = "start"  # the stage of the first copy
    left: int = 0
    peak_bytes: int = 0
    microseconds: int = 0
    out: Mapping[str, Any] | None = None
    err: Mapping[str, Any] | None = None
    changes: tuple[tuple[str, str, str], ...] = ()  # what, stage, detail
    # Path and stamp of each file that was loaded, or looked for in vain; none when unknown.
    depends: tuple[tuple[str, str], ...] = ()

    def still_holds(self) -> bool:
        """Whether the system would load now what it loaded then."""
        return all(stamp_of([path]).text == stamp for path, stamp in self.depends)

    def kept_seconds(self) -> int:
        """A crash may have had a cause outside of the library, which is mended."""
        sure = self.ended == "clean" and not self.core_stage and self.depends
        return _CLEAN_SECONDS if sure else _KEPT_SECONDS


@dataclass(frozen=True)
class Verdict:
    """`code` is "" when the library may be opened, else a key of stages.CODES."""

    code: str = ""
    stage: str = ""  # the loader's
    sentence: str = ""  # what failed, where and why
    hint: str = ""
    notes: tuple[str, ...] = ()  # what it does and may do


def first_contact(record: BackendRecord, instance: str, given: Mapping[str, str]) -> None:
    """Meets a stranger that is about to be opened. BackendLoadError, with `stage`, `reason` and
    `hint`, when it must not be."""
    stranger = _stranger(record, instance, given)
    if stranger is None or not (found := verdict(stranger)).code:
        return
    why = BackendLoadError(
        f"{found.sentence}; {found.hint}", stage=found.stage, path=str(stranger.library)
    )
    vars(why).update(status="internal", reason=found.code, hint=found.hint)
    raise why


def meet(records: Iterable[BackendRecord]) -> None:
    """Meets at once all of those that are about to be opened one after another."""
    found = [_stranger(record, record.name, dict(record.settings)) for record in records]
    verdicts(stranger for stranger in found if stranger is not None)


def _stranger(record: BackendRecord, instance: str, given: Mapping[str, str]) -> Stranger | None:
    """None for a library of this build, and for all when the user wants no probe."""
    if record.state != UNCERTIFIED or record.error is not None or not record.library:
        return None
    if not settings.PROBE.read():
        return None
    threads = record.manifest is not None and record.manifest.own_threads
    known = (Path(record.library), record.sha256, instance, tuple(given.items()), threads)
    python = record.manifest is not None and bool(record.manifest.python)
    return Stranger(*known, python=python)


def verdict(stranger: Stranger) -> Verdict:
    """Of one library: kept, or from a probe that runs now."""
    return verdicts([stranger])[0]


def verdicts(strangers: Iterable[Stranger]) -> list[Verdict]:
    """Of several, which are met at once: those that hang do not add up."""
    wanted = list(strangers)
    answers = {one.key: known(one) for one in wanted}
    unknown = [one for one in wanted if answers[one.key] is None]
    if unknown:
        from anyhal.runtime.probing import probe_all  # most processes start none

        answers |= probe_all({one.key: one for one in unknown})
    return [_judge(one, answers[one.key]) for one in wanted]


_known: dict[str, Answer] = {}


def known(stranger: Stranger) -> Answer | None:
    """What this process or the cache folder has of it."""
    key = stranger.key
    if key not in _known:
        kept = read_kept_json(path_of(key), _FORM, _MOST_BYTES)
        try:
            answer = answer_of(kept["answer"])
            if not 0 <= time.time() - kept["time"] < answer.kept_seconds():
                return None
            if answer.ended == "hung" and settings.PROBE_SECONDS.read() > kept["seconds"]:
                return None
            if not answer.still_holds():
                return None
        except (LookupError, TypeError, ValueError, ArithmeticError):
            return None
        _known[key] = answer
    return _known[key]


def keep(key: str, answer: Answer) -> None:
    """When it says something about the library, and about what it loads."""
    if answer.ended not in ("not_run", "changed"):
        _known[key] = answer
        if answer.core_stage == "dependencies":
            return  # whoever puts that right changes no file that was looked for
        now = {"time": time.time(), "seconds": settings.PROBE_SECONDS.read()}
        write_kept_json(path_of(key), _FORM, now | {"answer": asdict(answer)})


def path_of(key: str) -> Path:
    return Path(settings.cache_folder(), "probe", f"{key}.json")


def answer_of(data: Any) -> Answer:
    """Checked field by field; ValueError for anything that the probe does not write."""
    if not isinstance(data, dict):
        raise ValueError("no object")
    made: dict[str, Any] = {}
    for field in fields(Answer):
        value = data.get(field.name, field.default)
        if field.name in ("out", "err"):
            good = value is None or (
                isinstance(value, dict)
                and isinstance(value.get("bytes"), int)
                and value.get("stage") in _PLACES
                and isinstance(value.get("beginning"), str)
            )
        elif field.name == "changes":
            value = tuple(tuple(row) for row in value)
            good = all(len(r) == 3 and all(isinstance(w, str) for w in r) for r in value)
            good = good and all(r[1] in _PLACES for r in value)
        elif field.name == "depends":
            value = tuple(tuple(row) for row in value)
            good = all(len(r) == 2 and all(isinstance(w, str) for w in r) for r in value)
        else:
            good = type(value) is type(field.default) or field.name == "ended"
        if not good:
            raise ValueError(f"{field.name} is {value!r}")
        made[field.name] = value
    if not isinstance(made["ended"], str) or not {made["stage"], made["copied"]} <= _PLACES.keys():
        raise ValueError("no end")
    return Answer(**made)


@lru_cache
def program() -> Path:
    return Path(package_folder(), "bin", "anyhal-probe")


def _machine() -> str:
    """What decides which drivers a library would get: kernel, loader's cache and search path, and
    the probe itself."""
    system = [os.uname().release]
    for path in (program(), f"{package_folder()}/libanyhal.so", "/etc/ld.so.cache"):
        system.append(stamp_of([path]).text)
    system += sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("LD_"))
    return "\n".join(system)


# ---- judging


def _judge(stranger: Stranger, answer: Answer | None) -> Verdict:
    assert answer is not None
    place = _PLACES[answer.stage][1]
    refusal = _ended(answer, place) or _left_behind(answer) or _changed(answer, stranger)
    notes = tuple(printable(text) for text in _notes(answer, stranger))
    if refusal is None:
        return Verdict(notes=notes)
    code, stage, what, hint = refusal
    sentence = f"backend {stranger.name!r} was not opened from {stranger.library}: {what}"
    return Verdict(code, stage, printable(sentence), f"{hint}{_ANYWAY}", notes)


_ANYWAY = (
    ", ask again after `anyhal cache --clear probe`, or set ANYHAL_PROBE=off to open strangers as"
    " they are"
)
_VENDOR = "report this to its vendor"
_Refusal = tuple[str, str, str, str]


def _ended(answer: Answer, place: str) -> _Refusal | None:
    stage = _PLACES[answer.stage][0]
    if answer.ended == "clean":
        return None
    if answer.ended == "signal":
        import signal

        try:
            name = signal.Signals(answer.number).name
        except ValueError:
            name = "a signal without a name"
        if answer.number == signal.SIGABRT:
            return "probe_aborted", stage, f"it called abort() {place}", _VENDOR
        what = f"it crashed with signal {answer.number} ({name}) {place}"
        return "probe_crashed", stage, what, _VENDOR
    if answer.ended == "exited":
        what = f"it ended the process with exit status {answer.number} {place}"
        return "probe_exited", stage, what, _VENDOR
    if answer.ended == "hung" and answer.why:
        what = (
            f"its probe {answer.why}, and did not answer within {settings.PROBE_SECONDS.read()} s"
        )
        return "probe_timeout", "open", what, _VENDOR
    if answer.ended == "hung":
        what = f"it did not answer within {settings.PROBE_SECONDS.read()} s {place}"
        return "probe_timeout", stage, what, "give it more in ANYHAL_PROBE_SECONDS"
    if answer.ended == "memory":
        what = f"it took {answer.peak_bytes >> 20} MB of memory {place}"
        return "probe_memory", stage, what, _VENDOR
    if answer.ended == "changed":
        return "hash_mismatch", "trust", answer.why, "start again"
    what = f"its probe could not be run ({answer.why})"
    return "probe_impossible", "open", what, "make that possible"


def _left_behind(answer: Answer) -> _Refusal | None:
    if answer.copies:
        stage, place = _PLACES[answer.copied]
        return "probe_forked", stage, f"it forked the process, and the copy ran on {place}", _VENDOR
    if answer.left:
        what = f"it left processes running ({answer.left}) when its own had ended"
        return "probe_forked", "devices", what, _VENDOR
    return None


def _changed(answer: Answer, stranger: Stranger) -> _Refusal | None:
    for what, at, detail in answer.changes:
        stage, place = _PLACES[at]
        name = _REFUSED.get(what) or (_REFUSED_AT_OPEN.get(what) if at == "open" else None)
        if name:
            return "probe_state", stage, f"it changed {name} ({detail}) {place}", _VENDOR
        if what == "threads" and at == "open" and not stranger.own_threads:
            hint = "its manifest must say own_threads = true"
            return "probe_threads", stage, f"it started {detail} {place}", hint
    if answer.out is not None and answer.out["bytes"]:
        stage, place = _PLACES[answer.out["stage"]]
        said = answer.out["beginning"][:60].strip()
        what = f"it printed {said!r} on standard output {place}"
        return "probe_printed", stage, what, _VENDOR
    return None


def _notes(answer: Answer, stranger: Stranger) -> Iterable[str]:
    for what, at, detail in answer.changes:
        place = _PLACES[at][1]
        if what == "threads" and not stranger.own_threads:
            yield f"started {detail} {place}, of which its manifest says nothing"
        elif what in _REFUSED_AT_OPEN:
            yield f"changed {_REFUSED_AT_OPEN[what]} ({detail}) {place}"
        elif what == "files":
            yield f"{detail} {place}"
    if answer.err is not None and answer.err["bytes"]:
        place = _PLACES[answer.err["stage"]][1]
        yield f"printed {answer.err['beginning'][:60].strip()!r} on standard error {place}"
    if answer.forks:
        yield f"forked {answer.forks} processes, which ended"
