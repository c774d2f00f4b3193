"""Score-merge tokenization of GGUF `llama` vocabularies (SentencePiece with byte fallback).
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from pathlib import Path

from anyhal.frontends.gguf.reader import GgufError

_BYTE = 6
_SPACE = "\u2581"


class ScoreMerges:
    """Joins neighbouring pieces in the order of the best score of what they make."""

    def __init__(
        self,
        path: Path,
        ids: Mapping[str, int],
        scores: Sequence[float],
        *,
        unknown: int | None,
        space_prefix: bool,
    ) -> None:
        self._ids = ids
        self._scores = scores
        self._space_prefix = space_prefix
        self._bytes = [self._byte_token(path, byte, unknown) for byte in range(256)]

    def _byte_token(self, path: Path, byte: int, unknown: int | None) -> int:
        token = self._ids.get(f"<0x{byte:02X}>")
        if token is None and byte < 0x80:
            token = self._ids.get(chr(byte))
        if token is None:
            token = unknown
        if token is None:
            raise GgufError(
                f"tokenizer of {path}: byte 0x{byte:02X} has no token and there is no unknown"
                " token; convert the model anew"
            )
        return token

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        if self._space_prefix and after_special:
            text = " " + text
        ids: list[int] = []
        for piece in self._merge(text.replace(" ", _SPACE)):
            token = self._ids.get(piece)
            if token is not None:
                ids.append(token)
            else:
                ids += [self._bytes[byte] for byte in piece.encode()]
        return ids

    def _merge(self, text: str) -> list[str]:
        pieces: list[str] = list(text)
        before = list(range(-1, len(pieces) - 1))
        after = [*range(1, len(pieces)), -1] if pieces else []
        # Entries: negated score, left piece, right piece, length of the join (to spot stale ones).
        queue: list[tuple[float, int, int, int]] = []

        def offer(left: int, right: int) -> None:
            if left < 0 or right < 0:
                return
            joined = pieces[left] + pieces[right]
            token = self._ids.get(joined)
            if token is not None:
                heapq.heappush(queue, (-self._scores[token], left, right, len(joined)))

        for index in range(1, len(pieces)):
            offer(index - 1, index)
        while queue:
            _, left, right, length = heapq.heappop(queue)
            stale = not pieces[left] or not pieces[right]
            if stale or len(pieces[left]) + len(pieces[right]) != length:
                continue
            pieces[left] += pieces[right]
            pieces[right] = ""
            after[left] = after[right]
            if after[right] >= 0:
                before[after[right]] = left
            offer(before[left], left)
            offer(left, after[left])
        return [piece for piece in pieces if piece]

    def token_bytes(self, text: str, kind: int) -> bytes:
        if kind == _BYTE and len(text) == 6 and text.startswith("<0x"):
            return bytes([int(text[3:5], 16)])
        return text.replace(_SPACE, " ").encode()
