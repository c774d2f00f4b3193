"""Whether a certificate holds: its form, whose signature it carries, and what was revoked.
SPDX-License-Identifier: Apache-2.0

Expiry, device and driver are compared at each use (runtime/certified.py): they change while the
certificate does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anyhal.conformance.certificates import envelope as envelopes
from anyhal.conformance.certificates import statement, trust
from anyhal.conformance.certificates.envelope import Envelope
from anyhal.errors import InvalidArgumentError
from anyhal.runtime.certified import Certificate


def rows(path: Path) -> list[dict[str, Any]]:
    """Each certificate in the file as plain data, for the cache."""
    return [asdict(one) for one in certificates(path)]


def certificates(path: Path) -> list[Certificate]:
    """Each certificate in the file; one that cannot be read has a code that says so."""
    try:
        found = envelopes.read(path)
    except InvalidArgumentError as why:
        return [Certificate(str(path), "", code="tampered", why=str(why).partition("; ")[0])]
    keys = [key for key in trust.keys_here() if key.key is not None]
    revoked = trust.revocations()
    return [_judged(one, path, keys, revoked) for one in found]


def _judged(
    one: Envelope,
    path: Path,
    keys: Sequence[trust.Trusted],
    revoked: Mapping[str, trust.Revoked],
) -> Certificate:
    key_id = next((name for name, _ in one.signatures if name), "")
    try:
        said = statement.summary(one.statement())
    except (ValueError, RecursionError) as why:
        text = f"its certificate states nothing that can be read: {why}"
        return Certificate(str(path), one.digest, key=key_id, code="tampered", why=text)
    signer = next((k for k in keys if k.key and envelopes.is_signed_by(one, k.key)), None)
    code = why_not = ""
    gone = revoked.get(one.digest) or revoked.get(said["library"])
    if gone is not None:
        because = f": {gone.reason}" if gone.reason else ""
        code, why_not = "revoked", f"its certificate was revoked on {gone.when[:10]}{because}"
    elif signer is None and any(key.key_id == key_id for key in keys):
        code = "tampered"
        why_not = f"its certificate was changed after key {key_id[:16]} signed it"
    elif signer is None:
        code = "unknown_key"
        why_not = f"its certificate is signed by key {key_id[:16] or '?'}, which is not trusted"
    return Certificate(
        file=str(path),
        digest=one.digest,
        key=signer.key_id if signer else key_id,
        key_name=signer.name if signer else "",
        code=code,
        why=why_not,
        **said,
    )
