"""paged_attention(q, k_pages, v_pages, ...): attention of a ragged batch over a cache in pages.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.errors import InvalidArgumentError
from anyhal.ops import _paged, attention
from anyhal.ops._checks import FLOATS, WIDE, check_dtype, check_rank, check_same_dtype
from anyhal.ops._draw import Rng, one_of, values
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value

GATHERED_ELEMENTS_MAX = 1 << 22  # of keys and values at a time, if that needs few steps
STEPS_MAX = 16


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    q, k, v, starts, table, lengths = inputs
    assert q is not None and k is not None and v is not None
    assert starts is not None and table is not None and lengths is not None
    check_dtype("paged_attention", "q", q, FLOATS)
    check_same_dtype("paged_attention", q, k, v)
    check_rank("paged_attention", "q", q, 3, "[T, H, D]")
    check_rank("paged_attention", "k_pages", k, 4, "[P, page_size, Hkv, D]")
    check_rank("paged_attention", "v_pages", v, 4, "[P, page_size, Hkv, Dv]")
    heads, kv_heads = q.shape[1], k.shape[2]
    if k.shape[:3] != v.shape[:3] or k.shape[3] != q.shape[2]:
        raise InvalidArgumentError(
            f"paged_attention: q {describe(q)}, k_pages {describe(k)}, v_pages {describe(v)}: they "
            "must be [T,H,D], [P,page_size,Hkv,D] and [P,page_size,Hkv,Dv]; reshape one"
        )
    if heads % max(kv_heads, 1) or (heads and not kv_heads):
        raise InvalidArgumentError(
            f"paged_attention: q {describe(q)} has {heads} heads and k_pages {describe(k)} has "
            f"{kv_heads}: the first must be a multiple of the second; repeat or drop heads"
        )
    if not 0 <= attrs["max_queries"] < 1 << 63:
        raise InvalidArgumentError(
            f"paged_attention: max_queries={attrs['max_queries']} is outside 0..2^63 - 1; pass the "
            "most tokens that a sequence has, or 0 if that is not known"
        )
    _paged.check("paged_attention", starts, table, lengths)
    return TensorSpec.dense(q.dtype, (*q.shape[:2], v.shape[3]))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    return list(inputs), {n: attrs[n] for n in ("scale", "max_queries")}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    q, k, v, _, table, _ = inputs
    assert q is not None and k is not None and v is not None and table is not None
    keys = table.shape[1] * k.shape[1]
    flops = 2.0 * q.shape[0] * q.shape[1] * keys * (k.shape[3] + v.shape[3])
    cached = table.shape[0] * keys * k.shape[2] * (k.shape[3] + v.shape[3])
    return flops, float(q.nbytes + out.nbytes + cached * q.dtype.block_bytes)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    q, k, v, *indices = inputs
    assert q is not None and k is not None and v is not None
    tokens, heads, width = out.shape
    pages, page = k.shape[:2]
    at = _paged.Ragged(trace, indices, tokens, pages, page)
    most = min(attrs["max_queries"] or tokens, tokens)
    at.allow(most, at.counts)
    if out.spec.size == 0 or at.batch == 0 or at.capacity == 0:
        trace.zeros(out)
        return
    # Each sequence gets `most` rows, its tokens last, as attention aligns the last key.
    row = at.number(np.arange(most) - most)
    rows = at.clip(trace.binary("add", at.end.expand_dims(1), row), tokens - 1)
    block = at.number(np.arange(at.blocks) * page)
    used = trace.binary("less", block, at.lengths.expand_dims(1))
    table = trace("where", used, at.table, at.number(0))  # what is not used may hold anything
    padded = trace.temp((at.batch, most, heads, width), out.dtype)
    per_sequence = at.capacity * k.shape[2] * (k.shape[3] + width)
    step = max(1, GATHERED_ELEMENTS_MAX // max(per_sequence, 1), -(-at.batch // STEPS_MAX))
    for start in range(0, at.batch, step):
        stop = min(at.batch, start + step)
        own = [x.slice(0, start, stop) for x in (rows, table, at.lengths, padded)]
        _attend(trace, (q, k, v), own, attrs)
    sequence, owned = at.owners()
    place = trace.binary("multiply", sequence, at.number(most))
    place = trace.binary("add", place, at.from_end(sequence), out=place)
    place = trace.binary("add", place, at.number(most), out=place)
    place = at.clip(place, at.batch * most - 1)
    found = trace("gather", padded.reshape(at.batch * most, heads, width), place, axis=0)
    seen = owned.expand_dims(1).expand_dims(2)
    trace("where", seen, found, trace.constant(0, out.dtype), out=out)


def _attend(
    trace: Trace,
    operands: tuple[Value, Value, Value],
    own: Sequence[Value],
    attrs: Mapping[str, Any],
) -> None:
    """attention of some sequences, whose keys and values are gathered."""
    q, k, v = operands
    rows, table, lengths, out = own

    def cached(x: Value) -> Value:
        got = trace("gather", x, table, axis=0)
        return got.reshape(table.shape[0], table.shape[1] * x.shape[1], *x.shape[2:])

    parts = [trace("gather", q, rows, axis=0), cached(k), cached(v)]
    inputs = [x.permute(0, 2, 1, 3) for x in parts]
    plain = {a.name: a.default for a in attention.SPEC.attrs}
    plain |= {"scale": attrs["scale"], "causal": "last_key"}
    outs = (out.permute(0, 2, 1, 3), None)
    attention.decompose(trace, [*inputs, lengths, None, None], plain, outs)


def each_sequence(inputs: Sequence[Any]) -> Iterator[tuple[slice, tuple[Any, ...]]]:
    """The tokens of each sequence, and its q, k and v as `attention` takes them."""
    q, k, v, starts, table, lengths = inputs
    for own, page, row in _paged.sequences(starts, table, lengths, len(q), *k.shape[:2]):
        parts = (q[own], k[page, row], v[page, row])
        yield own, tuple(np.swapaxes(x, 0, 1)[None] for x in parts)


def reference(*inputs: Any, scale: float, max_queries: int = 0) -> Any:
    q, v, starts = inputs[0], inputs[2], inputs[3]
    if max_queries and np.any(np.diff(starts) > max_queries):
        raise IndexError("a sequence has more tokens than max_queries")
    wider = np.longdouble if q.dtype == np.float64 else np.float64
    out = np.zeros((*q.shape[:2], v.shape[3]), wider)
    for own, parts in each_sequence(inputs):
        found, _ = attention.reference(*parts, scale=scale, causal="last_key")
        out[own] = np.swapaxes(found[0], 0, 1)
    return out


def _operands(
    rng: Rng, counts: Sequence[int], lengths: Sequence[int], page: int, short: str, spare: int = 0
) -> tuple[Any, ...]:
    """Of 4 heads on 2, with `spare` tokens that belong to no sequence."""
    pages, indices = _paged.example(rng, counts, lengths, page)
    q = values(rng, (sum(counts) + spare, 4, 8), short, 1)
    k, v = (values(rng, (pages, page, 2, n), short, 1) for n in (8, 5))
    return q, k, v, *indices


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    attrs = {"scale": 0.35}
    for name in FLOATS:
        decode = _operands(rng, [1, 1, 1], [9, 4, 1], 4, name)
        yield Sample(f"decode {name}", decode, {**attrs, "max_queries": 1})
        prefill = _operands(rng, [5, 0, 3, 0], [5, 6, 9, 0], 4, name)
        yield Sample(f"prefill and empty sequences {name}", prefill, attrs)
        yield Sample(f"tokens of nobody {name}", _operands(rng, [2, 1], [2, 7], 3, name, 2), attrs)
    stale = _operands(rng, [2, 1], [5, 2], 4, "f32")
    for pages in stale[1:3]:
        beyond = np.ones(pages.shape[:2], bool)
        for b, n in enumerate(stale[5]):
            beyond[stale[4][b, np.arange(n) // 4], np.arange(n) % 4] = False
        pages[beyond] = np.nan
    yield Sample("NaN past the lengths", stale, attrs)
    few = _operands(rng, [3], [2], 4, "f32")
    yield Sample("more tokens than positions", few, attrs)
    narrow = (*stale[:3], *(x.astype(np.int32) for x in stale[3:]))
    yield Sample("i32 indices", narrow, attrs)
    yield Sample("no tokens", _operands(rng, [0, 0], [3, 0], 4, "f32"), attrs)
    q, k, v, starts, table, lengths = _operands(rng, [0], [0], 4, "f32", 3)
    yield Sample("no pages", (q, k[:0], v[:0], starts, table, lengths), attrs)
    yield Sample("no sequences", (q, k, v, starts[:1], table[:0], lengths[:0]), attrs)


def random(rng: Rng) -> Sample:
    batch, page = int(rng.integers(1, 5)), one_of(rng, [1, 3, 8])
    counts = [int(n) for n in rng.integers(0, 6, batch)]
    lengths = [n + int(rng.integers(0, 20)) for n in counts]
    inputs = _operands(rng, counts, lengths, page, one_of(rng, FLOATS), one_of(rng, [0, 2]))
    # Any row of the table may stand for another: every entry is a page.
    inputs = (*inputs[:4], np.maximum(inputs[4], 0), inputs[5])
    return Sample("", inputs, {"scale": 0.3, "max_queries": one_of(rng, [0, 5, 8])})


SPEC = OpSpec(
    id=60,
    name="paged_attention",
    since="0.2",
    summary="out[t] = attention of token t over the positions of its sequence, which lie in pages.",
    inputs=(
        Arg("q", "[T, H, D]", doc="the tokens of all sequences, one after the other"),
        Arg("k_pages", "[P, page_size, Hkv, D]", doc="H is a multiple of Hkv"),
        Arg("v_pages", "[P, page_size, Hkv, Dv]"),
        *_paged.ARGS,
    ),
    output=Arg("out", "[T, H, Dv]"),
    attrs=(
        Attr("scale", "f32", c_type="float", doc="multiplies q . k, as 1/sqrt(D)"),
        Attr(
            "max_queries",
            "i64",
            default=0,
            c_type="uint64_t",
            doc="no sequence has more tokens; 0 if that is not known; 1 when decoding",
        ),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="causal with the last key aligned: token t of n sees positions to lengths - n + t; a "
    "token that sees nothing, or has no sequence, is 0; entries of the block table past a length, "
    "and rows past it, have no part; numbers out of range are an error and nothing is written",
    aliasing="none",
    bound="paged_attention",
    source="Kwon et al. 2023, PagedAttention (arXiv 2309.06180); attention of this registry",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
