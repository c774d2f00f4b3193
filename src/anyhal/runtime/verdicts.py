"""Verdicts of the self-test on disk: which cells of a device gave wrong answers on this machine.
SPDX-License-Identifier: Apache-2.0

One file per library and settings. A cell is an op with a main dtype, and with numerics where they
are not the strict ones; its key carries the hash of the op's file, so that a changed op is tested
again. `dispatch/selftest.py` judges; `registry.py` tells programs without Python.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from anyhal.dtypes import DType, dtype
from anyhal.errors import HalError
from anyhal.ops import lookup
from anyhal.ops._spec import OpSpec
from anyhal.settings import cache_folder


def fingerprint_of(sha256: str, given: Mapping[str, str]) -> str:
    """Of a library and its settings."""
    return hashlib.sha256(f"{sha256} {sorted(given.items())}".encode()).hexdigest()


def cell_of(main: DType, words: Sequence[int]) -> str:
    """The main dtype, and the numerics where they are not the default."""
    return main.short + ("" if not any(words) else " " + "/".join(map(str, words)))


def key_of(arch: str, spec: OpSpec, cell: str) -> str:
    return f"{arch} {spec.name} {cell} {_op_hash(spec)}"


def read(fingerprint: str) -> dict[str, str]:
    """Key to sentence, "" for right answers; nothing where no file can be read."""
    try:
        data = json.loads(_path(fingerprint).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in data.items()} if isinstance(data, dict) else {}


def save(fingerprint: str, verdicts: Mapping[str, str]) -> None:
    """Written whole and renamed; a cache that cannot be written costs only time."""
    path = _path(fingerprint)
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(verdicts, indent=1), encoding="utf-8")
        os.replace(part, path)
    except OSError:
        with suppress(OSError):  # its folder may be what is wrong
            part.unlink()


def quarantined(fingerprint: str) -> Iterator[tuple[str, str, str, str]]:
    """(architecture, op, main dtype, why) of each cell that is wrong by the default numerics, by a
    test that is not out of date."""
    for key, why in sorted(read(fingerprint).items()):
        arch, *words = key.rsplit(" ", 3)
        if not why or len(words) != 3:
            continue
        try:
            spec, main = lookup(words[0]), dtype(words[1])
        except HalError:
            continue  # a cell with numerics of its own, or of another version
        if key == key_of(arch, spec, cell_of(main, ())):
            yield arch, spec.name, main.short, why


def _path(fingerprint: str) -> Path:
    return cache_folder() / "selftest" / f"{fingerprint[:32]}.json"


def _op_hash(spec: OpSpec) -> str:
    """Of the op's file and of all that its answers are judged with."""
    own = inspect.getsource(sys.modules[spec.samples.__module__])
    return hashlib.sha256((_shared_hash() + own).encode()).hexdigest()[:16]


@lru_cache
def _shared_hash() -> str:
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    shared = [*(package / "ops").glob("_*.py"), *(package / "conformance").glob("*.py")]
    for path in sorted([*shared, package / "dispatch" / "selftest.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()
