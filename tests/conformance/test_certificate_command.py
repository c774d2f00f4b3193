"""`anyhal certificate show | verify | revoke | trust`: tables, JSON, exit status, bad input.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_reports import anyhal, report, run, stranger
from test_certificate import private_key, public_key

from anyhal.conformance import certificates
from anyhal.conformance.certificates import keys, verify


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANYHAL_TRUST", str(tmp_path / "trust"))
    monkeypatch.setenv("ANYHAL_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def made(user: Path) -> Path:
    """A certificate, and the report that it is of."""
    document = report(stranger(user, "chip"))
    (user / "report.json").write_text(json.dumps(document))
    return certificates.issue(document)


def answer(root: Path, *arguments: str, status: int = 0) -> Any:
    done = anyhal(root, "certificate", *arguments, "--json")
    assert done.returncode == status and done.stderr == "", done
    found = json.loads(done.stdout)
    assert found["schema"] == 1
    return found


def test_show_lists_what_was_issued(user: Path, made: Path) -> None:
    (one,) = answer(user, "show")["certificates"]
    assert one["code"] == "" and one["key_name"] == "this user" and one["tier"] == "quick"
    table = anyhal(user, "certificate", "show").stdout
    assert one["digest"][:16] in table and "holds" in table
    (whole,) = answer(user, "show", str(made))["certificates"]
    assert whole["statement"]["predicate"]["run"]["backend"] == "chip"
    page = anyhal(user, "certificate", "show", str(made)).stdout
    for word in (one["digest"], one["library"], "this user", one["key"], "1 refused", "0 fail"):
        assert word in page, word


def test_show_says_that_there_is_none(tmp_path: Path) -> None:
    assert "no certificate was issued here" in anyhal(tmp_path, "certificate", "show").stdout
    assert "no key is trusted here" in anyhal(tmp_path, "certificate", "trust").stdout


def test_verify_says_whether_it_holds(user: Path, made: Path) -> None:
    library = user / "backends" / "chip" / "libchip.so"
    assert answer(user, "verify", str(made), "--library", str(library))["holds"]
    said = anyhal(user, "certificate", "verify", str(made)).stdout
    assert "holds: signed by this user, for library" in said
    with library.open("ab") as file:
        file.write(b"x")
    found = answer(user, "verify", str(made), "--library", str(library), status=1)
    assert not found["holds"] and found["certificates"][0]["code"] == "hash_mismatch"
    done = anyhal(user, "certificate", "verify", str(made), "--library", str(library))
    assert done.returncode == 1 and "does not hold: it is for library" in done.stdout


def test_one_case_is_proven_without_the_others(user: Path, made: Path) -> None:
    whole = str(user / "report.json")
    assert answer(user, "verify", str(made), "--report", whole)["holds"]
    case = "numerics/matmul/exact/f32/3"
    show = ("certificate", "show", str(made), "--report", whole, "--case", case)
    proof = user / "proof.json"
    proof.write_text(anyhal(user, *show).stdout)
    told = json.loads(proof.read_text())
    assert told["record"]["id"] == case
    assert told["certificate"] == verify.certificates(made)[0].digest
    assert answer(user, "verify", str(made), "--case", str(proof))["holds"]
    told["record"]["outcome"] = "fail"
    proof.write_text(json.dumps(told))
    found = answer(user, "verify", str(made), "--case", str(proof), status=1)
    assert found["certificates"][0]["code"] == "other_case"
    document = json.loads((user / "report.json").read_text())
    document["cases"][0]["seconds"] = 5
    (user / "report.json").write_text(json.dumps(document))
    found = answer(user, "verify", str(made), "--report", whole, status=1)
    assert found["certificates"][0]["code"] == "other_report"
    assert "report is not that of the certificate" in anyhal(user, *show).stderr


def test_revoke_by_file_and_by_digest(user: Path, made: Path) -> None:
    digest = verify.certificates(made)[0].digest
    done = anyhal(user, "certificate", "revoke", str(made), "--reason", "wrong sums")
    assert done.returncode == 0 and digest in done.stdout
    again = answer(user, "revoke", f"sha256:{digest}")["revoked"]
    assert [r["reason"] for r in again] == ["wrong sums"]
    found = answer(user, "verify", str(made), status=1)["certificates"][0]
    assert found["code"] == "revoked" and "wrong sums" in found["why"]
    assert [r["digest"] for r in answer(user, "trust")["revoked"]] == [digest]


def test_revoke_takes_what_the_table_shows(user: Path, made: Path) -> None:
    digest = verify.certificates(made)[0].digest
    done = anyhal(user, "certificate", "revoke", digest[:7])
    assert done.returncode == 1 and "no such file" in done.stderr
    assert answer(user, "revoke", digest[:16])["revoked"][0]["digest"] == digest


def test_revoke_says_what_c_programs_still_believe(user: Path, made: Path) -> None:
    anyhal(user, "devices", "--write-registry")
    done = anyhal(user, "certificate", "revoke", str(made))
    assert "C programs learn of it with `anyhal devices --write-registry`" in done.stderr


def test_without_cryptography_it_says_what_to_install(user: Path, made: Path) -> None:
    code = (
        "import sys\nsys.modules['cryptography'] = None\n"
        "from anyhal.cli import main\nmain(['certificate', 'show'])"
    )
    done = run(user, code)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "install it with `pip install cryptography`" in done.stderr


def test_trust_takes_names_and_lists_keys(user: Path, made: Path) -> None:
    private = private_key(user / "vendor.pem")
    public = public_key(user / "vendor.pub", private)
    (mine,) = answer(user, "trust")["keys"]
    assert mine["name"] == "this user" and mine["file"].endswith("signing-key.pem")
    rows = answer(user, "trust", str(public), "--name", "My Vendor")["keys"]
    assert [r["name"] for r in rows] == ["this user", "My Vendor"]
    assert rows[1]["key"] == keys.key_id(keys.read_private(private).public_key())
    assert "My Vendor" in anyhal(user, "certificate", "trust").stdout
    assert len(answer(user, "trust", "--remove", "My Vendor")["keys"]) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("sign",), 2, "'sign' is no action of `anyhal certificate`; write show, verify"),
        (("verify",), 2, "verify needs a certificate's file"),
        (("revoke",), 2, "revoke needs a certificate's file"),
        (("trust", "a.pub"), 2, "a key to trust needs its file and --name"),
        (("trust", "--name", "a"), 2, "a key to trust needs its file and --name"),
        (("show", "--name", "a"), 2, "--name does not go with show"),
        (("show", "--reason", "a"), 2, "--reason does not go with show"),
        (("show", "x", "--case", "a"), 2, "the proof of a case needs --report and --case"),
        (("verify", "nowhere"), 1, "reading the certificate nowhere: no such file or directory;"),
        (("show", "nowhere"), 1, "name a file that `anyhal certify` wrote"),
        (("verify", "/dev/null"), 1, "it is not a regular file"),
        (("revoke", "nowhere"), 1, "reading the certificate nowhere"),
        (("revoke", "sha256:12"), 1, "it is no sha256 in hex; take a digest"),
        (("trust", "nowhere", "--name", "a"), 1, "reading the public key nowhere: no such file"),
        (("trust", "--remove", "a"), 1, "'a' is no trusted key; known: none"),
        (("verify", "CERT", "--library", "gone"), 1, "gone: no such file or directory; name the"),
        (("verify", "CERT", "--report", "gone"), 1, "reading the report gone: no such file"),
        (("verify", "CERT", "--report", "CERT"), 1, "it has no cases; name one of `anyhal certify"),
        (("verify", "CERT", "--case", "CERT"), 1, "reading the proof"),
        (("show", "CERT", "--report", "REPORT", "--case", "no"), 1, "has none called 'no'"),
    ],
)
def test_bad_input_is_one_sentence(
    user: Path, made: Path, arguments: tuple[str, ...], status: int, said: str
) -> None:
    words = {"CERT": str(made), "REPORT": str(user / "report.json")}
    done = anyhal(user, "certificate", *(words.get(word, word) for word in arguments))
    assert done.returncode == status and said in done.stderr, done
    assert done.stdout == "" and done.stderr.count("\n") == 1
