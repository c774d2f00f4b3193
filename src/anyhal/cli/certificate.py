"""`anyhal certificate`: what a certificate says, whether it holds here, and who is trusted.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anyhal.cli.terminal import cells, escape
from anyhal.errors import InvalidArgumentError

if TYPE_CHECKING:
    from anyhal.runtime.certified import Certificate

ACTIONS = ("show", "verify", "revoke", "trust")
_HOLDS = {"code": "", "why": ""}


def certificate(
    action: Annotated[
        str,
        typer.Argument(
            help="show: what certificates say. verify: whether one holds. revoke: let one count no"
            " more. trust: take a key, or show the keys."
        ),
    ],
    what: Annotated[
        str | None,
        typer.Argument(
            help="A certificate (show, verify, revoke), its digest (revoke), a public key (trust).",
            metavar="FILE",
        ),
    ] = None,
    library: Annotated[
        Path | None, typer.Option(help="verify: the library that it must be for.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="show, verify: the run's report, with its cases.")
    ] = None,
    case: Annotated[
        str | None,
        typer.Option(help="show: print the proof of that case. verify: the file of such a proof."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="trust: what to call the key.")] = None,
    remove: Annotated[
        str | None, typer.Option(help="trust: take away the key of that name.")
    ] = None,
    reason: Annotated[str, typer.Option(help="revoke: why; shown to who is refused.")] = "-",
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Show, verify and revoke certificates, and trust keys. `verify` exits 1 when one does not
    hold."""
    given = {"library": library, "report": report, "case": case, "name": name, "remove": remove}
    _check(action, what, given, reason != "-")
    from anyhal.conformance.certificates.keys import require

    require()
    if action == "show":
        return _show(what, report, case, json_)
    if action == "verify":
        return _verify(Path(str(what)), library, report, case, json_)
    if action == "revoke":
        return _revoke(str(what), "" if reason == "-" else reason, json_)
    return _trust(what, name, remove, json_)


_TAKES = {
    "show": ("report", "case"),
    "verify": ("library", "report", "case"),
    "revoke": ("reason",),
    "trust": ("name", "remove"),
}


def _check(action: str, what: str | None, given: Mapping[str, Any], reason: bool) -> None:
    if action not in ACTIONS:
        raise typer.BadParameter(
            f"{action!r} is no action of `anyhal certificate`; write {', '.join(ACTIONS)}"
        )
    if what is None and action in ("verify", "revoke"):
        raise typer.BadParameter(f"{action} needs a certificate's file")
    named = [option for option, value in given.items() if value is not None]
    for option in [*named, *["reason"] * reason]:
        if option not in _TAKES[action]:
            raise typer.BadParameter(f"--{option} does not go with {action}")
    if action == "trust" and (what is None) != (given["name"] is None):
        raise typer.BadParameter("a key to trust needs its file and --name")
    if action == "show" and (given["case"] is None) != (given["report"] is None):
        raise typer.BadParameter("the proof of a case needs --report and --case")


# ------------------------------------------------------------------------------------------ show


def _show(file: str | None, report: Path | None, case: str | None, as_json: bool) -> int:
    from anyhal.conformance.certificates import envelope, merkle, trust, verify

    if case is not None:
        proof = merkle.proof(_cases(Path(str(report))), case)
        if file is not None:
            proof["certificate"] = _proving(envelope.read(Path(file)), proof)
        print(json.dumps(proof))
        return 0
    if file is not None:
        found = verify.certificates(Path(file))
        said = [one.statement() for one in envelope.read(Path(file))]
    else:
        found = [one for path in trust.issued() for one in verify.certificates(path)]
        said = []
    if as_json:
        print(json.dumps({"schema": 1, "certificates": _documents(found, said)}))
    elif said:
        for one, statement in zip(found, said, strict=True):
            _print_one(one, statement)
    else:
        _print_all(found)
    return 0


def _proving(found: Sequence[Any], proof: Mapping[str, Any]) -> str:
    """The digest of the certificate whose root the case leads to."""
    from anyhal.conformance.certificates import merkle

    for one in found:
        if merkle.holds(proof, _root_of(one)):
            return str(one.digest)
    raise InvalidArgumentError(
        "proving a case: the report is not that of the certificate; give the report of its run"
    )


