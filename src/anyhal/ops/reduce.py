"""reduce(x, fn, axis): one function over whole axes.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.dtypes import DType
from anyhal.dtypes import dtype as dtype_of
from anyhal.errors import InvalidArgumentError
from anyhal.ops._checks import (
    FLOATS,
    INTS,
    NUMBERS,
    along,
    check_choice,
    check_dtype,
    normalize_axes,
    output_dtype,
)
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Arg, Attr, Lowered, OpSpec, Sample, TensorSpec, describe

# fn: number in the contract, formula and rule for the empty case, input dtypes.
FUNCTIONS: dict[str, tuple[int, str, tuple[str, ...]]] = {
    "sum": (1, "the sum; 0 over nothing; integers sum exactly in 64 bits", NUMBERS),
    "mean": (2, "the mean; NaN over nothing", FLOATS),
    "prod": (3, "the product; 1 over nothing; integers wrap in 64 bits", NUMBERS),
    "max": (4, "the largest; NaN if any is NaN; over nothing it is an error", NUMBERS),
    "min": (5, "the smallest; NaN if any is NaN; over nothing it is an error", NUMBERS),
    "any": (6, "whether any is true; false over nothing", ("bool",)),
    "all": (7, "whether all are true; true over nothing", ("bool",)),
}


def _output_dtype(fn: str, x: TensorSpec, asked: Any) -> DType:
    if fn in ("sum", "prod") and x.dtype.short in INTS:
        return output_dtype(fn, asked, "u64" if x.dtype.short == "u64" else "i64", INTS)
    return output_dtype(fn, asked, x.dtype.short)


def infer(inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> TensorSpec:
    (x,) = inputs
    assert x is not None
    fn = attrs["fn"]
    check_choice("reduce", "fn", fn, FUNCTIONS)
    check_dtype(fn, "x", x, FUNCTIONS[fn][2])
    axes = normalize_axes(fn, attrs["axis"], x)
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    shape = kept if attrs["keepdims"] else tuple(n for i, n in enumerate(kept) if i not in axes)
    out = TensorSpec.dense(_output_dtype(fn, x, attrs["dtype"]), shape)
    if fn in ("max", "min") and x.size == 0 and out.size > 0:
        raise InvalidArgumentError(
            f"{fn}: {describe(x)} has no elements{along(attrs['axis'])}, and the {fn} of none is"
            " not defined; check the size first"
        )
    return out


def lower(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> Lowered:
    (x,) = inputs
    assert x is not None
    axes = normalize_axes(attrs["fn"], attrs["axis"], x)
    if not attrs["keepdims"]:
        for axis in axes:
            out = out.expand_dims(axis)
    return [x], {"fn": attrs["fn"], "axis": axes}, out


def cost(
    inputs: Sequence[TensorSpec | None], attrs: Mapping[str, Any], out: TensorSpec
) -> tuple[float, float]:
    (x,) = inputs
    assert x is not None
    return float(x.size), float(x.nbytes + out.nbytes)


def reference(
    x: Any, fn: str, axis: Any = None, keepdims: bool = False, dtype: str | None = None
) -> Any:
    values = wide(x)
    options: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
    if fn in ("sum", "prod") and values.dtype.kind in "iu":
        options["dtype"] = np.uint64 if values.dtype.kind == "u" else np.int64
    with np.errstate(all="ignore"):
        if values.size == 0 and fn in ("mean", "max", "min"):
            nothing = np.sum(values, **options)  # max and min: has no element to compare either
            return nothing + np.nan if fn == "mean" else nothing
        found = getattr(np, fn)(values, **options)
        return found if dtype is None else found.astype(dtype_of(dtype).numpy)


def samples(rng: np.random.Generator) -> Iterator[Sample]:
    layouts: tuple[tuple[tuple[int, ...], Any], ...] = (
        ((1,), None),
        ((3, 17), -1),
        ((3, 17), 0),
        ((4, 5, 6), (0, 2)),
        ((2, 300), None),
    )
    for fn, (_, _, allowed) in FUNCTIONS.items():
        for short in allowed:
            np_type = dtype_of(short).numpy
            for shape, axis in layouts:
                x: Any
                if short in FLOATS:
                    x = rng.standard_normal(shape) * (0.3 if fn == "prod" else 1) + (fn == "prod")
                else:
                    x = rng.integers(0, 2 if short == "bool" else 5, shape)
                yield Sample(
                    f"{fn} {list(shape)} axis {axis} {short}",
                    (x.astype(np_type),),
                    {"fn": fn, "axis": axis},
                )
    nan = np.array([[1, np.nan], [np.nan, 1], [np.inf, -np.inf], [-0.0, -1.0]], np.float32)
    for fn in ("sum", "mean", "prod", "max", "min"):
        yield Sample(f"{fn} NaN", (nan,), {"fn": fn, "axis": 1, "keepdims": True})
    for fn in ("sum", "mean", "prod"):
        yield Sample(f"{fn} of nothing", (np.zeros((2, 0), np.float32),), {"fn": fn, "axis": 1})
    for fn in ("any", "all"):
        yield Sample(f"{fn} of nothing", (np.zeros((2, 0), bool),), {"fn": fn, "axis": 1})
    yield Sample("max of no slices", (np.zeros((0, 3), np.float32),), {"fn": "max", "axis": 1})
    yield Sample("u8 wraps not", (np.full(256, 255, np.uint8),), {"fn": "sum"})
    ones = np.ones(65536, np.float16)
    yield Sample("mean of 65536 f16", (ones,), {"fn": "mean"})
    yield Sample("0-d", (np.array(2.5, np.float32),), {"fn": "sum"})


SPEC = OpSpec(
    id=7,
    name="reduce",
    since="0.1",
    summary="out = fn over the axes of `axis` (all of them by default).",
    inputs=(Arg("x", "[...]"),),
    output=Arg("out", "[...] without the reduced axes, or with 1 there"),
    attrs=(
        Attr(
            "fn",
            "enum",
            choices={fn: row[0] for fn, row in FUNCTIONS.items()},
            c_type="int32_t",
            c_enum="reduce_fn",
        ),
        Attr(
            "axis",
            "axes",
            default=None,
            c_type="uint64_t",
            c_name="axes",
            doc="None for all axes, one axis or a tuple",
        ),
        Attr("keepdims", "bool", default=False, doc="keep the reduced axes with size 1"),
        Attr("dtype", "dtype", default=None, doc="integer dtype of an integer sum or product"),
    ),
    dtypes={
        "f32": "f32",
        "f16": "f32",
        "bf16": "f32",
        "f64": "f64",
        **{name: "u64" if name == "u64" else "i64" for name in INTS},
        "bool": "bool",
    },
    special="over nothing: sum 0, prod 1, any false, all true, mean NaN, max and min an error; NaN "
    "propagates through all; mean divides in the accumulation dtype and rounds once",
    aliasing="none",
    bound="reduce",
    source="array API 2024.12 sum, mean, prod, max, min, any, all",
    infer=infer,
    lower=lower,
    cost=cost,
    reference=reference,
    samples=samples,
    variants={fn: {"fn": fn} for fn in FUNCTIONS},
    variant_docs={fn: f"out = {row[1]}." for fn, row in FUNCTIONS.items()},
    variant_dtypes={
        fn: ", ".join(row[2])
        + (" -> same; i64 for integers" if fn in ("sum", "prod") else " -> same")
        for fn, row in FUNCTIONS.items()
    },
)
