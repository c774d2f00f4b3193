"""Certificates: what a passed run of the suite becomes, and what one is worth on this machine.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anyhal.conformance.certificates import envelope, keys, statement, trust, verify
from anyhal.errors import InvalidArgumentError
from anyhal.runtime.certified import Certificate, Known, Standing, covers, driver_version, standing

__all__ = ["issue", "state_of"]


def issue(report: Mapping[str, Any], key: Path | None = None) -> Path:
    """Makes a certificate from the report of a run that passed, and keeps it among this user's.

    Signed with the key in the file, else with this user's own, which is made on first need. The
    file may be given away: beside backend.toml, as certificate.dsse.json, it goes with the backend.
    InvalidArgumentError for a report that earns none, and for a key that cannot sign.
    """
    keys.require()
    statement.checked(report)
    place = trust.folder()
    signer = keys.own(place) if key is None else keys.read_private(key)
    now = time.time()
    before = _previous(report, now)
    drivers = _drivers(report["platform"].get("driver", ""), before)
    made = statement.make(report, drivers, before.digest if before else None, now)
    try:
        text = envelope.sign(made, signer, keys.key_id(signer.public_key()))
    except ValueError as why:
        raise InvalidArgumentError(
            f"making a certificate for {report['backend']}: its report holds what JSON cannot"
            f" ({why}); certify again"
        ) from None
    digest = envelope.parse(text).digest
    return trust.keep(report["library_sha256"], digest, text)


def _previous(report: Mapping[str, Any], now: float) -> Certificate | None:
    """The newest certificate of the same library on the same kind of device that still holds."""
    files = map(str, trust.issued())
    mine = [f for f in files if Path(f).name.startswith(report["library_sha256"])]
    held = [
        one
        for file in mine
        for one in verify.certificates(Path(file))
        if not one.code and one.expires > now and one.arch == report["platform"].get("arch", "")
    ]
    return max(held, key=lambda one: (one.issued, os.stat(one.file).st_mtime_ns), default=None)


def _drivers(driver: str, before: Certificate | None) -> tuple[str, str]:
    """The range that was tested: this driver, and those of the certificate before."""
    if before is None:
        return driver, driver
    least, most = before.drivers
    if covers(before.drivers, driver):
        return least, most
    here, low, high = map(driver_version, (driver, least, most))
    if here is None or low is None or high is None or here[::2] != low[::2]:
        return driver, driver
    return (driver, most) if here[1] < low[1] else (least, driver)


def state_of(
    library_sha256: str,
    *,
    arch: str | None = None,
    driver: str = "",
    built: bool = False,
    files: Sequence[Path] = (),
) -> Standing:
    """What certificates make of a library: state, code, sentence, the certificate that says so.

    Those in `files` and those of this user count. With an `arch` (of the device's facts): on that
    device with that driver. `built`: this build made the library.
    """
    known = Known()
    named = (*known.of(map(str, files)), *known.of_library(library_sha256))
    found = [c for c in named if c.library in ("", library_sha256)]
    return standing(found, built, arch, driver)
