"""Waivers of a backend: cases known to fail for now, each with an owner, an issue and a last day.
SPDX-License-Identifier: Apache-2.0

They stand in `conformance.toml` beside `backend.toml`. What a waiver may not excuse is in `NEVER`:
wrong values, bytes that were not to be written, broken order, crashes, answers that are none.
One that is out of date excuses nothing, and one whose case passes fails the run.
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from anyhal.errors import InvalidArgumentError
from anyhal.printable import get_close_matches
from anyhal.runtime.small_file import read_small_file

FILE_NAME = "conformance.toml"
LONGEST = datetime.timedelta(days=180)
FIELDS = ("case", "owner", "issue", "expires")
# Codes of findings: silent wrong answers, memory safety, ordering.
NEVER = frozenset(
    {
        *("wrong_value", "outside_written", "input_changed", "written", "not_deterministic"),
        *("order", "crash", "memory", "unhealthy", "protocol", "not_judged"),
    }
)
_MOST_BYTES = 1 << 18


def read(
    folder: Path, known: Collection[str], today: datetime.date | None = None
) -> list[dict[str, str]]:
    """The waivers that hold today, fields as text; [] without a file. InvalidArgumentError for a
    file that is none, and for a waiver without an end."""
    file, today = folder / FILE_NAME, today or datetime.datetime.now(datetime.UTC).date()
    try:
        data = tomllib.loads(read_small_file(file, _MOST_BYTES).decode("utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as why:
        raise _wrong(file, getattr(why, "strerror", None) or str(why), "correct it") from None
    unknown = sorted(set(data) - {"waiver"})
    rows = data.get("waiver", [])
    if unknown or not isinstance(rows, list):
        name = unknown[0] if unknown else "waiver"
        raise _wrong(file, f"{name!r} is no list of waivers", "write [[waiver]] for each")
    found = [_checked(file, row, known, today) for row in rows]
    cases = [row["case"] for row in found]
    if twice := next((name for name in cases if cases.count(name) > 1), None):
        raise _wrong(file, f"{twice!r} is waived twice", "leave one out")
    return [row for row in found if row["expires"] >= today.isoformat()]


def _checked(file: Path, row: Any, known: Collection[str], today: datetime.date) -> dict[str, str]:
    if not isinstance(row, dict) or set(row) != set(FIELDS):
        raise _wrong(file, f"{row!r} is no waiver", f"give {', '.join(FIELDS)} and nothing else")
    case, end = row["case"], row["expires"]
    if not all(isinstance(row[name], str) and row[name].strip() for name in FIELDS[:3]):
        raise _wrong(file, f"the waiver of {case!r} has an empty field", "fill it in")
    if case not in known:
        near = get_close_matches(case, list(known), 1)
        hint = f"did you mean {near[0]!r}?" if near else "anyhal certify --list shows them"
        raise _wrong(file, f"there is no case {case!r}", hint)
    if not isinstance(end, datetime.date) or isinstance(end, datetime.datetime):
        raise _wrong(file, f"the waiver of {case!r} ends on {end!r}", "write a date: 2027-03-01")
    if end > today + LONGEST:
        said = f"the waiver of {case!r} ends on {end}, more than {LONGEST.days} days from now"
        raise _wrong(file, said, "choose an earlier day")
    return {**{name: row[name] for name in FIELDS[:3]}, "expires": end.isoformat()}


def _wrong(file: Path, why: str, cure: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"reading the waivers {file}: {why}; {cure}")
