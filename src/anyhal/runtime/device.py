"""Backends loaded, devices opened, and the facts that policy is told.
SPDX-License-Identifier: Apache-2.0

Nothing is opened at import. A choice loads backends by rank until nothing that waits could be
preferred (docs/adr/0135-load-what-a-choice-needs.md); naming a backend loads it, listing devices
loads them all. A backend that nobody vouches for is loaded only when it is named or listed. The
first array on a device opens it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import struct
import time
from _thread import RLock, allocate_lock
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from anyhal import _core, settings
from anyhal.dtypes import ALL as ALL_DTYPES
from anyhal.dtypes import DType
from anyhal.errors import (
    BackendLoadError,
    HalError,
    InvalidArgumentError,
    NotFoundError,
    typed_call,
)
from anyhal.ops import NAMES
from anyhal.records import mutable_record, replace
from anyhal.routing.facts import STATES, DeviceFact, Facts, RefusedBackend
from anyhal.routing.policy import (
    DEFAULT,
    Selection,
    limit_visible,
    parse_device,
    physical,
    rank_devices,
    rank_of,
    routes_to,
    select,
)
from anyhal.runtime import context
from anyhal.runtime.certified import Standing
from anyhal.runtime.discovery import (
    UNCERTIFIED,
    BackendRecord,
    Discovery,
    asked_for,
    discover,
    hashed,
)
from anyhal.runtime.file_rights import writable_by_others
from anyhal.runtime.handles import Handle
from anyhal.runtime.log import say
from anyhal.runtime.opening import (
    gate,
    load_error,
    open_backend,
    refused,
    stages_of,
    standings,
)
from anyhal.runtime.stages import STAGES, Stages
from anyhal.runtime.verdicts import fingerprint_of

_KIND_FLAGS = (
    (1, "device_local"),
    (2, "host_visible"),
    (4, "coherent"),
    (8, "cell"),
    (64, "stable_address"),
    (128, "lazy"),
)
_QUERY_CAPABILITIES, _QUERY_NOTES, _QUERY_COUNTER = 5, 6, 4
_CAPABILITY = struct.Struct("=II2QIIIIQ")


class Device(Handle):
    """One device, `chip:index`. Opened when the first array or plan needs it."""

    _instead = "pickle its name and call hal.device(name) there"

    def __init__(
        self, fact: DeviceFact, instance: Any, device_id: int, fingerprint: str, tested: bool
    ) -> None:
        self.fact = fact
        self.fingerprint = fingerprint  # of library and settings
        self.tested = tested  # its cells run known answers before first use
        self._instance = instance
        self._id = device_id
        self._opened: Any = None
        self._opened_in = 0  # the process that opened it
        self._lock = allocate_lock()

    @property
    def name(self) -> str:
        return self.fact.name

    @property
    def native(self) -> Any:
        """The opened native device."""
        if self._opened is None:
            with self._lock:
                if self._opened is None:
                    native = self._instance.open(self._id, self.name)
                    _by_native[native.name] = self
                    self._opened_in = os.getpid()
                    self._opened = native
        return self._opened

    @property
    def identity(self) -> str:
        """Which physical thing it is: a UUID or bus address that names it in every process and to
        other tools; "" where the backend knows none. Equal for all routes to one card."""
        found = physical(facts()).get(self.name, self.name)
        return "" if found == self.name else found

    @property
    def routes(self) -> tuple[str, ...]:
        """The names of all devices that are this physical thing, through whatever backend, best
        first; its own name among them."""
        return routes_to(self.name, facts()) or (self.name,)

    def trim(self) -> int:
        """Gives the idle blocks that the pools keep for reuse back to the device; returns bytes.

        Nothing that is in use is touched. Pools do this by themselves when memory runs out.
        """
        given: int = self.native.trim()
        return given

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The dtypes that some op of the device declares; all when it declares nothing."""
        rows = self.capabilities()
        named = {name for row in rows for name in row["dtypes"]}
        return tuple(d for d in ALL_DTYPES if not rows or d.short in named)

    def dtypes_of(self, op: str) -> tuple[DType, ...]:
        """The dtypes that the device declares for one op; none when it declares nothing."""
        named = {name for row in self.capabilities() if row["op"] == op for name in row["dtypes"]}
        return tuple(d for d in ALL_DTYPES if d.short in named)

    def capabilities(self) -> list[dict[str, Any]]:
        """What the device declares it can run, one row per op and set of dtypes."""
        data = self.native.query(_QUERY_CAPABILITIES)
        size = _CAPABILITY.size
        whole = len(data) - len(data) % size
        return [_capability(data[i : i + size]) for i in range(0, whole, size)]

    @cached_property
    def flushes_denormals(self) -> bool:
        """Whether it declares that its arithmetic takes and gives 0 for denormal numbers."""
        return any(row["flushes_denormals"] for row in self.capabilities())

    def notes(self) -> str:
        """What limits the device now, in the backend's own words."""
        text: bytes = self.native.query(_QUERY_NOTES)
        return text.rstrip(b"\0").decode("utf-8", "replace")

    def counter(self, number: int) -> int:
        """A counter of the backend's own; 0 where it has none."""
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 64:
            raise InvalidArgumentError(
                f"counter of {self.name}: {number!r} is no counter's number; pass an int from 0"
            )
        data = self.native.query(_QUERY_COUNTER, number)
        return int.from_bytes(data[:8], "little")

    def synchronize(self) -> None:
        """Waits for all work on the device; raises what failed."""
        if self._opened is not None:
            self._opened.synchronize()

    def __repr__(self) -> str:
        return f"Device({self.name!r}, {self.fact.shown_state})"


