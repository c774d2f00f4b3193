"""What certificates say of a backend's library: the state that they give it, and why.
SPDX-License-Identifier: Apache-2.0

A certificate lies beside backend.toml or among those that this user's `anyhal certify` issued. Its
signature is checked once, by conformance/certificates, and the answer is kept in the cache folder
with the stamps of the certificate, the trusted keys and the revocations. A start compares stamps,
the clock and the device, and reads no certificate.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from anyhal import _core, settings
from anyhal.records import record, replace
from anyhal.runtime.discovery_cache import remember, stamp_of
from anyhal.runtime.file_rights import Rights

BESIDE = "certificate.dsse.json"
ISSUED, TRUSTED, REVOKED, OWN_KEY = "issued", "trusted", "revoked", "signing-key.pem"
CERTIFIED, SELF_TESTED, PROVISIONAL, UNCERTIFIED = (
    "certified",
    "self-tested",
    "provisional",
    "uncertified",
)
# Of several certificates that do not hold, the one whose reason says most is told.
_ORDER = (
    *("revoked", "smoke_failed", "driver_range", "dependency_changed", "expired"),
    *("other_device", "unknown_key", "unverified", "tampered"),
)
_QUESTION = "certificates 2"
_CLOCKS_APART_S = 86400  # of two machines, at most


@record
class Certificate:
    """One that was read. `code` is "" when a trusted key signed it and nobody revoked it."""

    file: str
    digest: str  # sha256 of what was signed
    library: str = ""  # sha256
    key: str = ""  # its id
    key_name: str = ""  # what this user calls it
    tier: str = ""
    arch: str = ""
    drivers: tuple[str, str] = ("", "")  # the oldest and the newest one that it was tested with
    issued: int = 0  # seconds since 1970
    expires: int = 0
    dependencies: tuple[tuple[str, str], ...] = ()  # file name, sha256
    code: str = ""
    why: str = ""

    @property
    def until(self) -> str:
        return time.strftime("%Y-%m-%d", time.gmtime(self.expires))


@record
class Standing:
    """Who vouches for a backend on a device, and why nobody better does. `code` is a key of
    stages.CODES, "" where nothing is in the way."""

    state: str
    code: str = ""
    sentence: str = ""
    hint: str = ""
    certificate: Certificate | None = None


HINTS = {
    "revoked": "get a newer certificate",
    "smoke_failed": "report it to who made the backend, or go back to the driver that it knows",
    "driver_range": "certify it with this driver: anyhal certify",
    "dependency_changed": "put the library back that it was certified with, or certify it again",
    "expired": "certify it again: anyhal certify",
    "other_device": "certify it on this device: anyhal certify",
    "unknown_key": "trust the key, if you do: anyhal certificate trust KEY.pub --name NAME",
    "unverified": "see that cryptography is installed and only you can write the trust folder",
    "tampered": "get the certificate again",
}


class Known:
    """One look at this user's certificates and trust, made when it is first needed."""

    def __init__(self, folder: str | None = None) -> None:
        self._given = folder

    @cached_property
    def folder(self) -> str:
        return settings.trust_folder() if self._given is None else self._given

    @cached_property
    def issued(self) -> dict[str, list[str]]:
        """Files by the library's hash, with which their names begin."""
        found: dict[str, list[str]] = {}
        with suppress(OSError):
            for name in sorted(os.listdir(f"{self.folder}/{ISSUED}")):
                if name.endswith(".dsse.json"):
                    found.setdefault(name[:64], []).append(f"{self.folder}/{ISSUED}/{name}")
        return found

    @cached_property
    def revoked(self) -> frozenset[str]:
        """Digests of what counts no more, libraries among them."""
        with suppress(OSError):
            names = os.listdir(f"{self.folder}/{REVOKED}")
            return frozenset(name.removesuffix(".json") for name in names)
        return frozenset()

    def says_nothing(self) -> bool:
        """Whether this user never issued or revoked anything, as most never do."""
        return not self.issued and not self.revoked

    def of_library(self, sha256: str) -> tuple[Certificate, ...]:
        """What this user's folder says of it; a revoked library needs no certificate for that."""
        if sha256 in self.revoked:
            why = "its library was revoked on this machine"
            return (Certificate(f"{self.folder}/{REVOKED}", "", sha256, code="revoked", why=why),)
        return self.of(self.issued.get(sha256, ()))

    @cached_property
    def distrust(self) -> str:
        """Why nothing in the folder is believed."""
        try:
            return Rights().writable_by_others(self.folder)
        except OSError:
            return ""  # nothing is there

    @cached_property
    def _decides(self) -> list[str]:
        """What the answer about a certificate depends on besides itself."""
        folder = f"{self.folder}/{TRUSTED}"
        names: list[str] = []
        with suppress(OSError):
            names = sorted(os.listdir(folder))
        files = [f"{folder}/{name}" for name in names]
        return [folder, *files, f"{self.folder}/{REVOKED}", f"{self.folder}/{OWN_KEY}"]

    def of(self, files: Iterable[str]) -> tuple[Certificate, ...]:
        """The certificates in the files."""
        return tuple(one for file in files for one in self._read(file))

    def _read(self, file: str) -> list[Certificate]:
        if self.distrust:
            why = f"no trusted key is believed, since {self.distrust}"
            return [Certificate(file, "", code="unverified", why=why)]

        def verified() -> list[dict[str, Any]]:
            from pathlib import Path

            from anyhal.conformance.certificates.verify import rows  # once per certificate

            return rows(Path(file))

        stamp = stamp_of([file, *self._decides])
        try:
            answers = remember(file, stamp, _QUESTION, verified)
        except ImportError as why:
            said = f"its signature cannot be checked: {why}"
            return [Certificate(file, "", code="unverified", why=said)]
        return [_certificate(row) for row in answers]


