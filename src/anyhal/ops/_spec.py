"""What an op file says: operands, attributes, dtypes, rules, decomposition, reference.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anyhal.dtypes import DType
from anyhal.errors import InvalidArgumentError

REQUIRED: Any = object()  # marks an attribute without a default

Shape = tuple[int, ...]


def dense_strides(shape: Sequence[int], dtype: DType) -> Shape:
    """Row-major strides in blocks (elements for ordinary dtypes)."""
    strides, step = [], 1
    for n in reversed([*shape[:-1], -(-shape[-1] // dtype.block_elements)] if shape else []):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class TensorSpec:
    """An operand without its bytes: dtype, shape in elements, strides in blocks (elements for
    ordinary dtypes; 0 = broadcast)."""

    dtype: DType
    shape: Shape
    strides: Shape

    @staticmethod
    def dense(dtype: DType, shape: Iterable[int]) -> TensorSpec:
        shape = tuple(shape)
        return TensorSpec(dtype, shape, dense_strides(shape, dtype))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the values if stored densely."""
        return self.size // self.dtype.block_elements * self.dtype.block_bytes

    @property
    def is_dense(self) -> bool:
        want = dense_strides(self.shape, self.dtype)
        return self.size == 0 or all(
            n == 1 or s == w for n, s, w in zip(self.shape, self.strides, want, strict=True)
        )

    def broadcast_to(self, shape: Sequence[int]) -> TensorSpec:
        """The view with that shape; new and stretched dims get stride 0."""
        lead = len(shape) - self.rank
        if lead < 0 or any(n not in (1, m) for n, m in zip(self.shape, shape[lead:], strict=True)):
            raise InvalidArgumentError(
                f"cannot broadcast {describe(self)} to {list(shape)}: sizes must be equal or 1"
            )
        strides = (0,) * lead + tuple(
            0 if n != m else s
            for n, m, s in zip(self.shape, shape[lead:], self.strides, strict=True)
        )
        return TensorSpec(self.dtype, tuple(shape), strides)

    def expand_dims(self, axis: int) -> TensorSpec:
        """The view with a dim of size 1 inserted before `axis`."""
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(axis, 1)
        strides.insert(axis, 0)
        return TensorSpec(self.dtype, tuple(shape), tuple(strides))

    def permute(self, axes: Sequence[int]) -> TensorSpec:
        return TensorSpec(
            self.dtype, tuple(self.shape[i] for i in axes), tuple(self.strides[i] for i in axes)
        )


def describe(spec: TensorSpec | None) -> str:
    """As messages and `explain` write it: f32[4,8]."""
    return "absent" if spec is None else f"{spec.dtype.short}{list(spec.shape)}".replace(" ", "")


@dataclass(frozen=True)
class Arg:
    """One operand. `axes` names its dims with letters; sizes with equal letters must agree."""

    name: str
    axes: str
    optional: bool = False
    variadic: bool = False  # takes the whole list of inputs (concat)
    doc: str = ""


@dataclass(frozen=True)
class Attr:
    """One attribute, always given by keyword.

    `kind`: "i64", "f32", "bool", "axis" (an int), "axes" (None, int or tuple of ints), "dtype"
    (a dtype name or None), or "enum" with `choices` name → number in the contract.
    `c_type`: its type in the C attribute record ("int32_t", "uint64_t", "float", ...), or None when
    only Python sees it (the operand descriptions carry it).
    """

    name: str
    kind: str
    default: Any = REQUIRED
    choices: Mapping[str, int] = field(default_factory=dict)
    c_type: str | None = None
    doc: str = ""


# (input specs, None where absent; attribute values) -> the output's spec. Raises
# InvalidArgumentError for shapes and UnsupportedError for dtypes outside the op's table.
Infer = Callable[[Sequence["TensorSpec | None"], Mapping[str, Any]], TensorSpec]

# (inputs, attrs, out) -> the same as the contract wants them: broadcast by stride 0, axes
# non-negative, kept dims. Views only: no offset changes.
Lower = Callable[
    [Sequence["TensorSpec | None"], Mapping[str, Any], TensorSpec],
    tuple[list["TensorSpec | None"], dict[str, Any], TensorSpec],
]


@dataclass(frozen=True)
class OpSpec:
    """All that is true of an op on every chip. One per file of `anyhal.ops`."""

    id: int
    name: str
    since: str
    summary: str
    inputs: tuple[Arg, ...]
    output: Arg
    attrs: tuple[Attr, ...]
    dtypes: Mapping[str, str]  # main input dtype -> accumulation dtype, short names
    special: str  # empty, NaN, infinity, negative zero
    aliasing: str  # one of ALIASING
    bound: str  # name of a formula of conformance/tolerance.py
    source: str
    infer: Infer
    lower: Lower
    cost: Callable[..., tuple[float, float]]  # (inputs, attrs, out) -> flops, bytes
    reference: Callable[..., Any]  # NumPy, float64 inside; the oracle
    samples: Callable[..., Iterable[Any]]  # rng -> Sample
    decompose: Callable[..., None] | None = None  # (trace, inputs, attrs, out); None for core ops
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Public names with preset attributes, such as exp -> {"fn": "exp"}; empty: the op's own name."""

    @property
    def is_core(self) -> bool:
        return self.decompose is None

    def attr(self, name: str) -> Attr:
        return next(a for a in self.attrs if a.name == name)


ALIASING = {
    "none": "out may not overlap an input",
    "elementwise": "out may be exactly an input of the same dtype and layout",
    "first": "out may be exactly the first input",
    "required": "out must be exactly the first input",
}


@dataclass(frozen=True)
class Sample:
    """One judged input: NumPy arrays (uint8 bytes plus shape for block dtypes) and attributes."""

    label: str
    inputs: tuple[Any, ...]  # ndarray, None, or Blocks
    attrs: Mapping[str, Any] = field(default_factory=dict)
    out_dtype: str | None = None


@dataclass(frozen=True)
class Blocks:
    """Block-format bytes of a sample: `data` is uint8, `shape` counts elements."""

    data: Any
    dtype: DType
    shape: Shape


def broadcast_shapes(op: str, *specs: TensorSpec) -> Shape:
    """The common shape; InvalidArgumentError names the op, all shapes and the first bad axis."""
    rank = max((s.rank for s in specs), default=0)
    out = []
    for i in range(rank):
        sizes = {s.shape[i - rank + s.rank] for s in specs if i - rank + s.rank >= 0} - {1}
        if len(sizes) > 1:
            shapes = ", ".join(describe(s) for s in specs)
            raise InvalidArgumentError(
                f"{op}: shapes {shapes} do not broadcast: axis {i} has sizes "
                f"{' and '.join(map(str, sorted(sizes)))}; sizes must be equal or 1"
            )
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


def normalize_axis(op: str, axis: int, spec: TensorSpec) -> int:
    """A non-negative axis of `spec`, or InvalidArgumentError."""
    if not -spec.rank <= axis < spec.rank:
        raise InvalidArgumentError(
            f"{op}: axis {axis} is outside {describe(spec)}; use {-spec.rank}..{spec.rank - 1}"
        )
    return axis % spec.rank


def with_dtype(spec: TensorSpec, dtype: DType) -> TensorSpec:
    return replace(spec, dtype=dtype)
