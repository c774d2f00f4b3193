"""Sequences of different lengths in one batch, and caches in pages: shared by the paged ops.
SPDX-License-Identifier: Apache-2.0

Tokens query_starts[b] to query_starts[b + 1] belong to sequence b and are its last ones: it has
lengths[b] positions in all. Position p of it is row p % page_size of page block_table[b, p /
page_size].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from anyhal.ops._checks import INDICES, check_dtype, check_rank, check_shape
from anyhal.ops._draw import Rng
from anyhal.ops._spec import Arg, TensorSpec
from anyhal.ops._trace import Trace, Value

ARGS = (
    Arg(
        "query_starts",
        "[B + 1]",
        doc="i64 or i32; the first token of each sequence, and the end of the last; rises",
        own="i64",
    ),
    Arg("block_table", "[B, M]", doc="i64 or i32; the pages of each sequence in order", own="i64"),
    Arg(
        "lengths", "[B]", doc="i64 or i32; positions of each sequence, new ones included", own="i64"
    ),
)


def check(op: str, starts: TensorSpec, table: TensorSpec, lengths: TensorSpec) -> None:
    for name, spec in (("query_starts", starts), ("block_table", table), ("lengths", lengths)):
        check_dtype(op, name, spec, INDICES)
    check_rank(op, "block_table", table, 2, "[B, M]")
    batch = table.shape[0]
    check_shape(op, "query_starts", starts, (batch + 1,), "[B + 1]")
    check_shape(op, "lengths", lengths, (batch,), "[B]")


class Ragged:
    """The index operands as i64 values that the device has checked."""

    def __init__(
        self, trace: Trace, indices: Sequence[Value | None], tokens: int, pages: int, page: int
    ) -> None:
        starts, table, lengths = indices
        assert starts is not None and table is not None and lengths is not None
        self.trace, self.tokens, self.page = trace, tokens, page
        self.batch, self.blocks = table.shape
        self.capacity = self.blocks * page if pages else 0
        starts = self.allow(tokens, starts)
        self.table = trace.cast(table, "i64")
        self.lengths = self.allow(self.capacity, lengths)
        self.first, self.end = starts.slice(0, 0, 1), starts.slice(0, 1, self.batch + 1)
        self.last = starts.slice(0, self.batch, self.batch + 1)
        counts = trace.binary("subtract", self.end, starts.slice(0, 0, self.batch))
        self.counts = self.allow(tokens, counts)

    def number(self, x: Any) -> Value:
        return self.trace.constant(x, "i64")

    def allow(self, largest: int, x: Value) -> Value:
        """x, read through a table of 0..largest: the device refuses any other number."""
        table = self.number(np.arange(largest + 1))
        return self.trace("gather", table, self.trace.cast(x, "i64"), axis=0)

    def clip(self, x: Value, largest: int) -> Value:
        x = self.trace.binary("maximum", x, self.number(0))
        return self.trace.binary("minimum", x, self.number(largest), out=x)

    def owners(self) -> tuple[Value, Value]:
        """The sequence of each token, and whether it has one."""
        trace, t = self.trace, np.arange(self.tokens)
        past = trace.binary("less_equal", self.end, self.number(t[:, None]))
        sequence = trace("reduce", trace.cast(past, "i64"), fn="sum", axis=1)
        owned = trace.binary(
            "logical_and",
            trace.binary("greater_equal", self.number(t), self.first),
            trace.binary("less", self.number(t), self.last),
        )
        return self.clip(sequence, self.batch - 1), owned

    def from_end(self, sequence: Value) -> Value:
        """How far each token is from the end of its sequence, as a number below 0."""
        end = self.trace("gather", self.end, sequence, axis=0)
        return self.trace.binary("subtract", self.number(np.arange(self.tokens)), end)


def sequences(
    starts: Any, table: Any, lengths: Any, tokens: int, pages: int, page: int
) -> Iterator[tuple[slice, Any, Any]]:
    """For each sequence its tokens, and the page and row of each position; IndexError for numbers
    that the ops refuse."""
    capacity = table.shape[1] * page if pages else 0
    if np.any(np.diff(starts) < 0) or np.any((starts < 0) | (starts > tokens)):
        raise IndexError("query_starts do not rise from 0 to the number of tokens")
    if np.any((lengths < 0) | (lengths > capacity)):
        raise IndexError("a length is outside the block table")
    for b, length in enumerate(lengths):
        position = np.arange(length)
        used = table[b, position // max(page, 1)]
        if np.any((used < 0) | (used >= pages)):
            raise IndexError("a page is outside the cache")
        yield slice(int(starts[b]), int(starts[b + 1])), used, position % max(page, 1)


def example(
    rng: Rng, counts: Sequence[int], lengths: Sequence[int], page: int
) -> tuple[int, tuple[Any, Any, Any]]:
    """A number of pages, and indices: no page is used twice, and unused entries are nonsense."""
    used = [-(-n // page) for n in lengths]
    blocks = max(used, default=0) + 1
    table = np.full((len(counts), blocks), -7)
    free = rng.permutation(sum(used) + 2)
    at = 0
    for b, n in enumerate(used):
        table[b, :n] = free[at : at + n]
        at += n
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return len(free), (starts, table, np.array(lengths, np.int64))
