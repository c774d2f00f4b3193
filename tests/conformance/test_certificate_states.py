"""What a certificate is worth in a program: states, codes, refusals, before anything is opened.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from made_reports import anyhal, report, run, stranger
from test_certificate import private_key, public_key

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "field"))
from loading import backend

from anyhal.conformance import certificates
from anyhal.conformance.certificates import statement, trust, verify

SHOW = (
    "import anyhal as hal, json\nf = {d.name: d.fact for d in hal.devices()}['chip:0']\n"
    "print(json.dumps([f.state, f.state_code, f.state_why, hal.device().name]))"
)


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user of his own: in this process for what is issued, in children for what it is worth."""
    monkeypatch.setenv("ANYHAL_TRUST", str(tmp_path / "trust"))
    monkeypatch.setenv("ANYHAL_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def library(user: Path) -> Path:
    return stranger(user, "chip")


def shown(root: Path, **more: str) -> list[str]:
    """State, code and sentence of chip:0, and the device that is taken unnamed."""
    done = run(root, SHOW, **more)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def settle() -> None:
    """So that what is in files now is remembered: younger than two seconds it is not."""
    time.sleep(2.2)


def test_a_certificate_makes_a_stranger_the_first_choice(user: Path, library: Path) -> None:
    assert shown(user)[:2] == ["uncertified", "uncertified"] and shown(user)[3] != "chip:0"
    certificates.issue(report(library))
    state, code, why, first = shown(user)
    assert (state, code, first) == ("certified", "", "chip:0")
    assert why.startswith("certified by this user until 20") and why.endswith("tier quick")


def test_the_state_is_in_every_report(user: Path, library: Path) -> None:
    certificates.issue(report(library))
    code = (
        "import anyhal as hal\nwith hal.use(receipts=True, device='chip'):\n"
        "    x = hal.full((2, 2), 1.0, dtype='f32')\n    hal.matmul(x, x)\n"
        "    print(hal.explain('matmul f32[2,2] f32[2,2]').sentence)\n"
        "mine = [r for r in hal.receipts() if r['op'] == 'matmul' and r['call']]\n"
        "print({r['state'] for r in mine}, hal.routes()[0]['state'], hal.device('chip'))"
    )
    done = run(user, code)
    assert done.returncode == 0, done.stderr
    sentence, rest = done.stdout.splitlines()
    assert "on chip:0 (certified)" in sentence
    assert rest == "{'certified'} certified Device('chip:0', certified)"
    rows = _json(anyhal(user, "devices", "--json"))["devices"]
    row = next(d for d in rows if d["name"] == "chip:0")
    assert row["state"] == "certified" and row["state_code"] == ""
    assert "chip:0" in row["name"] and row["state_why"].startswith("certified by this user")
    table = anyhal(user, "devices").stdout
    assert "certified" in table and "chip:0: certified by this user until" in table
    seen = _json(anyhal(user, "doctor", "--json"))
    mine = next(b for b in seen["backends"] if b["backend"] == "chip")
    assert mine["state"] == "certified" and mine["stages"][-1]["status"] == "ok"
    registry = Path(anyhal(user, "devices", "--write-registry").stdout.strip()).read_text()
    assert "backend\tchip\t0.3\tcertified\t" in registry
    (one,) = verify.certificates(trust.issued()[0])
    arch = os.uname().machine
    assert f"\ncertified\t{one.expires}\tuncertified\t{arch}\t\t\n" in registry


def _json(done: Any) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ------------------------------------------------------------------------- what does not hold


def _expired(user: Path, library: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statement, "MONTHS", -12)
    certificates.issue(report(library))


def _revoked(user: Path, library: Path, patch: pytest.MonkeyPatch) -> None:
    (one,) = verify.certificates(certificates.issue(report(library)))
    trust.revoke(one.digest, "it was wrong")


def _tampered(user: Path, library: Path, patch: pytest.MonkeyPatch) -> None:
    path = certificates.issue(report(library))
    path.write_text(path.read_text().replace('"sig": "', '"sig": "AAAA'))


def _unknown_key(user: Path, library: Path, patch: pytest.MonkeyPatch) -> None:
    certificates.issue(report(library), private_key(user / "vendor.pem"))


def _other_device(user: Path, library: Path, patch: pytest.MonkeyPatch) -> None:
    certificates.issue(report(library, platform={"arch": "chip9", "driver": ""}))


def _driver_range(user: Path, library: Path, patch: pytest.MonkeyPatch) -> None:
    platform = {"arch": os.uname().machine, "driver": "mod 9.1"}
    certificates.issue(report(library, platform=platform))


CASES: list[tuple[Callable[[Path, Path, pytest.MonkeyPatch], None], str, str]] = [
    (_expired, "expired", "its certificate expired on 20"),
    (_revoked, "revoked", "was revoked on 20"),
    (_tampered, "tampered", "was changed after key"),
    (_unknown_key, "unknown_key", "which is not trusted"),
    (_other_device, "other_device", "its certificate is for 'chip9', this device is"),
    (_driver_range, "driver_range", "certified with driver mod 9.1, here is none"),
]


@pytest.mark.parametrize(("make", "code", "why"), CASES, ids=[c for _, c, _ in CASES])
def test_what_does_not_hold_is_uncertified_with_its_code(
    user: Path,
    library: Path,
    make: Callable[[Path, Path, pytest.MonkeyPatch], None],
    code: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Facts, order of choice, explain, doctor, errors and the registry say the same."""
    make(user, library, monkeypatch)
    more = {"ANYHAL_SMOKE": "0"}
    state, found, sentence, first = shown(user, **more)
    assert (state, found) == ("uncertified", code) and why in sentence
    assert first != "chip:0"
    ranked = _json(anyhal(user, "devices", "--json", **more))["devices"]
    row = next(d for d in ranked if d["name"] == "chip:0")
    assert f"it is uncertified: {sentence} ({code}); name it" in row["why"]
    assert row["state_code"] == code
    seen = _json(anyhal(user, "doctor", "--json", **more))
    gate = next(b for b in seen["backends"] if b["backend"] == "chip")["stages"][-1]
    assert (gate["status"], gate["code"]) == ("waiting", code) and why in gate["detail"]
    assert "allow_uncertified" in gate["hint"]
    asked = _json(anyhal(user, "explain", "--json", "matmul f32[2,2] f32[2,2]", **more))
    mine = [r for r in asked["refusals"] if r["device"] == "chip:0" and r["form"] == "fused"]
    assert [r["reason"] for r in mine] == [code] and why in mine[0]["sentence"]
    alone = (
        "import anyhal as hal\ntry:\n    hal.zeros(3)\nexcept hal.NotFoundError as why:\n"
        "    print(why)\n    print([s.code for s in why.stages])"
    )
    said = run(user, alone, ANYHAL_VISIBLE_DEVICES="chip", **more)
    assert f"({code})" in said.stdout and f"'{code}'" in said.stdout.splitlines()[-1], said
    registry = Path(anyhal(user, "devices", "--write-registry", **more).stdout.strip()).read_text()
    written = "certified" if code in ("other_device", "driver_range") else "uncertified"
    assert f"backend\tchip\t0.3\t{written}\t" in registry


def test_it_runs_by_name_alone_and_the_sentence_says_so(
    user: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _expired(user, library, monkeypatch)
    code = (
        "import anyhal as hal\nwith hal.use(device='chip'):\n"
        "    x = hal.full((2, 2), 1.0, dtype='f32')\n    hal.matmul(x, x)\n"
        "    print(hal.explain('matmul f32[2,2] f32[2,2]').sentence)\n"
        "print(hal.routes()[0]['state'])\n"
        "with hal.use(allow_uncertified=('chip',)):\n    print(hal.device().name)"
    )
    done = run(user, code)
    assert done.returncode == 0, done.stderr
    sentence, state, allowed = done.stdout.splitlines()
    assert "(uncertified, named by the caller although uncertified (expired))" in sentence
    assert (state, allowed) == ("uncertified", "chip:0")


def test_what_this_build_made_stays_self_tested_and_says_why(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expired certificate does not take away what no certificate was needed for; a revocation
    does."""
    from anyhal.runtime.discovery import package_folder

    (library,) = (Path(package_folder()) / "backends" / "dayone").glob("*.so")
    show = SHOW.replace("chip:0", "dayone:0")

    def now() -> list[str]:
        done = run(user, show, ANYHAL_BACKEND_PATH="", ANYHAL_VISIBLE_DEVICES="dayone")
        return list(json.loads(done.stdout)) if not done.returncode else [done.stderr]

    assert now()[:3] == ["self-tested", "", ""]
    with monkeypatch.context() as patch:
        _expired(user, library, patch)
    assert now()[:2] == ["self-tested", "expired"] and now()[3] == "dayone:0"
    path = certificates.issue(report(library))
    assert now()[:2] == ["certified", ""]
    (one,) = verify.certificates(path)
    trust.revoke(one.library, "")
    assert "(revoked)" in now()[-1] and "it is uncertified" in now()[-1]


def test_a_revoked_library_needs_no_certificate_to_be_refused(user: Path, library: Path) -> None:
    from anyhal.runtime.discovery import hash_of, package_folder

    (built,) = (Path(package_folder()) / "backends" / "dayone").glob("*.so")
    trust.revoke(hash_of(built), "")
    show = SHOW.replace("chip:0", "dayone:0")
    found = json.loads(run(user, show, ANYHAL_BACKEND_PATH="").stdout)
    assert found[:3] == ["uncertified", "revoked", "its library was revoked on this machine"]
    certificates.issue(report(library))
    trust.revoke(hash_of(library), "")
    assert shown(user)[1] == "revoked"


def test_of_several_certificates_one_that_holds_is_enough(
    user: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for make in (_unknown_key, _other_device, _revoked):
        make(user, library, monkeypatch)
    assert shown(user)[1] == "revoked"
    certificates.issue(report(library, tier="full"))
    assert shown(user)[0] == "certified"


# -------------------------------------------------------------------------------------- tampering


@pytest.fixture
def marked(user: Path) -> Iterator[Path]:
    """A stranger whose constructor leaves a mark, with a certificate beside it by a trusted key."""
    folder = backend(user / "backends", "chip")
    library = folder / "libchip.so"
    private = private_key(user / "vendor.pem")
    trust.trust(public_key(user / "vendor.pub", private), "vendor")
    platform = {"arch": "", "driver": ""}
    path = certificates.issue(report(library, platform=platform), private)
    path.rename(folder / "certificate.dsse.json")
    yield library


def test_a_tampered_librarys_constructor_does_not_run(user: Path, marked: Path) -> None:
    mark = user / "mark"
    code = (
        "import anyhal as hal\ntry:\n    print(hal.device('chip').fact.state)\n"
        "except hal.HalError as why:\n    print(why.code, why)"
    )
    good = run(user, code, MARK=str(mark))
    assert good.stdout.startswith("certified") and mark.read_text() == "constructed chip\n", good
    mark.unlink()
    with marked.open("ab") as file:
        file.write(b"x")
    bad = run(user, code, MARK=str(mark))
    assert bad.stdout.startswith("hash_mismatch ") and "it was changed" in bad.stdout, bad
    assert not mark.exists()
    seen = _json(anyhal(user, "doctor", "--json", MARK=str(mark)))
    stages = next(b for b in seen["backends"] if b["backend"] == "chip")["stages"]
    assert [s["code"] for s in stages if s["status"] == "failed"] == ["hash_mismatch"]
    assert not mark.exists()
    marked.write_bytes(marked.read_bytes()[:-1])
    assert run(user, code, MARK=str(mark)).stdout.startswith("certified")


def test_a_library_changed_between_discovery_and_opening_is_refused(
    user: Path, marked: Path
) -> None:
    mark = user / "mark"
    code = (
        "import anyhal as hal\nfrom anyhal.runtime import device\n"
        "assert {r.name: r.state for r in device.found().backends}['chip'] == 'certified'\n"
        f"open({str(marked)!r}, 'ab').write(b'x')\n"
        "try:\n    hal.device('chip')\nexcept hal.BackendLoadError as why:\n    print(why.code)"
    )
    done = run(user, code, MARK=str(mark))
    assert done.stdout == "hash_mismatch\n" and not mark.exists(), done


def test_plg_01_another_library_of_its_vendor_is_not_the_certified_one(
    user: Path, library: Path
) -> None:
    """What it was certified with is compared as well, by hash."""
    import ctypes.util

    name = ctypes.util.find_library("m") or ""  # libm is mapped by dayone, or by Python
    made = report(library, dependencies=[{"file": name, "sha256": "3" * 64}])
    certificates.issue(made)
    assert shown(user)[:2] == ["uncertified", "dependency_changed"]
    assert name in shown(user)[2]


# ---------------------------------------------------------------------------------------- drivers

SUITE = """
import os, sys
from anyhal.runtime import smoke
def run_suite(backend):
    open({log!r}, "a").write(f"{{backend}} {{os.environ['ANYHAL_SMOKE']}}\\n")
    {does}
smoke.run_suite = run_suite
"""
PASSES = 'return {"complete": True, "outcomes": {"pass": 3}, "cases": []}'
FAILS = (
    'return {"complete": True, "outcomes": {"pass": 3, "fail": 1},'
    ' "cases": [{"id": "numerics/copy/x", "outcome": "fail", "reason": "it lost a byte"}]}'
)


def test_plg_08_outside_of_its_drivers_the_smoke_set_decides_once(
    user: Path, library: Path
) -> None:
    _driver_range(user, library, None)  # type: ignore[arg-type]
    log = user / "log"
    code = SUITE.format(log=str(log), does=PASSES) + SHOW
    for _ in range(2):
        done = run(user, code)
        assert done.returncode == 0, done.stderr
        state, found, why, first = json.loads(done.stdout)
        assert (state, found, first) == ("provisional", "driver_range", "chip:0")
        assert why.endswith("the smoke set passed there")
    assert log.read_text() == "chip 0\n"  # once, and what the suite starts runs none
    assert "ANYHAL_SMOKE" not in os.environ
    cache = _json(anyhal(user, "cache", "--json"))
    part = next(p for p in cache["parts"] if p["name"] == "smoke")
    assert part["files"] == 1 and part["notes"] == []


def test_who_fails_the_smoke_set_is_used_by_name_alone(user: Path, library: Path) -> None:
    _driver_range(user, library, None)  # type: ignore[arg-type]
    done = run(user, SUITE.format(log=str(user / "log"), does=FAILS) + SHOW)
    state, found, why, first = json.loads(done.stdout)
    assert (state, found) == ("uncertified", "smoke_failed") and first != "chip:0"
    assert "numerics/copy/x: it lost a byte" in why
    assert shown(user)[1] == "smoke_failed"  # kept


def test_a_smoke_set_that_cannot_run_says_nothing_of_the_backend(user: Path, library: Path) -> None:
    _driver_range(user, library, None)  # type: ignore[arg-type]
    code = SUITE.format(log=str(user / "log"), does="raise OSError('no room')") + SHOW
    done = run(user, code)
    assert json.loads(done.stdout)[:2] == ["uncertified", "driver_range"]
    assert "the smoke set of chip could not run: no room" in done.stderr
    assert json.loads(run(user, SUITE.format(log="/dev/null", does=PASSES) + SHOW).stdout)[0] == (
        "provisional"
    )


def test_processes_that_meet_a_driver_at_once_run_one_smoke_set(user: Path, library: Path) -> None:
    """Also when the one that runs it is killed: another one takes its place."""
    import signal
    import subprocess

    from made_reports import environment

    _driver_range(user, library, None)  # type: ignore[arg-type]
    log = user / "log"
    does = "import time; time.sleep(1.5); " + PASSES
    code = SUITE.format(log=str(log), does=does) + SHOW
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    start = lambda: subprocess.Popen(  # noqa: E731
        [sys.executable, "-c", code], env=environment(user), **pipes
    )
    first = start()
    until = time.monotonic() + 60
    while not log.exists() and time.monotonic() < until:
        time.sleep(0.02)
    others = [start() for _ in range(3)]
    time.sleep(0.3)
    first.send_signal(signal.SIGKILL)
    first.wait()
    states = [json.loads(p.communicate(timeout=120)[0])[0] for p in others]
    assert states == ["provisional"] * 3
    assert log.read_text() == "chip 0\n" * 2  # the killed one's, and one more


# ------------------------------------------------------------------------------------------ start


def test_a_start_reads_no_certificate_twice_and_no_cryptography(user: Path, library: Path) -> None:
    """The verdict is kept; so is the hash of the stranger's library."""
    certificates.issue(report(library))
    settle()
    assert shown(user)[0] == "certified"
    code = (
        "import sys\nopened = []\n"
        "sys.addaudithook(lambda e, a: opened.append(str(a[0])) if e == 'open' else None)\n"
        "import numpy as np, anyhal as hal\nx = np.ones((2, 2), 'f4')\n"
        "print(hal.device().name, hal.device().fact.state)\n"
        "print([m for m in ('cryptography', 'anyhal.conformance', 'hashlib', 'base64',"
        " 'anyhal.runtime.smoke') if m in sys.modules])\n"
        "print([o for o in opened if 'trust' in o or 'dsse' in o])"
    )
    lines = run(user, code).stdout.splitlines()
    assert lines == ["chip:0 certified", "[]", "[]"]


def test_what_changes_is_seen_at_the_next_start(
    user: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, revocations and the clock, although verdicts are kept."""
    private = private_key(user / "vendor.pem")
    path = certificates.issue(report(library), private)
    settle()
    assert shown(user)[1] == "unknown_key"
    trust.trust(public_key(user / "vendor.pub", private), "vendor")
    assert shown(user)[0] == "certified"
    settle()
    assert shown(user)[0] == "certified"
    later = "import time\nnow = time.time()\ntime.time = lambda: now + 400 * 86400\n"
    done = run(user, later + SHOW)
    assert json.loads(done.stdout)[1] == "expired"
    trust.trust(public_key(user / "b.pub", private_key(user / "b.pem")), "other")
    (user / "trust" / "trusted" / "vendor.pub").write_bytes((user / "b.pub").read_bytes())
    assert shown(user)[1] == "unknown_key"
    (user / "trust" / "trusted" / "vendor.pub").write_bytes((user / "vendor.pub").read_bytes())
    assert shown(user)[0] == "certified"
    trust.revoke(verify.certificates(path)[0].digest, "")
    assert shown(user)[1] == "revoked"


def test_without_cryptography_nothing_is_certified_and_it_says_so(
    user: Path, library: Path
) -> None:
    certificates.issue(report(library))
    settle()
    gone = "import sys\nsys.modules['cryptography'] = None\n"
    found = json.loads(run(user, gone + SHOW).stdout)
    assert found[:2] == ["uncertified", "unverified"] and "cryptography" in found[2]
    assert shown(user)[0] == "certified"  # and it was not kept


def test_a_cache_that_others_can_write_vouches_for_nothing(user: Path, library: Path) -> None:
    """Only who can write it could put a verdict there, and that is this user alone."""
    certificates.issue(report(library), Ed25519_file(user))
    settle()
    assert shown(user)[1] == "unknown_key"
    kept = user / "cache" / "discovery.bin"
    kept.parent.chmod(0o777)
    kept.write_bytes(kept.read_bytes().replace(b"unknown_key", b"___________"))
    assert shown(user)[1] == "unknown_key"


def Ed25519_file(user: Path) -> Path:
    return private_key(user / "nobody.pem", Ed25519PrivateKey.generate())
