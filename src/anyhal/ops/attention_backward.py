"""attention_backward(dout, q, k, v): the gradients of attention; probabilities are computed again.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops import _draw as draw
from anyhal.ops import attention
from anyhal.ops._checks import FLOATS, WIDE, check_same_dtype, check_shape
from anyhal.ops._gradient import dense, zeros
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, LoweredOuts, OpSpec, Outs, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value

NAME = "attention_backward"
CAUSAL = {"none": 1, "first_key": 2, "last_key": 3}


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    dout, q, k, v, kv_length, mask = inputs
    assert dout is not None and q is not None
    # What attention itself refuses; what it may have besides is left out.
    op = attention.SPEC
    operands = [q, k, v, kv_length, mask, *(None,) * (len(op.inputs) - 5)]
    full = {a.name: attrs.get(a.name, a.default) for a in op.attrs}
    out = op.infer_outs(operands, full)[0]
    assert out is not None
    check_same_dtype(NAME, q, dout)
    check_shape(NAME, "dout", dout, out.shape, "[B,H,T,Dv]")
    return dense(q), dense(k), dense(v)


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    dout, q, k, v, kv_length, mask = inputs
    assert q is not None and k is not None
    if mask is not None:
        mask = mask.broadcast_to((*q.shape[:3], k.shape[2]))
    record = {"scale": attrs["scale"], "causal": attrs["causal"]}
    return [dout, q, k, v, kv_length, mask], record, outs


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
) -> tuple[float, float]:
    q, k, v = inputs[1], inputs[2], inputs[3]
    assert q is not None and k is not None and v is not None
    pairs = q.size // max(q.shape[3], 1) * k.shape[2]
    flops = pairs * (6.0 * q.shape[3] + 4.0 * v.shape[3] + 12.0)
    return flops, 2.0 * (q.nbytes + k.nbytes + v.nbytes)


@dataclass(frozen=True)
class _Rows:
    """Scores of one call as [B, Hkv, g, T, S]: which pairs take part, and their probabilities."""

    seen: Value
    p: Value


def _seen(
    trace: Trace, shape: Sequence[int], length: Value | None, mask: Value | None, causal: str
) -> Value:
    """Which keys a query sees, as bool of `shape`."""
    batch, kv_heads, group, queries, keys = shape
    number = "i64" if length is None else length.dtype
    j = trace.numbers(keys, number)
    i = trace.numbers(queries, number).expand_dims(1)
    if length is None:
        end = trace.constant(keys, number)
    else:
        # Read through a table of the allowed ones: the device refuses any other length.
        end = trace("gather", trace.numbers(keys + 1, number), length, axis=0)
        if end.spec.rank:
            end = end.reshape(batch, 1, 1, 1, 1)
    limit = end
    if causal == "first_key":
        limit = trace.binary("minimum", end, trace.binary("add", i, trace.constant(1, number)))
    elif causal == "last_key":
        from_end = trace.binary("add", i, trace.constant(1 - queries, number))
        limit = trace.binary("add", end, from_end)
    visible = trace.binary("less", j, limit)
    if mask is not None and mask.dtype.short == "bool":
        full = mask.broadcast_to((batch, kv_heads * group, queries, keys))
        visible = trace.binary("logical_and", visible, full.split(1, kv_heads, group))
    return visible.broadcast_to((1,) * (5 - visible.spec.rank) + visible.shape).broadcast_to(shape)


def _probabilities(
    trace: Trace, scores: Value, length: Value | None, mask: Value | None, causal: str
) -> _Rows:
    """A row that sees nothing, or only scores of -inf, takes no part at all."""
    acc, (batch, kv_heads, group, queries, keys) = scores.dtype, scores.shape
    if mask is not None and mask.dtype.short != "bool":
        added = trace.cast(mask, acc).broadcast_to((batch, kv_heads * group, queries, keys))
        scores = trace.binary("add", scores, added.split(1, kv_heads, group))
    zero, one = trace.constant(0, acc), trace.constant(1, acc)
    lowest = trace.constant(-np.inf, acc)
    seen = _seen(trace, scores.shape, length, mask, causal)
    scores = trace("where", seen, scores, lowest)
    top = trace("reduce", scores, fn="max", axis=-1, keepdims=True)
    alive = trace.binary("not_equal", top, lowest)
    e = trace.binary("subtract", scores, trace("where", alive, top, zero))
    e = trace.unary("exp", e)
    total = trace("reduce", e, fn="sum", axis=-1, keepdims=True)
    p = trace.binary("divide", e, trace("where", alive, total, one))
    return _Rows(trace.binary("logical_and", seen, alive), p)


def _finite(trace: Trace, x: Value) -> tuple[Value, Value]:
    """(x with 0 for what is not finite, which rows over the last axis hold such values)."""
    good = trace.unary("isfinite", x)
    clean = trace("where", good, x, trace.constant(0, x.dtype))
    whole = trace("reduce", good, fn="all", axis=-1)
    return clean, trace.unary("logical_not", whole)


def _rejected(trace: Trace, seen: Value, bad_query: Value, bad_key: Value) -> tuple[Value, Value]:
    """(queries [B, Hkv, g, T, 1], keys [B, Hkv, S, 1]) whose gradients are NaN: a query that takes
    in anything not finite, and every key that such a query sees."""
    bad = trace.binary(
        "logical_or", bad_query.expand_dims(4), bad_key.expand_dims(2).expand_dims(2)
    )
    bad = trace.binary("logical_and", seen, bad)
    query = trace("reduce", bad, fn="any", axis=-1, keepdims=True)
    key = trace("reduce", trace.binary("logical_and", seen, query), fn="any", axis=(2, 3))
    return query, key.expand_dims(3)


def _put(trace: Trace, rejected: Value, gradient: Value, out: Value) -> None:
    nan = trace.constant(np.nan, gradient.dtype)
    if out.dtype == gradient.dtype:
        trace("where", rejected, nan, gradient, out=out)
    else:
        trace.cast(trace("where", rejected, nan, gradient), out.dtype, out=out)


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: Sequence[Value | None],
) -> None:
    dout, q, k, v, kv_length, mask = inputs
    dq, dk, dv = outs
    assert dout is not None and q is not None and k is not None and v is not None
    assert dq is not None and dk is not None and dv is not None
    batch, heads, queries, size = q.shape
    kv_heads, keys = k.shape[1:3]
    if batch * heads * queries * keys == 0:
        zeros(trace, outs)
        return
    acc, group = WIDE[q.dtype.short], heads // kv_heads
    rows = (batch, kv_heads, group * queries)
    factor = trace.constant(np.float32(attrs["scale"]), acc)

    # Products see finite numbers only, so that nothing hidden can leak through 0 * NaN.
    qc, bad_q = _finite(trace, trace.cast(q, acc))
    kc, bad_k = _finite(trace, trace.cast(k, acc))
    vc, bad_v = _finite(trace, trace.cast(v, acc))
    dc, bad_d = _finite(trace, trace.cast(dout, acc))
    qc = trace.binary("multiply", qc, factor)

    def grouped(x: Value, last: int) -> Value:
        """A dense [B, H, T, n] as [B, Hkv, g, T, n]."""
        return x.reshape(batch, kv_heads, group, queries, last)

    scores = trace("matmul", grouped(qc, size), kc.expand_dims(2).mT())
    r = _probabilities(trace, scores, kv_length, mask, attrs["causal"])
    zero = trace.constant(0, acc)
    p = trace("where", r.seen, r.p, zero)
    dp = trace("matmul", grouped(dc, v.shape[3]), vc.expand_dims(2).mT())
    mean = trace("reduce", trace.binary("multiply", p, dp), fn="sum", axis=-1, keepdims=True)
    ds = trace.binary("multiply", p, trace.binary("subtract", dp, mean))
    ds = trace("where", r.seen, ds, zero)
    query, key = _rejected(
        trace,
        r.seen,
        trace.binary("logical_or", bad_q, bad_d).reshape(batch, kv_heads, group, queries),
        trace.binary("logical_or", bad_k, bad_v),
    )
    gq = trace.binary("multiply", trace("matmul", ds, kc.expand_dims(2)), factor)
    _put(trace, query, gq, dq.split(1, kv_heads, group))
    gk = trace("matmul", ds.reshape(*rows, keys).mT(), qc.reshape(*rows, size))
    _put(trace, key, gk, dk)
    gv = trace("matmul", p.reshape(*rows, keys).mT(), dc.reshape(*rows, v.shape[3]))
    _put(trace, key, gv, dv)


def visible(shape: tuple[int, ...], kv_length: Any, mask: Any, causal: str) -> Any:
    """The bool [B, H, T, S] of the definition."""
    batch, _, queries, keys = shape
    length = np.broadcast_to(keys if kv_length is None else kv_length, (batch,))
    length = length.reshape(-1, 1, 1, 1)
    j, i = np.arange(keys), np.arange(queries)[:, None]
    limit = {
        "none": length,
        "first_key": np.minimum(length, i + 1),
        "last_key": length - queries + i + 1,
    }[causal]
    seen = np.broadcast_to(j < limit, shape)
    return seen if mask is None or mask.dtype != np.bool_ else seen & mask


def reference(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    kv_length: Any = None,
    mask: Any = None,
    *,
    scale: float,
    causal: str,
) -> tuple[Any, Any, Any]:
    if kv_length is not None and not np.all((kv_length >= 0) & (kv_length <= k.shape[2])):
        raise IndexError("kv_length is no number of keys")
    group = q.shape[1] // max(k.shape[1], 1)
    d, qw = wide(dout), wide(q)
    kw, vw = np.repeat(wide(k), group, axis=1), np.repeat(wide(v), group, axis=1)
    factor = qw.dtype.type(np.float32(scale))
    with np.errstate(all="ignore"):
        s = factor * np.einsum("bhtd,bhsd->bhts", qw, kw)
        if mask is not None and mask.dtype != np.bool_:
            s = s + wide(mask)
        seen = visible(s.shape, kv_length, mask, causal)
        s = np.where(seen, s, -np.inf)
        top = s.max(axis=-1, keepdims=True, initial=-np.inf)
        seen = seen & ~np.isneginf(top)
        e = np.where(seen, np.exp(s - top), 0)
        total = e.sum(axis=-1, keepdims=True)
        p = np.where(seen, e / total, 0)
        dp = np.einsum("bhte,bhse->bhts", d, vw)
        mean = np.where(seen, p * dp, 0).sum(axis=-1, keepdims=True)
        ds = np.where(seen, p * (dp - mean), 0)
        # Whatever is not finite and takes part makes its query's gradients NaN, all of them.
        whole = [np.isfinite(x).all(axis=-1) for x in (qw, d, kw, vw)]
        bad = ~(whole[0] & whole[1])[..., None] | ~(whole[2] & whole[3])[:, :, None]
        query = (seen & bad).any(axis=-1, keepdims=True)
        ds, p = np.where(query & seen, np.nan, ds), np.where(query & seen, np.nan, p)

        def blend(weights: Any, rows: Any, axis: int) -> Any:
            """Sums weight * row over a select: what is not seen is never multiplied."""
            terms = np.where(seen[..., None], weights[..., None] * rows, 0)
            return terms.sum(axis=axis)

        dq = factor * blend(ds, kw[:, :, None], 3)
        dk = factor * blend(ds, qw[:, :, :, None], 2)
        dv = blend(p, d[:, :, :, None], 2)
    shared = (k.shape[0], k.shape[1], group, k.shape[2])
    return (
        dq.reshape(q.shape),
        dk.reshape(*shared, k.shape[3]).sum(axis=2),
        dv.reshape(*shared, v.shape[3]).sum(axis=2),
    )


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    def normal(*shape: int, name: str = "f32") -> Any:
        return rng.standard_normal(shape).astype(dtype(name).numpy)

    for name in FLOATS:
        q, k = normal(2, 4, 3, 8, name=name), normal(2, 2, 7, 8, name=name)
        v, d = normal(2, 2, 7, 5, name=name), normal(2, 4, 3, 5, name=name)
        for causal in CAUSAL:
            attrs = {"scale": 0.35, "causal": causal}
            yield Sample(f"grouped {causal} {name}", (d, q, k, v, None, None), attrs)
        lengths = np.array([7, 4])
        yield Sample(f"lengths {name}", (d, q, k, v, lengths, None), attrs)
        seen = rng.integers(0, 2, (2, 1, 3, 7)).astype(bool)
        seen[:, :, 1] = False
        attrs = {"scale": 0.35, "causal": "none"}
        yield Sample(f"bool mask {name}", (d, q, k, v, None, seen), attrs)
        added = normal(3, 7, name=name)
        length = np.array(6, np.int32)
        yield Sample(f"float mask {name}", (d, q, k, v, length, added), attrs)
    d, q, k, v = normal(4, 1, 1, 4, 2)
    attrs = {"scale": 1.0, "causal": "first_key"}
    low = np.full((4, 4), -np.inf, np.float32)
    yield Sample("additive -inf everywhere", (d, q, k, v, None, low), attrs)
    yield Sample("large scores", (d, 100 * q, k, v, None, None), attrs)
    yield Sample("no keys", (d, q, k[:, :, :0], v[:, :, :0], None, None), attrs)
    yield Sample("no queries", (d[:, :, :0], q[:, :, :0], k, v, None, None), attrs)
    for i, name in enumerate(("dout", "q", "k", "v")):
        odd = [d.copy(), q.copy(), k.copy(), v.copy()]
        odd[i][0, 0, 2, 1] = np.inf if name == "v" else np.nan
        yield Sample(f"NaN in {name}", (*odd, None, None), attrs)
        yield Sample(f"hidden NaN in {name}", (*odd, np.array(2), None), attrs)
    yield Sample("NaN mask", (d, q, k, v, np.array(2), np.full((1, 4), np.nan, np.float32)), attrs)


def random(rng: draw.Rng) -> Sample:
    batch, kv_heads, group = (int(n) for n in rng.integers(1, 4, 3))
    queries, keys = draw.size(rng, 17, 1), draw.size(rng, 33)
    width, value_width = draw.size(rng, 33, 1), draw.size(rng, 17, 1)
    short, heads = draw.one_of(rng, FLOATS), kv_heads * group
    d = draw.values(rng, (batch, heads, queries, value_width), short, 1)
    q = draw.values(rng, (batch, heads, queries, width), short, 1)
    k = draw.values(rng, (batch, kv_heads, keys, width), short, 1)
    v = draw.values(rng, (batch, kv_heads, keys, value_width), short, 1)
    lengths = rng.integers(0, keys + 1, draw.one_of(rng, [(), (batch,)]))
    dims = draw.stretched(rng, (batch, heads, queries, keys))
    mask = draw.one_of(rng, [None, draw.values(rng, dims, "bool"), draw.values(rng, dims, short)])
    attrs = {"scale": 0.3, "causal": draw.one_of(rng, CAUSAL)}
    return Sample("", (d, q, k, v, draw.one_of(rng, [None, lengths]), mask), attrs)


SPEC = OpSpec(
    id=86,
    name=NAME,
    since="0.1",
    summary="With p = softmax(scale * q k^T + mask) over the visible keys and ds = p * (dp - "
    "sum(p * dp)), dp = dout v^T: dq = scale * ds k, dk = scale * ds^T q, dv = p^T dout, the last "
    "two summed over the heads that share a key.",
    inputs=(
        Arg("dout", "[B, H, T, Dv]"),
        Arg("q", "[B, H, T, D]"),
        Arg("k", "[B, Hkv, S, D]", doc="H is a multiple of Hkv"),
        Arg("v", "[B, Hkv, S, Dv]"),
        Arg(
            "kv_length",
            "[] or [B]",
            optional=True,
            doc="i64 or i32; how many keys count, else S",
            own="i64",
        ),
        Arg("mask", "[B, H, T, S]", optional=True, doc="bool, or q's dtype; broadcasts"),
    ),
    output=Arg("dq", "[B, H, T, D]"),
    more_outputs=(
        Arg("dk", "[B, Hkv, S, D]", bound="attention_backward_key"),
        Arg("dv", "[B, Hkv, S, Dv]", bound="attention_backward_value"),
    ),
    attrs=(
        Attr("scale", "f32", c_type="float", doc="multiplies q . k, as 1/sqrt(D)"),
        Attr(
            "causal",
            "enum",
            choices=CAUSAL,
            c_type="int32_t",
            c_enum="causal",
            doc="none; first_key: j <= t; last_key: j <= kv_length - T + t",
        ),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="what the mask, the length and the causal rule hide has no part, NaN included, and a "
    "row that sees nothing gives 0; a query that takes in anything not finite makes NaN its dq and "
    "the dk and dv of every key that it sees; a kv_length outside 0..S is an error",
    aliasing="none",
    bound=NAME,
    source="the derivative of ONNX Attention, opset 23; Dao et al. 2022 (arXiv 2205.14135)",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
