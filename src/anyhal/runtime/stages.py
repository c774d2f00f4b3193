"""The twelve stages between a folder and a usable device, and the record that a backend leaves.
SPDX-License-Identifier: Apache-2.0

Each backend has one `Stages`. Discovery writes the first five rows, opening the others; the first
failure is kept for ever, whatever is tried afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from anyhal.records import record

# From the first question to the last one: design/abi.md, "Loading".
STAGES = (
    "found",
    "manifest",
    "architecture",
    "trust",
    "dependencies",
    "open",
    "entry",
    "negotiate",
    "fingerprint",
    "init",
    "devices",
    "gate",
)
OK, FAILED, ABSENT, SKIPPED, WAITING = STATUSES = ("ok", "failed", "absent", "skipped", "waiting")

# Why a stage did not pass: code -> what it means. docs/reference/errors.md prints this table.
CODES = {
    # found
    "unreadable": "a file or folder cannot be read",
    "untrusted": "others can write the file or a folder on its way, or own it",
    # manifest
    "bad_manifest": "backend.toml is not TOML, or a key of it is missing, unknown or of wrong form",
    "abi_mismatch": "backend and core have no version of the contract in common",
    "no_library": "the library that the manifest names is not beside it",
    "name_taken": "another backend of that name was found first",
    # architecture
    "other_machine": "it is built for another processor architecture",
    "not_elf": "the library is no ELF shared library",
    "malformed": "the library contradicts itself: its tables lead nowhere",
    "cut_off": "the library's file is shorter than its own table of contents says",
    # trust
    "duplicate": "the same library, by path, file or build id, was found before",
    "hash_mismatch": "the library is not, byte by byte, what was built, certified or first seen",
    "symbols": "the library does not export exactly the one symbol of the contract",
    # dependencies
    "hardware_absent": "the hardware that the manifest asks for is not on this machine",
    "driver_too_old": "the driver is older than the backend needs",
    "glibc_too_old": "the library is built for a newer C library than this system has",
    "missing_library": "a library that it needs is not on this machine",
    "library_version": "a library that it needs is here in a version that does not fit",
    "mixed_roots": "parts of one vendor stack would come from different folders",
    "second_copy": "another copy of a library that it needs is in the process already",
    "bad_setting": "the manifest names a setting that does not exist",
    # open
    "open_failed": "the system's loader refused the library",
    "no_memory": "there is no memory for the private copy that is opened",
    "file_limit": "the private copy is larger than this process may write (ulimit -f)",
    # entry
    "no_entry": "the library does not export the entry function of the contract",
    # fingerprint
    "bad_table": "its function table has a size or flags that no table has, or there is none",
    "slot_missing": "its function table lacks a slot that every backend fills",
    "no_fingerprint": "its reply does not say with what layout it was built",
    "layout_differs": "a record or slot lies otherwise than in this core's contract",
    # init
    "init_failed": "the backend did not start, for a reason of its own",
    "driver_absent": "the backend found no driver or library of its vendor",
    # devices
    "no_device": "the backend started and lists no device",
    "devices_failed": "the backend failed while it listed its devices",
    # gate
    "uncertified": "nobody vouches for it: it is used only when it is named",
    "expired": "its certificate has expired, or has not begun",
    "revoked": "its certificate, or all of its library, was revoked on this machine",
    "tampered": "its certificate cannot be read, or was changed after it was signed",
    "unknown_key": "its certificate is signed by a key that this user does not trust",
    "unverified": "the signature of its certificate cannot be checked here",
    "other_device": "its certificate is for devices of another architecture",
    "driver_range": "the driver is outside of those that its certificate covers",
    "dependency_changed": "a library that it was certified with is another one here",
    "smoke_failed": "certified for other drivers, it failed the smoke set with this one",
    "deferred": "it waits until somebody names it or lists devices",
    "hidden": "it is test equipment that nobody asked for",
    "left_out": "`ANYHAL_VISIBLE_DEVICES` names none of its devices",
    # the probe, a child process in which a stranger's library is opened first
    "probe_crashed": "the library ended its probe by a signal",
    "probe_aborted": "the library ended its probe by abort(), as a failed assertion does",
    "probe_exited": "the library ended its probe by exit()",
    "probe_timeout": "the library did not answer its probe in time",
    "probe_memory": "the library took more memory in its probe than listing devices can need",
    "probe_forked": "the library left a copy of the process, or another process, running",
    "probe_state": "the library changed the state of the process that opened it",
    "probe_threads": "the library starts threads by being opened, and its manifest has none",
    "probe_printed": "the library prints on standard output, which belongs to the program",
    "probe_impossible": "the probe could not be run, so that nothing is known of the library",
}

# What a refusal of the core means where the core says no code of its own.
CODE_OF_STAGE = {
    "trust": "hash_mismatch",
    "dependencies": "missing_library",
    "open": "open_failed",
    "entry": "no_entry",
    "negotiate": "abi_mismatch",
    "fingerprint": "bad_table",
    "init": "init_failed",
    "devices": "devices_failed",
}


@record
class Stage:
    """One row of the record. `code` is a key of CODES, "" where the stage passed; `detail` says why
    in words, `hint` what to do."""

    stage: str
    status: str
    file: str
    code: str = ""
    detail: str = ""
    hint: str = ""

    def __post_init__(self) -> None:
        assert self.stage in STAGES and self.status in STATUSES, self
        assert not self.code or self.code in CODES, self

    @property
    def stopped(self) -> bool:
        """Whether the backend went no further."""
        return self.status in (FAILED, ABSENT)


@record
class Stop:
    """Why a backend goes no further than the stage at hand. `absent`: nothing is wrong with it."""

    code: str
    file: str
    detail: str
    hint: str
    absent: bool = False

    def row(self, stage: str) -> Stage:
        status = ABSENT if self.absent else FAILED
        return Stage(stage, status, self.file, self.code, self.detail, self.hint)


class Stages(Sequence[Stage]):
    """What is known of one backend so far: always twelve rows, in order.

    A row that was not reached is "skipped" behind one that stopped the backend, else "waiting".
    """

    def __init__(self, rows: Iterable[Stage] = ()) -> None:
        # By stage; the last one added is the last. What passed is its fields: few are looked at.
        self._rows: dict[str, Stage | tuple[str, ...]] = {}
        self._first: Stage | None = None
        for row in rows:
            self.add(row)

    def add(self, row: Stage) -> None:
        """Takes the outcome of a stage, in place of what was known of it. A later attempt never
        replaces the first failure."""
        if self._first is not None and self._first.status == FAILED:
            return
        self._rows.pop(row.stage, None)
        self._rows[row.stage] = row
        if row.stopped or (self._first is not None and self._first.stage == row.stage):
            self._first = row if row.stopped else None

    def passed(self, stage: str, file: str, detail: str = "") -> None:
        fields = (stage, OK, file, "", detail)
        if self._first is not None or stage in self._rows:
            self.add(Stage(*fields))
        else:
            self._rows[stage] = fields

    def passed_before(self, stage: str, file: str) -> None:
        """Every stage from "open" to the one before `stage` passed."""
        for name in STAGES[STAGES.index("open") : STAGES.index(stage)]:
            self.passed(name, file)

    @property
    def first_failure(self) -> Stage | None:
        """The row that stopped the backend."""
        return self._first

    @property
    def rows(self) -> tuple[Stage, ...]:
        known = {k: v if isinstance(v, Stage) else Stage(*v) for k, v in self._rows.items()}
        rest = SKIPPED if self._first is not None else WAITING
        file = next(reversed(known.values())).file if known else ""
        return tuple(known.get(name) or Stage(name, rest, file) for name in STAGES)

    def document(self) -> list[dict[str, Any]]:
        """The rows as JSON has them."""
        return [vars(row).copy() for row in self.rows]

    def __len__(self) -> int:
        return len(STAGES)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.rows)

    @overload
    def __getitem__(self, at: int) -> Stage: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Stage, ...]: ...
    def __getitem__(self, at: int | slice) -> Stage | tuple[Stage, ...]:
        return self.rows[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stages) and self.rows == other.rows

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        stop = self._first
        return f"Stages({f'{stop.stage}: {stop.code}' if stop else 'no failure'})"