def _capability(row: bytes) -> dict[str, Any]:
    op, flags, low, high, rank, accumulate, rounding, determinism, dim = _CAPABILITY.unpack(row)
    bits = low | high << 64
    return {
        "op": NAMES.get(op, str(op)),
        "dtypes": [d.short for d in ALL_DTYPES if bits >> d.value & 1],
        "strided": bool(flags & 1),
        "capture_safe": bool(flags & 2),
        "flushes_denormals": bool(flags & 4),
        "rank_max": rank,
        "dim_max": dim,
        "accumulate": accumulate,
        "rounding": rounding,
        "determinism": ("run_to_run", "none", "batch_invariant", "cross_device")[determinism & 3],
    }


@mutable_record
class _Loaded:
    discovery: Discovery
    devices: dict[str, Device]
    refused: list[RefusedBackend]
    waiting: list[BackendRecord]  # found and not loaded so far


_lock = RLock()
_state: _Loaded | None = None
_by_native: dict[str, Device] = {}
_EXIT_LIMIT_NS = 10 * 10**9


@atexit.register
def _wait_at_exit() -> None:
    """A driver may hang or crash when the process ends before what is queued does. What a parent
    queued is not a forked child's to wait for."""
    until = time.monotonic_ns() + _EXIT_LIMIT_NS
    for one in list(_by_native.values()):
        native = one._opened
        if native is None or native.synchronous or one._opened_in != os.getpid():
            continue
        with contextlib.suppress(HalError):  # nobody is left to tell
            native.synchronize(max(until - time.monotonic_ns(), 0))


def _loaded() -> _Loaded:
    global _state
    with _lock:
        if _state is None:
            threads = settings.THREADS.read()
            if threads:
                _core.set_thread_count(threads)
            _core.set_debug_pool(settings.DEBUG_POOL.read())
            _core.set_log_level(settings.LOG_LEVELS.index(settings.LOG.read()))
            found = discover(hash_all=False)
            state = _Loaded(found, {}, [], [])
            for record in found.backends:
                if record.error is None and not record.hidden:
                    state.waiting.append(record)
                elif not record.hidden:
                    _load_found(state, record)
            _state = state
        return _state


def found() -> Discovery:
    """What lies on the search path; each record's stages say how far it came."""
    return _loaded().discovery


def _load_waiting(name: str | None = None) -> None:
    """Loads the backend of that name, if it still waits, or all that wait."""
    state = _loaded()
    with _lock:
        wanted = [r for r in state.waiting if name in (None, r.name)]
        state.waiting = [r for r in state.waiting if r not in wanted]
        try:
            wanted = [_with_hash(state, record) for record in wanted]
            if any(record.state == UNCERTIFIED for record in wanted):
                from anyhal.runtime.probe import meet  # most processes have none

                meet(wanted)  # all at once: those that hang do not add up
        except BaseException:
            state.waiting += wanted
            raise
        _load_each(state, wanted)


