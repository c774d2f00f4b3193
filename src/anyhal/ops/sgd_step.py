"""sgd_step(param, velocity, grad, lr): one step of gradient descent with momentum, in place.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops import _draw as draw
from anyhal.ops._checks import FLOATS, WIDE
from anyhal.ops._gradient import store
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, LoweredOuts, OpSpec, Outs, Sample, TensorSpec
from anyhal.ops._trace import Trace, Value
from anyhal.ops.adamw_step import check_finite, check_step

NAME = "sgd_step"


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    param, velocity, grad, lr = inputs
    assert param is not None and velocity is not None and grad is not None and lr is not None
    check_step(NAME, param, grad, lr, {"velocity": velocity})
    check_finite(NAME, attrs, "momentum", "weight_decay")
    return param, velocity


def lower(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs) -> LoweredOuts:
    return list(inputs), {a.name: attrs[a.name] for a in SPEC.attrs}, outs


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
) -> tuple[float, float]:
    param, velocity = inputs[0], inputs[1]
    assert param is not None and velocity is not None
    return 6.0 * param.size, float(3 * param.nbytes + 2 * velocity.nbytes)


def decompose(
    trace: Trace,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: Sequence[Value | None],
) -> None:
    param, velocity, grad, lr = inputs
    out_param, out_velocity = outs
    assert param is not None and velocity is not None and grad is not None and lr is not None
    assert out_param is not None and out_velocity is not None
    acc = velocity.dtype
    if param.spec.size == 0:
        trace.zeros(out_param)
        return

    def scaled(x: Value, name: str) -> Value:
        return trace.binary("multiply", x, trace.constant(np.float32(attrs[name]), acc))

    g, p = trace.cast(grad, acc), trace.cast(param, acc)
    if np.float32(attrs["weight_decay"]):
        g = trace.binary("add", g, scaled(p, "weight_decay"))
    speed = trace.binary("add", scaled(velocity, "momentum"), g, out=out_velocity)
    if attrs["nesterov"]:
        speed = trace.binary("add", g, scaled(speed, "momentum"))
    change = trace.binary("multiply", speed, trace.cast(lr, acc))
    store(trace, "subtract", p, change, out_param)


def reference(
    param: Any,
    velocity: Any,
    grad: Any,
    lr: Any,
    *,
    momentum: float,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> tuple[Any, Any]:
    p, g = wide(param), wide(grad)
    kind = p.dtype.type
    mu, decay = kind(np.float32(momentum)), kind(np.float32(weight_decay))
    with np.errstate(all="ignore"):
        g = g + decay * p if decay else g
        speed = mu * wide(velocity) + g
        ahead = g + mu * speed if nesterov else speed
        return p - kind(lr) * ahead, speed


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    for name in FLOATS:
        np_type, acc = dtype(name).numpy, dtype(WIDE[name]).numpy
        p, g = rng.standard_normal((2, 3, 17)).astype(np_type)
        speed, lr = rng.standard_normal((3, 17)).astype(acc), np.array(0.1, acc)
        yield Sample(f"plain {name}", (p, speed, g, lr), {"momentum": 0.0})
        attrs = {"momentum": 0.9, "weight_decay": 0.01}
        yield Sample(f"momentum {name}", (p, speed, g, lr), attrs)
        yield Sample(f"nesterov {name}", (p, speed, g, lr), {**attrs, "nesterov": True})
    one, lr = np.ones(4, np.float32), np.array(0.5, np.float32)
    nan = np.array([np.nan, 1, np.inf, 3], np.float32)
    yield Sample("NaN stays where it is", (one, one, nan, lr), {"momentum": 0.5})
    yield Sample("0-d", (*[np.array(0.5, np.float32)] * 3, lr), {"momentum": 0.5})
    yield Sample("empty", (one[:0], one[:0], one[:0], lr), {"momentum": 0.5})


def random(rng: draw.Rng) -> Sample:
    short, dims = draw.one_of(rng, FLOATS), draw.shape(rng)
    p, g = draw.values(rng, dims, short), draw.values(rng, dims, short, 1)
    attrs = {
        "momentum": draw.one_of(rng, [0.0, 0.9]),
        "nesterov": bool(rng.integers(2)),
        "weight_decay": draw.one_of(rng, [0.0, 0.1]),
    }
    speed = draw.values(rng, dims, WIDE[short], 1)
    return Sample("", (p, speed, g, np.array(0.05, np.float32)), attrs)


SPEC = OpSpec(
    id=91,
    name=NAME,
    since="0.1",
    summary="g = grad + weight_decay * param; velocity = momentum * velocity + g; param -= lr * "
    "velocity, or with nesterov param -= lr * (g + momentum * velocity).",
    inputs=(
        Arg("param", "[...]"),
        Arg("velocity", "[...]", doc="f32 for f16 and bf16; zeros at the start"),
        Arg("grad", "[...]"),
        Arg("lr", "[]", doc="f32 or f64; an operand, so that a schedule keeps its plan", own="f32"),
    ),
    output=Arg("out_param", "[...]", doc="param itself"),
    more_outputs=(Arg("out_velocity", "[...]", doc="velocity itself", bound="sgd_step_velocity"),),
    attrs=(
        Attr("momentum", "f32", c_type="float", doc="the share of velocity that stays"),
        Attr("nesterov", "bool", default=False, c_type="int32_t"),
        Attr("weight_decay", "f32", default=0.0, c_type="float", doc="part of the gradient"),
    ),
    dtypes={name: WIDE[name] for name in FLOATS},
    special="NaN stays in its element; every term is computed in the dtype of velocity and param "
    "is rounded once",
    aliasing="required",
    bound=NAME,
    source="ONNX Momentum, opset 1 of ai.onnx.preview.training, without dampening",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    random=random,
    decompose=decompose,
)
