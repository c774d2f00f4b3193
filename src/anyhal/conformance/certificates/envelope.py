"""A signed statement: the DSSE envelope, version 1, with Ed25519.
SPDX-License-Identifier: Apache-2.0

A file holds one envelope, or several, one a line (an in-toto bundle): a vendor puts the
certificates of several chips into one file by `cat`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyhal.errors import InvalidArgumentError
from anyhal.records import record
from anyhal.runtime.small_file import read_small_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MOST_BYTES = 8 << 20  # a certificate takes some ten kilobytes
_MOST_SIGNATURES = 16


@record
class Envelope:
    """`digest` names it: sha256 of the payload that was signed, in hex."""

    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]  # id of the key, signature

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.payload).hexdigest()

    def statement(self) -> Any:
        """What it says, whoever signed it; ValueError for what is no JSON."""
        return json.loads(self.payload.decode("utf-8"), parse_constant=_no_constant)


def _no_constant(word: str) -> Any:
    raise ValueError(f"it holds {word}, which is no JSON")


def to_sign(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding of the payload and its type."""
    return b"DSSEv1 %d %b %d %b" % (
        len(PAYLOAD_TYPE),
        PAYLOAD_TYPE.encode(),
        len(payload),
        payload,
    )


def sign(statement: Mapping[str, Any], key: Ed25519PrivateKey, key_id: str) -> str:
    """The envelope's JSON, one line. ValueError for a statement that JSON cannot hold."""
    payload = json.dumps(statement, allow_nan=False, separators=(",", ":")).encode("ascii")
    signature = key.sign(to_sign(payload))
    document = {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode("ascii"),
        "signatures": [{"keyid": key_id, "sig": base64.b64encode(signature).decode("ascii")}],
    }
    return json.dumps(document) + "\n"


def is_signed_by(envelope: Envelope, key: Ed25519PublicKey) -> bool:
    """Whether any of its signatures is that key's. Ids of keys are hints and are not believed."""
    from cryptography.exceptions import InvalidSignature

    for _, signature in envelope.signatures:
        try:
            key.verify(signature, to_sign(envelope.payload))
            return True
        except InvalidSignature:
            continue
    return False


def read(path: Path) -> list[Envelope]:
    """The file's envelopes. InvalidArgumentError names the file, the line and what is wrong."""
    try:
        text = read_small_file(path, MOST_BYTES).decode("ascii")
    except (OSError, ValueError) as why:
        reason = getattr(why, "strerror", None) or "it is no text"
        raise _unreadable(path, reason.lower()) from None
    lines = text.splitlines() if text.count('"payloadType"') > 1 else [text]
    found = [_parse(line, path, at) for at, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise _unreadable(path, "it is empty")
    return found


def parse(text: str) -> Envelope:
    """One that `sign` made."""
    return _parse(text, Path("of memory"), 1)


def _unreadable(path: Path, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"reading the certificate {path}: {why}; name a file that `anyhal certify` wrote"
    )


def _parse(text: str, path: Path, line: int) -> Envelope:
    try:
        document = json.loads(text, parse_constant=_no_constant)
        if document["payloadType"] != PAYLOAD_TYPE:
            raise ValueError(f"its payload is {document['payloadType']!a}, no in-toto statement")
        signatures = document["signatures"]
        if not isinstance(signatures, list) or not 0 < len(signatures) <= _MOST_SIGNATURES:
            raise ValueError("it has no list of signatures")
        return Envelope(
            _base64(document["payload"]),
            tuple((str(s.get("keyid", "")), _base64(s["sig"])) for s in signatures),
        )
    except KeyError as why:
        raise _unreadable(path, f"line {line} is no DSSE envelope, {why} is missing") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as why:
        raise _unreadable(path, f"line {line} is no DSSE envelope: {why}") from None


def _base64(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError("a payload or signature is no text")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as why:
        raise ValueError(f"a payload or signature is no base64 ({why})") from None