def _load_each(state: _Loaded, records: list[BackendRecord]) -> None:
    """Loads records that no longer wait. Those that an interrupt keeps from it wait again."""
    for i, record in enumerate(records):
        try:
            _load_found(state, record)
        except BaseException as why:
            state.waiting += records[i + isinstance(why, Exception) :]
            raise


def _load_preferred(best: DeviceFact | None) -> bool:
    """Loads the one backend that a choice must know of next; False when no backend that waits can
    have a device that is preferred to `best`."""
    state = _loaded()
    with _lock:
        able = [r for r in state.waiting if r.state not in DEFAULT.only_if_named]
        if best is not None:
            able = [r for r in able if _order(r)[0] >= rank_of(best)]
        if not able:
            return False
        first = max(able, key=_order)
        state.waiting.remove(first)
        _load_each(state, [first])
        return True


def _order(record: BackendRecord) -> tuple[int, bool]:
    """By rank; among equals those come last that their manifest defers, as costly to load."""
    assert record.manifest is not None
    return record.manifest.rank, not record.manifest.deferred


def _with_hash(state: _Loaded, record: BackendRecord) -> BackendRecord:
    """The record with its library's hash; it takes the place of the one without."""
    complete = hashed(record)
    if complete is not record:
        known = (complete if r is record else r for r in state.discovery.backends)
        state.discovery = replace(state.discovery, backends=tuple(known))
    return complete


def _load_found(state: _Loaded, record: BackendRecord) -> None:
    """Loads what discovery found; its failure costs only itself."""
    if record.error is None:
        with contextlib.suppress(BackendLoadError):
            _load(state, record, record.name, {})
    row = record.stages.first_failure
    if row is not None and all(r.name != record.name for r in state.refused):
        sentence = record.error or f"{row.detail}; {row.hint}"  # it was loaded and has no device
        state.refused.append(refused(record, record.name, sentence, record.stages))


def _load(
    state: _Loaded, record: BackendRecord, instance: str, extra: Mapping[str, str]
) -> list[Device]:
    """Loads one backend. BackendLoadError has the stages; the failure is kept for policy when it is
    the backend's own."""
    record = _with_hash(state, record)
    stages = stages_of(record, instance, extra)
    if record.error is not None:
        raise load_error(record.error, stages)
    given = dict(record.settings) | dict(extra)
    kept = {"cache_dir": _artefact_folder(record.name)} | given
    try:
        native, rows = open_backend(record, instance, kept, stages, record.asked or bool(extra))
    except BackendLoadError as why:
        if stages is record.stages:
            state.refused.append(refused(record, instance, str(why), stages))
        raise
    made = []
    fingerprint = fingerprint_of(record.sha256, given)
    equipment = record.manifest is not None and record.manifest.test_equipment
    tested = not equipment or given.get("selftest") == "1"
    opened = stages[STAGES.index("open")].detail  # a second copy of a runtime, for one
    notes = "; ".join(filter(None, (*record.notes, opened)))
    numbered = _numbered(rows)
    vouched = standings(record, instance, numbered, [*given.values(), *record.first])
    if vouched:
        stages.add(gate(vouched, str(record.library)))
        _restate(state, record, vouched)
    for index, (row, standing) in enumerate(zip(numbered, vouched, strict=True)):
        fact = _fact(record, f"{instance}:{index}", instance, row, notes, standing)
        made.append(Device(fact, native, row["id"], fingerprint, tested))
        state.devices[fact.name] = made[-1]
    return made


def _restate(state: _Loaded, record: BackendRecord, vouched: list[Standing]) -> None:
    """Where its devices are known, a backend's state is that of its best one."""
    states = [one.state for one in vouched]
    best = min(states, key=STATES.index)
    if best != record.state:
        known = (replace(r, state=best) if r is record else r for r in state.discovery.backends)
        state.discovery = replace(state.discovery, backends=tuple(known))


