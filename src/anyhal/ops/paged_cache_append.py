"""paged_cache_append(pages, update, ...): writes new rows of a ragged batch into pages, in place.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.errors import InvalidArgumentError
from anyhal.ops import _paged
from anyhal.ops._checks import FP8, PLAIN, check_dtype, check_rank, check_same_dtype
from anyhal.ops._draw import Rng, one_of, values
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value

GATHERED_ELEMENTS_MAX = 1 << 22  # of the cache at a time, if that needs few steps
STEPS_MAX = 32


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    pages, update, starts, table, lengths = inputs
    assert pages is not None and update is not None
    assert starts is not None and table is not None and lengths is not None
    check_dtype("paged_cache_append", "pages", pages, (*PLAIN, *FP8))
    check_same_dtype("paged_cache_append", pages, update)
    check_rank("paged_cache_append", "pages", pages, 4, "[P, page_size, H, D]")
    check_rank("paged_cache_append", "update", update, 3, "[T, H, D]")
    if pages.shape[2:] != update.shape[1:]:
        raise InvalidArgumentError(
            f"paged_cache_append: update {describe(update)} into pages {describe(pages)}: they "
            "must be [T,H,D] and [P,page_size,H,D] with one H and D; reshape the update"
        )
    _paged.check("paged_cache_append", starts, table, lengths)
    return TensorSpec(pages.dtype, pages.shape, pages.strides)


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return list(inputs), {}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    update = inputs[1]
    assert update is not None
    return 0.0, 2.0 * update.nbytes


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    pages, update, *indices = inputs
    assert pages is not None and update is not None
    (count, page), tokens = pages.shape[:2], update.shape[0]
    at = _paged.Ragged(trace, indices, tokens, count, page)
    at.allow(at.capacity, trace.binary("subtract", at.lengths, at.counts))
    if at.batch == 0 or tokens == 0 or at.capacity == 0:
        return
    slots = count * page
    writer, hits = (trace.zeros(trace.temp((slots + 1,), "i64")) for _ in range(2))
    slot = _slots(at, count, slots)
    number = at.number(np.arange(tokens) + 1)
    trace("scatter_add", writer, slot, number, out=writer, axis=0)
    trace("scatter_add", hits, slot, at.number(np.ones(tokens)), out=hits, axis=0)
    at.allow(1, hits.slice(0, 0, slots))  # two tokens for one row are an error
    if out.spec.size == 0:
        return
    writer = writer.slice(0, 0, slots).reshape(count, page)
    inside = trace.binary("greater", writer, at.number(0)).expand_dims(2).expand_dims(3)
    source = at.clip(trace.binary("subtract", writer, at.number(1)), tokens - 1)
    step = max(1, GATHERED_ELEMENTS_MAX // (out.spec.size // count), -(-count // STEPS_MAX))
    for start in range(0, count, step):
        stop = min(count, start + step)
        own = [x.slice(0, start, stop) for x in (inside, source, pages, out)]
        rows = trace("gather", update, own[1], axis=0)
        trace("where", own[0], rows, own[2], out=own[3])


def _slots(at: _paged.Ragged, count: int, nobody: int) -> Value:
    """The row of all pages that each token goes to; `nobody` for tokens without a sequence."""
    trace = at.trace
    sequence, owned = at.owners()
    length = trace("gather", at.lengths, sequence, axis=0)
    position = trace.binary("add", length, at.from_end(sequence), out=length)
    position = trace("where", owned, position, at.number(0))
    block = trace.binary("floor_divide", position, at.number(at.page))
    entry = trace.binary("multiply", sequence, at.number(at.blocks))
    entry = trace.binary("add", entry, block, out=entry)
    flat = at.table
    if not flat.spec.is_dense:
        flat = trace("copy", flat)
    page = trace("gather", flat.reshape(at.batch * at.blocks), entry, axis=0)
    page = at.allow(count - 1, trace("where", owned, page, at.number(0)))
    slot = trace.binary("multiply", page, at.number(at.page))
    row = trace.binary("remainder", position, at.number(at.page))
    slot = trace.binary("add", slot, row, out=slot)
    return trace("where", owned, slot, at.number(nobody))


def reference(pages: Any, update: Any, starts: Any, table: Any, lengths: Any) -> Any:
    out, new = wide(pages).copy(), wide(update)
    written = np.zeros(pages.shape[:2], bool)
    tokens = len(update)
    for own, page, row in _paged.sequences(starts, table, lengths, tokens, *pages.shape[:2]):
        count = own.stop - own.start
        if count > len(page):
            raise IndexError("a sequence has more new tokens than positions")
        places = page[len(page) - count :], row[len(page) - count :]
        if written[places].any() or len(set(zip(*places, strict=True))) < count:
            raise IndexError("two tokens go to one row")
        written[places] = True
        out[places] = new[own]
    return out


def _operands(
    rng: Rng, counts: Sequence[int], lengths: Sequence[int], page: int, short: str, spare: int = 0
) -> tuple[Any, ...]:
    pages, indices = _paged.example(rng, counts, lengths, page)
    # Pages that no new token goes to are not read.
    cache = values(rng, (pages, page, 2, 3), short, 10)
    return cache, values(rng, (sum(counts) + spare, 2, 3), short, 10), *indices


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for short in (*PLAIN, *FP8):
        yield Sample(f"decode {short}", _operands(rng, [1, 1, 1], [9, 4, 1], 4, short))
        prefill = _operands(rng, [5, 0, 3, 0], [5, 6, 9, 0], 4, short)
        yield Sample(f"prefill and empty sequences {short}", prefill)
    yield Sample("tokens of nobody", _operands(rng, [2, 1], [2, 7], 3, "f32", 2))
    cache, *rest = _operands(rng, [2, 3], [7, 5], 4, "f32")
    cache[...] = np.nan
    yield Sample("rows that hold NaN", (cache, *rest))
    narrow = (cache, rest[0], *(x.astype(np.int32) for x in rest[1:]))
    yield Sample("i32 indices", narrow)
    yield Sample("nothing new", _operands(rng, [0, 0], [7, 5], 4, "f32"))
    yield Sample("no sequences", (cache, rest[0], rest[1][:1], rest[2][:0], rest[3][:0]))
    yield Sample("no pages", (cache[:0], rest[0][:0], rest[1][:1] * 0, rest[2][:0], rest[3][:0]))


def random(rng: Rng) -> Sample:
    """One sequence on one page: nothing that is repeated sends two tokens to one row."""
    page = int(rng.integers(1, 20))
    count = int(rng.integers(0, page + 1))
    length = int(rng.integers(count, page + 1))
    inputs = _operands(rng, [count], [length], page, one_of(rng, PLAIN), one_of(rng, [0, 2]))
    starts, table = inputs[2], inputs[3][:, :1]
    return Sample("", (*inputs[:2], starts, np.maximum(table, 0), inputs[4]))


SPEC = OpSpec(
    id=61,
    name="paged_cache_append",
    since="0.2",
    summary="pages[block_table[b, p / page_size], p % page_size] = update[t], in place, for token "
    "t at position p of sequence b; returns the pages.",
    inputs=(
        Arg("pages", "[P, page_size, H, D]", doc="of keys or of values"),
        Arg("update", "[T, H, D]", doc="the new rows of all sequences, one after the other"),
        *_paged.ARGS,
    ),
    output=Arg("out", "[P, page_size, H, D]", doc="the pages themselves"),
    attrs=(),
    dtypes={name: name for name in (*PLAIN, *FP8)},
    special="the n new tokens of a sequence go to its last n positions; a length, page or position "
    "out of range, or two tokens for one row, is an error and nothing is written; tokens of no "
    "sequence are left out; other rows keep their bits",
    aliasing="required",
    bound="exact",
    source="Kwon et al. 2023, PagedAttention (arXiv 2309.06180)",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