def _root_of(one: Any) -> str:
    try:
        return str(one.statement()["predicate"]["results"]["root"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise InvalidArgumentError(
            "reading the certificate: it has no root of its cases; name one of `anyhal certify`"
        ) from None


def _documents(found: Sequence[Certificate], said: Sequence[Any]) -> list[dict[str, Any]]:
    from dataclasses import asdict

    rows = [asdict(one) | _standing(one) for one in found]
    for row, statement in zip(rows, said, strict=False):
        row["statement"] = statement
    return rows


def _standing(one: Certificate) -> dict[str, str]:
    """Whether it holds now, leaving devices aside."""
    if one.code or one.expires > time.time():
        return {"code": one.code, "why": one.why}
    return {"code": "expired", "why": f"its certificate expired on {one.until}"}


def _state(one: Certificate) -> str:
    return _standing(one)["code"] or "holds"


def _table(*headings: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _print_all(found: Sequence[Certificate]) -> None:
    from rich.console import Console

    if not found:
        Console().print("no certificate was issued here; `anyhal certify` makes one")
        return
    table = _table("certificate", "library", "tier", "arch", "drivers", "until", "key", "state")
    table.columns[0].no_wrap = True  # what `revoke` takes begins with it
    for one in found:
        drivers = " to ".join(dict.fromkeys(filter(None, one.drivers))) or "none"
        row = (one.digest[:16], one.library[:12], one.tier, one.arch, drivers, one.until)
        table.add_row(*cells(*row, one.key_name or one.key[:16], _state(one)))
    Console().print(table)


def _print_one(one: Certificate, statement: Any) -> None:
    from rich.console import Console

    console = Console()
    predicate = statement.get("predicate", {}) if isinstance(statement, dict) else {}
    results = predicate.get("results", {})
    outcomes = results.get("outcomes", {})
    table = _table("field", "value")
    subject = [f"{s['name']} {s['digest']['sha256']}" for s in statement.get("subject", ())]
    rows = [
        ("state", _state(one)),
        ("why", _standing(one)["why"]),
        ("certificate", one.digest),
        ("signed by", f"{one.key_name or 'key'} {one.key}"),
        *[("subject", text) for text in subject],
        ("tier", one.tier),
        ("device", f"{predicate.get('platform', {}).get('device', '')} {one.arch}".strip()),
        ("drivers", " to ".join(dict.fromkeys(filter(None, one.drivers))) or "none"),
        ("cases", ", ".join(f"{count} {name}" for name, count in outcomes.items())),
        ("root of the cases", str(results.get("root", ""))),
        ("suite", f"{predicate.get('suite', {}).get('digest', '')}"),
        ("speed", str(predicate.get("perf", {}).get("tier", ""))),
        ("valid until", one.until),
    ]
    for row in rows:
        if row[1]:
            table.add_row(*cells(*row))
    console.print(table)


# ---------------------------------------------------------------------------------------- verify


def _verify(
    file: Path, library: Path | None, report: Path | None, case: str | None, as_json: bool
) -> int:
    from anyhal.conformance.certificates import envelope, verify
    from anyhal.runtime.discovery import hash_of

    envelopes = envelope.read(file)
    found = verify.certificates(file)
    sha256 = ""
    if library is not None:
        try:
            sha256 = hash_of(str(library))
        except OSError as why:
            raise InvalidArgumentError(
                f"verifying {file}: {library}: {(why.strerror or str(why)).lower()}; name the"
                " library"
            ) from None
    rows = [
        {
            "certificate": one.digest,
            "library": one.library,
            "arch": one.arch,
            "until": one.until,
            "key": one.key,
            "key_name": one.key_name,
            **_judged(one, signed, sha256, report, case),
        }
        for one, signed in zip(found, envelopes, strict=True)
    ]
    # Of a file with those of several chips or libraries, one that fits is what was asked for.
    good = any(not row["code"] for row in rows)
    if as_json:
        print(json.dumps({"schema": 1, "file": str(file), "holds": good, "certificates": rows}))
        return 0 if good else 1
    from rich.console import Console

    console = Console(soft_wrap=True)
    for row in rows:
        by = row["key_name"] or row["key"][:16]
        where = f"for library {row['library'][:16]} on {row['arch'] or 'any device'}"
        said = f"holds: signed by {by}, {where}, until {row['until']}"
        if row["code"]:
            said = f"does not hold: {row['why']} ({row['code']})"
        console.print(escape(f"{row['certificate'][:16]} {said}"), highlight=False)
    return 0 if good else 1


def _judged(
    one: Certificate, signed: Any, sha256: str, report: Path | None, case: str | None
) -> dict[str, str]:
    """Code and sentence of the first thing that is not as it must be."""
    found = _standing(one)
    if not found["code"] and sha256 and one.library != sha256:
        said = f"it is for library {one.library[:16]}, not {sha256[:16]}"
        return {"code": "hash_mismatch", "why": said}
    if not found["code"] and report is not None:
        found = _of_report(signed, report)
    if not found["code"] and case is not None:
        found = _of_case(signed, Path(case))
    return found


def _of_report(signed: Any, report: Path) -> dict[str, str]:
    from anyhal.conformance.certificates import merkle

    if merkle.root(_cases(report)) == _root_of(signed):
        return _HOLDS
    said = f"the cases of {report} are not those that it was made from"
    return {"code": "other_report", "why": said}


def _of_case(signed: Any, file: Path) -> dict[str, str]:
    from anyhal.conformance.certificates import merkle

    proof = _json_of(file, "proof")
    try:
        if merkle.holds(proof, _root_of(signed)):
            return _HOLDS
        case = proof["record"]["id"]
    except (LookupError, TypeError, ValueError, AttributeError) as why:
        raise InvalidArgumentError(
            f"reading the proof {file}: it is none ({type(why).__name__}: {why}); make one with"
            " `anyhal certificate show --report REPORT --case ID`"
        ) from None
    said = f"{case} is not a case that it was made from, as it stands there"
    return {"code": "other_case", "why": said}


def _cases(report: Path) -> list[dict[str, Any]]:
    document = _json_of(report, "report")
    cases = document.get("cases") if isinstance(document, dict) else None
    if not isinstance(cases, list) or not all(isinstance(c, dict) and "id" in c for c in cases):
        raise InvalidArgumentError(
            f"reading the report {report}: it has no cases; name one of `anyhal certify --json`"
        )
    return cases


_MOST_BYTES = 512 << 20  # a full run has some hundred thousand cases


def _json_of(file: Path, what: str) -> Any:
    from anyhal.runtime.small_file import read_small_file

    try:
        return json.loads(read_small_file(file, _MOST_BYTES).decode("utf-8"))
    except OSError as why:
        reason = (why.strerror or str(why)).lower()
        raise InvalidArgumentError(f"reading the {what} {file}: {reason}; check the path") from None
    except (ValueError, RecursionError) as why:
        raise InvalidArgumentError(
            f"reading the {what} {file}: it is no JSON ({why}); check the path"
        ) from None


# ----------------------------------------------------------------------------------- revoke, trust


def _revoke(what: str, reason: str, as_json: bool) -> int:
    from anyhal.conformance.certificates import envelope, trust

    digests = [what] if _is_digest(what) else _begins_with(what)
    digests = digests or [one.digest for one in envelope.read(Path(what))]
    done = [trust.revoke(digest, reason) for digest in digests]
    if as_json:
        rows = [{"digest": r.digest, "when": r.when, "reason": r.reason} for r in done]
        print(json.dumps({"schema": 1, "revoked": rows}))
        return 0
    for one in done:
        print(f"{one.digest} is revoked since {one.when}")
    _note_registry()
    return 0


def _begins_with(text: str) -> list[str]:
    """The one certificate that was issued here and whose digest begins so, as tables show it."""
    from anyhal.conformance.certificates import trust, verify

    if len(text) < 8 or not set(text) <= set("0123456789abcdef"):
        return []
    found = {c.digest for path in trust.issued() for c in verify.certificates(path)}
    found = {digest for digest in found if digest.startswith(text)}
    return list(found) if len(found) == 1 else []


def _is_digest(text: str) -> bool:
    plain = text.removeprefix("sha256:")
    return text.startswith("sha256:") or (len(plain) == 64 and "/" not in plain)


def _note_registry() -> None:
    """C programs know what the registry file says."""
    import sys

    from anyhal.runtime.registry import default_path

    if default_path().exists():
        said = "C programs learn of it with `anyhal devices --write-registry`"
        print(f"anyhal: {said}", file=sys.stderr)


def _trust(what: str | None, name: str | None, remove: str | None, as_json: bool) -> int:
    from anyhal.conformance.certificates import trust

    if remove is not None:
        trust.distrust(remove)
    if what is not None:
        trust.trust(Path(what), str(name))
    found = list(trust.keys_here())
    if as_json:
        rows = [
            {"name": k.name, "key": k.key_id, "file": k.file, "why_not": k.why_not} for k in found
        ]
        gone = [vars(r).copy() for r in trust.revocations().values()]
        print(json.dumps({"schema": 1, "keys": rows, "revoked": gone}))
        return 0
    from rich.console import Console

    console = Console()
    if not found:
        console.print("no key is trusted here; `anyhal certificate trust KEY.pub --name NAME`")
        return 0
    table = _table("name", "key", "file")
    for key in found:
        table.add_row(*cells(key.name, key.key_id or f"not read: {key.why_not}", key.file))
    console.print(table)
    if what is not None or remove is not None:
        _note_registry()
    return 0
