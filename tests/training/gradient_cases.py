"""Calls for which the gradient rules are checked.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

RNG = np.random.default_rng(3)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def positive(*shape: int) -> Any:
    return RNG.uniform(0.5, 2.0, shape)


IDS = np.array([[2, 0, 2], [1, 1, 4]])
PLACES = np.array([[2, 0, 2, 1], [1, 1, 4, 0]])
MASK = RNG.integers(0, 2, (4, 3)).astype(bool)
ROPE = {"pairing": "half_split", "base": 100.0, "rotary_dims": 4}
SEEN = {"scale": 0.5, "causal": "last_key"}
Q, K, V = normal(2, 4, 3, 5), normal(2, 2, 6, 5), normal(2, 2, 6, 4)
LENGTHS, SINKS = np.array([6, 2]), normal(4)
KEY = np.array([3, 1], np.uint64)
HALVES = {"mode": "linear", "coordinates": "half_pixel"}
NEAREST = {"mode": "nearest", "coordinates": "asymmetric", "rounding": "floor"}
STEP_UP = {"kernel": (2, 3), "strides": (2, 1), "pads": (1, 1, 0, 1)}
Case = tuple[str, tuple[Any, ...], dict[str, Any]]

ANYWHERE = ("negative", "positive", "abs", "square", "exp", "exp2", "expm1", "sin", "cos", "tanh")
ANYWHERE += ("atan", "sinh", "cosh", "asinh", "erf", "sigmoid", "softplus", "relu", "silu", "gelu")
ANYWHERE += ("gelu_tanh", "sign", "floor", "ceil", "round", "trunc")
ABOVE_0 = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal")
INSIDE_1 = ("tan", "asin", "acos", "atanh")
PAIRS = ("add", "subtract", "multiply", "maximum", "minimum", "atan2", "hypot", "logaddexp")
PAIRS += ("copysign",)
BESIDE_0 = ("divide", "pow", "remainder", "floor_divide")
REDUCED = ("sum", "mean", "max", "min", "prod")
SHAPES = ((4, 3), (), (0, 3))


def pairs(make: Callable[..., Any], names: tuple[str, ...]) -> list[Case]:
    """Both sides stretched, equal shapes, no dims, no elements, a number on either side."""
    found: list[Case] = []
    for name in names:
        shapes = (((2, 4, 1), (3,)), ((3,), (4, 3)), ((), ()), ((4, 1), ()), ((0, 3), (1, 3)))
        found += [(name, (make(*a), make(*b)), {}) for a, b in shapes]
        found += [(name, (make(4, 3), 1.5), {}), (name, (1.5, make(4, 3)), {})]
    return found


def each(make: Callable[..., Any], names: tuple[str, ...]) -> list[Case]:
    return [(name, (make(*shape),), {}) for name in names for shape in SHAPES]


# Rule, inputs (floats are differentiated), attributes.
ELEMENTWISE: list[Case] = [
    *each(normal, ANYWHERE),
    *each(positive, ABOVE_0),
    *each(lambda *shape: RNG.uniform(-0.9, 0.9, shape), INSIDE_1),
    *each(lambda *shape: RNG.uniform(1.1, 3.0, shape), ("acosh",)),
    *pairs(normal, PAIRS),
    *pairs(positive, BESIDE_0),
    ("pow", (normal(4, 3), 3.0), {}),
    ("pow", (np.array([0.0, 2.0, -1.0]), 0.0), {}),
    ("remainder", (normal(4, 3), -0.7), {}),
    ("where", (MASK, normal(4, 3), normal(3)), {}),
    ("where", (MASK[:, :1], normal(1, 3), 2.0), {}),
    ("clip", (normal(4, 3), -0.5, 0.5), {}),
    ("clip", (normal(4, 3), normal(3), positive(4, 1)), {}),
    ("clip", (normal(4, 3), positive(3), -positive(4, 1)), {}),
    ("clip", (normal(4, 3), None, 0.2), {}),
    ("clip", (normal(), normal(), None), {}),
    ("clip", (normal(0, 3), -1.0, 1.0), {}),
]
REDUCTIONS: list[Case] = [
    *((n, (normal(*shape),), {}) for n in REDUCED for shape in ((4, 3), ())),
    *((n, (normal(4, 3, 2),), {"axis": (0, -1)}) for n in REDUCED),
    *((n, (normal(0, 3),), {"axis": 1}) for n in REDUCED),
    *((n, (normal(0, 3),), {}) for n in ("sum", "prod")),
    ("prod", (np.array([[0.0, 2, 3], [0, 0, 1], [1, 2, 3]]),), {"axis": 1, "keepdims": True}),
    *(
        ("cumsum", (normal(3, 4),), {"axis": a, "exclusive": e, "reverse": r})
        for a, e, r in ((0, False, False), (-1, True, False), (1, False, True), (1, True, True))
    ),
    ("cumsum", (normal(0, 4),), {"axis": 0}),
    ("topk", (normal(3, 5),), {"k": 2, "largest": True}),
    ("topk", (normal(5, 3),), {"k": 3, "largest": False, "axis": 0}),
    ("topk", (normal(3, 5),), {"k": 0, "largest": True}),
    ("sort", (normal(3, 5),), {}),
    ("sort", (normal(5, 3),), {"axis": 0, "descending": True}),
    ("softmax", (normal(4, 3),), {"axis": 0}),
    ("log_softmax", (normal(4, 3),), {"axis": 0}),
    *((n, (normal(0, 3),), {}) for n in ("softmax", "log_softmax", "sort")),
    ("logsumexp", (normal(4, 3),), {"axis": 1}),
    ("logsumexp", (normal(4, 3, 2),), {"axis": (0, 2), "keepdims": True}),
    ("logsumexp", (normal(),), {"axis": None}),
]
PRODUCTS: list[Case] = [
    ("matmul", (normal(2, 3, 4), normal(4, 5)), {}),
    ("matmul", (normal(3, 4), normal(2, 4, 5)), {}),
    ("matmul", (normal(3, 0), normal(0, 5)), {}),
    ("matmul_epilogue", (normal(2, 3, 4), normal(4, 5)), {"scale": 0.5}),
    *(
        (
            "matmul_epilogue",
            (normal(3, 4), normal(4, 5), normal(5), normal(3, 5), normal(3, 5)),
            {"activation": a, "scale": 0.5},
        )
        for a in ("none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")
    ),
    ("matmul_epilogue", (normal(3, 4), normal(4, 5), None, normal(3, 5)), {}),
    ("grouped_matmul", (normal(7, 3), np.array([2, 0, 3]), normal(3, 3, 4)), {}),
    ("grouped_matmul", (normal(0, 3), np.array([0, 0]), normal(2, 3, 4)), {}),
    ("einsum", ("ij,jk->ik", normal(3, 4), normal(4, 2)), {}),
    ("einsum", ("bij,bkj", normal(2, 3, 4), normal(2, 5, 4)), {}),
    ("einsum", ("ij->", normal(3, 4)), {}),
    ("einsum", ("ij,j->j", normal(3, 4), normal(4)), {}),
    ("einsum", ("iij->ij", normal(3, 3, 2)), {}),
    ("einsum", ("ii,ij->j", normal(3, 3), normal(3, 2)), {}),
    ("einsum", ("...i,...i->...", normal(2, 3, 4), normal(1, 4)), {}),
    ("einsum", ("i,j->ij", normal(3), normal(0)), {}),
    ("conv", (normal(2, 4, 5), normal(2, 2, 3), normal(2)), {"groups": 2, "pads": (1, 0)}),
    ("conv", (normal(1, 2, 4, 3), normal(3, 2, 2, 2)), {"strides": (2, 1)}),
    (
        "conv",
        (normal(2, 3, 5), normal(2, 3, 2), normal(2), normal(2, 2, 1)),
        {"activation": "gelu", "dilations": (2,)},
    ),
    ("conv", (normal(2, 3, 5), normal(2, 3, 2), None, normal(2, 1, 4)), {"activation": "tanh"}),
    ("conv_transpose", (normal(2, 4, 3), normal(4, 3, 2), normal(6)), {"groups": 2}),
    (
        "conv_transpose",
        (normal(1, 2, 3, 2), normal(2, 3, 3, 2)),
        {"strides": (2, 3), "pads": (1, 0, 1, 1), "output_padding": (1, 2)},
    ),
    (
        "conv_transpose",
        (normal(1, 2, 3), normal(2, 3, 2)),
        {"dilations": (3,), "output_padding": (2,), "pads": (1, 2)},
    ),
]
LAYERS: list[Case] = [
    ("embedding", (normal(5, 4), IDS), {}),
    ("cross_entropy", (normal(2, 3, 5), IDS), {"reduction": "mean", "label_smoothing": 0.1}),
    ("cross_entropy", (normal(2, 3, 5), IDS), {"reduction": "none", "ignore_index": 1}),
    ("cross_entropy", (normal(2, 3, 5), IDS), {"reduction": "sum", "return_lse": True}),
    ("rms_norm", (normal(4, 3), normal(3)), {"eps": 1e-3}),
    ("rms_norm", (normal(4, 3),), {"eps": 1e-3}),
    ("rms_norm", (normal(4, 3), normal(3), normal(4, 3)), {"eps": 1e-3}),
    ("rms_norm", (normal(4, 3), None, normal(4, 3)), {"eps": 1e-3}),
    ("layer_norm", (normal(4, 3), normal(3), normal(3)), {"eps": 1e-3}),
    ("layer_norm", (normal(4, 3),), {"eps": 1e-3}),
    ("layer_norm", (normal(2, 3, 4), normal(3, 4), None, normal(2, 3, 4)), {"eps": 0.1, "axes": 2}),
    ("group_norm", (normal(2, 4, 3), normal(4), normal(4)), {"groups": 2, "eps": 1e-3}),
    ("group_norm", (normal(2, 4), None, normal(4), normal(2, 4)), {"groups": 1, "eps": 1e-3}),
    ("group_norm", (normal(2, 0, 3),), {"groups": 1, "eps": 1e-3}),
    ("batch_norm", (normal(2, 3, 2), normal(3), positive(3), normal(3), normal(3)), {"eps": 1e-3}),
    ("batch_norm", (normal(2, 3), normal(3), positive(3)), {"eps": 1e-3}),
    (
        "batch_norm",
        (normal(2, 3, 2), normal(3), positive(3), None, normal(3), normal(2, 3, 2)),
        {"eps": 1e-3},
    ),
    ("batch_norm", (normal(0, 3), normal(3), positive(3), normal(3)), {"eps": 1e-3}),
    ("attention", (Q, K, V), SEEN),
    ("attention", (Q, K, V, LENGTHS), {**SEEN, "window": 2}),
    ("attention", (Q, K, V), {**SEEN, "softcap": 0.7}),
    ("attention", (Q, K, V, LENGTHS, None, SINKS), {**SEEN, "return_lse": True}),
    (
        "attention",
        (Q, K, V, None, MASK[:3, :1].repeat(6, 1), SINKS),
        {**SEEN, "window": 4, "softcap": 0.7, "return_lse": True},
    ),
    ("attention", (Q, K, V, LENGTHS, normal(4, 1, 6)), SEEN),
    (
        "attention",
        (Q, K, V, None, normal(3, 6), SINKS),
        {**SEEN, "window": 3, "softcap": 0.7, "return_lse": True},
    ),
    ("attention", (Q, K[:, :, :0], V[:, :, :0], None, None, SINKS), {**SEEN, "return_lse": True}),
    ("rope", (normal(2, 3, 6), np.array([0, 3, 9])), ROPE),
    ("dropout", (normal(4, 3), KEY), {"p": 0.4}),
    ("dropout", (normal(), KEY), {"p": 0.0}),
]
MOVES: list[Case] = [
    ("astype", (normal(4, 3),), {"dtype": "float64"}),
    ("copy", (normal(4, 3),), {}),
    ("reshape", (normal(4, 3), (2, 6)), {}),
    ("permute_dims", (normal(4, 3, 2), (2, 0, 1)), {}),
    ("permute_dims", (normal(4, 3, 2), (-1, 0, 1)), {}),
    ("broadcast_to", (normal(4, 1), (2, 4, 3)), {}),
    ("index", (normal(4, 3), (slice(1, 3), 2)), {}),
    ("index", (normal(5, 3), (slice(None, None, 2),)), {}),
    ("concat", (normal(4, 3), normal(4, 2)), {"axis": -1}),
    ("stack", (normal(4, 3), normal(4, 3)), {"axis": 1}),
    ("stack", (normal(), normal(), normal()), {}),
    ("split", (normal(4, 3), 2), {}),
    ("split", (normal(4, 5), (1, 1, 4)), {"axis": -1}),
    ("pad", (normal(4, 3), normal()), {"pads": (1, 0, 0, 2)}),
    ("pad", (normal(4, 3),), {"pads": (-1, 2, 1, -1)}),
    ("pad", (normal(4, 3), normal()), {"pads": (-1, 2, 1, -1)}),
    *(("pad", (normal(4, 3),), {"pads": (2, 1, 1, 4), "mode": m}) for m in ("reflect", "wrap")),
    ("pad", (normal(4, 3),), {"pads": (3, -1, 1, 2), "mode": "edge"}),
    ("pad", (normal(4, 3),), {"pads": (6, 0, 0, 0), "mode": "wrap"}),
    ("slice_update", (normal(4, 3), normal(2, 1)), {"starts": (1, 2)}),
    ("slice_update", (normal(4, 3), normal(2, 1), np.array([1, 2])), {}),
    ("slice_update", (normal(), normal()), {"starts": ()}),
    ("take", (normal(4, 5), IDS), {"axis": 1}),
    ("take", (normal(5), np.array(3)), {"axis": 0}),
    ("take_along_axis", (normal(2, 5), PLACES), {"axis": 1}),
    ("take_along_axis", (normal(1, 5), PLACES), {"axis": -1}),
    ("take_along_axis", (normal(3, 5), PLACES[:1]), {"axis": 1}),
    ("scatter_add", (normal(5, 4), IDS, normal(2, 3, 4)), {"axis": 0}),
    *(
        ("scatter", (normal(3, 5), PLACES, normal(2, 4)), {"axis": 1, "reduction": r})
        for r in ("none", "add", "max", "min", "multiply")
    ),
    (
        "scatter",
        (np.array([[0.0, 2.0, 0.0]]), PLACES[:1, :3], np.array([[3.0, 0.0, 5.0]])),
        {"axis": 1, "reduction": "multiply"},
    ),
    ("scatter", (normal(3, 5), PLACES[:, :0], normal(2, 0)), {"axis": 1, "reduction": "none"}),
]
WINDOWS: list[Case] = [
    ("max_pool", (normal(2, 3, 6, 5),), STEP_UP),
    ("max_pool", (normal(1, 2, 6),), {"kernel": (3,), "strides": (2,), "ceil_mode": True}),
    ("max_pool", (normal(1, 2, 7),), {"kernel": (2,), "strides": (2,), "dilations": (3,)}),
    ("max_pool", (normal(0, 2, 7),), {"kernel": (2,), "strides": (2,)}),
    *(
        ("avg_pool", (normal(2, 3, 6, 5),), {**STEP_UP, "count_include_pad": c, "ceil_mode": True})
        for c in (False, True)
    ),
    ("avg_pool", (normal(1, 2, 7),), {"kernel": (2,), "strides": (2,), "count_include_pad": True}),
    ("resize", (normal(2, 3, 4),), {"sizes": (5, 3), **HALVES}),
    ("resize", (normal(2, 3, 4),), {"sizes": (6,), **NEAREST}),
    ("resize", (normal(2, 2, 2),), {"sizes": (3, 1, 3), **HALVES, "coordinates": "align_corners"}),
]
CASES = [*ELEMENTWISE, *REDUCTIONS, *PRODUCTS, *LAYERS, *MOVES, *WINDOWS]