def _numbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the order of their numbers: by bus address, as management tools count and so the same in
    every process; as listed where some device has none. Twin of core/api/devices.cc."""

    def bus(row: dict[str, Any]) -> tuple[int, int]:
        return row["pci_domain"], row["pci_function"]

    keys = [bus(row) for row in rows]
    known = all(any(key) for key in keys) and len(set(keys)) == len(keys)
    return sorted(rows, key=bus) if known else rows


def _artefact_folder(backend: str) -> str:
    """Where the core keeps what backends compile, for this user alone; "" when it cannot be."""
    folder = f"{settings.cache_folder()}/artefacts/{backend}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        why = writable_by_others(folder)
    except OSError as error:
        why = f"{folder}: {(error.strerror or str(error)).lower()}"
    if why:
        say("info", f"what {backend} compiles is kept for this process only: {why}")
    return "" if why else folder


def _fact(
    record: BackendRecord,
    name: str,
    instance: str,
    row: Mapping[str, Any],
    note: str,
    standing: Standing,
) -> DeviceFact:
    uuid: bytes = row["uuid"]
    address = ""
    if row["pci_domain"] or row["pci_function"]:
        where = row["pci_function"]
        address = f"{row['pci_domain']:04x}:{where >> 8:02x}:{where >> 3 & 31:02x}.{where & 7}"
    kinds = row["kinds"]
    heaps = {k["heap"]: k["heap_bytes"] for k in kinds}
    return DeviceFact(
        name=name,
        backend=instance,
        rank=record.manifest.rank if record.manifest else 0,
        state=standing.state,
        state_code=standing.code,
        state_why=standing.sentence,
        driver=row["driver"],
        identity=uuid.hex() if any(uuid) else address,
        address=address,
        arch=row["arch"],
        integrated=bool(row["flags"] & 2),
        display_only=bool(row["flags"] & 4),
        simulated=bool(row["flags"] & 8),
        memory_bytes=heaps[kinds[0]["heap"]],
        memory_kinds=tuple(
            "+".join(word for bit, word in _KIND_FLAGS if k["flags"] & bit) for k in kinds
        ),
        own_threads=row["own_threads"],
        note=note,
    )


@typed_call("load_backend")
def load_backend(
    name: str, *, instance: str | None = None, settings: Mapping[str, str] | None = None
) -> list[Device]:
    """Loads a backend that was found (also test equipment) once more under another name.

    `instance` names the copy and its devices (`instance:0`); `settings` go to the backend. Raises
    NotFoundError when no such backend lies on the search path, BackendLoadError when it refuses.
    """
    instance = instance if instance is not None else name
    for what, word in (("name", name), ("instance", instance)):
        if not isinstance(word, str) or parse_device(word).index is not None:
            raise InvalidArgumentError(
                f"loading backend {name!r}: {what}={word!r} is not one lower-case word; correct it"
            )
    given = {} if settings is None else settings
    if not isinstance(given, Mapping) or not all(
        isinstance(text, str) and "\0" not in text for pair in given.items() for text in pair
    ):
        raise InvalidArgumentError(
            f"loading backend {name!r}: settings={settings!r} does not give texts by name; pass a"
            " dict of texts"
        )
    state = _loaded()
    with _lock:
        _load_waiting(instance)
        if any(d.fact.backend == instance for d in state.devices.values()):
            raise InvalidArgumentError(
                f"loading backend {name!r}: the name {instance!r} is taken by a loaded instance;"
                " pass another instance="
            )
        record = next((r for r in state.discovery.backends if r.name == name), None)
        if record is None:
            raise NotFoundError(
                f"loading backend {name!r}: it was not found in"
                f" {', '.join(state.discovery.searched)}; check ANYHAL_BACKEND_PATH"
            )
        return _load(state, asked_for(record, given), instance, given)


def another_build(name: str, library: str, sha256: str, instance: str) -> list[Device]:
    """Loads another library in place of a backend's own, beside it and under that name, so that two
    builds can be compared in one process. Raises BackendLoadError when it is not what the hash
    says."""
    state = _loaded()
    with _lock:
        _load_waiting(name)
        record = next((r for r in state.discovery.backends if r.name == name), None)
        if record is None or record.error is not None:
            raise NotFoundError(
                f"loading another build of {name!r}: no such backend runs here; see anyhal devices"
            )
        stages = Stages(row for row in record.stages if row.status == "ok")
        other = replace(record, library=library, sha256=sha256, stages=stages)
        return _load(state, other, instance, {})


def facts(every: bool = True) -> Facts:
    """All that policy is told about this process's devices; without `every`, of those that were
    asked for so far: enough for a choice that names one of them."""
    if every:
        _load_waiting()
    visible = settings.VISIBLE_DEVICES
    names = visible.read()
    for name in names or ():
        _reach(name)
    limited = limit_visible(known_facts(), names, visible.name)
    _warn_once(limited.notes)
    return limited


def known_facts() -> Facts:
    """What was loaded so far, whatever the user leaves visible of it."""
    state = _loaded()
    return Facts(
        devices=tuple(_live(d) for d in state.devices.values()),
        refused=tuple(state.refused),
        searched=state.discovery.searched,
        notes=(*state.discovery.notes, *settings.unknown_names(), *_passed_over),
    )


def _warn_once(notes: tuple[str, ...]) -> None:
    """Says on stderr, once per process, what was asked for and not found: a program that runs on
    other devices than its user meant looks like one that works."""
    for sentence in notes:
        say("warning", sentence)


def _live(d: Device) -> DeviceFact:
    lost = d._opened.lost if d._opened is not None else ""
    fact = replace(d.fact, why_not=f"it was lost: {lost}") if lost else d.fact
    return fact


@typed_call("devices")
def devices() -> list[Device]:
    """Every device found, best first."""
    known = facts()
    return [_loaded().devices[r.device.name] for r in rank_devices(known)]


@typed_call("device")
def device(name: Device | str | None = None) -> Device:
    """The device of that name (chip:index, chip or an identity); without a name, the scope's, else
    the best one found. Raises NotFoundError (with the nearest name), DeviceLostError or
    BackendLoadError."""
    if isinstance(name, Device):
        return name
    if name is None:
        chosen = context.current().device
        if chosen is not None:
            return chosen
        for allowed in context.current().contract.allow_uncertified:
            _reach(allowed)
        best = _best(facts(every=False))
        while _load_preferred(best):
            best = _best(facts(every=False))
        if best is not None:
            return _loaded().devices[best.name]
        known = facts()
        if known.devices:
            nobody = NotFoundError(_none_unnamed(known))
            nobody.stages = tuple(r.stages[-1] for r in _loaded().discovery.backends)
            raise nobody
        return _loaded().devices[_select(_any_spec(), known).device.name]
    _show_hidden(name)
    try:
        return _chosen(name)
    except NotFoundError:
        require_alive(name)
        raise


def _select(spec: str, known: Facts) -> Selection:
    """The policy's choice; an error that there is none carries the stages that led to it."""
    try:
        return select(spec, known)
    except (NotFoundError, BackendLoadError) as why:
        records = _loaded().discovery.backends
        if isinstance(why, BackendLoadError):
            chips = {part.partition(":")[0] for part in re.split(r" *\| *", spec)}
            failed = [r for r in records if r.name in chips and r.stages.first_failure]
            why.stages = failed[0].stages.rows if failed else ()
        else:
            stops = (r.stages.first_failure for r in records)
            why.stages = tuple(row for row in stops if row is not None)
            before = next((r for r in known.refused if not r.absent), None)
            if before is not None:  # it may be why nothing is here
                why.args = (f"{why}; what failed before: {before.sentence}",)
        raise


