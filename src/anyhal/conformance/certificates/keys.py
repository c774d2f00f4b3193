"""Ed25519 keys: this user's own, made when one is first needed, and public keys in files.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from anyhal.errors import InvalidArgumentError, NotFoundError
from anyhal.runtime.small_file import read_small_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

FILE_NAME, PUBLIC_NAME = "signing-key.pem", "signing-key.pub"
_MOST_BYTES = 16 << 10


def require() -> None:
    """NotFoundError where the package is missing that signs and checks."""
    try:
        import cryptography  # noqa: F401
    except ImportError as why:
        raise NotFoundError(
            f"using certificates: the package cryptography cannot be imported ({why}); install it"
            " with `pip install cryptography`"
        ) from None


def key_id(key: Ed25519PublicKey) -> str:
    """sha256 of the key in DER form (SubjectPublicKeyInfo), in hex."""
    from cryptography.hazmat.primitives import serialization as form

    der = key.public_bytes(form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def public_pem(key: Ed25519PublicKey) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    return key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)


def read_private(path: Path) -> Ed25519PrivateKey:
    """A signing key, in PEM or OpenSSH's form, that nobody else can read."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    data = _bytes_of(path, "signing key")
    with suppress(OSError):
        if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
            raise _unusable(
                path, "signing key", "others may read it", f"take that right away: chmod 600 {path}"
            )
    load = (
        form.load_ssh_private_key if b"OPENSSH PRIVATE KEY" in data else form.load_pem_private_key
    )
    try:
        key = load(data, password=None)
    except TypeError:
        raise _unusable(
            path, "signing key", "it is encrypted", "decrypt it to a file of mode 600 first"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise _unusable(path, "signing key", "it is no private key", _MAKE) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _unusable(path, "signing key", "it is no Ed25519 key", _MAKE)
    return key


_MAKE = "make one with `openssl genpkey -algorithm ed25519`"


def read_public(path: Path) -> Ed25519PublicKey:
    """A public key, in PEM or OpenSSH's form."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    data = _bytes_of(path, "public key")
    if b"PRIVATE KEY" in data:
        hint = f"write its public half with `openssl pkey -in {path} -pubout`"
        raise _unusable(path, "public key", "it is a private key, which nobody else may have", hint)
    load = form.load_ssh_public_key if data.startswith(b"ssh-") else form.load_pem_public_key
    try:
        key = load(data)
    except (ValueError, UnsupportedAlgorithm):
        hint = "name a file like those of `openssl pkey -pubout` or `ssh-keygen -t ed25519`"
        raise _unusable(path, "public key", "it is no public key", hint) from None
    if not isinstance(key, Ed25519PublicKey):
        raise _unusable(path, "public key", "it is no Ed25519 key", "ask for one")
    return key


def own(folder: Path) -> Ed25519PrivateKey:
    """This user's signing key, made when there is none. Processes that ask at once get the same:
    the first file that is linked to its name stays."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = folder / FILE_NAME
    if not path.exists():
        pem = Ed25519PrivateKey.generate().private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        )
        part = folder / f".{FILE_NAME}.{os.getpid()}.{secrets.token_hex(4)}.part"
        try:
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(pem)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(part, path)
        except OSError as why:
            reason = (why.strerror or str(why)).lower()
            hint = "make the folder writable, or give a key with --key"
            raise _unusable(path, "signing key", f"it cannot be made: {reason}", hint) from None
        finally:
            with suppress(OSError):
                part.unlink()
    key = read_private(path)
    with suppress(OSError), (folder / PUBLIC_NAME).open("xb") as file:
        file.write(public_pem(key.public_key()))  # only to be given away
    return key


def _bytes_of(path: Path, what: str) -> bytes:
    try:
        return read_small_file(path, _MOST_BYTES)
    except OSError as why:
        raise _unusable(path, what, (why.strerror or str(why)).lower(), "check the path") from None


def _unusable(path: Path, what: str, why: str, hint: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"reading the {what} {path}: {why}; {hint}")
