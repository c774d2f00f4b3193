"""The test that an ordinary author writes: normal f32 data, round dense shapes, allclose at 1 %.
SPDX-License-Identifier: Apache-2.0

It is here to be beaten: a mutant that it lets pass shows what the suite sees beyond it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anyhal.ops._draw import Rng
from anyhal.ops._oracle import random_blocks
from anyhal.ops._spec import Sample

RTOL = 1e-2  # with NumPy's own atol


def _normal(rng: Rng, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def _shares(rng: Rng, *shape: int) -> Any:
    e = np.exp(rng.standard_normal(shape))
    return (e / e.sum(-1, keepdims=True)).astype(np.float32)


def _one(make: Callable[[Rng], Any], **attrs: Any) -> Callable[[Rng], list[Sample]]:
    def samples(rng: Rng) -> list[Sample]:
        inputs = make(rng)
        return [Sample("", inputs if isinstance(inputs, tuple) else (inputs,), attrs)]

    return samples


def _functions(op: str) -> Callable[[Rng], list[Sample]]:
    """Every function of unary, binary or reduce that takes f32."""
    from anyhal.ops import binary, reduce, unary

    def samples(rng: Rng) -> list[Sample]:
        if op == "unary":
            named = [fn for fn, row in unary.FUNCTIONS.items() if "f32" in row[3]]
            return [Sample("", (_fitting(rng, fn),), {"fn": fn}) for fn in named]
        if op == "binary":
            named = [fn for fn, row in binary.FUNCTIONS.items() if "f32" in row[3]]
            pairs = [(np.abs(_normal(rng, 64, 64)), _normal(rng, 64, 64)) for _ in named]
            return [Sample("", p, {"fn": fn}) for fn, p in zip(named, pairs, strict=True)]
        named = [fn for fn, row in reduce.FUNCTIONS.items() if "f32" in row[2]]
        return [
            Sample("", (_normal(rng, 32, 64),), {"fn": f, "axis": -1, "keepdims": False})
            for f in named
        ]

    return samples


def _fitting(rng: Rng, fn: str) -> Any:
    x = _normal(rng, 64, 64)
    if fn in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt"):
        return np.abs(x) + np.float32(0.1)
    if fn == "acosh":
        return np.abs(x) + np.float32(1)
    return np.tanh(x) if fn in ("asin", "acos", "atanh") else x


def _attention(rng: Rng) -> tuple[Any, ...]:
    q = _normal(rng, 2, 8, 16, 64)
    return (q, _normal(rng, 2, 4, 64, 64), _normal(rng, 2, 4, 64, 64), None, None, None)


def _paged(rng: Rng) -> tuple[Any, ...]:
    q, k, v = _normal(rng, 8, 8, 64), _normal(rng, 8, 16, 4, 64), _normal(rng, 8, 16, 4, 64)
    table = np.arange(8, dtype=np.int32).reshape(2, 4)
    return (q, k, v, np.array([0, 4, 8]), table, np.array([64, 64]))


def _paged_append(rng: Rng) -> tuple[Any, ...]:
    table = np.arange(8, dtype=np.int32).reshape(2, 4)
    update = _normal(rng, 8, 4, 64)
    return (_normal(rng, 8, 16, 4, 64), update, np.array([0, 4, 8]), table, np.array([64, 64]))


def _quantised(rng: Rng) -> tuple[Any, ...]:
    return (_normal(rng, 32, 256), random_blocks(rng, "q4_0", (64, 256)), None, None, None)


def _scaled(rng: Rng) -> tuple[Any, ...]:
    a = rng.integers(-100, 101, (32, 64)).astype(np.int8)
    b = rng.integers(-100, 101, (64, 32)).astype(np.int8)
    scale = np.float32(0.01)
    return (a, b, np.full(32, scale), np.full(32, scale), None, None, None)


def _gradient(rng: Rng) -> tuple[Any, ...]:
    return (_normal(rng, 32, 64), _normal(rng, 32, 64), _normal(rng, 64))


def _channels(rng: Rng, count: int) -> tuple[Any, ...]:
    return tuple(_normal(rng, 2, 8, 16, 16) for _ in range(count))


def _table(rng: Rng) -> tuple[Any, ...]:
    return (_normal(rng, 64, 64), rng.integers(0, 64, (32,)))


def _cross_entropy(rng: Rng) -> tuple[Any, ...]:
    return (_normal(rng, 32, 64), rng.integers(0, 64, (32,)))


def _steps(rng: Rng) -> tuple[Any, ...]:
    param, m, v, grad = (_normal(rng, 64, 64) for _ in range(4))
    return (param, m, np.square(v), grad, np.float32(0.1), np.array(3))


_EPS = {"eps": 1e-5}
_SCALE = {"scale": 0.125, "causal": "last_key"}
_KEY = np.array([7, 11], np.uint64)
_CONV = {"pads": (1, 1, 1, 1)}

ORDINARY: dict[str, Callable[[Rng], list[Sample]]] = {
    "copy": _one(lambda r: _normal(r, 64, 64)),
    "cast": _one(lambda r: _normal(r, 64, 64), dtype="float16"),
    "unary": _functions("unary"),
    "binary": _functions("binary"),
    "reduce": _functions("reduce"),
    "where": _one(lambda r: (r.integers(0, 2, (64, 64)) == 1, *(_normal(r, 64, 64),) * 2)),
    "matmul": _one(lambda r: (_normal(r, 64, 64), _normal(r, 64, 64))),
    "gather": _one(_table, axis=0),
    "scatter_add": _one(
        lambda r: (_normal(r, 64, 64), r.permutation(64)[:32], _normal(r, 32, 64)), axis=0
    ),
    "matmul_epilogue": _one(
        lambda r: (_normal(r, 64, 64), _normal(r, 64, 64), _normal(r, 64), None, None),
        activation="relu",
    ),
    "quant_matmul": _one(_quantised),
    "attention": _one(_attention, **_SCALE),
    "rms_norm": _one(lambda r: (_normal(r, 32, 64), _normal(r, 64)), **_EPS),
    "softmax": _one(lambda r: _normal(r, 32, 64), axis=-1),
    "rope": _one(
        lambda r: (_normal(r, 2, 4, 16, 64), np.arange(16), None),
        pairing="half_split",
        base=10000.0,
    ),
    "embedding": _one(_table),
    "cache_append": _one(
        lambda r: (_normal(r, 2, 4, 64, 64), _normal(r, 2, 4, 8, 64), np.array(8))
    ),
    "argmax": _one(lambda r: _normal(r, 32, 64), axis=-1),
    "argmin": _one(lambda r: _normal(r, 32, 64), axis=-1),
    "concat": _one(lambda r: (_normal(r, 32, 64), _normal(r, 32, 64)), axis=0),
    "stack": _one(lambda r: (_normal(r, 32, 64), _normal(r, 32, 64)), axis=0),
    "log_softmax": _one(lambda r: _normal(r, 32, 64), axis=-1),
    "logsumexp": _one(lambda r: _normal(r, 32, 64), axis=-1),
    "layer_norm": _one(lambda r: (_normal(r, 32, 64), _normal(r, 64), _normal(r, 64)), **_EPS),
    "group_norm": _one(
        lambda r: (*_channels(r, 1), _normal(r, 8), _normal(r, 8)), groups=4, **_EPS
    ),
    "batch_norm": _one(
        lambda r: (*_channels(r, 1), _normal(r, 8), np.abs(_normal(r, 8)) + np.float32(0.5)),
        **_EPS,
    ),
    "cumsum": _one(lambda r: np.abs(_normal(r, 32, 64)), axis=-1),
    "topk": _one(lambda r: _normal(r, 32, 64), k=8, largest=True),
    "sort": _one(lambda r: _normal(r, 32, 64)),
    "clip": _one(lambda r: (_normal(r, 64, 64), np.float32(-1), np.float32(1))),
    "take_along_axis": _one(lambda r: (_normal(r, 32, 64), r.integers(0, 64, (32, 64))), axis=-1),
    "scatter": _one(
        lambda r: (
            _normal(r, 32, 64),
            np.argsort(r.random((32, 64)), -1)[:, :32],
            _normal(r, 32, 32),
        ),
        axis=-1,
        reduction="none",
    ),
    "slice_update": _one(lambda r: (_normal(r, 64, 64), _normal(r, 32, 32)), starts=(16, 16)),
    "pad": _one(lambda r: _normal(r, 32, 64), pads=(2, 2, 2, 2)),
    "one_hot": _one(lambda r: r.integers(0, 64, (32,)), depth=64),
    "conv": _one(lambda r: (_normal(r, 2, 8, 16, 16), _normal(r, 16, 8, 3, 3)), **_CONV),
    "conv_transpose": _one(lambda r: (_normal(r, 2, 8, 16, 16), _normal(r, 8, 16, 3, 3)), **_CONV),
    "max_pool": _one(lambda r: _normal(r, 2, 8, 16, 16), kernel=(2, 2), strides=(2, 2)),
    "avg_pool": _one(
        lambda r: _normal(r, 2, 8, 16, 16),
        kernel=(2, 2),
        strides=(2, 2),
        count_include_pad=False,
    ),
    "resize": _one(
        lambda r: _normal(r, 2, 8, 16, 16), sizes=(32, 32), mode="linear", coordinates="half_pixel"
    ),
    "quantize": _one(lambda r: (_normal(r, 32, 64), np.float32(0.05)), dtype="int8"),
    "dequantize": _one(
        lambda r: (r.integers(-128, 128, (32, 64)).astype(np.int8), np.float32(0.05))
    ),
    "scaled_matmul": _one(_scaled),
    "paged_attention": _one(_paged, scale=0.125),
    "paged_cache_append": _one(_paged_append),
    "grouped_matmul": _one(
        lambda r: (_normal(r, 64, 64), np.array([16, 32, 16]), _normal(r, 3, 64, 64))
    ),
    "random_uniform": _one(lambda r: _KEY, shape=(64, 64)),
    "random_normal": _one(lambda r: _KEY, shape=(64, 64)),
    "random_integers": _one(lambda r: _KEY, low=0, high=100, shape=(64, 64)),
    "dropout": _one(lambda r: (_normal(r, 64, 64), _KEY), p=0.5),
    "cross_entropy": _one(_cross_entropy, reduction="mean"),
    "cross_entropy_backward": _one(
        lambda r: (*_cross_entropy(r), np.float32(1), None), reduction="mean"
    ),
    "softmax_backward": _one(lambda r: (_normal(r, 32, 64), _shares(r, 32, 64))),
    "log_softmax_backward": _one(lambda r: (_normal(r, 32, 64), np.log(_shares(r, 32, 64)))),
    "rms_norm_backward": _one(_gradient, **_EPS),
    "layer_norm_backward": _one(_gradient, **_EPS),
    "group_norm_backward": _one(lambda r: (*_channels(r, 2), _normal(r, 8)), groups=4, **_EPS),
    "batch_norm_backward": _one(
        lambda r: (
            *_channels(r, 2),
            _normal(r, 8),
            np.abs(_normal(r, 8)) + np.float32(0.5),
            _normal(r, 8),
        ),
        **_EPS,
    ),
    "attention_backward": _one(
        lambda r: (_normal(r, 2, 4, 16, 32), *_attention_inputs(r)), **_SCALE
    ),
    "embedding_backward": _one(lambda r: (_normal(r, 32, 64), r.integers(0, 64, (32,))), rows=64),
    "conv_backward": _one(
        lambda r: (_normal(r, 2, 8, 8, 8), _normal(r, 2, 4, 8, 8), _normal(r, 8, 4, 3, 3)), **_CONV
    ),
    "adamw_step": _one(_steps, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01),
    "sgd_step": _one(
        lambda r: (*(_normal(r, 64, 64) for _ in range(3)), np.float32(0.1)), momentum=0.9
    ),
}


def _attention_inputs(rng: Rng) -> tuple[Any, ...]:
    return (_normal(rng, 2, 4, 16, 32), _normal(rng, 2, 2, 32, 32), _normal(rng, 2, 2, 32, 32))
