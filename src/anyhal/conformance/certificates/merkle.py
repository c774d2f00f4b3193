"""A tree of hashes over the records of a run, so that one case can be proven without the others.
SPDX-License-Identifier: Apache-2.0

RFC 9162, 2.1: a leaf is SHA-256(0x00 record), an inner node SHA-256(0x01 left right), the left part
of n leaves the largest power of two below n. Records are sorted by id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from anyhal.errors import NotFoundError


def leaf(record: Mapping[str, Any]) -> bytes:
    """Of one record of a report's `cases`, as canonical JSON: sorted keys, no spaces, ASCII."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(b"\0" + text.encode("ascii")).digest()


def root(records: Sequence[Mapping[str, Any]]) -> str:
    """In hex."""
    return _root([leaf(record) for record in _sorted(records)]).hex()


def proof(records: Sequence[Mapping[str, Any]], case_id: str) -> dict[str, Any]:
    """All that `holds` needs to know of that case: its record, its place, the hashes beside it."""
    ordered = _sorted(records)
    at = next((i for i, record in enumerate(ordered) if record["id"] == case_id), None)
    if at is None:
        raise NotFoundError(
            f"proving a case: the report has none called {case_id!r}; take an id of its `cases`"
        )
    path = _path([leaf(record) for record in ordered], at)
    return {
        "record": dict(ordered[at]),
        "index": at,
        "leaves": len(ordered),
        "path": [beside.hex() for beside in path],
    }


def holds(proof: Mapping[str, Any], root: str) -> bool:
    """Whether the record is the leaf at that place of the tree with that root (RFC 9162,
    2.1.3.2)."""
    at, last = proof["index"], proof["leaves"] - 1
    if not 0 <= at <= last:
        return False
    node = leaf(proof["record"])
    for beside in map(bytes.fromhex, proof["path"]):
        if last == 0:
            return False
        if at & 1 or at == last:
            node = _inner(beside, node)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            node = _inner(node, beside)
        at, last = at >> 1, last >> 1
    return last == 0 and node.hex() == root


def _sorted(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(records, key=lambda record: str(record["id"]))


def _inner(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def _split(count: int) -> int:
    """The largest power of two below `count`."""
    return 1 << (count - 1).bit_length() - 1


def _root(leaves: Sequence[bytes]) -> bytes:
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    cut = _split(len(leaves))
    return _inner(_root(leaves[:cut]), _root(leaves[cut:]))


def _path(leaves: Sequence[bytes], at: int) -> list[bytes]:
    if len(leaves) == 1:
        return []
    cut = _split(len(leaves))
    if at < cut:
        return [*_path(leaves[:cut], at), _root(leaves[cut:])]
    return [*_path(leaves[cut:], at - cut), _root(leaves[:cut])]
