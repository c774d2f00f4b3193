"""Attention whose answer is known to the bit: masks off by one, dead keys, rows without keys.
SPDX-License-Identifier: Apache-2.0

One score towers over the others, so that the weights are 1 and 0 exactly and the answer is one row
of v, whose numbers say where they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._spec import Sample

Made = Iterator[Sample | tuple[Sample, bool]]
_APART = 128.0  # exp(-128) is below every f32


def towering(short: str, batch: int, heads: int, kv: int, t: int, s: int, last: bool) -> Any:
    """q, k and v: of the keys that a query sees, its last one takes all, or its first."""
    kind = dtype(short).numpy
    places = np.arange(s) if last else np.arange(s)[::-1]
    k = np.zeros((batch, kv, s, 8))
    k[..., 0], k[..., 1] = places // 16, places % 16  # exact in every dtype
    q = np.zeros((batch, heads, t, 8))
    q[..., 0], q[..., 1] = 16 * _APART / 16, _APART / 16
    v = (np.arange(batch * kv * s * 5) * 7 % 251 + 1).reshape(batch, kv, s, 5)
    return tuple(x.astype(kind) for x in (q, k, v))


def _attention(rng: np.random.Generator, short: str) -> Made:
    kind = dtype(short).numpy
    sizes = ((1, 1), (1, 33), (5, 5), (7, 33), (33, 65), (9, 4), (3, 257))
    for t, s in sizes if short == "f32" else sizes[3:6]:
        for causal in ("none", "first_key", "last_key"):
            for last in (True, False):
                q, k, v = towering(short, 1, 2, 1, t, s, last)
                attrs = {"scale": 16.0, "causal": causal}
                label = f"{causal} {t}x{s} {'last' if last else 'first'}"
                yield Sample(label, (q, k, v), attrs), True
                if causal != "none" and not last:
                    for window in (1, 4, 32):
                        given = {**attrs, "window": window}
                        yield Sample(f"{label} window {window}", (q, k, v), given), True
    q, k, v = towering(short, 2, 4, 2, 3, 33, True)
    for lengths in (0, 1, 16, 17, 32, 33):
        attrs = {"scale": 16.0, "causal": "none"}
        both = np.array([lengths, 33 - lengths])
        dead = [x.copy() for x in (k, v)]
        for b, n in enumerate(both):
            for x in dead:
                x[b, :, n:] = np.nan
        for causal in ("none", "first_key", "last_key"):
            given = {**attrs, "causal": causal}
            yield Sample(f"lengths {both} {causal}", (q, k, v, both), given), True
            yield Sample(f"dead keys {both} {causal}", (q, *dead, both), given), True
    mask = rng.integers(0, 2, (2, 4, 3, 33)).astype(bool)
    mask[0, 0, 0] = mask[1, :, 2] = False  # rows without keys
    attrs = {"scale": 16.0, "causal": "none"}
    yield Sample("mask", (q, k, v, None, mask), attrs), True
    one = np.broadcast_to(mask[:1, :1, :1], (2, 4, 3, 33))
    yield Sample("one mask for all", (q, k, v, None, mask[:1, :1, :1]), attrs), True
    hidden = v.copy()
    hidden[:, :, ~mask[0, 0, 1]] = np.nan
    only = np.broadcast_to(mask[0, 0, 1], one.shape).copy()
    yield Sample("NaN behind a mask", (q, k, hidden, None, only), attrs), True
    yield from _reals(rng, kind)


def _reals(rng: np.random.Generator, kind: Any) -> Made:
    """Bounded: many keys, large and equal scores, odd head sizes."""
    for d, s in ((1, 7), (40, 33), (72, 65), (80, 31), (96, 129), (112, 17), (257, 9), (64, 1025)):
        q = rng.standard_normal((1, 2, 3, d)).astype(kind)
        k, v = (rng.standard_normal((1, 1, s, d)).astype(kind) for _ in "kv")
        attrs = {"scale": float(np.float32(d**-0.5)), "causal": "none"}
        yield Sample(f"head {d} keys {s}", (q, k, v), attrs)
        if d in (40, 64):
            yield Sample(f"head {d} lse", (q, k, v), {**attrs, "return_lse": True})
            spread = (np.concatenate([v[:, :, : s // 2] + 8, v[:, :, s // 2 :] - 8], 2)).astype(
                kind
            )
            yield Sample(f"head {d} cancelling", (q, k, spread), attrs)
            yield Sample(f"head {d} steep", (q, k, v), {**attrs, "scale": 4.0})
    q, k, v = (rng.standard_normal((1, 1, n, 8)).astype(kind) for n in (4, 33, 33))
    ones = np.ones_like(k)
    for level in (-5e4, 5e4):
        attrs = {"scale": level / 8, "causal": "none", "return_lse": True}
        yield Sample(f"all scores {level}", (np.ones_like(q), ones, v), attrs)
    additive = np.where(rng.integers(0, 2, (1, 1, 4, 33)), -np.inf, 0).astype(kind)
    attrs = {"scale": 0.3, "causal": "none", "return_lse": True}
    yield Sample("additive mask", (q, k, v, None, additive), attrs)
    yield Sample("softcap", (q, k, v), {**attrs, "softcap": 2.0})
    yield Sample("sinks", (q, k, v, None, None, np.zeros(1, kind)), attrs)
    nothing = np.zeros((1, 1, 0, 8), kind)
    yield Sample("no keys", (q, nothing, nothing), attrs)


def _paged(rng: np.random.Generator, short: str) -> Made:
    for counts, lengths in (((1, 1), (1, 33)), ((3, 5), (3, 21)), ((2, 0, 1), (16, 0, 17))):
        for page in (1, 4, 16):
            q, k, v = towering(short, 1, 2, 1, sum(counts), max(lengths), True)
            used = [-(-n // page) for n in lengths]
            blocks = max(used) + 1
            pages = sum(used) + 2
            free = rng.permutation(pages)
            table = np.full((len(counts), blocks), -7)
            k_pages, v_pages = (
                np.full((pages, page, 1, x.shape[-1]), np.nan, x.dtype) for x in (k, v)
            )
            at = 0
            for b, n in enumerate(used):
                table[b, :n] = free[at : at + n]
                at += n
                for p in range(lengths[b]):
                    place = table[b, p // page], p % page
                    k_pages[place], v_pages[place] = k[0, :, p], v[0, :, p] + 2 * b
            starts = np.concatenate([[0], np.cumsum(counts)])
            queries = np.ascontiguousarray(q[0].transpose(1, 0, 2))
            inputs = (queries, k_pages, v_pages, starts, table, np.array(lengths))
            label = f"{counts} of {lengths} in pages of {page}"
            attrs = {"scale": 16.0, "max_queries": max(counts)}
            yield Sample(label, inputs, attrs), True


def _backward(rng: np.random.Generator, short: str) -> Made:
    for t, s in ((3, 5), (7, 33)):
        for causal in ("none", "first_key", "last_key"):
            q, k, v = towering(short, 1, 2, 1, t, s, True)
            dout = rng.integers(-2, 2, (1, 2, t, 5), endpoint=True).astype(q.dtype)
            attrs = {"scale": 16.0, "causal": causal}
            yield Sample(f"{causal} {t}x{s}", (dout, q, k, v), attrs)


ATTENDING: dict[str, Callable[[np.random.Generator, str], Made]] = {
    "attention": _attention,
    "paged_attention": _paged,
    "attention_backward": _backward,
}
