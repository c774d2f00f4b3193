"""What is timed: calls of one op with fixed shapes and fixed real-valued data.
SPDX-License-Identifier: Apache-2.0

Work is counted by the op file's cost model, so that it is the same for every backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._oracle import random_blocks
from anyhal.ops._spec import Blocks, TensorSpec
from anyhal.records import record

FAMILIES = ("gemm", "attention", "bandwidth", "rows")
ALWAYS = ("matmul f32", "attention f32", "softmax f32", "add f32", "sum f32")  # of the A/A report


@record
class Item:
    """One timed call. `make(rng)` gives its inputs as NumPy values, `call` the public function."""

    name: str
    family: str
    op: str
    function: str
    make: Callable[[np.random.Generator], tuple[Any, ...]]
    attrs: dict[str, Any]

    @property
    def short(self) -> str:
        return self.name.split()[1]

    def work(self, inputs: Sequence[Any]) -> tuple[float, float]:
        """Flops and bytes, read and written."""
        spec = BY_NAME[self.op]
        given = dict(spec.functions.get(self.function, {})) | self.attrs
        attrs = {a.name: given.get(a.name, a.default) for a in spec.attrs}
        specs = [_spec(x) for x in inputs]
        specs += [None] * (len(spec.inputs) - len(specs))
        outs = spec.infer_outs(specs, attrs)
        views, lowered, targets = spec.lower_outs(specs, attrs, outs)
        flops, nbytes = spec.cost_outs(specs, attrs, outs)
        return float(flops), float(nbytes)

    def call(self, arrays: Sequence[Any], out: Any = None) -> Any:
        given = self.attrs if out is None else {**self.attrs, "out": out}
        return getattr(hal, self.function)(*arrays, **given)


def _spec(x: Any) -> TensorSpec | None:
    if x is None:
        return None
    return TensorSpec.dense(x.dtype if isinstance(x, Blocks) else dtype(x.dtype), x.shape)


def _normal(short: str, *shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Any]:
    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        kind = dtype(short).numpy
        return tuple(rng.standard_normal(s).astype(np.float32).astype(kind) for s in shapes)

    return make


def _weights(block: str, rows: int, n: int, k: int) -> Callable[[np.random.Generator], Any]:
    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        x = rng.standard_normal((rows, k)).astype(np.float32)
        return x, random_blocks(rng, block, (n, k))

    return make


def _table(rows: int, width: int, count: int) -> Callable[[np.random.Generator], Any]:
    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        table = rng.standard_normal((rows, width)).astype(np.float32)
        return table, rng.integers(0, rows, count)

    return make


def _steps(*shape: int) -> Callable[[np.random.Generator], Any]:
    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        return rng.standard_normal(shape).astype(np.float32), np.arange(shape[-2])

    return make


def _item(name: str, family: str, op: str, make: Any, function: str = "", **attrs: Any) -> Item:
    return Item(name, family, op, function or op, make, attrs)


_HEADS = (1, 8, 256, 64)
_ROWS = (2048, 1024)
ITEMS: tuple[Item, ...] = (
    _item("matmul f32", "gemm", "matmul", _normal("f32", (512, 512), (512, 512))),
    _item("matmul_wide f32", "gemm", "matmul", _normal("f32", (64, 2048), (2048, 2048))),
    _item("matmul bf16", "gemm", "matmul", _normal("bf16", (512, 512), (512, 512))),
    _item("matmul_epilogue f32", "gemm", "matmul_epilogue",
          _normal("f32", (512, 512), (512, 512), (512,)), activation="gelu_tanh"),
    _item("quant_matmul q4_0", "gemm", "quant_matmul", _weights("q4_0", 1, 2048, 2048)),
    _item("attention f32", "attention", "attention", _normal("f32", _HEADS, _HEADS, _HEADS),
          causal="last_key", scale=0.125),
    _item("softmax f32", "rows", "softmax", _normal("f32", _ROWS)),
    _item("rms_norm f32", "rows", "rms_norm", _normal("f32", _ROWS, (_ROWS[1],)), eps=1e-5),
    _item("layer_norm f32", "rows", "layer_norm",
          _normal("f32", _ROWS, (_ROWS[1],), (_ROWS[1],)), eps=1e-5),
    _item("rope f32", "rows", "rope", _steps(1, 16, 512, 64), pairing="half_split", base=1e4),
    _item("add f32", "bandwidth", "binary", _normal("f32", (1 << 22,), (1 << 22,)), "add"),
    _item("copy f32", "bandwidth", "copy", _normal("f32", (1 << 22,)), "copy"),
    _item("cast bf16", "bandwidth", "cast", _normal("f32", (1 << 22,)), "astype", dtype="bfloat16"),
    _item("sum f32", "bandwidth", "reduce", _normal("f32", _ROWS), "sum", axis=-1),
    _item("embedding f32", "bandwidth", "embedding", _table(4096, 512, 4096)),
)  # fmt: skip


def chosen(names: Sequence[str]) -> Iterator[Item]:
    """Those of these ops, functions or names; all for none."""
    for item in ITEMS:
        if not names or {item.name, item.op, item.function} & set(names):
            yield item
