"""The certificate itself: form, signature, keys, the tree of cases, the folder of trust.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from made_reports import case, environment, report

from anyhal.conformance import certificates
from anyhal.conformance.certificates import envelope, keys, merkle, statement, trust, verify
from anyhal.errors import InvalidArgumentError, NotFoundError
from anyhal.runtime.discovery import package_folder

(LIBRARY,) = (Path(package_folder()) / "backends" / "dayone").glob("*.so")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANYHAL_TRUST", str(tmp_path / "trust"))
    monkeypatch.setenv("ANYHAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "trust"


def private_key(path: Path, key: Any = None, mode: int = 0o600, **how: Any) -> Path:
    key = key or Ed25519PrivateKey.generate()
    how = {"format": form.PrivateFormat.PKCS8, "encryption": form.NoEncryption()} | how
    path.write_bytes(key.private_bytes(form.Encoding.PEM, how["format"], how["encryption"]))
    path.chmod(mode)
    return path


def public_key(path: Path, private: Path) -> Path:
    path.write_bytes(keys.public_pem(keys.read_private(private).public_key()))
    return path


def only(path: Path) -> Any:
    (found,) = verify.certificates(path)
    return found


def test_a_certificate_is_a_signed_in_toto_statement(folder: Path) -> None:
    made = report(LIBRARY, dependencies=[{"file": "/opt/v/libx.so.1", "sha256": "3" * 64}])
    path = certificates.issue(made)
    assert path.parent == folder / "issued" and path.name.startswith(made["library_sha256"])
    document = json.loads(path.read_text())
    assert document["payloadType"] == "application/vnd.in-toto+json"
    payload = base64.b64decode(document["payload"])
    said = json.loads(payload)
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["predicateType"] == statement.PREDICATE_TYPE
    assert said["subject"] == [
        {"name": LIBRARY.name, "digest": {"sha256": made["library_sha256"]}},
        {"name": "libx.so.1", "digest": {"sha256": "3" * 64}},
    ]
    # The signature as an independent reader of the two standards checks it.
    pae = b"DSSEv1 28 application/vnd.in-toto+json " + str(len(payload)).encode() + b" " + payload
    (signature,) = document["signatures"]
    public = form.load_pem_public_key((folder / "signing-key.pub").read_bytes())
    public.verify(base64.b64decode(signature["sig"]), pae)  # type: ignore[union-attr,call-arg,arg-type]
    predicate = said["predicate"]
    for group, names in statement.PREDICATE.items():
        if group != "waivers":
            assert tuple(predicate[group]) == names, group
    assert predicate["results"]["outcomes"] == made["outcomes"]
    assert predicate["results"]["refusals"] == {"op": 1}
    assert predicate["results"]["root"] == merkle.root(made["cases"])
    assert predicate["run"]["nonce"] == "ab12" and predicate["suite"]["mutation"] is None


def test_it_holds_for_a_year_and_names_the_one_before() -> None:
    first = only(certificates.issue(report(LIBRARY)))
    assert first.code == "" and first.key_name == "this user" and first.tier == "quick"
    assert abs(first.issued - time.time()) < 60
    assert 365 * 86400 <= first.expires - first.issued <= 366 * 86400
    path = certificates.issue(report(LIBRARY, tier="full"))
    said = envelope.read(path)[0].statement()
    assert said["predicate"]["validity"]["previous"] == first.digest
    assert statement._months_later(1709164800) == 1740700800  # 29 February to the 28th


def test_the_range_of_drivers_grows_with_each_run() -> None:
    def after(driver: str, arch: str = "chip1") -> tuple[str, str]:
        platform = {"arch": arch, "driver": driver}
        return only(certificates.issue(report(LIBRARY, platform=platform))).drivers  # type: ignore[no-any-return]

    assert after("mod 12.4") == ("mod 12.4", "mod 12.4")
    assert after("mod 12.10") == ("mod 12.4", "mod 12.10")
    assert after("mod 12.5") == ("mod 12.4", "mod 12.10")
    assert after("mod 11") == ("mod 11", "mod 12.10")
    assert after("mod 9", arch="chip2") == ("mod 9", "mod 9")
    assert after("other 13") == ("other 13", "other 13")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"complete": False}, "its run is not complete"),
        ({"tier": "smoke"}, "tier smoke is too small"),
        ({"coverage": {}}, "copy: 0 right answers"),
        ({"cases": [case("copy", 0, "fail")]}, "1 of its cases failed"),
        ({"library_sha256": "x"}, "library_sha256 is no sha256"),
        ({"dependencies": [{"file": "a", "sha256": ""}]}, "the hash of a is no sha256"),
        ({"schema": 2}, "its schema is 2"),
        ({"cases": None, "outcomes": {}}, "no report of the suite"),
    ],
)
def test_a_report_that_earns_none_gets_none(folder: Path, change: dict[str, Any], why: str) -> None:
    made = report(LIBRARY)
    if "cases" in change and change["cases"]:
        made = report(LIBRARY, cases=change["cases"])
    else:
        made |= change
    with pytest.raises(InvalidArgumentError, match=why):
        certificates.issue(made)
    assert not (folder / "issued").exists()


def test_outcomes_are_counted_again() -> None:
    made = report(LIBRARY)
    made["cases"][0]["outcome"] = "fail"
    with pytest.raises(InvalidArgumentError, match="it counts"):
        certificates.issue(made)
    with pytest.raises(InvalidArgumentError, match="'outcomes' is missing"):
        certificates.issue({k: v for k, v in report(LIBRARY).items() if k != "outcomes"})


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="JSON cannot"):
        certificates.issue(report(LIBRARY, classes={"matmul/f32": {"bits": float("nan")}}))


@pytest.mark.parametrize("months", [24, 12 * 99])
def test_what_is_valid_for_longer_than_a_year_says_nothing(
    months: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever signed it; nor does a tier that certifies nothing."""
    monkeypatch.setattr(statement, "MONTHS", months)
    (found,) = verify.certificates(certificates.issue(report(LIBRARY)))
    assert found.code == "tampered" and "more than a year" in found.why


