"""attention_backward(dout, q, k, v): the gradients of attention; probabilities are computed again.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops import _draw as draw
from anyhal.ops import attention
from anyhal.ops._attention import CAUSAL, visible_keys
from anyhal.ops._attention_gradient import Rows, finite, probabilities, rejected
from anyhal.ops._checks import FLOATS, WIDE, check_dtype, check_same_dtype, check_shape
from anyhal.ops._gradient import dense, sum_over, zeros
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, LoweredOuts, OpSpec, Outs, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value

NAME = "attention_backward"


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    dout, q, k, v, kv_length, mask, sinks, dlse = inputs
    assert dout is not None and q is not None
    # What attention itself refuses.
    full = {**attrs, "return_lse": True}
    out, lse = attention.infer([q, k, v, kv_length, mask, sinks], full)
    assert out is not None and lse is not None
    check_same_dtype(NAME, q, dout)
    check_shape(NAME, "dout", dout, out.shape, "[B,H,T,Dv]")
    if dlse is not None:
        check_dtype(NAME, "dlse", dlse, (lse.dtype.short,))
        check_shape(NAME, "dlse", dlse, lse.shape, "[B,H,T]")
    return dense(q), dense(k), dense(v), dense(sinks)


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    dout, q, k, v, kv_length, mask, sinks, dlse = inputs
    assert q is not None and k is not None
    if mask is not None:
        mask = mask.broadcast_to((*q.shape[:3], k.shape[2]))
    record = {name: attrs[name] for name in ("scale", "causal", "window", "softcap")}
    return [dout, q, k, v, kv_length, mask, sinks, dlse], record, outs


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
) -> tuple[float, float]:
    q, k, v = inputs[1], inputs[2], inputs[3]
    assert q is not None and k is not None and v is not None
    pairs = q.size // max(q.shape[3], 1) * k.shape[2]
    flops = pairs * (6.0 * q.shape[3] + 4.0 * v.shape[3] + 12.0)
    return flops, 2.0 * (q.nbytes + k.nbytes + v.nbytes)


def _put(trace: Trace, rejected: Value, gradient: Value, out: Value) -> None:
    nan = trace.constant(np.nan, gradient.dtype)
    if out.dtype == gradient.dtype:
        trace("where", rejected, nan, gradient, out=out)
    else:
        trace.cast(trace("where", rejected, nan, gradient), out.dtype, out=out)


def _put_sinks(
    trace: Trace, r: Rows, rejected: Value, mean: Value, dlse: Value | None, out: Value
) -> None:
    """dsinks: a sink is a key whose value is 0."""
    assert r.sink is not None
    zero, nan = trace.constant(0, mean.dtype), trace.constant(np.nan, mean.dtype)
    change = trace.unary("neg", mean)
    if dlse is not None:
        change = trace.binary("add", dlse, change)
    change = trace("where", r.alive, trace.binary("multiply", r.sink, change), zero)
    change = trace("where", rejected, nan, change)
    sum_over(trace, change, (0, 3, 4), out.split(0, *r.sink.shape[1:3]))


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: Sequence[Value | None],
) -> None:
    dout, q, k, v, kv_length, mask, sinks, dlse = inputs
    dq, dk, dv, dsinks = outs
    assert dout is not None and q is not None and k is not None and v is not None
    assert dq is not None and dk is not None and dv is not None
    batch, heads, queries, size = q.shape
    kv_heads, keys = k.shape[1:3]
    if batch * heads * queries * keys == 0:
        zeros(trace, (dq, dk, dv))
        if dsinks is not None:
            _sinks_alone(trace, sinks, dlse, dsinks)
        return
    acc, group = WIDE[q.dtype.short], heads // kv_heads
    rows = (batch, kv_heads, group * queries)
    factor = trace.constant(np.float32(attrs["scale"]), acc)

    # Products over what is hidden see finite numbers only, so that nothing leaks through 0 * NaN.
    # A score is of one query and one key: it is of what they hold, as in attention.
    wide_q, wide_k, wide_v, wide_d = (trace.cast(x, acc) for x in (q, k, v, dout))
    cleaned = (finite(trace, x) for x in (wide_q, wide_k, wide_v, wide_d))
    (qc, bad_q), (kc, bad_k), (vc, bad_v), (dc, bad_d) = cleaned
    qc = trace.binary("multiply", qc, factor)
    raw_q = trace.binary("multiply", wide_q, factor)

    def grouped(x: Value, last: int) -> Value:
        """A dense [B, H, T, n] as [B, Hkv, g, T, n]."""
        return x.reshape(batch, kv_heads, group, queries, last)

    scores = trace("matmul", grouped(raw_q, size), wide_k.expand_dims(2).mT())
    r = probabilities(trace, scores, kv_length, mask, sinks, attrs)
    zero = trace.constant(0, acc)
    p = trace("where", r.seen, r.p, zero)
    dp = trace("matmul", grouped(dc, v.shape[3]), vc.expand_dims(2).mT())
    mean = trace("reduce", trace.binary("multiply", p, dp), fn="sum", axis=-1, keepdims=True)
    change = trace.binary("subtract", dp, mean)
    bad_row = trace.binary("logical_or", bad_q, bad_d)
    level = None
    if dlse is not None:
        level = dlse.split(1, kv_heads, group).expand_dims(4)
        clean, bad = finite(trace, level)
        change = trace.binary("add", change, clean)
        bad_row = trace.binary("logical_or", bad_row, bad.reshape(batch, heads, queries))
    ds = trace.binary("multiply", p, change)
    if r.slope is not None:
        ds = trace.binary("multiply", ds, r.slope)
    ds = trace("where", r.seen, ds, zero)
    query, key = rejected(
        trace,
        r.seen,
        bad_row.reshape(batch, kv_heads, group, queries),
        trace.binary("logical_or", bad_k, bad_v),
    )
    gq = trace.binary("multiply", trace("matmul", ds, kc.expand_dims(2)), factor)
    _put(trace, query, gq, dq.split(1, kv_heads, group))
    gk = trace("matmul", ds.reshape(*rows, keys).mT(), qc.reshape(*rows, size))
    _put(trace, key, gk, dk)
    gv = trace("matmul", p.reshape(*rows, keys).mT(), dc.reshape(*rows, v.shape[3]))
    _put(trace, key, gv, dv)
    if dsinks is not None:
        _put_sinks(trace, r, query, mean, level, dsinks)


def _sinks_alone(trace: Trace, sinks: Value | None, dlse: Value | None, out: Value) -> None:
    """Without keys the log-sum-exp is the sink, unless that is -inf; the output depends on none."""
    if dlse is None or dlse.spec.size == 0 or sinks is None:
        trace.zeros(out)
        return
    lowest = trace.constant(-np.inf, sinks.dtype)
    alive = trace.binary("not_equal", sinks, lowest).expand_dims(1)
    sink = trace.cast(sinks, dlse.dtype).expand_dims(1)
    # exp(sink - sink): 1, and NaN for what is not finite.
    share = trace.unary("exp", trace.binary("subtract", sink, sink))
    terms = trace.binary("multiply", dlse, share)
    zero = trace.constant(0, dlse.dtype)
    sum_over(trace, trace("where", alive, terms, zero), (0, 2), out)


def _reference_rows(
    q: Any,
    k: Any,
    kv_length: Any,
    mask: Any,
    sinks: Any,
    scale: float,
    causal: str,
    window: int,
    softcap: float,
) -> tuple[Any, ...]:
    """As `Rows`, as [B, H, T, S]."""
    s, slope = q.dtype.type(np.float32(scale)) * np.einsum("bhtd,bhsd->bhts", q, k), 1
    if softcap:
        cap = q.dtype.type(np.float32(softcap))
        t = np.tanh(s / cap)
        s, slope = cap * t, 1 - t * t
    if mask is not None and mask.dtype != np.bool_:
        s = s + wide(mask)
    seen = visible_keys(s.shape, kv_length, mask, causal, window)
    s = np.where(seen, s, -np.inf)
    none = np.full(q.shape[1], -np.inf, q.dtype)
    sink = (none if sinks is None else wide(sinks))[:, None, None]
    top = np.maximum(s.max(axis=-1, keepdims=True, initial=-np.inf), sink)
    alive = ~np.isneginf(top)
    seen = seen & alive
    shift = np.where(alive, top, 0)
    e, rest = np.where(seen, np.exp(s - shift), 0), np.exp(sink - shift)
    total = np.where(alive, e.sum(axis=-1, keepdims=True) + rest, 1)
    return seen, np.where(seen, e / total, 0), slope, alive, rest / total


def reference(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    kv_length: Any = None,
    mask: Any = None,
    sinks: Any = None,
    dlse: Any = None,
    *,
    scale: float,
    causal: str,
    window: int = 0,
    softcap: float = 0.0,
) -> tuple[Any, Any, Any, Any]:
    if kv_length is not None and not np.all((kv_length >= 0) & (kv_length <= k.shape[2])):
        raise IndexError("kv_length is no number of keys")
    group = q.shape[1] // max(k.shape[1], 1)
    d, qw = wide(dout), wide(q)
    kw, vw = np.repeat(wide(k), group, axis=1), np.repeat(wide(v), group, axis=1)
    factor = qw.dtype.type(np.float32(scale))
    with np.errstate(all="ignore"):
        rows = _reference_rows(qw, kw, kv_length, mask, sinks, scale, causal, window, softcap)
        seen, p, slope, alive, p_sink = rows
        dp = np.einsum("bhte,bhse->bhts", d, vw)
        mean = np.where(seen, p * dp, 0).sum(axis=-1, keepdims=True)
        level = np.zeros(mean.shape) if dlse is None else wide(dlse)[..., None]
        ds = np.where(seen, p * (dp - mean + level) * slope, 0)
        # Whatever is not finite and takes part makes its query's gradients NaN, all of them.
        whole = [np.isfinite(x).all(axis=-1) for x in (qw, d, kw, vw)]
        whole_row = whole[0] & whole[1] & np.isfinite(level[..., 0])
        bad = ~whole_row[..., None] | ~(whole[2] & whole[3])[:, :, None]
        query = (seen & bad).any(axis=-1, keepdims=True)
        ds, p = np.where(query & seen, np.nan, ds), np.where(query & seen, np.nan, p)
        sees = np.where(seen.any(axis=-1, keepdims=True), mean, 0)
        taken = np.where(alive, p_sink * (level - sees), 0)
        dsinks = np.where(query, np.nan, taken).sum(axis=(0, 2, 3))

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
        None if sinks is None else dsinks,
    )


def _sample(label: str, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Sample:
    return Sample(label, (*inputs, *(None,) * (8 - len(inputs))), attrs)


def _odd_rows(d: Any, q: Any, k: Any, v: Any, low: Any, dlse: Any) -> Iterator[Sample]:
    """Which rows take part is decided by the scores, as in attention."""
    none_seen, half_seen = np.zeros((1, 4), bool), np.array([[True, False, True, False]])
    for value in (-np.inf, np.inf, np.nan):
        ones, odd_q = np.ones_like(k), np.abs(q)
        odd_q[0, 0, 2] = value
        free = {"scale": 1.0, "causal": "none"}
        yield _sample(f"q {value}", (d, odd_q, ones, v), free)
        yield _sample(f"q {value}, softcap", (d, odd_q, ones, v), {**free, "softcap": 2.0})
        yield _sample(f"q {value}, -inf added", (d, odd_q, ones, v, None, low), free)
        yield _sample(f"q {value}, all hidden", (d, odd_q, ones, v, None, none_seen), free)
        yield _sample(f"q {value}, half hidden", (d, odd_q, ones, v, None, half_seen), free)
        full = (d, odd_q, ones, v, None, low, dlse[0, 0, :1], dlse)
        yield _sample(f"q {value}, -inf added, a sink", full, free)
        odd_k = -np.full_like(k, value)
        yield _sample(f"every key {value}", (d, np.abs(q), odd_k, v), free)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    def normal(*shape: int, name: str = "f32") -> Any:
        return rng.standard_normal(shape).astype(dtype(name).numpy)

    for name in FLOATS:
        q, k = normal(2, 4, 3, 8, name=name), normal(2, 2, 7, 8, name=name)
        v, d = normal(2, 2, 7, 5, name=name), normal(2, 4, 3, 5, name=name)
        for causal in CAUSAL:
            attrs = {"scale": 0.35, "causal": causal}
            yield _sample(f"grouped {causal} {name}", (d, q, k, v), attrs)
        lengths = np.array([7, 4])
        yield _sample(f"lengths {name}", (d, q, k, v, lengths), attrs)
        seen = rng.integers(0, 2, (2, 1, 3, 7)).astype(bool)
        seen[:, :, 1] = False
        attrs = {"scale": 0.35, "causal": "none"}
        yield _sample(f"bool mask {name}", (d, q, k, v, None, seen), attrs)
        added = normal(3, 7, name=name)
        length = np.array(6, np.int32)
        yield _sample(f"float mask {name}", (d, q, k, v, length, added), attrs)
        sinks, dlse = normal(4, name=name), normal(2, 4, 3, name=WIDE[name])
        for causal, window in (("first_key", 2), ("last_key", 3), ("last_key", 1), ("none", 0)):
            more = {"scale": 0.35, "causal": causal, "window": window, "softcap": 2.0}
            full = (d, q, k, v, np.array([7, 2]), added, sinks, dlse)
            yield _sample(f"window {window} {causal} softcap sinks {name}", full, more)
        yield _sample(f"sinks alone {name}", (d, q, k, v, None, seen, sinks), attrs)
        yield _sample(f"dlse alone {name}", (d, q, k, v, None, seen, None, dlse), attrs)
    d, q, k, v = normal(4, 1, 1, 4, 2)
    dlse, none = normal(1, 1, 4), np.array(0)
    attrs = {"scale": 1.0, "causal": "first_key"}
    low = np.full((4, 4), -np.inf, np.float32)
    yield _sample("additive -inf everywhere", (d, q, k, v, None, low), attrs)
    yield _sample("large scores", (d, 100 * q, k, v), attrs)
    yield _sample("large scores, softcap", (d, 100 * q, k, v), {**attrs, "softcap": 5.0})
    yield _sample("wide window", (d, q, k, v), {**attrs, "window": 2**40})
    yield _sample("no keys", (d, q, k[:, :, :0], v[:, :, :0]), attrs)
    yield _sample("no queries", (d[:, :, :0], q[:, :, :0], k, v), attrs)
    for i, name in enumerate(("dout", "q", "k", "v")):
        odd = [d.copy(), q.copy(), k.copy(), v.copy()]
        odd[i][0, 0, 2, 1] = np.inf if name == "v" else np.nan
        yield _sample(f"NaN in {name}", tuple(odd), attrs)
        yield _sample(f"hidden NaN in {name}", (*odd, np.array(2)), attrs)
        yield _sample(f"NaN in {name} and a sink", (*odd, None, None, dlse[0, 0, :1]), attrs)
    yield _sample("NaN mask", (d, q, k, v, np.array(2), np.full((1, 4), np.nan, np.float32)), attrs)
    yield from _odd_rows(d, q, k, v, low, dlse)
    for value in (1.5, -np.inf, np.nan):
        sink = np.array([value], np.float32)
        yield _sample(f"hidden rows, sink {value}", (d, q, k, v, none, None, sink, dlse), attrs)
        empty = (d, q, k[:, :, :0], v[:, :, :0], None, None, sink, dlse)
        yield _sample(f"no keys, sink {value}", empty, attrs)
        yield _sample(f"sink {value}", (d, q, k, v, None, None, sink, dlse), attrs)
    for value in (np.inf, np.nan):
        odd_lse = dlse.copy()
        odd_lse[0, 0, 1] = value
        yield _sample(f"{value} in dlse", (d, q, k, v, None, None, None, odd_lse), attrs)


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
    sinks = draw.one_of(rng, [None, draw.values(rng, (heads,), short, 1)])
    dlse = draw.one_of(rng, [None, draw.values(rng, (batch, heads, queries), WIDE[short], 1)])
    causal = draw.one_of(rng, CAUSAL)
    window = 0 if causal == "none" else int(rng.integers(0, 9))
    attrs = {"scale": 0.3, "causal": causal, "window": window}
    attrs["softcap"] = draw.one_of(rng, [0.0, 2.0])
    return Sample("", (d, q, k, v, draw.one_of(rng, [None, lengths]), mask, sinks, dlse), attrs)


SPEC = OpSpec(
    id=86,
    name=NAME,
    since="0.1",
    summary="With p = softmax(scale * q k^T + mask) over the visible keys and the sink, and ds = "
    "p * (dp - sum(p * dp) + dlse), dp = dout v^T: dq = scale * ds k, dk = scale * ds^T q, dv = "
    "p^T dout, the last two summed over the heads that share a key; dsinks = sum of p_sink * "
    "(dlse - sum(p * dp)). A softcap multiplies ds by 1 - tanh^2.",
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
        Arg("sinks", "[H]", optional=True, doc="a score of each head's own that has no value"),
        Arg(
            "dlse",
            "[B, H, T]",
            optional=True,
            doc="the gradient of attention's second output; f32, for f64 f64",
        ),
    ),
    output=Arg("dq", "[B, H, T, D]"),
    more_outputs=(
        Arg("dk", "[B, Hkv, S, D]", bound="attention_backward_key"),
        Arg("dv", "[B, Hkv, S, Dv]", bound="attention_backward_value"),
        Arg("dsinks", "[H]", doc="with sinks", bound="attention_backward_sinks"),
    ),
    attrs=(
        Attr("scale", "f32", c_type="float", doc="multiplies q . k, as 1/sqrt(D)"),
        Attr(
            "causal",
            "enum",
            choices=CAUSAL,
            c_type="int32_t",
            c_enum="causal",
            doc="none; first_key: query t stands at p = t; last_key: at p = kv_length - T + t; it "
            "sees keys j <= p",
        ),
        *(a for a in attention.SPEC.attrs if a.name in ("window", "softcap")),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="what a bool mask, the length, the causal rule and the window hide has no part, NaN "
    "included; a float mask is added and hides nothing; a row that sees nothing, or only -inf "
    "scores, gives 0, to its sink dlse; any other query that takes in anything not finite, its own "
    "values included, makes NaN its dq, the dk and dv of every key that it sees and the dsinks of "
    "its head; a kv_length outside 0..S is an error",
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