_passed_over: dict[str, None] = {}  # sentences, in order: asked for, and something else was taken


def _chosen(spec: str) -> Device:
    """The device of a strict list. That a first choice was passed over is told once, and stands in
    the notes of `facts`."""
    selection = _select(spec, facts(every=False))
    if selection.passed_over:
        _passed_over[selection.sentence] = None
        _warn_once((selection.sentence,))
    return _loaded().devices[selection.device.name]


def require_alive(name: str) -> None:
    """DeviceLostError when the device of that name was used and has been lost."""
    known = _by_native.get(name)
    if known is not None and known.native.lost:
        known.synchronize()  # which says why


def _best(known: Facts) -> DeviceFact | None:
    """The device that is taken where none is named."""
    ranked = rank_devices(known, context.current().contract)
    return next((r.device for r in ranked if r.eligible), None)


def _none_unnamed(known: Facts) -> str:
    said = [
        f"{r.device.name} is {r.reason}" for r in rank_devices(known, context.current().contract)
    ]
    return (
        f"no device may be chosen without being named: {'; '.join(said)}; name one with"
        " select_backend or device="
    )


def _any_spec() -> str:
    known = facts()
    names = [d.backend for d in known.devices] + [r.name for r in known.refused]
    return "|".join(dict.fromkeys(names)) or "none"


