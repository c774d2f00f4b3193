"""From a backend that discovery found to an instance that lists devices: the last seven stages.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from anyhal import _core
from anyhal.errors import BackendLoadError, HalError
from anyhal.routing.facts import RefusedBackend
from anyhal.runtime.certified import NOBODY, UNCERTIFIED, Standing, smoked, standing
from anyhal.runtime.discovery import BackendRecord
from anyhal.runtime.manifest import PluginFiles
from anyhal.runtime.mapped import copies_of_runtimes, foreign_copies, share_vendor
from anyhal.runtime.stages import (
    ABSENT,
    CODE_OF_STAGE,
    CODES,
    FAILED,
    STAGES,
    WAITING,
    Stage,
    Stages,
    Stop,
)


def stages_of(record: BackendRecord, instance: str, extra: Mapping[str, str]) -> Stages:
    """The backend's own list; a copy for one more instance, whose failure is not the backend's."""
    if instance == record.name and not extra:
        return record.stages
    return Stages(row for row in record.stages if row.status not in (WAITING, "skipped"))


def open_backend(
    record: BackendRecord, instance: str, given: Mapping[str, str], stages: Stages, asked: bool
) -> tuple[Any, list[dict[str, Any]]]:
    """The instance, and the rows of the devices it lists. Raises BackendLoadError; what happened
    is in `stages`. `asked`: what it lacks was named by the user, so it is missing, not absent."""
    library = record.library
    before = _core.mapped_libraries()
    shared = share_vendor(record, given, before)
    if isinstance(shared, Stop):
        stages.add(shared.row("dependencies"))
        raise load_error(
            f"backend {instance!r} was not loaded: {shared.detail}; {shared.hint}", stages
        )
    given, first = shared
    try:
        native = _instance(record, instance, given, first)
        rows = native.list_devices()
    except HalError as why:
        row = _row_of(why, library, asked)
        stages.passed_before(row.stage, library)
        stages.add(row)
        raise load_error(str(why), stages) from None
    stages.passed_before("devices", library)
    after = _core.mapped_libraries()
    known = copies_of_runtimes(before)
    twice = [str(copies) for copies in copies_of_runtimes(after) if copies not in known]
    stages.passed("open", library, "; ".join(twice))
    mixed = foreign_copies([*given.values(), *first], after)
    if mixed is not None:
        stages.add(mixed.row("dependencies"))
        raise load_error(f"backend {instance!r} is not used: {mixed.detail}; {mixed.hint}", stages)
    if not rows:
        sentence = without_devices(record.name, record.manifest.opens if record.manifest else None)
        detail, _, hint = sentence.rpartition("; ")
        status = FAILED if asked else ABSENT
        row = Stage("devices", status, library, "no_device", detail, hint)
        stages.add(row)
        return native, []
    stages.passed("devices", library, ", ".join(str(row["name"]) for row in rows))
    return native, rows


def _instance(record: BackendRecord, name: str, given: Mapping[str, str], first: Any) -> Any:
    """A library's, or that of a chip in Python."""
    assert record.manifest is not None
    settings = list(given.items())
    if record.state == UNCERTIFIED:
        from anyhal.runtime.probe import first_contact  # most processes meet no stranger

        first_contact(record, name, given)
    if record.manifest.python:
        from anyhal.sdk.chip import load  # only those who have such a chip need it

        return load(record.library, record.sha256, name, settings)
    return _core.load(record.library, record.sha256, name, settings, first)


def standings(
    record: BackendRecord, instance: str, rows: Sequence[Mapping[str, Any]], given: Sequence[str]
) -> list[Standing]:
    """Who vouches for it, device by device. `given`: paths that it was handed."""
    if not record.certificates:
        return [Standing(record.state) if record.built else NOBODY] * len(rows)
    libraries: dict[str, str] = {}
    if any(one.dependencies for one in record.certificates):
        words = (path for text in given for path in text.split(os.pathsep))
        files = [path for path in words if path.startswith("/")]
        files += [os.path.realpath(path) for path in files]  # it may be named by a link
        libraries = {os.path.basename(path): path for path in [*_core.mapped_libraries(), *files]}
    found = []
    for row in rows:
        arch, driver = str(row["arch"]), str(row["driver"])
        one = standing(record.certificates, record.built, arch, driver, libraries)
        found.append(smoked(one, record.name, f"{instance}, {row['name']},", arch, driver))
    return found


def gate(found: Sequence[Standing], library: str) -> Stage:
    """Whether any of its devices may be chosen unnamed."""
    best = next((one for one in found if one.state != UNCERTIFIED), found[0])
    if best.state != UNCERTIFIED:
        detail = "; ".join(filter(None, (best.state, best.sentence)))
        return Stage("gate", "ok", library, detail=detail)
    detail = f"it is uncertified: {best.sentence}"
    hint = f"{best.hint}; or name its device, or allow it: allow_uncertified"
    return Stage("gate", WAITING, library, best.code, detail, hint)


def refused(record: BackendRecord, instance: str, sentence: str, stages: Stages) -> RefusedBackend:
    """What policy is told of a backend that gave no device."""
    row = stages.first_failure
    assert row is not None
    absent = row.status == ABSENT
    return RefusedBackend(instance, record.path, row.stage, sentence, absent, row.code, row.hint)


def load_error(sentence: str, stages: Stages) -> BackendLoadError:
    """The error of a backend that `stages` say was stopped."""
    row = stages.first_failure
    assert row is not None
    error = BackendLoadError(sentence, row.stage, row.file, row.code, row.hint)
    error.stages = stages.rows
    return error


def _row_of(why: HalError, library: str, asked: bool) -> Stage:
    stage = getattr(why, "stage", "devices")
    stage = stage if stage in STAGES else "devices"
    # In the contract, not_found at these stages is a missing driver or library of its vendor.
    missing = stage in ("init", "devices") and getattr(why, "status", why.code) == "not_found"
    code = getattr(why, "reason", "")
    code = code if code in CODES else CODE_OF_STAGE.get(stage, "open_failed")
    detail, _, hint = str(why).rpartition("; ")
    detail = detail.partition(f"{library}: ")[2] or detail or str(why)
    return Stage(
        stage,
        ABSENT if missing and not asked else FAILED,
        library,
        "driver_absent" if missing else code,
        detail,
        hint if detail != str(why) else "",
    )


def without_devices(name: str, opens: PluginFiles | None) -> str:
    if opens is None:
        return f"backend {name!r} was loaded and found no device; connect one to use it"
    known = "".join(f"install {p.package} or " for p in opens.packages[:1])
    return (
        f"backend {name!r} was loaded and found none of the files that it opens; {known}name one in"
        f" {opens.variable}"
    )
