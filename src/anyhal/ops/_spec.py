"""What an op file says: operands, attributes, dtypes, rules, decomposition, reference.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import DType
from anyhal.errors import InvalidArgumentError
from anyhal.records import field, record, replace

REQUIRED: Any = object()  # marks an attribute without a default

Shape = tuple[int, ...]


def dense_strides(shape: Sequence[int], dtype: DType) -> Shape:
    """Row-major strides in blocks (elements for ordinary dtypes)."""
    strides, step = [], 1
    for n in reversed([*shape[:-1], -(-shape[-1] // dtype.block_elements)] if shape else []):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


@record
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

    def squeeze(self, axis: int) -> TensorSpec:
        """The view without `axis`, whose size is 1."""
        assert self.shape[axis] == 1
        axis %= self.rank
        return TensorSpec(
            self.dtype,
            self.shape[:axis] + self.shape[axis + 1 :],
            self.strides[:axis] + self.strides[axis + 1 :],
        )

    def split(self, axis: int, outer: int, inner: int) -> TensorSpec:
        """The view with `axis` as two dims; possible whatever the strides."""
        axis %= self.rank
        assert self.shape[axis] == outer * inner and not self.dtype.is_block
        step = self.strides[axis]
        return TensorSpec(
            self.dtype,
            (*self.shape[:axis], outer, inner, *self.shape[axis + 1 :]),
            (*self.strides[:axis], step * inner, step, *self.strides[axis + 1 :]),
        )

    def permute(self, axes: Sequence[int]) -> TensorSpec:
        return TensorSpec(
            self.dtype, tuple(self.shape[i] for i in axes), tuple(self.strides[i] for i in axes)
        )


def describe(spec: TensorSpec | None) -> str:
    """As messages and `explain` write it: f32[4,8]."""
    return "absent" if spec is None else f"{spec.dtype.short}{list(spec.shape)}".replace(" ", "")


@record
class Arg:
    """One operand. `axes` names its dims with letters; sizes with equal letters must agree."""

    name: str
    axes: str
    optional: bool = False
    variadic: bool = False  # takes the whole list of inputs (concat)
    doc: str = ""
    own: str = ""  # the dtype a plain number takes here, where it is not that of the other operands
    bound: str = ""  # of a further output, where it is not the op's


@record
class Attr:
    """One attribute, always given by keyword.

    `kind`: "i64", "f32", "bool", "axis" (an int), "axes" (None, int or tuple of distinct ints),
    "ints" (None or a tuple of ints in their order), "dtype" (a dtype name or None), or "enum" with
    `choices` name → number in the contract.
    `c_type`: its type in the C attribute record ("int32_t", "uint64_t", "float"), or None when only
    Python sees it (the operand descriptions carry it). `c_name`: its field there, if not `name`.
    `c_count`: numbers in that field; `lower` gives "ints" as a tuple of that length.
    `c_enum`: the C enumeration of `choices`, without the prefix anyhal_.
    """

    name: str
    kind: str
    default: Any = REQUIRED
    choices: Mapping[str, int] = field(default_factory=dict)
    c_type: str | None = None
    doc: str = ""
    c_name: str = ""
    c_enum: str = ""
    c_count: int = 1


# The outputs of a call in order; None: one that this call does not have.
Outs = tuple["TensorSpec | None", ...]

# (input specs, None where absent; attribute values) -> the output's spec; for an op with several
# outputs a tuple, `Outs`. Raises InvalidArgumentError for shapes and UnsupportedError for dtypes
# outside the op's table.
Infer = Callable[[Sequence["TensorSpec | None"], Mapping[str, Any]], Any]

# (inputs, attrs, out) -> the same as the contract wants them: broadcast by stride 0, kept dims, and
# only the attributes of the C record (by Python name; axes non-negative, enums still by name:
# `_record.pack` makes the bytes). Views only: no offset changes. With several outputs `out` is
# `Outs`, here and in `cost`; in `decompose` a tuple of Value or None.
Lowered = tuple[list["TensorSpec | None"], dict[str, Any], TensorSpec]
LoweredOuts = tuple[list["TensorSpec | None"], dict[str, Any], Outs]
Lower = Callable[[Sequence["TensorSpec | None"], Mapping[str, Any], Any], Any]


@record
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
    bound: str  # name of a formula in conformance/ (BOUNDS)
    source: str
    infer: Infer
    lower: Lower
    cost: Callable[..., tuple[float, float]]  # (inputs, attrs, out) -> flops, bytes
    reference: Callable[..., Any]  # NumPy, float64 inside; the oracle
    samples: Callable[..., Iterable[Any]]  # rng -> Sample
    random: Callable[..., Any] | None = None  # rng -> Sample: a random small case, see _draw.py
    more_outputs: tuple[Arg, ...] = ()  # after `output`; `reference` then gives a tuple
    decompose: Callable[..., None] | None = None  # (trace, inputs, attrs, out); None for core ops
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Public names with preset attributes, as exp -> {"fn": "exp"}; empty: the op's own name."""
    variant_docs: Mapping[str, str] = field(default_factory=dict)  # public name -> one sentence
    variant_dtypes: Mapping[str, str] = field(
        default_factory=dict
    )  # public name -> "in, in -> out"
    public: bool = True  # False: no function of its own (the runtime calls it)
    shape_from_out: bool = False
    """The output's shape is the caller's `out`; `infer` raises, so nobody may call it without."""

    @property
    def is_core(self) -> bool:
        return self.decompose is None

    @property
    def outputs(self) -> tuple[Arg, ...]:
        return (self.output, *self.more_outputs)

    def bound_of(self, output: int) -> str:
        return self.outputs[output].bound or self.bound

    # The same for any number of outputs: always a tuple.
    def infer_outs(self, inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
        found = self.infer(inputs, attrs)
        return found if self.more_outputs else (found,)

    def lower_outs(
        self, inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
    ) -> LoweredOuts:
        views, record, out = self.lower(inputs, attrs, self._given(outs))
        return views, record, out if self.more_outputs else (out,)

    def cost_outs(
        self, inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], outs: Outs
    ) -> tuple[float, float]:
        return self.cost(inputs, attrs, self._given(outs))

    def decompose_outs(
        self, trace: Any, inputs: Sequence[Any], attrs: Mapping[str, Any], outs: tuple[Any, ...]
    ) -> None:
        assert self.decompose is not None
        self.decompose(trace, inputs, attrs, self._given(outs))

    def reference_outs(self, *inputs: Any, **attrs: Any) -> tuple[Any, ...]:
        found = self.reference(*inputs, **attrs)
        return found if self.more_outputs else (found,)

    def _given(self, outs: tuple[Any, ...]) -> Any:
        return outs if self.more_outputs else outs[0]

    @property
    def functions(self) -> Mapping[str, Mapping[str, Any]]:
        """Public function names with the attributes each presets."""
        if not self.public:
            return {}
        return self.variants or {self.name: {}}

    def attr(self, name: str) -> Attr:
        return next(a for a in self.attrs if a.name == name)

    def called(self, attrs: Mapping[str, Any]) -> str:
        """A call as messages name it: the function, and the op where its name differs."""
        for name, preset in self.functions.items():
            if all(attrs.get(k) == v for k, v in preset.items()):
                return name if name == self.name else f"{name} ({self.name})"
        return self.name


ALIASING = {
    "none": "out may not overlap an input",
    "elementwise": "out may be exactly an input of the same dtype and layout",
    "first": "out may be exactly the first input",
    "required": "each output is exactly the input of its place",
}


@record
class Sample:
    """One judged input: NumPy arrays (`Blocks` for block dtypes) and attributes by keyword. The
    reference is called as reference(*inputs, **attrs); what is not in `attrs` has its default."""

    label: str
    inputs: tuple[Any, ...]  # ndarray, None, or Blocks
    attrs: Mapping[str, Any] = field(default_factory=dict)
    out_shape: Shape | None = None  # for ops with `shape_from_out`


@record
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
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise InvalidArgumentError(
            f"{op}: axis={axis!r} is a {type(axis).__name__}, not an integer; pass an int"
        )
    if not -spec.rank <= axis < spec.rank:
        raise InvalidArgumentError(
            f"{op}: axis {axis} is outside {describe(spec)}; use {-spec.rank}..{spec.rank - 1}"
        )
    return int(axis) % spec.rank


def with_dtype(spec: TensorSpec, dtype: DType) -> TensorSpec:
    return replace(spec, dtype=dtype)