def _reach(name: str) -> None:
    """Loads the waiting backend of that name, or all where the name may be a device's identity."""
    state = _loaded()
    with _lock:
        here = [d.fact for d in state.devices.values()]
        waiting = {record.name for record in state.waiting}
        others = {record.name for record in state.discovery.backends} - waiting
        if not waiting or any(name in (d.name, d.backend) or d.is_called(name) for d in here):
            return
        chip = name.partition(":")[0]
        if chip in waiting:
            _load_waiting(chip)
        elif chip not in others:  # an identity, perhaps
            _load_waiting()


def _show_hidden(spec: object) -> None:
    """Loads what is asked for by name, also test equipment."""
    if not isinstance(spec, str):
        return  # `select` refuses it with a sentence
    state = _loaded()
    for part in spec.split("|"):
        _reach(part)
        try:
            chip = parse_device(part).chip
        except InvalidArgumentError:
            continue
        if any(d.fact.backend == chip for d in state.devices.values()):
            continue
        record = next((r for r in state.discovery.backends if r.name == chip), None)
        if record is not None and record.hidden:
            with _lock:
                _load_found(state, record)


@typed_call("select_backend")
def select_backend(spec: str) -> Device:
    """The first usable device of "cuda|cpu" (a strict list), made the context's default.

    Raises BackendLoadError when a named backend is here but could not be loaded, else
    NotFoundError; what was passed over is in the message.
    """
    _show_hidden(spec)
    chosen = _chosen(spec)
    context.set_default_device(chosen)
    return chosen


def of_native(name: str) -> Device:
    """The device that an array's native name belongs to."""
    return _by_native[name]


@typed_call("counters")
def counters(which: Device | str | None = None) -> dict[str, int]:
    """What the core counted on a device since the process began: plans_prepared, driver_allocs,
    driver_frees, pool_allocs, host_waits, copies, graph_launches."""
    found: dict[str, int] = device(which).native.counters()
    return found


@typed_call("ledger")
def ledger(which: Device | str | None = None) -> dict[str, dict[str, int]]:
    """Bytes in use, cached and at peak in each pool of a device; "outside" where its backend says
    that it holds memory of its own."""
    found: dict[str, dict[str, int]] = device(which).native.ledger()
    return found


@typed_call("synchronize")
def synchronize(which: Device | str | None = None) -> None:
    """Waits for all work on one device, or on every device opened."""
    if which is not None:
        return device(which).synchronize()
    if _state is None:
        return
    for opened in _state.devices.values():
        opened.synchronize()


KNOWN_ANSWERS = "known answers"  # the numerics of test runs, which nobody asked for


@typed_call("routes")
def routes() -> list[dict[str, Any]]:
    """Who ran what since the process began: one row per op, device and form, most calls first.

    `time_ms` counts calls made while receipts were on; None where none was.
    """
    rows: dict[tuple[str, str, bool, str], dict[str, Any]] = {}
    for plan in [*_core.plans(), *_core.retired_plans()]:
        if plan["composite"] or not plan["calls"] or plan["numerics"] == KNOWN_ANSWERS:
            continue
        key = (plan["op"], plan["device"], plan["decomposed"], plan["numerics"])
        row = rows.setdefault(
            key,
            {
                "op": plan["op"],
                "backend": plan["backend"],
                "device": plan["device"],
                "state": plan["state"],
                "calls": 0,
                "time_ms": None,
                "decomposed": plan["decomposed"],
                "numerics": plan["numerics"],
            },
        )
        row["calls"] += plan["calls"]
        if plan["time_ns"]:
            row["time_ms"] = (row["time_ms"] or 0.0) + plan["time_ns"] / 1e6
    return sorted(rows.values(), key=lambda r: -r["calls"])


@typed_call("receipts")
def receipts() -> list[dict[str, Any]]:
    """The last calls recorded under `use(receipts=True)`, oldest first."""
    plans = {p["id"]: p for p in _core.plans()}
    out = []
    for sequence, plan_id, op, status, time_ns in _core.receipts():
        plan = plans.get(plan_id, {})
        out.append(
            {
                "sequence": sequence,
                "op": NAMES.get(op) or plan.get("op", str(op)),
                "call": plan.get("signature", ""),
                "device": plan.get("device", ""),
                "backend": plan.get("backend", ""),
                "state": plan.get("state", ""),
                "kernel": plan.get("kernel", ""),
                "library": plan.get("library", ""),
                "decomposed": plan.get("decomposed", False),
                "numerics": plan.get("numerics", ""),
                "status": status,
                "time_ns": time_ns,
            }
        )
    return out
