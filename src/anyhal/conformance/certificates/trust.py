"""What this user trusts: keys with names, revocations, the certificates issued here.
SPDX-License-Identifier: Apache-2.0

A folder (`ANYHAL_TRUST`) with one small file per fact, so that processes need no lock: a file is
written under another name and renamed. Nothing in it is believed where others can write.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from anyhal import settings
from anyhal.conformance.certificates import keys
from anyhal.errors import InvalidArgumentError, NotFoundError
from anyhal.records import record
from anyhal.runtime.certified import ISSUED, OWN_KEY, REVOKED, TRUSTED
from anyhal.runtime.file_rights import writable_by_others
from anyhal.runtime.small_file import read_small_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

OWN_NAME = "this user"
_NAME = r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,62}"
_MOST_BYTES = 1 << 16


@record
class Trusted:
    """A key whose signatures count here. `why_not` says why they do not."""

    name: str
    key_id: str
    file: str
    key: Ed25519PublicKey | None = None
    why_not: str = ""


@record
class Revoked:
    """A certificate, or a library with all of its certificates, that counts no more."""

    digest: str
    when: str
    reason: str


def folder() -> Path:
    """The folder, made for this user alone. InvalidArgumentError where others can write."""
    path = Path(settings.trust_folder())
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        writer = writable_by_others(path)
    except OSError as why:
        writer = f"{(why.strerror or str(why)).lower()}"
    if writer:
        raise InvalidArgumentError(
            f"using the trust folder {path}: {writer}; take that right away (chmod go-w), or name"
            f" another folder in {settings.TRUST.name}"
        )
    return path


def keys_here() -> Iterator[Trusted]:
    """All keys in the folder, this user's own first."""
    place = Path(settings.trust_folder())
    own = place / OWN_KEY
    if own.exists():
        try:
            public = keys.read_private(own).public_key()
            yield Trusted(OWN_NAME, keys.key_id(public), str(own), public)
        except InvalidArgumentError as why:
            yield Trusted(OWN_NAME, "", str(own), why_not=str(why))
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(place / TRUSTED))
    for name in names:
        if not name.endswith(".pub"):
            continue
        file = place / TRUSTED / name
        try:
            public = keys.read_public(file)
            yield Trusted(name.removesuffix(".pub"), keys.key_id(public), str(file), public)
        except InvalidArgumentError as why:
            yield Trusted(name.removesuffix(".pub"), "", str(file), why_not=str(why))


def trust(file: Path, name: str) -> Trusted:
    """Takes a public key under a name; a name that another key has is refused."""
    key = keys.read_public(file)
    found = Trusted(name, keys.key_id(key), str(_key_file(name)), key)
    for known in keys_here():
        if known.key_id == found.key_id:
            return known
        if known.name == name:
            raise InvalidArgumentError(
                f"trusting the key {file}: {name!r} is the name of key {known.key_id[:16]}; take"
                " another --name"
            )
    _write(folder() / TRUSTED, Path(found.file).name, keys.public_pem(key))
    return found


def distrust(name: str) -> None:
    """Takes a key away; NotFoundError when there is none of that name."""
    try:
        (folder() / TRUSTED / _key_file(name).name).unlink()
    except FileNotFoundError:
        known = ", ".join(k.name for k in keys_here() if k.name != OWN_NAME) or "none"
        raise NotFoundError(f"removing a key: {name!r} is no trusted key; known: {known}") from None
    except OSError as why:
        reason = (why.strerror or str(why)).lower()
        raise InvalidArgumentError(
            f"removing the key {name!r}: {reason}; check the folder"
        ) from None


def _key_file(name: str) -> Path:
    if not re.fullmatch(_NAME, name) or name == OWN_NAME:
        raise InvalidArgumentError(
            f"naming a key: {name!r} cannot be a name; use letters, digits and ._@- of at most 63"
        )
    return Path(settings.trust_folder()) / TRUSTED / f"{name}.pub"


def revoke(digest: str, reason: str) -> Revoked:
    """A certificate by its digest, or all of a library by its hash."""
    plain = digest.removeprefix("sha256:").lower()
    if len(plain) != 64 or not set(plain) <= set("0123456789abcdef"):
        raise InvalidArgumentError(
            f"revoking {digest!r}: it is no sha256 in hex; take a digest of `anyhal certificate"
            " show`"
        )
    known = revocations().get(plain)
    if known is not None:
        return known
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = json.dumps({"digest": plain, "when": when, "reason": reason}) + "\n"
    _write(folder() / REVOKED, f"{plain}.json", text.encode("ascii"))
    return Revoked(plain, when, reason)


def revocations() -> dict[str, Revoked]:
    """By digest. A file of that name revokes, whatever it says: it fails safe."""
    found = {}
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(Path(settings.trust_folder()) / REVOKED))
    for name in names:
        digest = name.removesuffix(".json")
        said: dict[str, object] = {}
        with suppress(OSError, ValueError, TypeError, RecursionError):
            file = f"{settings.trust_folder()}/{REVOKED}/{name}"
            said = dict(json.loads(read_small_file(file, _MOST_BYTES)))
        texts = [said.get(field, "") for field in ("when", "reason")]
        when, reason = (text if isinstance(text, str) else "" for text in texts)
        found[digest] = Revoked(digest, when, reason)
    return found


def issued() -> list[Path]:
    """The certificates made or taken here."""
    place = Path(settings.trust_folder()) / ISSUED
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return []
    return [place / name for name in names if name.endswith(".dsse.json")]


def keep(library: str, digest: str, envelope: str) -> Path:
    """Keeps a certificate; its name begins with the library's hash, by which it is found."""
    name = f"{library}.{digest[:16]}.dsse.json"
    return _write(folder() / ISSUED, name, envelope.encode("ascii"))


def _write(place: Path, name: str, data: bytes) -> Path:
    """A file for this user alone to change, whole or not at all."""
    part = place / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.part"
    try:
        place.mkdir(exist_ok=True, mode=0o700)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, place / name)
    except OSError as why:
        with suppress(OSError):
            part.unlink()
        raise InvalidArgumentError(
            f"writing {place / name}: {(why.strerror or str(why)).lower()}; make room, or name"
            f" another folder in {settings.TRUST.name}"
        ) from None
    return place / name
