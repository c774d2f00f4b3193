"""Verdicts of the self-test on disk: which cells of a device gave wrong answers on this machine.
SPDX-License-Identifier: Apache-2.0

One file per library and settings. A cell is an op with a main dtype, and with numerics where they
are not the strict ones; its key carries the hash of the op's file, so that a changed op is tested
again. `dispatch/known_answers.py` judges; `registry.py` tells programs without Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache

from anyhal import _core
from anyhal.dtypes import DType, dtype
from anyhal.errors import HalError
from anyhal.ops import lookup
from anyhal.ops._spec import OpSpec
from anyhal.printable import printable
from anyhal.runtime.discovery_cache import remember, stamp_of
from anyhal.runtime.discovery_cache import save as save_answers
from anyhal.runtime.file_rights import is_own
from anyhal.runtime.kept_file import doubt
from anyhal.runtime.kept_json import read_kept_json, write_kept_json
from anyhal.settings import cache_folder

_FORM = "anyhal-selftest 1"
_MOST_BYTES = 16 << 20  # a cell takes a hundred bytes, and a device has some thousand cells


def fingerprint_of(sha256: str, given: Mapping[str, str]) -> str:
    """Of a library and its settings."""
    return _core.sha256(f"{sha256} {sorted(given.items())}".encode())


def cell_of(main: DType, words: Sequence[int], variant: str = "") -> str:
    """The main dtype, the function where the op has several, the numerics where they are not the
    default."""
    of = f"{main.short}:{variant}" if variant else main.short
    return of + ("" if not any(words) else " " + "/".join(map(str, words)))


def key_of(arch: str, spec: OpSpec, cell: str) -> str:
    return f"{arch} {spec.name} {cell} {_op_hash(spec)}"


def read(fingerprint: str) -> dict[str, str]:
    """Key to sentence, "" for right answers; nothing where no file of verdicts can be read."""
    path = _path(fingerprint)
    if not is_own(path):
        return _read(path)  # nothing, and why is said
    found = remember(path, stamp_of([path]), "verdicts", lambda: _read(path))
    save_answers()
    return found


def _read(path: str) -> dict[str, str]:
    data = read_kept_json(path, _FORM, _MOST_BYTES)
    if data is None:
        return {}
    texts = [*data, *data.values()] if isinstance(data, dict) else [None]
    if not all(isinstance(text, str) and text == printable(text) for text in texts):
        doubt(path, "it holds no verdicts")
        return {}
    return dict(data)


def save(fingerprint: str, new: Mapping[str, str]) -> dict[str, str]:
    """Adds to what is there now, and gives all of it: another process may have tested other cells,
    or somebody cleared them. A cell that was found wrong stays wrong. A cache that cannot be
    written costs only time.

    Processes that add at once wait for each other; one that is killed leaves the old file.
    """
    path = _path(fingerprint)
    with _alone(f"{path.removesuffix('.json')}.lock"):
        known = read(fingerprint)
        for key, why in new.items():
            known[key] = known.get(key) or printable(why)
        write_kept_json(path, _FORM, known)
    return known


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Until the end no other process writes; without a lock the last one wins."""
    import fcntl  # a process that finds its verdicts needs none

    file = -1
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(path, flags, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if file >= 0:
            os.close(file)


def quarantined(fingerprint: str) -> Iterator[tuple[str, str, str, str]]:
    """(architecture, op, main dtype, why) of each cell that is wrong by the default numerics, by a
    test that is not out of date. A wrong function takes its op along: C programs tell ops apart."""
    told = set()
    for key, why in sorted(read(fingerprint).items()):
        arch, *words = key.rsplit(" ", 3)
        if not why or len(words) != 3:
            continue
        try:
            name, _, variant = words[1].partition(":")
            spec, main = lookup(words[0]), dtype(name)
        except HalError:
            continue  # a cell with numerics of its own, or of another version
        cell = (arch, spec.name, main.short)
        if cell not in told and key == key_of(arch, spec, cell_of(main, (), variant)):
            told.add(cell)
            yield arch, spec.name, main.short, why


def _path(fingerprint: str) -> str:
    return f"{cache_folder()}/selftest/{fingerprint[:32]}.json"


def _op_hash(spec: OpSpec) -> str:
    """Of the op's file and of all that its answers are judged with."""
    file = sys.modules[spec.samples.__module__].__file__
    assert file is not None
    return _core.sha256(_shared_hash().encode() + _bytes_of(file))[:16]


@lru_cache
def _shared_hash() -> str:
    package = os.path.dirname(os.path.dirname(__file__))
    ops, judges = f"{package}/ops", f"{package}/conformance"
    files = [f"{ops}/{n}" for n in sorted(os.listdir(ops)) if n[0] == "_" and n.endswith(".py")]
    files += [f"{judges}/{n}" for n in sorted(os.listdir(judges)) if n.endswith(".py")]
    files.append(f"{package}/dispatch/known_answers.py")

    def of_files() -> str:
        return _core.sha256(b"".join(map(_bytes_of, files)))

    names = "|".join(files)
    found = remember("known answers", stamp_of(files, names), "sha256", of_files)
    save_answers()  # discovery is over
    return found


def _bytes_of(file: str) -> bytes:
    with open(file, "rb") as stream:
        return stream.read()
