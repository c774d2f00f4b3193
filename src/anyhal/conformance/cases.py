"""Random small cases of every op: edge sizes, broadcasting, optional operands, all dtypes.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME, binary, reduce, unary
from anyhal.ops._checks import BLOCKS, FLOATS, FP8, NUMBERS, PLAIN
from anyhal.ops._draw import Rng
from anyhal.ops._draw import one_of as _one_of
from anyhal.ops._draw import shape as _shape
from anyhal.ops._draw import size as _size
from anyhal.ops._draw import stretched as _stretched
from anyhal.ops._draw import values as _values
from anyhal.ops._epilogue import ACTIVATIONS
from anyhal.ops._oracle import random_blocks
from anyhal.ops._spec import Sample, Shape


def _copy(rng: Rng) -> Sample:
    return Sample("", (_values(rng, _shape(rng), _one_of(rng, PLAIN)),))


def _cast(rng: Rng) -> Sample:
    x = _values(rng, _shape(rng), _one_of(rng, (*PLAIN, *FP8)), 100)
    target = _one_of(rng, (*PLAIN, *FP8))
    overflow = _one_of(rng, ("saturate", "nonfinite")) if target in FP8 else "unstated"
    return Sample("", (x,), {"dtype": dtype(target).name, "overflow": overflow})


def _unary(rng: Rng) -> Sample:
    fn = _one_of(rng, unary.FUNCTIONS)
    return Sample(
        "", (_values(rng, _shape(rng), _one_of(rng, unary.FUNCTIONS[fn][3])),), {"fn": fn}
    )


def _binary(rng: Rng) -> Sample:
    fn, full = _one_of(rng, binary.FUNCTIONS), _shape(rng)
    short = _one_of(rng, binary.FUNCTIONS[fn][3])
    pair = [full, _stretched(rng, full)]
    rng.shuffle(pair)
    return Sample("", tuple(_values(rng, s, short) for s in pair), {"fn": fn})


def _where(rng: Rng) -> Sample:
    full, short = _shape(rng), _one_of(rng, PLAIN)
    dims = [full, _stretched(rng, full), _stretched(rng, full)]
    rng.shuffle(dims)
    condition = _values(rng, dims[0], "bool")
    return Sample("", (condition, _values(rng, dims[1], short), _values(rng, dims[2], short)))


def _reduce(rng: Rng) -> Sample:
    fn = _one_of(rng, reduce.FUNCTIONS)
    dims = _shape(rng, 1, 1 if fn in ("max", "min") else 0)
    axes = [a for a in range(len(dims)) if rng.random() < 0.5]
    axis = tuple(a - len(dims) if rng.random() < 0.3 else a for a in axes) or None
    x = _values(rng, dims, _one_of(rng, reduce.FUNCTIONS[fn][2]), 1)
    return Sample("", (x,), {"fn": fn, "axis": axis, "keepdims": bool(rng.integers(2))})


def _product(rng: Rng, short: str) -> tuple[Any, Any]:
    m, k, n = _size(rng, 33), _size(rng, 65), _size(rng, 33)
    lead = _one_of(rng, [(), (), (2,), (3, 2)])
    a_lead, b_lead = (
        (lead, _stretched(rng, lead)) if rng.random() < 0.5 else (_stretched(rng, lead), lead)
    )
    return _values(rng, (*a_lead, m, k), short, 1), _values(rng, (*b_lead, k, n), short, 1)


def _matmul(rng: Rng) -> Sample:
    return Sample("", _product(rng, _one_of(rng, BY_NAME["matmul"].dtypes)))


def _epilogue_attrs(rng: Rng) -> dict[str, Any]:
    return {"activation": _one_of(rng, ACTIVATIONS), "scale": _one_of(rng, [1.0, 0.5, -1.25])}


def _extras(rng: Rng, out: Shape, short: str) -> list[Any]:
    full = [_values(rng, s, short, 1) for s in (out[-1:], out, out)]
    return [x if rng.random() < 0.6 else None for x in full]


def _matmul_epilogue(rng: Rng) -> Sample:
    short = _one_of(rng, FLOATS)
    a, b = _product(rng, short)
    out = np.matmul(np.zeros(a.shape), np.zeros(b.shape)).shape
    return Sample("", (a, b, *_extras(rng, out, short)), _epilogue_attrs(rng))


def _quant_matmul(rng: Rng) -> Sample:
    block = _one_of(rng, BLOCKS)
    k = dtype(block).block_elements * int(rng.integers(1, 6))
    m, n = _size(rng, 17), _size(rng, 65, 1)
    short = _one_of(rng, ("f32", "f32", "f16", "bf16"))
    x, w = _values(rng, (m, k), short, 1), random_blocks(rng, block, (n, k))
    return Sample("", (x, w, *_extras(rng, (m, n), short)), _epilogue_attrs(rng))


def _indexed(rng: Rng) -> tuple[Any, int, Any]:
    x = _values(rng, _shape(rng, 1, 1), _one_of(rng, NUMBERS))
    axis = int(rng.integers(-x.ndim, x.ndim))
    dims = _one_of(rng, [(), (0,), (5,), (2, 3)])
    return x, axis, rng.integers(0, x.shape[axis], dims).astype(_one_of(rng, [np.int32, np.int64]))


def _gather(rng: Rng) -> Sample:
    x, axis, indices = _indexed(rng)
    return Sample("", (x, indices), {"axis": axis})


def _scatter_add(rng: Rng) -> Sample:
    target, axis, indices = _indexed(rng)
    at = axis % target.ndim
    dims = target.shape[:at] + indices.shape + target.shape[at + 1 :]
    updates = _values(rng, dims, dtype(target.dtype).short)
    return Sample("", (target, indices, updates), {"axis": axis})


def _attention(rng: Rng) -> Sample:
    batch, kv_heads, group = (int(n) for n in rng.integers(1, 4, 3))
    queries, keys, width, value_width = (
        _size(rng, 17, 1),
        _size(rng, 65),
        _size(rng, 33, 1),
        _size(rng, 17, 1),
    )
    short, heads = _one_of(rng, FLOATS), kv_heads * group
    q = _values(rng, (batch, heads, queries, width), short, 1)
    k = _values(rng, (batch, kv_heads, keys, width), short, 1)
    v = _values(rng, (batch, kv_heads, keys, value_width), short, 1)
    lengths = rng.integers(0, keys + 1, _one_of(rng, [(), (batch,)]))
    dims = _stretched(rng, (batch, heads, queries, keys))
    mask = _one_of(rng, [None, _values(rng, dims, "bool"), _values(rng, dims, short)])
    attrs = {"scale": 0.3, "causal": _one_of(rng, ("none", "first_key", "last_key"))}
    attrs |= {"softcap": _one_of(rng, [0.0, 0.0, 1.5]), "return_lse": bool(rng.integers(2))}
    attrs["window"] = 0 if attrs["causal"] == "none" else _one_of(rng, [0, 1, 5, 40])
    sinks = _one_of(rng, [None, _values(rng, (heads,), short)])
    return Sample("", (q, k, v, _one_of(rng, [None, lengths]), mask, sinks), attrs)


def _softmax(rng: Rng) -> Sample:
    x = _values(rng, _shape(rng, 1), _one_of(rng, FLOATS), 5)
    return Sample("", (x,), {"axis": int(rng.integers(-x.ndim, x.ndim))})


def _rope(rng: Rng) -> Sample:
    lead, steps, width = _one_of(rng, [(), (2,), (2, 3)]), _size(rng, 9), 2 * _size(rng, 33, 1)
    x = _values(rng, (*lead, steps, width), _one_of(rng, FLOATS), 1)
    rotary = _one_of(rng, [0, width, 2 * int(rng.integers(1, width // 2 + 1))])
    factors = rng.uniform(1, 8, (rotary or width) // 2).astype(np.float32)
    positions = rng.integers(0, 3000, (steps,) if rng.random() < 0.5 else (*lead, steps))
    attrs = {
        "pairing": _one_of(rng, ("half_split", "interleaved")),
        "rotary_dims": rotary,
        "base": 10000.0,
        "position_scale": _one_of(rng, [1.0, 0.25]),
    }
    return Sample("", (x, positions, _one_of(rng, [None, factors])), attrs)


def _embedding(rng: Rng) -> Sample:
    rows, short = _size(rng, 33, 1), _one_of(rng, (*FLOATS, *BLOCKS))
    table = (
        random_blocks(rng, short, (rows, dtype(short).block_elements * int(rng.integers(1, 5))))
        if short in BLOCKS
        else _values(rng, (rows, _size(rng, 65)), short)
    )
    return Sample("", (table, rng.integers(0, rows, _one_of(rng, [(), (0,), (7,), (2, 3)]))))


def _cache_append(rng: Rng) -> Sample:
    batch, heads = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    capacity, width, short = _size(rng, 33, 1), _size(rng, 17, 1), _one_of(rng, PLAIN)
    rows = int(rng.integers(0, capacity + 1))
    cache = _values(rng, (batch, heads, capacity, width), short)
    update = _values(rng, (batch, heads, rows, width), short)
    position = rng.integers(0, capacity - rows + 1, _one_of(rng, [(), (batch,)]))
    return Sample("", (cache, update, position))


def _concat(rng: Rng) -> Sample:
    dims, short = list(_shape(rng, 1)), _one_of(rng, PLAIN)
    axis = int(rng.integers(-len(dims), len(dims)))
    parts = []
    for _ in range(int(rng.integers(1, 5))):
        dims[axis] = _size(rng, 17)
        parts.append(_values(rng, tuple(dims), short))
    return Sample("", tuple(parts), {"axis": axis})


CASES: dict[str, Callable[[Rng], Sample]] = {
    "copy": _copy,
    "cast": _cast,
    "unary": _unary,
    "binary": _binary,
    "where": _where,
    "reduce": _reduce,
    "matmul": _matmul,
    "gather": _gather,
    "scatter_add": _scatter_add,
    "matmul_epilogue": _matmul_epilogue,
    "quant_matmul": _quant_matmul,
    "attention": _attention,
    "softmax": _softmax,
    "rope": _rope,
    "embedding": _embedding,
    "cache_append": _cache_append,
    "concat": _concat,
    # An op may bring its random cases along in its own file.
    **{spec.name: spec.random for spec in BY_NAME.values() if spec.random is not None},
}


def _repeated(rng: Rng, x: Any) -> Any:
    """x with one slice repeated along an axis, by a stride of 0; or x as it is."""
    if not isinstance(x, np.ndarray) or x.size < 2 or rng.random() > 0.2:
        return x
    axis = int(rng.integers(x.ndim))
    return np.broadcast_to(x.take([0], axis), x.shape)


def random_case(op: str, seed: int) -> Sample:
    """Case `seed` of an op; the label repeats it. Some inputs have strides of 0."""
    rng = np.random.default_rng([seed, BY_NAME[op].id])
    case = CASES[op](rng)
    spec = BY_NAME[op]  # what is written cannot repeat itself
    kept = len(spec.outputs) if spec.aliasing == "required" else 0
    inputs = case.inputs[:kept] + tuple(_repeated(rng, x) for x in case.inputs[kept:])
    case = Sample("", inputs, case.attrs)
    shown = ", ".join("-" if x is None else f"{x.dtype!s}{list(x.shape)}" for x in case.inputs)
    return Sample(f"seed {seed}: {shown} {dict(case.attrs)}", case.inputs, case.attrs)
