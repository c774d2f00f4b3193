"""attention(q, k, v): softmax(scale * q k^T + mask) v, with grouped heads and a length operand.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError, UnsupportedError
from anyhal.ops._checks import (
    FLOATS,
    INDICES,
    WIDE,
    check_broadcasts,
    check_choice,
    check_dtype,
    check_rank,
    check_same_dtype,
)
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe
from anyhal.ops._trace import Trace, Value

CAUSAL = {"none": 1, "first_key": 2, "last_key": 3}


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    q, k, v, kv_length, mask = inputs
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
    return TensorSpec.dense(q.dtype, (batch, heads, queries, v.shape[3]))


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    q, k, v, kv_length, mask = inputs
    assert q is not None and k is not None
    if mask is not None:
        mask = mask.broadcast_to((*q.shape[:3], k.shape[2]))
    record = {"scale": attrs["scale"], "causal": attrs["causal"]}
    return [q, k, v, kv_length, mask], record, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    q, k, v = inputs[0], inputs[1], inputs[2]
    assert q is not None and k is not None and v is not None
    pairs = q.size // max(q.shape[3], 1) * k.shape[2]
    flops = pairs * (2.0 * q.shape[3] + 2.0 * v.shape[3] + 6.0)
    return flops, float(q.nbytes + k.nbytes + v.nbytes + out.nbytes)


def _visible(
    trace: Trace,
    sizes: tuple[int, int, int, int, int],
    kv_length: Value | None,
    mask: Value | None,
    causal: str,
) -> Value | None:
    """Which keys a query sees, as bool that broadcasts to [B, Hkv, g, T, S]; None = all."""
    _, kv_heads, group, queries, keys = sizes
    number = "i64" if kv_length is None else kv_length.dtype
    j = trace.constant(np.arange(keys), number)
    i = trace.constant(np.arange(queries)[:, None], number)
    found = []
    if kv_length is not None:
        per_batch = kv_length
        for _ in range(4):  # [] or [B] to [.., 1, 1, 1, 1]
            per_batch = per_batch.expand_dims(per_batch.spec.rank)
        if causal == "last_key":  # implies j < length
            end = trace.binary(
                "add", per_batch, trace.constant(np.arange(queries)[:, None] - queries, number)
            )
            found.append(trace.binary("less_equal", j, end))
        else:
            found.append(trace.binary("less", j, per_batch))
    elif causal == "last_key":
        end = trace.constant(np.arange(queries)[:, None] + keys - queries, number)
        found.append(trace.binary("less_equal", j, end))
    if causal == "first_key":
        found.append(trace.binary("less_equal", j, i))
    if mask is not None and mask.dtype.short == "bool":
        full = mask.spec.rank
        for _ in range(4 - full):
            mask = mask.expand_dims(0)
        heads = (kv_heads, group) if mask.shape[1] > 1 else (1, 1)
        found.append(mask.split(1, *heads))
    visible = found[0] if found else None
    for other in found[1:]:
        assert visible is not None
        visible = trace.binary("logical_and", visible, other)
    return visible


def _weigh(trace: Trace, p: Value, v: Value, visible: Value | None) -> Value:
    """p @ v in which values of invisible keys, NaN and infinities included, have no part."""
    acc = p.dtype
    zero = trace.constant(0, acc)
    if visible is None:
        return trace("matmul", p, v)
    if visible.shape[-2] == 1:  # every query sees the same keys: take the others out of v
        return trace("matmul", p, trace("where", visible.mT(), v, zero))
    # Each query sees its own keys. Sum the finite values, and find out by counting which results a
    # visible NaN or infinity reaches; 0 * NaN of an invisible one never comes up.
    finite = trace.unary("isfinite", v)
    total = trace("matmul", p, trace("where", finite, v, zero))
    seen_by = trace.cast(visible, acc).broadcast_to((*visible.shape[:-1], v.shape[-2]))
    bad = trace.cast(trace.unary("logical_not", finite), acc)
    signs = trace("where", trace.unary("isinf", v), trace.unary("sign", v), zero)
    count = trace("matmul", seen_by, bad)
    signed = trace("matmul", seen_by, signs)
    inf, nan = trace.constant(np.inf, acc), trace.constant(np.nan, acc)
    lowest = trace.constant(-np.inf, acc)
    all_low = trace.binary("equal", count, trace.unary("neg", signed))
    reached = trace("where", all_low, lowest, nan)
    reached = trace("where", trace.binary("equal", count, signed), inf, reached)
    reached = trace("where", trace.binary("equal", count, zero), zero, reached)
    return trace.binary("add", total, reached)


def decompose(
    trace: Trace, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out: Value
) -> None:
    q, k, v, kv_length, mask = inputs
    assert q is not None and k is not None and v is not None
    batch, heads, queries, _ = q.shape
    kv_heads, keys = k.shape[1:3]
    if out.spec.size == 0 or keys == 0:
        trace.zeros(out)
        return
    acc = WIDE[q.dtype.short]
    group = heads // kv_heads
    sizes = (batch, kv_heads, group, queries, keys)
    zero, one = trace.constant(0, acc), trace.constant(1, acc)
    lowest = trace.constant(-np.inf, acc)
    scaled = trace.binary(
        "multiply", trace.cast(q, acc), trace.constant(np.float32(attrs["scale"]), acc)
    )
    keys_t = trace.cast(k, acc).expand_dims(2).mT()
    scores = trace("matmul", scaled.split(1, kv_heads, group), keys_t)
    if mask is not None and mask.dtype.short != "bool":
        added = trace.cast(mask, acc).broadcast_to((batch, heads, queries, keys))
        scores = trace.binary("add", scores, added.split(1, kv_heads, group), out=scores)
    if kv_length is not None:
        # Read through a table of the allowed ones: the device refuses any other length.
        allowed = trace.constant(np.arange(keys + 1), kv_length.dtype)
        kv_length = trace("gather", allowed, kv_length, axis=0)
    visible = _visible(trace, sizes, kv_length, mask, attrs["causal"])
    if visible is not None:
        scores = trace("where", visible, scores, lowest)
    top = trace("reduce", scores, fn="max", axis=-1, keepdims=True)
    dead = trace.binary("equal", top, lowest)  # nothing visible: the row is 0, not NaN
    e = trace.binary("subtract", scores, trace("where", dead, zero, top))
    e = trace.unary("exp", e, out=e)
    total = trace("reduce", e, fn="sum", axis=-1, keepdims=True)
    p = trace.binary("divide", e, trace("where", dead, one, total), out=e)
    result = _weigh(trace, p, trace.cast(v, acc).expand_dims(2), visible)
    grouped = out.split(1, kv_heads, group)
    if out.dtype.short == acc:
        trace("where", dead, zero, result, out=grouped)
    else:
        trace.cast(trace("where", dead, zero, result), out.dtype, out=grouped)


def visible_keys(shape: tuple[int, ...], kv_length: Any, mask: Any, causal: str) -> Any:
    """The bool [B, H, T, S] of the definition."""
    batch, _, queries, keys = shape
    length = np.broadcast_to(keys if kv_length is None else kv_length, (batch,)).reshape(
        -1, 1, 1, 1
    )
    j, i = np.arange(keys), np.arange(queries)[:, None]
    seen = np.broadcast_to(j < length, shape)
    if causal == "first_key":
        seen = seen & (j <= i)
    elif causal == "last_key":
        seen = seen & (j <= length - queries + i)
    return seen if mask is None or mask.dtype != np.bool_ else seen & mask


def reference(
    q: Any, k: Any, v: Any, kv_length: Any = None, mask: Any = None, *, scale: float, causal: str
) -> Any:
    if kv_length is not None and not np.all((kv_length >= 0) & (kv_length <= k.shape[2])):
        raise IndexError("kv_length is no number of keys")
    group = q.shape[1] // max(k.shape[1], 1)
    kw, vw = np.repeat(wide(k), group, axis=1), np.repeat(wide(v), group, axis=1)
    qw = wide(q)
    with np.errstate(all="ignore"):
        scores = np.matmul(qw * qw.dtype.type(np.float32(scale)), np.swapaxes(kw, -1, -2))
        if mask is not None and mask.dtype != np.bool_:
            scores = scores + wide(mask)
        seen = visible_keys(scores.shape, kv_length, mask, causal)
        scores = np.where(seen, scores, -np.inf)
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        dead = np.isneginf(top)
        e = np.exp(scores - np.where(dead, 0, top))
        p = e / np.where(dead, 1, e.sum(axis=-1, keepdims=True))
        # A select per key: an invisible value, even NaN, is never multiplied.
        terms = np.where(seen[..., None], p[..., None] * vw[:, :, None], 0)
        return np.where(dead, 0, terms.sum(axis=-2))


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
            yield Sample(f"grouped {causal} {name}", (q, k, v, None, None), attrs)
            lengths = np.array([7, 4])
            yield Sample(f"lengths {causal} {name}", (q, k, v, lengths, None), attrs)
        seen = rng.integers(0, 2, (2, 1, 3, 7)).astype(bool)
        seen[:, :, 1] = False
        attrs = {"scale": 0.35, "causal": "none"}
        yield Sample(f"bool mask {name}", (q, k, v, None, seen), attrs)
        yield Sample(f"bool mask per head {name}", (q, k, v, None, seen[:1].repeat(6, 1)), attrs)
        added = normal(3, 7, name=name)
        yield Sample(f"float mask {name}", (q, k, v, np.array(6, np.int32), added), attrs)
        one = (q[:, :, :1], k, v, np.array(5), None)
        yield Sample(f"decode {name}", one, {"scale": 0.35, "causal": "last_key"})
    q, k, v = normal(1, 1, 4, 2), normal(1, 1, 4, 2), normal(1, 1, 4, 2)
    k[0, 0, 3], v[0, 0, 3] = np.nan, np.nan
    v[0, 0, 2, 0] = np.inf
    attrs = {"scale": 1.0, "causal": "none"}
    yield Sample("NaN past the length", (q, k, v, np.array(2), None), attrs)
    yield Sample("NaN past the diagonal", (q, k, v, None, None), {**attrs, "causal": "first_key"})
    low = np.full((4, 4), -np.inf, np.float32)
    yield Sample("additive -inf everywhere", (q, q, q, None, low), attrs)
    yield Sample("large scores", (100 * q, q, q, None, None), attrs)
    yield Sample("no keys", (q, k[:, :, :0], v[:, :, :0], None, None), attrs)
    yield Sample("no queries", (q[:, :, :0], k, v, None, None), attrs)


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
    ),
    output=Arg("out", "[B, H, T, Dv]"),
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
    special="a bool mask, the length and the causal rule select: what they hide has no part, NaN "
    "included; a float mask is added; a row that sees nothing, or only -inf scores, is 0; a NaN "
    "query or visible key gives a NaN row; a kv_length outside 0..S is an error",
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
