"""What a library does to the process that opens it first is seen in the probe, and judged.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from members import build_library

from anyhal.runtime.probe import Stranger, Verdict, verdict
from anyhal.runtime.stages import CODES

Meet = Callable[..., Verdict]


@pytest.fixture
def meet(objects: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Meet:
    monkeypatch.setenv("ANYHAL_PROBE_SECONDS", "3")

    def meet(deed: str, when: str, threads: bool = False) -> Verdict:
        library = tmp_path / f"libanyhal_{deed}.so"
        build_library(objects, library, f"-DWHEN={when}", f"-DDEED={deed}")
        sha256 = hashlib.sha256(library.read_bytes()).hexdigest()
        found = verdict(Stranger(library, sha256, "hostile", own_threads=threads))
        print(found)
        return found

    return meet


AT_OPEN, AT_INIT, AT_LIST, AT_EXIT = "AT_OPEN", "AT_INIT", "AT_LIST", "AT_EXIT"
STAGE_OF = {AT_OPEN: "open", AT_INIT: "init", AT_LIST: "devices", AT_EXIT: "gate"}
# (deed, when) -> code, words of the sentence
REFUSED = {
    ("CRASH", AT_OPEN): ("probe_crashed", "signal 11 (SIGSEGV) while the library was opened"),
    ("CRASH", AT_INIT): ("probe_crashed", "signal 11 (SIGSEGV) in the handshake"),
    ("CRASH", AT_EXIT): ("probe_crashed", "signal 11 (SIGSEGV) when the process ended"),
    ("HANG", AT_LIST): ("probe_timeout", "within 3 s while it listed its devices"),
    ("ABORT", AT_OPEN): ("probe_aborted", "called abort() while the library was opened"),
    ("ABORT", AT_INIT): ("probe_aborted", "called abort() in the handshake"),
    ("EXIT", AT_OPEN): ("probe_exited", "exit status 3"),
    ("EXIT", AT_INIT): ("probe_exited", "exit status 3"),
    ("FORK", AT_OPEN): ("probe_forked", "forked the process"),
    ("FORK", AT_INIT): ("probe_forked", "forked the process"),
    ("PRINT", AT_OPEN): ("probe_printed", "'Welcome to Hostile 1.0!' on standard output"),
    ("PRINT", AT_INIT): ("probe_printed", "in the handshake"),
    ("PRINT", AT_EXIT): ("probe_printed", "when the process ended"),
    ("THREAD", AT_OPEN): ("probe_threads", "1 thread"),
    ("FLUSH", AT_OPEN): ("probe_state", "denormal"),
    ("FLUSH", AT_LIST): ("probe_state", "denormal"),
    ("ROUND", AT_OPEN): ("probe_state", "rounding"),
    ("ROUND", AT_INIT): ("probe_state", "rounding"),
    ("LOCALE", AT_OPEN): ("probe_state", "the locale (now C)"),
    ("LOCALE", AT_INIT): ("probe_state", "the locale (now C)"),
    ("SIGNAL", AT_OPEN): ("probe_state", "signal 2 (Interrupt)"),
    ("SIGNAL", AT_INIT): ("probe_state", "signal 2 (Interrupt)"),
    ("IN_FRONT", AT_OPEN): ("probe_state", "signal 2 (Interrupt)"),
    ("FAULT", AT_OPEN): ("probe_state", "signal 8"),
    ("MASK", AT_INIT): ("probe_state", "signals are blocked"),
    ("SETENV", AT_OPEN): ("probe_state", "HOSTILE_FOLDER"),
    ("PATHENV", AT_OPEN): ("probe_state", "PATH"),
    ("PATHENV", AT_INIT): ("probe_state", "PATH"),
    ("CHDIR", AT_OPEN): ("probe_state", "working directory (now /)"),
    ("CHDIR", AT_INIT): ("probe_state", "working directory (now /)"),
    ("UMASK", AT_INIT): ("probe_state", "umask"),
    ("LIMIT", AT_INIT): ("probe_state", "resource limit 7"),
    ("CLOSE", AT_INIT): ("probe_state", "a file of the program"),
    ("ALARM", AT_OPEN): ("probe_state", "the timers of the program (1 armed)"),
    ("TIMER", AT_INIT): ("probe_state", "the timers of the program (1 armed)"),
    ("NICE", AT_OPEN): ("probe_state", "the priority of the program (nice 19)"),
    ("POLICY", AT_INIT): ("probe_state", "the priority of the program"),
    ("DUMP", AT_INIT): ("probe_state", "a flag of the process (whether it can be dumped"),
    ("DEATH", AT_OPEN): ("probe_state", "a flag of the process (what signal it gets"),
    ("PRIVILEGES", AT_INIT): ("probe_state", "a flag of the process (no_new_privs"),
    ("EXIT_LATER", AT_INIT): ("probe_crashed", "when the process ended"),
}
# What vendors' run-time libraries do, and may when they are asked to start.
NOTED = {
    ("IN_FRONT", AT_INIT): "changed a signal handler of the program (signal 2 (Interrupt))",
    ("FAULT", AT_INIT): "what a fault of the processor does (signal 8",
    ("SETENV", AT_INIT): "set the variable HOSTILE_FOLDER",
    ("THREAD", AT_INIT): "started 1 thread in the handshake, of which its manifest says nothing",
    ("COMPLAIN", AT_OPEN): "printed 'hostile: a warning' on standard error",
    ("OPEN", AT_INIT): "1 files open, of which 1 would go to child programs",
}


@pytest.mark.parametrize(("deed", "when"), REFUSED)
def test_what_harms_the_program_is_refused(deed: str, when: str, meet: Meet) -> None:
    code, words = REFUSED[deed, when]
    if deed == "TIMER" and not Path("/proc/self/timers").exists():
        pytest.skip("this kernel does not list timers")
    found = meet(deed, when)
    stage = "gate" if deed == "EXIT_LATER" else STAGE_OF[when]
    assert (found.code, found.stage) == (code, stage) and words in found.sentence
    assert found.code in CODES and "ANYHAL_PROBE=off" in found.hint


@pytest.mark.parametrize(("deed", "when"), NOTED)
def test_what_drivers_do_is_noted(deed: str, when: str, meet: Meet) -> None:
    found = meet(deed, when)
    assert found.code == "" and any(NOTED[deed, when] in note for note in found.notes)


@pytest.mark.parametrize("deed", ["NOTHING", "HELPER"])
def test_what_leaves_nothing_behind_is_no_matter(deed: str, meet: Meet) -> None:
    found = meet(deed, AT_INIT)
    assert found.code == "" and not [n for n in found.notes if "forked" not in n]


def test_a_process_left_behind_is_found_and_ended(meet: Meet) -> None:
    found = meet("LEAVE", AT_INIT)
    assert found.code == "probe_forked" and "left processes running (1)" in found.sentence


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("deed", "words"), [("USER", "now user 65534"), ("SECCOMP", "a flag of the process (seccomp)")]
)
def test_what_only_root_can_change_is_refused(deed: str, words: str, meet: Meet) -> None:
    found = meet(deed, AT_OPEN)
    assert (found.code, found.stage) == ("probe_state", "open") and words in found.sentence


def test_a_library_that_stops_its_probe_costs_no_more_than_the_limit(meet: Meet) -> None:
    began = time.monotonic()
    found = meet("STOP", AT_OPEN)
    assert (found.code, found.stage) == ("probe_timeout", "open")
    assert "its probe was itself stopped" in found.sentence
    assert time.monotonic() - began < 3 + 3  # the limit; then building, looking and ending


def test_threads_that_the_manifest_has_are_its_own(meet: Meet) -> None:
    assert meet("THREAD", AT_OPEN, threads=True).code == ""


def test_memory_without_end_is_stopped(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    from anyhal.runtime import probing

    monkeypatch.setattr(probing, "_MEMORY_BYTES", 256 << 20)
    found = meet("MEMORY", AT_INIT)
    assert found.code == "probe_memory" and found.stage == "init"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor core")
def test_a_program_bound_to_one_core_is_refused(meet: Meet) -> None:
    found = meet("AFFINITY", AT_INIT)
    assert found.code == "probe_state" and "runs on 1 of" in found.sentence