def _certificate(row: Mapping[str, Any]) -> Certificate:
    pairs = tuple((str(name), str(digest)) for name, digest in row["dependencies"])
    return Certificate(**{**row, "drivers": tuple(row["drivers"]), "dependencies": pairs})


def hash_of_file(path: str) -> str:
    """Its sha256, worked out anew when the file has changed. Who opens the file compares."""

    def made() -> str:
        with open(path, "rb", buffering=0) as stream:
            digest: str = _core.sha256_of_file(stream.fileno())
        return digest

    return remember(path, stamp_of([path]), "sha256", made)


# ------------------------------------------------------------------------------------- standing


def standing(
    certificates: Sequence[Certificate],
    built: bool,
    arch: str | None = None,
    driver: str = "",
    libraries: Mapping[str, str] | None = None,
) -> Standing:
    """The state that the certificates of a library give it, `built` when this build made it.

    With an `arch`: on that device, with that driver and with those vendor's libraries (path by
    file name). A device outside the tested drivers is `driver_range`: whether it is provisional
    is for `smoke` to say.
    """
    now = time.time()
    worst: list[tuple[int, str, str, Certificate]] = []
    for one in certificates:
        code, why = one.code, one.why
        if not code and one.expires <= now:
            code, why = "expired", f"its certificate expired on {one.until}"
        if not code and one.issued > now + _CLOCKS_APART_S:
            begins = time.strftime("%Y-%m-%d", time.gmtime(one.issued))
            code, why = (
                "expired",
                f"its certificate begins on {begins}: is this machine's date right?",
            )
        if not code and arch is not None:
            code, why = _misfit(one, arch, driver, libraries or {})
        if not code:
            by = f"certified by {one.key_name} until {one.until}, tier {one.tier}"
            return Standing(CERTIFIED, "", by, "", one)
        worst.append((_ORDER.index(code), code, why, one))
    if not worst:
        return Standing(SELF_TESTED) if built else NOBODY
    _, code, why, one = min(worst, key=lambda row: (row[0], -row[3].issued))
    trusted = built and code != "revoked"  # a revocation is somebody's word against the library
    return Standing(SELF_TESTED if trusted else UNCERTIFIED, code, why, HINTS[code], one)


def held(certificates: Iterable[Certificate]) -> list[Certificate]:
    """Those that hold now, leaving devices aside."""
    now = time.time()
    begun = now + _CLOCKS_APART_S
    return [one for one in certificates if not one.code and one.issued <= begun < one.expires]


NOBODY = Standing(UNCERTIFIED, "uncertified", "nobody vouches for it", "certify it: anyhal certify")


def _misfit(
    one: Certificate, arch: str, driver: str, libraries: Mapping[str, str]
) -> tuple[str, str]:
    """Code and sentence of what is otherwise than where it was certified."""
    if one.arch != arch:
        return "other_device", f"its certificate is for {one.arch!r}, this device is {arch!r}"
    for name, digest in one.dependencies:
        path = libraries.get(name)
        if path is not None and _hash_or_none(path) != digest:
            said = f"{path} is not the {name} that it was certified with"
            return "dependency_changed", said
    if not covers(one.drivers, driver):
        least, most = one.drivers
        tested = f"driver {least} to {most}" if least != most else f"driver {least}"
        tested = tested if most else "no driver"
        return "driver_range", f"it was certified with {tested}, here is {driver or 'none'}"
    return "", ""


def _hash_or_none(path: str) -> str | None:
    try:
        return hash_of_file(path)
    except OSError:
        return None


def covers(drivers: Sequence[str], driver: str) -> bool:
    """Whether a driver is one of the two, or a version between them of the same name."""
    if driver in drivers:
        return True
    least, most = map(driver_version, drivers)
    here = driver_version(driver)
    if least is None or most is None or here is None:
        return False
    same = least[0] == most[0] == here[0] and least[2] == most[2] == here[2]
    return same and least[1] <= here[1] <= most[1]


def driver_version(driver: str) -> tuple[str, tuple[int, ...], str] | None:
    """ "Linux 6.18.44-x" is ("Linux ", (6, 18, 44), "-x"); None for what has more words."""
    import re

    found = re.fullmatch(r"(\D*)(\d{1,9}(?:\.\d{1,9})*)(\S*)", driver)
    if found is None:
        return None
    return found[1], tuple(int(part) for part in found[2].split(".")), found[3]


# ---------------------------------------------------------------------------------------- smoke


def smoked(found: Standing, backend: str, device: str, arch: str, driver: str) -> Standing:
    """A certified stranger outside of its tested drivers is provisional once the smoke set passed
    here; the answer is kept. Anything else stays what it is."""
    one = found.certificate
    if found.state != UNCERTIFIED or found.code != "driver_range" or one is None:
        return found
    from anyhal.runtime.smoke import verdict  # no process needs it twice

    failed = verdict(backend, device, f"{one.library} {one.digest} {arch} {driver}")
    if failed is None:  # it may not run now
        return found
    if failed:
        said = f"{found.sentence}; the smoke set failed there: {failed}"
        return replace(found, code="smoke_failed", sentence=said, hint=HINTS["smoke_failed"])
    said = f"{found.sentence}; the smoke set passed there"
    return replace(found, state=PROVISIONAL, sentence=said)