def test_a_tier_that_certifies_nothing_says_nothing() -> None:
    made = statement.make(report(LIBRARY), ("", ""), None, 1.8e9)
    made["predicate"]["run"]["tier"] = "smoke"
    with pytest.raises(ValueError, match="tier 'smoke' certifies nothing"):
        statement.summary(made)


# --------------------------------------------------------------------------------------- forgery


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The certificate with another payload under the old signature."""
    document = json.loads(path.read_text())
    said = json.loads(base64.b64decode(document["payload"]))
    change(said)
    document["payload"] = base64.b64encode(json.dumps(said).encode()).decode()
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["subject"][0]["digest"].update(sha256="4" * 64),
        lambda s: s["predicate"]["run"].update(tier="full"),
        lambda s: s["predicate"]["results"]["outcomes"].update(fail=3),
        lambda s: s["predicate"]["platform"].update(driver="9"),
    ],
)
def test_a_changed_statement_is_tampered(change: Callable[[dict[str, Any]], None]) -> None:
    found = only(changed(certificates.issue(report(LIBRARY)), change))
    assert found.code == "tampered" and "was changed after key" in found.why


def test_a_signature_by_nobody_trusted_is_an_unknown_key(tmp_path: Path) -> None:
    private = private_key(tmp_path / "vendor.pem")
    path = certificates.issue(report(LIBRARY), private)
    found = only(path)
    assert found.code == "unknown_key" and found.key[:16] in found.why
    public = public_key(tmp_path / "vendor.pub", private)
    trusted = trust.trust(public, "vendor")
    assert trusted.key_id == found.key == only(path).key
    assert only(path).code == "" and only(path).key_name == "vendor"
    # The id in the envelope is a hint: a lie in it changes nothing.
    document = json.loads(path.read_text())
    document["signatures"][0]["keyid"] = "5" * 64
    path.write_text(json.dumps(document))
    assert only(path).code == ""
    trust.distrust("vendor")
    assert only(path).code == "unknown_key"
    with pytest.raises(NotFoundError, match="no trusted key; known: none"):
        trust.distrust("vendor")


def test_a_key_that_claims_anothers_id_is_not_believed(tmp_path: Path) -> None:
    good = certificates.issue(report(LIBRARY))
    mine = json.loads(good.read_text())["signatures"][0]["keyid"]
    thief = certificates.issue(report(LIBRARY), private_key(tmp_path / "thief.pem"))
    document = json.loads(thief.read_text())
    document["signatures"][0]["keyid"] = mine
    thief.write_text(json.dumps(document))
    assert only(thief).code == "tampered"


def test_revoked_by_digest_or_by_library(folder: Path) -> None:
    path = certificates.issue(report(LIBRARY))
    one = only(path)
    trust.revoke(f"sha256:{one.digest}", "wrong sums")
    assert only(path).code == "revoked" and "wrong sums" in only(path).why
    assert trust.revoke(one.digest.upper(), "again").reason == "wrong sums"  # the first word stays
    assert [p.name for p in (folder / "revoked").iterdir()] == [f"{one.digest}.json"]
    later = certificates.issue(report(LIBRARY, tier="full"))
    assert only(later).code == ""
    trust.revoke(one.library, "")
    assert only(later).code == "revoked"
    for wrong in ("", "12", "sha256:", "g" * 64):
        with pytest.raises(InvalidArgumentError, match="no sha256"):
            trust.revoke(wrong, "")


def test_sec_01_no_certificate_or_key_file_runs_code(tmp_path: Path, folder: Path) -> None:
    """Whatever lies where a certificate or a key is looked for is refused with a sentence."""
    import pickle

    class Bomb:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path}/exploded",)

    bomb = pickle.dumps(Bomb())
    junk = [bomb, b"", b"\0" * 99, b"\xff\xfe", b"[]", b"{}", b"null", b'{"payloadType": 1}']
    junk += [b"[" * 100000, b'{"payloadType":"application/vnd.in-toto+json","payload":"!"}']
    wrapped = {"payloadType": envelope.PAYLOAD_TYPE, "signatures": [{"sig": ""}]}
    for inner in (bomb, b"{}", b"[]", b"NaN", b"{" * 50000):
        wrapped["payload"] = base64.b64encode(inner).decode()
        junk.append(json.dumps(wrapped).encode())
    for name in ("issued/x.dsse.json", "trusted/x.pub", "revoked/x.json", "signing-key.pem"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for data in junk:
            file.write_bytes(data)
            file.chmod(0o600)
            found = verify.certificates(file)
            assert found and all(c.code in ("tampered", "unknown_key") for c in found), data
            assert all(key.why_not for key in trust.keys_here())
            for read in (keys.read_private, keys.read_public):
                with pytest.raises(InvalidArgumentError):
                    read(file)
        os.unlink(file)
    fifo = folder / "issued" / "pipe.dsse.json"
    os.mkfifo(fifo)
    assert only(fifo).code == "tampered"
    assert not (tmp_path / "exploded").exists()


def test_a_file_may_hold_the_certificates_of_several_chips(tmp_path: Path) -> None:
    paths = [
        certificates.issue(report(LIBRARY, platform={"arch": arch, "driver": ""}))
        for arch in ("chip1", "chip2")
    ]
    bundle = tmp_path / "certificate.dsse.json"
    bundle.write_text("".join(path.read_text() for path in paths))
    assert [c.arch for c in verify.certificates(bundle)] == ["chip1", "chip2"]
    document = json.loads(paths[0].read_text())
    bundle.write_text(json.dumps(document, indent=2))  # one, written for people
    assert [c.arch for c in verify.certificates(bundle)] == ["chip1"]


# ------------------------------------------------------------------------------------------ keys


def test_the_signing_key_is_made_once_and_for_this_user_alone(folder: Path) -> None:
    os.umask(os.umask(0o022))
    place = trust.folder()
    first = keys.own(place)
    assert stat.S_IMODE((folder / "signing-key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert keys.key_id(first.public_key()) == keys.key_id(keys.own(place).public_key())
    assert sorted(p.name for p in folder.iterdir()) == ["signing-key.pem", "signing-key.pub"]


def test_processes_that_need_a_key_at_once_get_the_same(tmp_path: Path, folder: Path) -> None:
    """Also where some of them are killed in the middle."""
    code = (
        "import sys, time\nfrom anyhal.conformance.certificates import keys, trust\n"
        "print('ready', flush=True)\nsys.stdin.read(1)\n"
        "print(keys.key_id(keys.own(trust.folder()).public_key()))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment(tmp_path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for number, process in enumerate(processes):
        assert process.stdin is not None
        process.stdin.write("x")
        process.stdin.flush()
        if number % 3 == 2:
            time.sleep(0.002 * number)
            process.send_signal(signal.SIGKILL)
    ids = {out.strip() for out in (p.communicate(timeout=60)[0] for p in processes)} - {""}
    assert ids == {keys.key_id(keys.own(folder).public_key())}


def test_certificates_made_at_once_are_whole_or_not_there(tmp_path: Path, folder: Path) -> None:
    """Also those of processes that are killed in the middle."""
    code = (
        "import sys\nsys.path[:0] = [sys.argv[1], sys.argv[1] + '/..']\nfrom pathlib import Path\n"
        "from made_reports import report\nfrom anyhal.conformance import certificates\n"
        "print('ready', flush=True)\nsys.stdin.read(1)\n"
        "for n in range(8):\n"
        "    certificates.issue(report(Path(sys.argv[2]),"
        " platform={'arch': f'{sys.argv[3]} {n}', 'driver': ''}))\n"
    )
    keys.own(trust.folder())
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(Path(__file__).parent), str(LIBRARY), str(n)],
            env=environment(tmp_path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for n in range(4)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"x")
        process.stdin.flush()
    time.sleep(0.03)
    processes[0].send_signal(signal.SIGKILL)
    for process in processes:
        process.communicate(timeout=60)
    found = [only(path) for path in trust.issued()]
    assert all(one.code == "" for one in found)
    assert {one.arch for one in found} >= {f"{p} {n}" for p in (1, 2, 3) for n in range(8)}


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda p: private_key(p, mode=0o640), "others may read it; take that right away: chmod"),
        (lambda p: private_key(p, ec.generate_private_key(ec.SECP256R1())), "no Ed25519 key"),
        (lambda p: (p.write_text("hello"), p.chmod(0o600)), "no private key; make one with"),
        (
            lambda p: private_key(p, encryption=form.BestAvailableEncryption(b"secret")),
            "it is encrypted; decrypt it",
        ),
        (lambda p: None, "no such file or directory; check the path"),
        (lambda p: p.mkdir(), "it is not a regular file"),
    ],
)
def test_a_key_that_cannot_sign_is_refused(
    tmp_path: Path, make: Callable[[Path], Any], why: str
) -> None:
    make(tmp_path / "key.pem")
    with pytest.raises(InvalidArgumentError, match=why):
        certificates.issue(report(LIBRARY), tmp_path / "key.pem")


def test_keys_of_openssh_do_as_well(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    private = private_key(tmp_path / "id", key, format=form.PrivateFormat.OpenSSH)
    (tmp_path / "id.pub").write_bytes(
        key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    )
    trust.trust(tmp_path / "id.pub", "ssh")
    assert only(certificates.issue(report(LIBRARY), private)).key_name == "ssh"


def test_a_private_key_is_not_taken_for_a_public_one(tmp_path: Path) -> None:
    private = private_key(tmp_path / "key.pem")
    with pytest.raises(InvalidArgumentError, match="it is a private key.*-pubout"):
        trust.trust(private, "vendor")


def test_names_of_keys_are_names(tmp_path: Path) -> None:
    public = public_key(tmp_path / "a.pub", private_key(tmp_path / "a.pem"))
    for wrong in ("", "../up", "a/b", ".hidden", "x" * 64, "this user", "a\nb"):
        with pytest.raises(InvalidArgumentError, match="cannot be a name"):
            trust.trust(public, wrong)
    trust.trust(public, "vendor")
    assert trust.trust(public, "other").name == "vendor"  # it is known already
    second = public_key(tmp_path / "b.pub", private_key(tmp_path / "b.pem"))
    with pytest.raises(InvalidArgumentError, match="'vendor' is the name of key"):
        trust.trust(second, "vendor")


def test_sec_02_a_folder_that_others_can_write_vouches_for_nothing(folder: Path) -> None:
    path = certificates.issue(report(LIBRARY))
    sha256 = hashlib.sha256(LIBRARY.read_bytes()).hexdigest()
    arch = os.uname().machine
    assert certificates.state_of(sha256, arch=arch).state == "certified"
    folder.chmod(0o777)
    found = certificates.state_of(sha256, arch=arch)
    assert (found.state, found.code) == ("uncertified", "unverified")
    assert "can be written by everybody" in found.sentence
    with pytest.raises(InvalidArgumentError, match="can be written by everybody; take that right"):
        certificates.issue(report(LIBRARY))
    with pytest.raises(InvalidArgumentError, match="can be written by everybody"):
        trust.revoke(only(path).digest, "")


def test_sec_03_the_folder_is_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYHAL_TRUST", "trust")
    with pytest.raises(InvalidArgumentError, match="relative path"):
        certificates.issue(report(LIBRARY))


# ------------------------------------------------------------------------------------------ tree


def test_the_tree_is_that_of_rfc_9162() -> None:
    """Against the standard's definition, written out for three leaves."""
    records = [case("copy", n) for n in range(3)]

    def sha(data: bytes) -> bytes:
        return hashlib.sha256(data).digest()

    texts = [json.dumps(r, sort_keys=True, separators=(",", ":")).encode() for r in records]
    leaves = [sha(b"\0" + text) for text in texts]
    want = sha(b"\1" + sha(b"\1" + leaves[0] + leaves[1]) + leaves[2])
    assert merkle.root(list(reversed(records))) == want.hex()  # sorted by id


@given(st.integers(1, 70), st.data())
def test_each_case_can_be_proven_alone(count: int, data: st.DataObject) -> None:
    records = [case("copy", n) for n in range(count)]
    root = merkle.root(records)
    at = data.draw(st.integers(0, count - 1))
    proof = merkle.proof(records, records[at]["id"])
    assert proof["record"] == records[at] and merkle.holds(proof, root)
    assert len(proof["path"]) <= 7
    wrong = dict(proof, record=dict(records[at], outcome="fail"))
    assert not merkle.holds(wrong, root)
    assert not merkle.holds(dict(proof, index=count), root)
    if proof["path"]:
        assert not merkle.holds(dict(proof, path=proof["path"][1:]), root)
        assert not merkle.holds(dict(proof, index=(proof["index"] + 1) % count), root)
    with pytest.raises(NotFoundError, match="has none called"):
        merkle.proof(records, "numerics/none")
