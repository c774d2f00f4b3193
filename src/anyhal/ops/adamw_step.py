"""adamw_step(param, m, v, grad, lr, step): one step of Adam with decoupled weight decay, in place.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import _draw as draw
from anyhal.ops._checks import FLOATS, INDICES, WIDE, check_dtype, check_same_dtype, check_shape
from anyhal.ops._gradient import store
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, LoweredOuts, OpSpec, Outs, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value

NAME = "adamw_step"


def check_step(
    op: str, param: TensorSpec, grad: TensorSpec, lr: TensorSpec, states: dict[str, TensorSpec]
) -> None:
    """What both optimisers refuse: one shape, states in the accumulation dtype, lr a number."""
    check_dtype(op, "param", param, FLOATS)
    check_same_dtype(op, param, grad)
    check_shape(op, "grad", grad, param.shape, "param's shape")
    for name, state in states.items():
        check_dtype(op, name, state, (WIDE[param.dtype.short],))
        check_shape(op, name, state, param.shape, "param's shape")
    check_dtype(op, "lr", lr, ("f32", "f64"))
    check_shape(op, "lr", lr, (), "[]")


def check_finite(op: str, attrs: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if not np.isfinite(np.float32(attrs[name])):
            raise InvalidArgumentError(
                f"{op}: {name}={attrs[name]} would make every parameter NaN; pass a finite number"
            )


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    param, m, v, grad, lr, step = inputs
    assert param is not None and m is not None and v is not None
    assert grad is not None and lr is not None and step is not None
    check_step(NAME, param, grad, lr, {"m": m, "v": v})
    check_finite(NAME, attrs, "weight_decay")
    if not 0 < np.float32(attrs["eps"]) < np.inf:
        raise InvalidArgumentError(
            f"{NAME}: eps={attrs['eps']} must be above 0 in f32, because an element whose "
            "gradients were all 0 is divided by it; pass a small number such as 1e-8"
        )
    check_dtype(NAME, "step", step, INDICES)
    check_shape(NAME, "step", step, (), "[]")
    for name in ("beta1", "beta2"):
        if not 0 <= np.float32(attrs[name]) < 1:
            raise InvalidArgumentError(
                f"{NAME}: {name}={attrs[name]} is the share that a moment keeps; give a number "
                "from 0 up to, but not, 1"
            )
    return param, m, v


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    return list(inputs), {a.name: attrs[a.name] for a in SPEC.attrs}, outs


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
) -> tuple[float, float]:
    param, m = inputs[0], inputs[1]
    assert param is not None and m is not None
    return 16.0 * param.size, float(3 * param.nbytes + 4 * m.nbytes)


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: Sequence[Value | None],
) -> None:
    param, m, v, grad, lr, step = inputs
    assert param is not None and m is not None and v is not None
    assert grad is not None and lr is not None and step is not None
    out_param, out_m, out_v = outs
    assert out_param is not None and out_m is not None and out_v is not None
    acc = m.dtype
    # Read through a table of one entry, 0: the device refuses a step below 1, before any write.
    one = trace.constant(1, step.dtype)
    entry = trace.binary("subtract", trace.binary("minimum", step, one), one)
    entry = trace("gather", trace.constant([0], step.dtype), entry, axis=0)
    step = trace.binary("add", step, entry)
    if param.spec.size == 0:
        trace.zeros(out_param)
        return

    def number(value: Any) -> Value:
        return trace.constant(value, acc)

    def times(a: Value, b: Value) -> Value:
        return trace.binary("multiply", a, b)

    b1, b2 = (np.float64(np.float32(attrs[name])) for name in ("beta1", "beta2"))
    with np.errstate(divide="ignore"):
        logs = (np.log(b1), np.log(b2))
    g, p = trace.cast(grad, acc), trace.cast(param, acc)
    rate, count = trace.cast(lr, acc), trace.cast(step, acc)
    # 1 - beta^step without cancellation.
    first, second = (
        trace.unary("neg", trace.unary("expm1", times(count, number(log)))) for log in logs
    )
    mean = trace.binary("add", times(m, number(b1)), times(g, number(1 - b1)), out=out_m)
    # In this order, since g * g may overflow, as v over what corrects it may.
    square = times(g, times(g, number(1 - b2)))
    square = trace.binary("add", times(v, number(b2)), square, out=out_v)
    roots = (trace.unary("sqrt", x) for x in (square, second))
    size = trace.binary("divide", *roots)
    size = trace.binary("add", size, number(np.float32(attrs["eps"])))
    change = trace.binary("divide", trace.binary("divide", mean, first), size)
    decay = np.float32(attrs["weight_decay"])
    if decay:
        change = trace.binary("add", change, times(p, number(decay)))
    store(trace, "subtract", p, times(change, rate), out_param)


def reference(
    param: Any,
    m: Any,
    v: Any,
    grad: Any,
    lr: Any,
    step: Any,
    *,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> tuple[Any, Any, Any]:
    p, g = wide(param), wide(grad)
    kind = p.dtype.type
    b1, b2, tiny, decay = (np.longdouble(np.float32(x)) for x in (beta1, beta2, eps, weight_decay))
    rate, count = np.longdouble(lr), np.longdouble(step)
    if count < 1:
        raise IndexError("there is no step below 1")
    with np.errstate(all="ignore"):
        mean = kind(b1) * wide(m) + kind(1 - b1) * g
        square = kind(b2) * wide(v) + kind(1 - b2) * g * g
        first, second = kind(1 - b1**count), kind(1 - b2**count)
        change = (mean / first) / (np.sqrt(square / second) + kind(tiny))
        return p - kind(rate) * (change + (kind(decay) * p if decay else 0)), mean, square


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    usual = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}
    for name in FLOATS:
        np_type, acc = dtype(name).numpy, dtype(WIDE[name]).numpy
        p, g = rng.standard_normal((2, 3, 17)).astype(np_type)
        m = (0.1 * rng.standard_normal((3, 17))).astype(acc)
        v = rng.uniform(0, 0.1, (3, 17)).astype(acc)
        lr = np.array(1e-3, acc)
        yield Sample(f"step 100 {name}", (p, m, v, g, lr, np.array(100)), usual)
        first = (p, 0 * m, 0 * v, g, np.array(1e-2, np.float32), np.array(1, np.int32))
        yield Sample(f"first step {name}", first, {**usual, "weight_decay": 0.0})
    one = np.ones(4, np.float32)
    zero = {**usual, "beta1": 0.0, "beta2": 0.0}
    lr, step = np.array(0.5, np.float32), np.array(3)
    yield Sample("no memory", (one, one, one, one, lr, step), zero)
    yield Sample("no gradient", (one, 0 * one, 0 * one, 0 * one, lr, step), usual)
    nan = np.array([np.nan, 1, 2, 3], np.float32)
    yield Sample("NaN stays where it is", (one, one, one, nan, lr, step), usual)
    steep, none = np.array([2e19, -2e19, 1, 0], np.float32), 0 * one
    yield Sample(
        "a gradient whose square overflows", (one, none, none, steep, lr, np.array(1)), usual
    )
    deep = [x.astype(np.float64) for x in (one, none, none, steep)]
    deep[3] *= 1e135
    yield Sample("a gradient whose square overflows, f64", (*deep, lr, np.array(1)), usual)
    yield Sample("0-d", (one[0:1].reshape(()), *[np.array(0.5, np.float32)] * 4, step), usual)
    yield Sample("empty", (one[:0], one[:0], one[:0], one[:0], lr, step), usual)


def random(rng: draw.Rng) -> Sample:
    short, dims = draw.one_of(rng, FLOATS), draw.shape(rng)
    p, g = draw.values(rng, dims, short), draw.values(rng, dims, short, 1)
    acc = WIDE[short]
    m, v = draw.values(rng, dims, acc, 0.1), np.abs(draw.values(rng, dims, acc, 0.1))
    step = np.array(int(rng.integers(1, 5000)))
    attrs = {
        "beta1": draw.one_of(rng, [0.9, 0.5]),
        "beta2": draw.one_of(rng, [0.999, 0.95]),
        "eps": 1e-8,
        "weight_decay": draw.one_of(rng, [0.0, 0.1]),
    }
    return Sample("", (p, m, v, g, np.array(1e-3, np.float32), step), attrs)


SPEC = OpSpec(
    id=90,
    name=NAME,
    since="0.1",
    summary="m = beta1 m + (1 - beta1) grad; v = beta2 v + (1 - beta2) grad^2; param -= lr * "
    "(m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay * param).",
    inputs=(
        Arg("param", "[...]"),
        Arg("m", "[...]", doc="f32 for f16 and bf16"),
        Arg("v", "[...]", doc="f32 for f16 and bf16"),
        Arg("grad", "[...]"),
        Arg("lr", "[]", doc="f32 or f64; an operand, so that a schedule keeps its plan", own="f32"),
        Arg("step", "[]", doc="i64 or i32, from 1", own="i64"),
    ),
    output=Arg("out_param", "[...]", doc="param itself"),
    more_outputs=(
        Arg("out_m", "[...]", doc="m itself", bound="adamw_step_m"),
        Arg("out_v", "[...]", doc="v itself", bound="adamw_step_v"),
    ),
    attrs=(
        Attr("beta1", "f32", c_type="float"),
        Attr("beta2", "f32", c_type="float"),
        Attr("eps", "f32", c_type="float", doc="added to the root, outside of it; above 0"),
        Attr("weight_decay", "f32", c_type="float", doc="times lr; not part of the gradient"),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="NaN stays in its element; a step below 1, for which there is no bias correction, is "
    "an error and nothing is written; every term is computed in "
    "the dtype of m and v and param is rounded once",
    aliasing="required",
    bound=NAME,
    source="Loshchilov and Hutter 2019 (arXiv 1711.05101); ONNX Adam has coupled decay instead",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
