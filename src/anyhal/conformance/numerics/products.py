"""How each op that sums products takes a[M, K] @ b[K, N], and each op that sums takes b[K, N].
SPDX-License-Identifier: Apache-2.0

With these, one probe of a sum is a probe of all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops._spec import Blocks, Sample

# Which forms an op has for its products; each is a name in `product`.
PRODUCTS: dict[str, tuple[str, ...]] = {
    "matmul": ("",),
    "matmul_epilogue": ("",),
    "quant_matmul": ("q8_0", "q4_0", "q4_1", "q4_k", "q6_k"),
    "grouped_matmul": ("",),
    "scaled_matmul": ("",),
    "conv": ("kernel_1", "kernel_2x2"),
    "conv_transpose": ("kernel_1",),
    "conv_backward": ("dx", "dw"),
}
SUMS: dict[str, tuple[str, ...]] = {
    "reduce": ("rows", "columns"),
    "cumsum": ("",),
    "scatter_add": ("",),
    "scatter": ("",),
    "embedding_backward": ("",),
    "avg_pool": ("",),
    "layer_norm_backward": ("",),
    "conv_backward": ("dbias",),
}
# Of what K must be a multiple, where not 1.
MULTIPLES = {"q8_0": 32, "q4_0": 32, "q4_1": 32, "q4_k": 256, "q6_k": 256, "kernel_2x2": 4}
_RANGES = {"q8_0": 127, "q4_0": 7, "q4_1": 7, "q4_k": 7, "q6_k": 31}  # of integers around 0


def largest(form: str) -> int:
    """The largest integer that b may hold in that form."""
    return _RANGES.get(form, 1 << 30)


def widest(op: str, short: str) -> dict[str, Any]:
    """The attribute that makes an op give its accumulator unrounded, where it has one."""
    if op in ("matmul", "matmul_epilogue", "quant_matmul") and short in ("f16", "bf16"):
        return {"dtype": "float32"}
    return {"dtype": "float32"} if op == "scaled_matmul" else {}


def product(op: str, form: str, a: Any, b: Any, label: str) -> Sample:
    """A sample whose first output, or the one that the form names, is a @ b."""
    m, k = a.shape
    n = b.shape[1]
    wide = widest(op, dtype(a.dtype).short)
    if op == "matmul":
        return Sample(label, (a, b), wide)
    if op == "matmul_epilogue":
        return Sample(label, (a, b, None, None, None), wide)
    if op == "quant_matmul":
        return Sample(f"{form} {label}", (a, encoded(b.T, form), None, None, None), wide)
    if op == "grouped_matmul":
        sizes = np.array([m // 2, 0, m - m // 2])
        return Sample(label, (a, sizes, np.stack([b, -b, b])))
    if op == "scaled_matmul":
        one = np.float32(1)
        return Sample(label, (a, b, np.asarray(one), np.asarray(one), None, None, None), wide)
    if op == "conv" and form == "kernel_2x2":
        x = b.reshape(1, k // 4, 2, 2, n).transpose(0, 1, 2, 4, 3).reshape(1, k // 4, 2, 2 * n)
        attrs = {"strides": (2, 2)}
        w = a.reshape(m, k // 4, 2, 2)
        return Sample(f"{form} {label}", (np.ascontiguousarray(x), w, None, None), attrs)
    if op == "conv":
        return Sample(label, (b[None], a[:, :, None], None, None))
    turned = np.ascontiguousarray(a.T)[:, :, None]
    if op == "conv_transpose":
        return Sample(label, (b[None], turned, None))
    if form == "dx":
        return Sample(
            f"dx {label}", (b[None], np.ones((1, m, n), a.dtype), turned), {"bias": False}
        )
    inputs = (a[None], np.ascontiguousarray(b.T)[None], np.ones((m, n, 1), a.dtype))
    return Sample(f"dw {label}", inputs, {"bias": False})


def total(op: str, form: str, b: Any, label: str) -> Sample:
    """A sample whose output holds the sums of b over its rows."""
    k, n = b.shape
    if op == "reduce":
        x, axis = (b, (0,)) if form == "rows" else (np.ascontiguousarray(b.T), (1,))
        attrs = {"fn": "sum", "axis": axis, "keepdims": False}
        return Sample(f"{form} {label}", (x,), attrs)
    if op == "cumsum":
        return Sample(label, (b,), {"axis": 0})
    if op in ("scatter_add", "scatter"):
        indices = np.ones(b.shape if op == "scatter" else k, np.int64)
        attrs = {"axis": 0, **({"reduction": "add"} if op == "scatter" else {})}
        return Sample(label, (np.zeros((2, n), b.dtype), indices, b), attrs)
    if op == "embedding_backward":
        return Sample(label, (b, np.ones(k, np.int64)), {"rows": 3})
    if op == "avg_pool":
        attrs = {"kernel": (k,), "strides": (1,), "count_include_pad": False}
        return Sample(label, (np.ascontiguousarray(b.T)[None],), attrs)
    if op == "layer_norm_backward":
        x = np.resize(np.array([1, -1, 3, 2], np.float64), (k, n)).astype(b.dtype)
        return Sample(label, (b, x, None), {"eps": 1e-5, "bias": True})
    x = np.ones((1, 1, k), b.dtype)
    inputs = (np.ascontiguousarray(b.T)[None], x, np.ones((n, 1, 1), b.dtype))
    return Sample(f"dbias {label}", inputs, {"bias": True})


def encoded(values: Any, name: str) -> Blocks:
    """Integers in a block format: factors are 1, and offsets what centres the codes."""
    kind = dtype(name)
    rows = np.asarray(values, np.float64).astype(np.int64).reshape(-1, kind.block_elements)
    return Blocks(_ENCODERS[name](rows), kind, np.shape(values))


def _half(value: float, count: int) -> Any:
    return np.full(count, value, np.float16).view(np.uint8).reshape(count, 2)


def _nibbles(codes: Any) -> Any:
    low, high = np.split(codes.astype(np.uint8), 2, axis=1)
    return low | high << 4


def _q8_0(v: Any) -> Any:
    return np.concatenate([_half(1, len(v)), v.astype(np.int8).view(np.uint8)], axis=1)


def _q4_0(v: Any) -> Any:
    return np.concatenate([_half(1, len(v)), _nibbles(v + 8)], axis=1)


def _q4_1(v: Any) -> Any:
    return np.concatenate([_half(1, len(v)), _half(-8, len(v)), _nibbles(v + 8)], axis=1)


def _q4_k(v: Any) -> Any:
    n = len(v)
    # Scales of 1 and minima of 8 for all eight groups: six bits each.
    groups = np.array([1] * 4 + [8] * 4 + [1 | 8 << 4] * 4, np.uint8)
    codes = np.concatenate([_nibbles(part + 8) for part in np.split(v, 4, axis=1)], axis=1)
    return np.concatenate([_half(1, n), _half(1, n), np.tile(groups, (n, 1)), codes], axis=1)


def _q6_k(v: Any) -> Any:
    codes, low, high = (v + 32).astype(np.uint8), [], []
    for half in np.split(codes, 2, axis=1):
        quarters = np.split(half, 4, axis=1)
        low.append(_nibbles(half & 15))
        high.append(np.bitwise_or.reduce([(q >> 4) << 2 * i for i, q in enumerate(quarters)]))
    scales = np.ones((len(v), 16), np.uint8)
    return np.concatenate([*low, *high, scales, _half(1, len(v))], axis=1)


_ENCODERS: dict[str, Callable[[Any], Any]] = {
    "q8_0": _q8_0,
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q4_k": _q4_k,
    "q6_k": _q6_k,
}
