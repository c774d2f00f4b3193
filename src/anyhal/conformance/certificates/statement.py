"""What a certificate states: an in-toto Statement, version 1, about one run of the suite.
SPDX-License-Identifier: Apache-2.0

docs/reference/schemas/certificate.md describes the fields; a test compares it with `PREDICATE`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anyhal.conformance.certificates import merkle
from anyhal.conformance.required import missing
from anyhal.conformance.suite import OUTCOMES, TIERS
from anyhal.errors import InvalidArgumentError
from anyhal.runtime.manifest import CONTRACT

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:anyhal:conformance-certificate:1"
MONTHS = 12
_LONGEST_S = 367 * 86400  # twelve months with a leap day, whatever the hour
# Groups and fields of the predicate, in order.
PREDICATE: dict[str, tuple[str, ...]] = {
    "suite": ("version", "digest", "tolerances", "mutation", "anyhal"),
    "run": ("backend", "tier", "nonce", "started", "seconds", "restarts"),
    "platform": ("device", "arch", "driver", "os", "kernel", "cpu"),
    "claims": ("digest", "rows", "abi", "determinism", "flushes_denormals"),
    "results": ("outcomes", "root", "records", "refusals", "classes"),
    "perf": ("tier", "scores"),
    "waivers": ("id", "reason"),
    "validity": ("drivers", "from", "until", "previous"),
}
_HEX = frozenset("0123456789abcdef")


def refusal(report: Mapping[str, Any]) -> str:
    """Why no certificate can be made from that report; "" when one can."""
    outcomes = report["outcomes"]
    if outcomes["fail"]:
        return f"{outcomes['fail']} of its cases failed"
    if not report["complete"]:
        return "its run is not complete"
    if report["tier"] not in TIERS[1:]:
        return f"tier {report['tier']} is too small for one"
    lacking = missing(report)
    more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
    return f"{lacking[0].partition(';')[0]}{more}" if lacking else ""


def checked(report: Mapping[str, Any]) -> None:
    """InvalidArgumentError for a report that a certificate cannot be made from."""
    try:
        if report["schema"] != 1:
            raise ValueError(f"its schema is {report['schema']!r}")
        if not is_sha256(report["library_sha256"]):
            raise ValueError("library_sha256 is no sha256 in hex")
        for row in report["dependencies"]:
            if not is_sha256(row["sha256"]):
                raise ValueError(f"the hash of {row['file']} is no sha256 in hex")
        counted = Counter(str(case["outcome"]) for case in report["cases"])
        told = {name: int(report["outcomes"][name]) for name in OUTCOMES}
        if {name: counted[name] for name in OUTCOMES} != told or len(counted - Counter(told)):
            raise ValueError(f"it counts {told}, and its cases are {dict(counted)}")
        why = refusal(report)
    except (LookupError, TypeError, ValueError, AttributeError) as why_not:
        said = f"{why_not} is missing" if isinstance(why_not, KeyError) else str(why_not)
        raise InvalidArgumentError(
            f"making a certificate: this is no report of the suite, {said}; give one that `anyhal"
            " certify --json FILE` wrote"
        ) from None
    if why:
        raise InvalidArgumentError(
            f"making a certificate for {report['backend']}: {why}; mend it and certify again"
        )


def make(
    report: Mapping[str, Any], drivers: Sequence[str], previous: str | None, now: float
) -> dict[str, Any]:
    """The statement of a run. `drivers`: the oldest and the newest tested so far."""
    suite, platform = report["suite"], report["platform"]
    claims, cases = report["claims"], report["cases"]
    canonical = json.dumps(claims, sort_keys=True, separators=(",", ":")).encode("ascii")
    predicate: dict[str, Any] = {
        "suite": {name: suite.get(name) for name in PREDICATE["suite"]},
        "run": {
            "backend": report["backend"],
            "tier": report["tier"],
            "nonce": suite["nonce"],
            "started": report["started"],
            "seconds": report["seconds"],
            "restarts": report.get("workers", {}).get("restarts", 0),
        },
        "platform": {"device": report["device"]}
        | {name: platform.get(name, "") for name in PREDICATE["platform"][1:]},
        "claims": {
            "digest": hashlib.sha256(canonical).hexdigest(),
            "rows": len(claims),
            "abi": CONTRACT,
            "determinism": sorted({str(row.get("determinism", "")) for row in claims}),
            "flushes_denormals": any(row.get("flushes_denormals") for row in claims),
        },
        "results": {
            "outcomes": {name: report["outcomes"][name] for name in OUTCOMES},
            "root": merkle.root(cases),
            "records": len(cases),
            "refusals": dict(
                sorted(Counter(c["code"] for c in cases if c["outcome"] == "refused").items())
            ),
            "classes": report.get("classes") or {},
        },
        "perf": {
            "tier": (report.get("perf") or {}).get("tier", "not measured"),
            "scores": (report.get("perf") or {}).get("scores") or {},
        },
        "waivers": [
            {"id": c["id"], "reason": c.get("reason", "")}
            for c in cases
            if c["outcome"] == "waived"
        ],
        "validity": {
            "drivers": list(drivers),
            "from": _date(now),
            "until": _date(_months_later(now)),
            "previous": previous,
        },
    }
    subject = [(report["library"], report["library_sha256"])]
    subject += [(Path(row["file"]).name, row["sha256"]) for row in report["dependencies"]]
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": str(n), "digest": {"sha256": str(h)}} for n, h in subject],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }


def is_sha256(text: object) -> bool:
    return isinstance(text, str) and len(text) == 64 and _HEX.issuperset(text)


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def seconds_of(date: str) -> int:
    """ValueError for what is no date of ours."""
    import calendar

    return calendar.timegm(time.strptime(date, "%Y-%m-%dT%H:%M:%SZ"))


def _months_later(now: float) -> float:
    """The same day and time a year on; the 28th for a 29th that is not there."""
    import datetime

    date = datetime.datetime.fromtimestamp(now, datetime.UTC)
    years = date.year + MONTHS // 12
    try:
        return date.replace(year=years).timestamp()
    except ValueError:
        return date.replace(year=years, day=28).timestamp()


def summary(statement: Any) -> dict[str, Any]:
    """What routing needs of a statement, as fields of runtime/certified.py's Certificate.
    ValueError says what is not as it must be."""
    try:
        if statement["_type"] != STATEMENT_TYPE or statement["predicateType"] != PREDICATE_TYPE:
            raise ValueError("it is no statement about the suite of anyhal")
        predicate = statement["predicate"]
        lacking = [name for name in PREDICATE if name not in predicate]
        if lacking:
            raise ValueError(f"its predicate lacks {lacking[0]}")
        hashes = [(_text(s["name"]), s["digest"]["sha256"]) for s in statement["subject"]]
        if not hashes or not all(is_sha256(digest) for _, digest in hashes):
            raise ValueError("its subjects are no files with a sha256")
        validity, tier = predicate["validity"], _text(predicate["run"]["tier"])
        if tier not in ("quick", "full"):
            raise ValueError(f"tier {tier!r} certifies nothing")
        begins, ends = (seconds_of(_text(validity[name])) for name in ("from", "until"))
        if ends - begins > _LONGEST_S:
            raise ValueError("it is valid for more than a year and a day")
        least, most = map(_text, validity["drivers"])
        return {
            "library": hashes[0][1],
            "tier": tier,
            "arch": _text(predicate["platform"]["arch"]),
            "drivers": (least, most),
            "issued": begins,
            "expires": ends,
            "dependencies": tuple(hashes[1:]),
        }
    except (LookupError, TypeError, AttributeError) as why:
        raise ValueError(f"it lacks a field ({type(why).__name__}: {why})") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!a} stands where a text belongs")
    return value
