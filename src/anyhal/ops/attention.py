"""attention(q, k, v): softmax(scale * q k^T + mask) v, with grouped heads, lengths, windows, sinks.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError, UnsupportedError
from anyhal.ops._attention import CAUSAL, visible_keys, visible_to, weigh
from anyhal.ops._checks import (
    FLOATS,
    INDICES,
    WIDE,
    check_broadcasts,
    check_choice,
    check_dtype,
    check_rank,
    check_same_dtype,
    check_shape,
)
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, LoweredOuts, OpSpec, Outs, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    q, k, v, kv_length, mask, sinks = inputs
    assert q is not None and k is not None and v is not None
    check_choice("attention", "causal", attrs["causal"], CAUSAL)
    check_dtype("attention", "q", q, FLOATS)
    check_same_dtype("attention", q, k, v)
    for name, spec, axes in (("q", q, "B,H,T,D"), ("k", k, "B,Hkv,S,D"), ("v", v, "B,Hkv,S,Dv")):
        check_rank("attention", name, spec, 4, f"[{axes}]")
    batch, heads, queries, size = q.shape
    kv_heads, keys = k.shape[1:3]
    if k.shape != (batch, kv_heads, keys, size) or v.shape[:3] != (batch, kv_heads, keys):
        raise InvalidArgumentError(
            f"attention: q {describe(q)}, k {describe(k)}, v {describe(v)}: they must be "
            "[B,H,T,D], [B,Hkv,S,D] and [B,Hkv,S,Dv] with one B, Hkv, S and D; "
            "transpose or reshape one"
        )
    if heads % max(kv_heads, 1) or (heads and not kv_heads):
        raise InvalidArgumentError(
            f"attention: q {describe(q)} has {heads} heads and k {describe(k)} has {kv_heads}: the "
            "first must be a multiple of the second; repeat or drop heads"
        )
    if kv_length is not None:
        check_dtype("attention", "kv_length", kv_length, INDICES)
        if kv_length.shape not in ((), (batch,)):
            raise InvalidArgumentError(
                f"attention: kv_length is {describe(kv_length)} but must be one number or "
                f"[{batch}], one per batch entry; reshape it"
            )
    if mask is not None:
        if mask.dtype.short != "bool" and mask.dtype != q.dtype:
            raise UnsupportedError(
                f"attention: mask is {describe(mask)} but must be bool or {q.dtype.short} as q; "
                "cast it with astype",
                reason="dtype",
            )
        check_broadcasts("attention", "mask", mask, (batch, heads, queries, keys), "[B,H,T,S]")
    if sinks is not None:
        check_same_dtype("attention", q, sinks)
        check_shape("attention", "sinks", sinks, (heads,), "[H]")
    _check_numbers(attrs)
    lse = TensorSpec.dense(dtype(WIDE[q.dtype.short]), (batch, heads, queries))
    out = TensorSpec.dense(q.dtype, (batch, heads, queries, v.shape[3]))
    return out, lse if attrs["return_lse"] else None


def _check_numbers(attrs: Mapping[str, Any]) -> None:
    window, softcap = attrs["window"], attrs["softcap"]
    if window < 0:
        raise InvalidArgumentError(
            f"attention: window={window} is negative; pass how many keys a query sees, or 0 for all"
        )
    if window and attrs["causal"] == "none":
        raise InvalidArgumentError(
            f"attention: window={window} needs to know where queries stand among the keys, and "
            "causal='none' does not say; pass causal='first_key' or 'last_key'"
        )
    if not (0 <= softcap < np.inf):
        raise InvalidArgumentError(
            f"attention: softcap={softcap} bounds nothing; pass a positive number, or 0 for none"
        )


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: Outs) -> LoweredOuts:
    q, k, v, kv_length, mask, sinks = inputs
    assert q is not None and k is not None
    if mask is not None:
        mask = mask.broadcast_to((*q.shape[:3], k.shape[2]))
    record = {name: attrs[name] for name in ("scale", "causal", "window", "softcap")}
    return [q, k, v, kv_length, mask, sinks], record, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: Outs
) -> tuple[float, float]:
    q, k, v = inputs[0], inputs[1], inputs[2]
    assert q is not None and k is not None and v is not None
    pairs = q.size // max(q.shape[3], 1) * k.shape[2]
    flops = pairs * (2.0 * q.shape[3] + 2.0 * v.shape[3] + 6.0)
    made = sum(o.nbytes for o in out if o is not None)
    return flops, float(q.nbytes + k.nbytes + v.nbytes + made)


def _scores(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], group: int, acc: str
) -> Value:
    """What the softmax is taken of, as [B, Hkv, g, T, S], before anything is hidden."""
    q, k, _, _, mask, _ = inputs
    assert q is not None and k is not None
    kv_heads = k.shape[1]
    scale = trace.constant(np.float32(attrs["scale"]), acc)
    scaled = trace.binary("multiply", trace.cast(q, acc), scale)
    keys_t = trace.cast(k, acc).expand_dims(2).mT()
    scores = trace("matmul", scaled.split(1, kv_heads, group), keys_t)
    if attrs["softcap"]:
        cap = trace.constant(np.float32(attrs["softcap"]), acc)
        scores = trace.binary("divide", scores, cap, out=scores)
        scores = trace.unary("tanh", scores, out=scores)
        scores = trace.binary("multiply", scores, cap, out=scores)
    if mask is not None and mask.dtype.short != "bool":
        added = trace.cast(mask, acc).broadcast_to((*q.shape[:3], k.shape[2]))
        scores = trace.binary("add", scores, added.split(1, kv_heads, group), out=scores)
    return scores


def _no_keys(trace: Trace, sinks: Value | None, out: Value, lse: Value | None) -> None:
    """0 and -inf, or what the sinks make of them."""
    if sinks is None or out.spec.size == 0:
        trace.zeros(out)
    else:
        sink = sinks.expand_dims(1).expand_dims(2)
        zero = trace.constant(0, out.dtype)
        trace("where", trace.unary("isnan", sink), sink, zero.broadcast_to(out.shape), out=out)
    if lse is not None and (sinks is None or lse.spec.size == 0):
        trace("fill", trace.constant(-np.inf, lse.dtype), out=lse)
    elif lse is not None and sinks is not None:
        trace("copy", trace.cast(sinks, lse.dtype).expand_dims(1).broadcast_to(lse.shape), out=lse)


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: tuple[Value | None, ...],
) -> None:
    (q, k, v, kv_length, mask, sinks), (out, lse) = inputs, outs
    assert q is not None and k is not None and v is not None and out is not None
    batch, heads, queries, _ = q.shape
    kv_heads, keys = k.shape[1:3]
    if keys == 0 or out.spec.size == 0 and (lse is None or lse.spec.size == 0):
        _no_keys(trace, sinks, out, lse)
        return
    acc = WIDE[q.dtype.short]
    group = heads // kv_heads
    zero, one = trace.constant(0, acc), trace.constant(1, acc)
    lowest = trace.constant(-np.inf, acc)
    scores = _scores(trace, inputs, attrs, group, acc)
    if kv_length is not None:
        # Read through a table of the allowed ones: the device refuses any other length.
        allowed = trace.numbers(keys + 1, kv_length.dtype)
        kv_length = trace("gather", allowed, kv_length, axis=0)
    sizes = (batch, kv_heads, group, queries, keys)
    visible = visible_to(trace, sizes, kv_length, mask, attrs)
    if visible is not None:
        scores = trace("where", visible, scores, lowest)
    top = trace("reduce", scores, fn="max", axis=-1, keepdims=True)
    sink = None
    if sinks is not None:  # one more key, which has no value
        sink = trace.cast(sinks, acc).split(0, kv_heads, group).expand_dims(2).expand_dims(3)
        top = trace.binary("maximum", top, sink)
    dead = trace.binary("equal", top, lowest)  # nothing visible: the row is 0, not NaN
    shift = trace("where", dead, zero, top)
    e = trace.binary("subtract", scores, shift)
    e = trace.unary("exp", e, out=e)
    total = trace("reduce", e, fn="sum", axis=-1, keepdims=True)
    if sink is not None:
        rest = trace.binary("subtract", sink, shift)
        total = trace.binary("add", total, trace.unary("exp", rest, out=rest), out=total)
    total = trace("where", dead, one, total)
    p = trace.binary("divide", e, total, out=e)
    result = weigh(trace, p, trace.cast(v, acc).expand_dims(2), visible)
    grouped = out.split(1, kv_heads, group)
    if out.dtype.short == acc:
        trace("where", dead, zero, result, out=grouped)
    else:
        trace.cast(trace("where", dead, zero, result), out.dtype, out=grouped)
    if lse is not None:  # -inf where nothing is visible, since top is
        rows = lse.split(1, kv_heads, group).expand_dims(4)
        trace.binary("add", top, trace.unary("log", total), out=rows)


def reference(
    q: Any,
    k: Any,
    v: Any,
    kv_length: Any = None,
    mask: Any = None,
    sinks: Any = None,
    *,
    scale: float,
    causal: str,
    window: int = 0,
    softcap: float = 0.0,
    return_lse: bool = False,
) -> tuple[Any, Any]:
    if kv_length is not None and not np.all((kv_length >= 0) & (kv_length <= k.shape[2])):
        raise IndexError("kv_length is no number of keys")
    group = q.shape[1] // max(k.shape[1], 1)
    kw, vw = np.repeat(wide(k), group, axis=1), np.repeat(wide(v), group, axis=1)
    qw = wide(q)
    with np.errstate(all="ignore"):
        scores = np.matmul(qw * qw.dtype.type(np.float32(scale)), np.swapaxes(kw, -1, -2))
        if softcap:
            cap = qw.dtype.type(np.float32(softcap))
            scores = cap * np.tanh(scores / cap)
        if mask is not None and mask.dtype != np.bool_:
            scores = scores + wide(mask)
        seen = visible_keys(scores.shape, kv_length, mask, causal, window)
        scores = np.where(seen, scores, -np.inf)
        none = np.full(q.shape[1], -np.inf, qw.dtype)
        sink = (none if sinks is None else wide(sinks))[:, None, None]
        top = np.maximum(scores.max(axis=-1, keepdims=True, initial=-np.inf), sink)
        dead = np.isneginf(top)
        shift = np.where(dead, 0, top)
        e = np.exp(scores - shift)
        total = e.sum(axis=-1, keepdims=True) + np.exp(sink - shift)
        p = e / np.where(dead, 1, total)
        # A select per key: an invisible value, even NaN, is never multiplied.
        terms = np.where(seen[..., None], p[..., None] * vw[:, :, None], 0)
        lse = np.where(dead, -np.inf, top + np.log(total))
        out = np.where(np.isnan(total), np.nan, terms.sum(axis=-2))
        return np.where(dead, 0, out), lse[..., 0]


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    def normal(*shape: int, name: str = "f32") -> Any:
        return rng.standard_normal(shape).astype(dtype(name).numpy)

    for name in FLOATS:
        q, k, v = (
            normal(2, 6, 3, 8, name=name),
            normal(2, 2, 7, 8, name=name),
            normal(2, 2, 7, 5, name=name),
        )
        for causal in CAUSAL:
            attrs = {"scale": 0.35, "causal": causal}
            yield Sample(f"grouped {causal} {name}", (q, k, v, None, None, None), attrs)
            lengths = np.array([7, 4])
            yield Sample(f"lengths {causal} {name}", (q, k, v, lengths, None, None), attrs)
        seen = rng.integers(0, 2, (2, 1, 3, 7)).astype(bool)
        seen[:, :, 1] = False
        attrs = {"scale": 0.35, "causal": "none"}
        yield Sample(f"bool mask {name}", (q, k, v, None, seen, None), attrs)
        yield Sample(
            f"bool mask per head {name}", (q, k, v, None, seen[:1].repeat(6, 1), None), attrs
        )
        added = normal(3, 7, name=name)
        yield Sample(f"float mask {name}", (q, k, v, np.array(6, np.int32), added, None), attrs)
        one = (q[:, :, :1], k, v, np.array(5), None, None)
        yield Sample(f"decode {name}", one, {"scale": 0.35, "causal": "last_key"})
        more = {"scale": 0.35, "softcap": 2.0, "return_lse": True}
        sinks = normal(6, name=name)
        for causal, window in (("first_key", 2), ("last_key", 3), ("last_key", 1), ("none", 0)):
            attrs = {**more, "causal": causal, "window": window}
            full = (q, k, v, np.array([7, 2]), added, sinks)
            yield Sample(f"window {window} {causal} softcap sinks {name}", full, attrs)
        yield Sample(f"sinks {name}", (q, k, v, None, seen, sinks), {**attrs, "softcap": 0.0})
    wide = (normal(1, 2, 3, 4), normal(1, 2, 5, 4), normal(1, 2, 5, 9), None, None, None)
    yield Sample("values wider than keys", wide, {"scale": 0.5, "causal": "none"})
    q, k, v = normal(1, 1, 4, 2), normal(1, 1, 4, 2), normal(1, 1, 4, 2)
    k[0, 0, 3], v[0, 0, 3] = np.nan, np.nan
    v[0, 0, 2, 0] = np.inf
    attrs = {"scale": 1.0, "causal": "none"}
    yield Sample("NaN past the length", (q, k, v, np.array(2), None, None), attrs)
    yield Sample(
        "NaN past the diagonal", (q, k, v, None, None, None), {**attrs, "causal": "first_key"}
    )
    low = np.full((4, 4), -np.inf, np.float32)
    yield Sample("additive -inf everywhere", (q, q, q, None, low, None), attrs)
    yield Sample("large scores", (100 * q, q, q, None, None, None), attrs)
    yield Sample("no keys", (q, k[:, :, :0], v[:, :, :0], None, None, None), attrs)
    yield Sample("no queries", (q[:, :, :0], k, v, None, None, None), attrs)
    lse = {**attrs, "return_lse": True}
    yield Sample("lse of hidden rows", (q, q, q, np.array(0), None, None), lse)
    yield Sample("lse of rows of -inf", (q, q, q, None, low, None), lse)
    for sink in (1.5, -np.inf, np.nan):
        one_sink = np.array([sink], np.float32)
        yield Sample(f"hidden rows and sink {sink}", (q, q, q, np.array(0), None, one_sink), lse)
        yield Sample(
            f"no keys and sink {sink}", (q, k[:, :, :0], v[:, :, :0], None, None, one_sink), lse
        )
    yield Sample("lse without values", (q, k, v[..., :0], None, None, None), lse)
    yield Sample(
        "wide window", (q, q, q, None, None, None), {**lse, "causal": "last_key", "window": 2**40}
    )


SPEC = OpSpec(
    id=13,
    name="attention",
    since="0.1",
    summary="out[b,h,t] = sum over visible keys j of softmax_j(scale * q[b,h,t] . k[b,h/g,j] + "
    "mask) * v[b,h/g,j], with g = H / Hkv.",
    inputs=(
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
    ),
    output=Arg("out", "[B, H, T, Dv]"),
    more_outputs=(
        Arg(
            "lse",
            "[B, H, T]",
            optional=True,
            doc="log of the sum of exp of the scores, sinks among them; f32, for f64 f64",
            bound="attention_lse",
        ),
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
        Attr(
            "window",
            "i64",
            default=0,
            c_type="uint64_t",
            doc="only keys with p - j < window are seen; 0 for all of them",
        ),
        Attr(
            "softcap",
            "f32",
            default=0.0,
            c_type="float",
            doc="scores become softcap * tanh(score / softcap) before the mask; 0 for none",
        ),
        Attr("return_lse", "bool", default=False, doc="whether there is a second output"),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="a bool mask, the length, the causal rule and the window select: what they hide has no "
    "part, NaN included; a float mask is added; a row that sees nothing, or only -inf scores, is 0 "
    "and its lse -inf, or its sink; a NaN query, visible key or sink gives a NaN row; a kv_length "
    "outside 0..S is an error",
    aliasing="none",
    bound="attention",
    source="Vaswani et al. 2017; ONNX Attention, opset 23, with the causal alignment named",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    decompose=decompose,
)
