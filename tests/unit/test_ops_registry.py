"""Rules of the op registry: numbers never change, files are complete, messages help.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ast
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_machine import full_attrs, output_specs, spec_of

from anyhal import dtypes, ops
from anyhal.conformance.tolerance import BOUNDS
from anyhal.errors import HalError, InvalidArgumentError, NotFoundError, UnsupportedError
from anyhal.ops import _record
from anyhal.ops._spec import ALIASING, REQUIRED, OpSpec, TensorSpec

ROOT = Path(__file__).resolve().parents[2]
SPECS = list(ops.BY_NAME.values())

# Released numbers. Append; never change or reuse one (a backend has them compiled in).
IDS = (
    *("copy", "fill", "cast", "unary", "binary", "where", "reduce", "matmul", "gather"),
    *("scatter_add", "matmul_epilogue", "quant_matmul", "attention", "rms_norm", "softmax"),
    *("rope", "embedding", "cache_append", "argmax", "concat", "log_softmax", "logsumexp"),
    *("layer_norm", "group_norm", "batch_norm", "cumsum", "argmin", "topk", "sort", "clip"),
)
LATER = {
    31: "take_along_axis",
    32: "scatter",
    33: "slice_update",
    34: "pad",
    35: "one_hot",
    36: "stack",
    40: "conv",
    41: "conv_transpose",
    42: "max_pool",
    43: "avg_pool",
    44: "resize",
}
NUMBERS = dict(enumerate(IDS, 1)) | LATER
TRAINING = ("cross_entropy", "cross_entropy_backward", "softmax_backward", "log_softmax_backward")
TRAINING += ("rms_norm_backward", "layer_norm_backward", "attention_backward")
NUMBERS |= dict(enumerate(TRAINING, 80)) | {88: "embedding_backward", 89: "conv_backward"}
NUMBERS |= {90: "adamw_step", 91: "sgd_step"}
NUMBERS |= {87: "group_norm_backward", 92: "batch_norm_backward"}
NUMBERED = dict(enumerate(IDS, 1)) | {
    60: "paged_attention",
    61: "paged_cache_append",
    62: "grouped_matmul",
    63: "random_uniform",
    64: "random_normal",
    65: "random_integers",
    66: "dropout",
}
NUMBERS |= NUMBERED
NUMBERS |= {50: "quantize", 51: "dequantize", 52: "scaled_matmul"}
CHOICES = {
    "unary_fn": "neg abs sign exp expm1 log log1p sqrt rsqrt reciprocal sin cos tanh erf floor "
    "ceil round trunc logical_not bitwise_not isnan isinf isfinite sigmoid relu silu gelu "
    "gelu_tanh tan asin acos atan sinh cosh asinh acosh atanh log2 log10 exp2 square positive "
    "signbit softplus",
    "binary_fn": "add subtract multiply divide floor_divide remainder pow maximum minimum atan2 "
    "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor "
    "bitwise_and bitwise_or bitwise_xor shift_left shift_right logaddexp copysign nextafter hypot",
    "reduce_fn": "sum mean prod max min any all",
    "activation": "none relu gelu gelu_tanh silu sigmoid tanh",
    "causal": "none first_key last_key",
    "pairing": "half_split interleaved",
    "scatter_reduction": "none add max min multiply",
    "pad_mode": "constant reflect edge wrap",
    "resize_mode": "nearest linear",
    "resize_coordinates": "half_pixel pytorch_half_pixel align_corners asymmetric",
    "resize_rounding": "none round_prefer_floor round_prefer_ceil floor ceil",
    "loss_reduction": "none mean sum",
    "overflow": "unstated saturate nonfinite",
}


def every_op(test: Any) -> Any:
    return pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name)(test)


def test_ids_are_the_released_ones() -> None:
    assert {s.id: s.name for s in SPECS} == NUMBERS
    found = {a.c_enum: dict(a.choices) for s in SPECS for a in s.attrs if a.kind == "enum"}
    released = {e: {w: i for i, w in enumerate(t.split(), 1)} for e, t in CHOICES.items()}
    assert found == released


def test_an_unknown_op_suggests_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'matmul'"):
        ops.lookup("matmull")


@every_op
def test_file_is_complete(spec: OpSpec) -> None:
    assert spec.summary.endswith(".") and spec.special and spec.source and spec.since
    assert spec.bound in BOUNDS and spec.aliasing in ALIASING
    known = {d.short for d in dtypes.ALL}
    assert set(spec.dtypes) <= known and set(spec.dtypes.values()) <= known
    assert [a.optional for a in spec.inputs] == sorted(a.optional for a in spec.inputs)
    samples = list(spec.samples(np.random.default_rng(0)))
    assert len({s.label for s in samples}) == len(samples)
    described = [spec_of(x) for s in samples for x in s.inputs]
    taken = {d.dtype.short for d in described if d is not None}
    assert taken >= set(spec.dtypes), "a dtype of the table has no sample"
    for attr in (a for a in spec.attrs if a.kind == "enum"):
        assert {s.attrs.get(attr.name, attr.default) for s in samples} >= set(attr.choices)


@every_op
def test_reference_has_the_inferred_shape(spec: OpSpec) -> None:
    for sample in spec.samples(np.random.default_rng(0)):
        references = spec.reference_outs(*sample.inputs, **sample.attrs)
        for found, out in zip(references, output_specs(spec, sample), strict=True):
            if out is None:
                continue
            if spec.shape_from_out:
                found = np.broadcast_to(found, out.shape)
            assert np.shape(found) == out.shape, sample.label


@every_op
def test_lowering_gives_views_and_the_record(spec: OpSpec) -> None:
    for sample in spec.samples(np.random.default_rng(0)):
        inputs, attrs = [spec_of(x) for x in sample.inputs], full_attrs(spec, sample)
        outs = output_specs(spec, sample)
        lowered, record, out_views = spec.lower_outs(inputs, attrs, outs)
        for before, after in zip(inputs, lowered, strict=True):
            assert (before is None) == (after is None)
            if before is not None and after is not None:
                assert before.dtype == after.dtype
                own = [s for n, s in zip(after.shape, after.strides, strict=True) if n > 1 and s]
                assert set(own) <= set(before.strides), sample.label
        for out, view in zip(outs, out_views, strict=True):
            assert (out is None) == (view is None)
            if out is not None and view is not None:
                assert view.size == out.size and view.dtype == out.dtype
        assert len(_record.pack(spec, record)) % 8 == 0
        spec.cost_outs(inputs, attrs, outs)


@every_op
def test_record_matches_the_header(spec: OpSpec) -> None:
    header = (ROOT / "include/anyhal/ops.h").read_text()
    found = re.search(rf"typedef struct anyhal_attrs_{spec.name} {{\n(.*?)}}", header, re.S)
    layout = _record.fields(spec)
    if not layout:
        assert found is None
        return
    assert found is not None
    declared = re.findall(r"(\w+) (\w+(?:\[\d+\])?);", found[1])
    assert declared == [
        ("uint32_t", "size"),
        ("uint32_t", "flags"),
        *((t, n) for t, n, _ in layout),
    ]
    offset = 0
    for c_type, name in declared:
        size = 8 if c_type == "uint64_t" else 4
        assert offset % size == 0, f"a compiler would pad before {name}"
        count = re.search(r"\[(\d+)\]", name)
        offset += size * (int(count[1]) if count else 1)
    assert offset % 8 == 0


def test_record_bytes() -> None:
    reduce, rope = ops.lookup("reduce"), ops.lookup("rope")
    want = struct.pack("=IIiIQ", 24, 0, 4, 0, 0b101)
    assert _record.pack(reduce, {"fn": "max", "axis": (0, 2)}) == want
    attrs = {"pairing": "interleaved", "rotary_dims": 4, "base": 1e4, "position_scale": 0.5}
    assert _record.pack(rope, attrs) == struct.pack("=IIiiff", 24, 0, 2, 4, 1e4, 0.5)
    assert _record.pack(ops.lookup("copy"), {}) == b""


def test_generated_files_are_current() -> None:
    command = [sys.executable, str(ROOT / "tools/generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_functions_have_the_signatures_of_the_registry() -> None:
    tree = ast.parse((ROOT / "src/anyhal/functions.py").read_text())
    found = {f.name: f for f in tree.body if isinstance(f, ast.FunctionDef)}
    named = {n: s for s in SPECS for n in s.functions}
    assert list(found) == list(named)
    for name, spec in named.items():
        args = found[name].args
        required = [a.name for a in spec.inputs if not a.optional]
        optional = [a.name for a in spec.inputs if a.optional]
        assert [a.arg for a in args.posonlyargs] == required
        assert [a.arg for a in args.args] == optional and len(args.defaults) == len(optional)
        assert ast.get_docstring(found[name])
        keywords = dict(zip((a.arg for a in args.kwonlyargs), args.kw_defaults, strict=True))
        for attr in (a for a in spec.attrs if a.name not in spec.functions[name]):
            default = keywords[attr.name]
            assert (default is None) == (attr.default is REQUIRED)
            if default is not None:
                assert ast.literal_eval(default) == attr.default
        assert ("out" in keywords) == (spec.aliasing != "required")


def dense(short: str, *shape: int) -> TensorSpec:
    return TensorSpec.dense(dtypes.dtype(short), shape)


F = dense("f32", 2, 3)
KEY = dense("u64", 2)
RAGGED = [dense("i64", 3), dense("i64", 2, 5), dense("i64", 2)]
WRONG: list[tuple[str, list[TensorSpec | None], dict[str, Any], type[HalError], str]] = [
    ("unary", [dense("i32", 3)], {"fn": "exp"}, UnsupportedError, r"exp: x is i32\[3\].*astype"),
    ("unary", [F], {"fn": "expp"}, InvalidArgumentError, "did you mean 'exp'"),
    ("unary", [dense("q4_1", 32)], {"fn": "abs"}, UnsupportedError, r"abs: x is q4_1\[32\]"),
    ("binary", [F, dense("f64", 2, 3)], {"fn": "add"}, UnsupportedError, "astype"),
    (
        "binary",
        [F, dense("f32", 2)],
        {"fn": "add"},
        InvalidArgumentError,
        "axis 1 has sizes 2 and 3",
    ),
    ("where", [F, F, F], {}, UnsupportedError, "condition"),
    ("cast", [F], {"dtype": "q8_0"}, UnsupportedError, "cannot become q8_0"),
    ("cast", [F], {"dtype": "flaot32"}, InvalidArgumentError, "did you mean 'float32'"),
    ("reduce", [dense("f32", 2, 0)], {"fn": "max", "axis": 1}, InvalidArgumentError, "max of none"),
    ("reduce", [F], {"fn": "sum", "axis": 2}, InvalidArgumentError, "axis 2 is outside"),
    ("reduce", [F], {"fn": "sum", "axis": (0, -2)}, InvalidArgumentError, "twice"),
    ("reduce", [F], {"fn": "sum", "axis": ()}, InvalidArgumentError, "None for all"),
    ("reduce", [dense("i32", 3)], {"fn": "mean"}, UnsupportedError, "mean: x is"),
    ("matmul", [F, F], {}, InvalidArgumentError, "inner sizes 3 and 2"),
    ("matmul", [F, dense("f16", 3, 2)], {}, UnsupportedError, "one dtype"),
    ("matmul", [dense("f32", 3), F], {}, InvalidArgumentError, "at least two dims"),
    ("matmul", [dense("f32", 2, 2), dense("f32", 2, 2)], {"dtype": "f64"}, UnsupportedError, "f64"),
    ("gather", [F, dense("f32", 1)], {"axis": 0}, UnsupportedError, "indices"),
    ("gather", [dense("q8_0", 2, 32), dense("i32", 1)], {"axis": -1}, UnsupportedError, "blocks"),
    (
        "scatter_add",
        [F, dense("i64", 4), dense("f32", 4, 2)],
        {"axis": 0},
        InvalidArgumentError,
        r"updates is f32\[4,2\] but must be .* \[4, 3\]",
    ),
    (
        "matmul_epilogue",
        [F, dense("f32", 3, 4), dense("f32", 3), None, None],
        {},
        InvalidArgumentError,
        r"bias is f32\[3\] but must be \[N\] = \[4\]",
    ),
    (
        "matmul_epilogue",
        [F, dense("f32", 3, 4), None, None, None],
        {"activation": "relo"},
        InvalidArgumentError,
        "did you mean 'relu'",
    ),
    (
        "quant_matmul",
        [F, dense("q8_0", 4, 32), None, None, None],
        {},
        InvalidArgumentError,
        "with one K",
    ),
    ("quant_matmul", [F, F, None, None, None], {}, UnsupportedError, "w is"),
    (
        "attention",
        [dense("f32", 1, 3, 1, 4), *[dense("f32", 1, 2, 5, 4)] * 2, *[None] * 3],
        {"scale": 1.0, "causal": "none"},
        InvalidArgumentError,
        "multiple",
    ),
    (
        "attention",
        [dense("f32", 1, 2, 1, 4), *[dense("f32", 1, 2, 5, 4)] * 2, *[None] * 3],
        {"scale": 1.0, "causal": "yes"},
        InvalidArgumentError,
        "known: none, first_key, last_key",
    ),
    ("rms_norm", [F, dense("f32", 2), None], {"eps": 1e-5}, InvalidArgumentError, "weight"),
    ("rms_norm", [F, dense("f16", 3), None], {"eps": 1e-5}, UnsupportedError, "astype"),
    ("rms_norm", [F, None, dense("f32", 3)], {"eps": 1e-5}, InvalidArgumentError, "residual"),
    ("rms_norm", [F, None, None], {"eps": -1.0}, InvalidArgumentError, "eps=-1.0"),
    ("layer_norm", [F, None, None, None], {"eps": 1e-5, "axes": 3}, InvalidArgumentError, "axes=3"),
    ("layer_norm", [F, F, None, None], {"eps": 1e-5}, InvalidArgumentError, r"\[N...\] = \[3\]"),
    (
        "group_norm",
        [F, None, None, None],
        {"eps": 1e-5, "groups": 2},
        InvalidArgumentError,
        "divide",
    ),
    (
        "batch_norm",
        [dense("f32", 3), F, F, None, None, None],
        {"eps": 1e-5},
        InvalidArgumentError,
        "two dims",
    ),
    (
        "batch_norm",
        [F, dense("f32", 3), dense("f16", 3), None, None, None],
        {"eps": 1e-5},
        UnsupportedError,
        "astype",
    ),
    ("log_softmax", [dense("i32", 3)], {}, UnsupportedError, "log_softmax: x is"),
    ("logsumexp", [F], {"axis": (0, 0)}, InvalidArgumentError, "twice"),
    ("cumsum", [F], {"axis": 2}, InvalidArgumentError, "axis 2"),
    ("cumsum", [F], {"axis": 0, "dtype": "i64"}, UnsupportedError, "not i64"),
    ("topk", [F], {"k": 4, "largest": True}, InvalidArgumentError, r"pass 0\.\.3"),
    ("sort", [dense("bool", 3)], {}, UnsupportedError, "sort: x is"),
    ("clip", [F, dense("f64"), None], {}, UnsupportedError, "astype"),
    ("argmin", [dense("f32", 2, 0)], {}, InvalidArgumentError, "smallest of none"),
    (
        "attention",
        [*[dense("f32", 1, 2, 5, 4)] * 3, *[None] * 3],
        {"scale": 1.0, "causal": "none", "window": 2},
        InvalidArgumentError,
        "where queries stand",
    ),
    (
        "attention",
        [*[dense("f32", 1, 2, 5, 4)] * 3, None, None, dense("f32", 3)],
        {"scale": 1.0, "causal": "none"},
        InvalidArgumentError,
        r"sinks is f32\[3\]",
    ),
    ("softmax", [F], {"axis": 2}, InvalidArgumentError, "axis 2"),
    (
        "rope",
        [F, dense("i64", 2), None],
        {"pairing": "half_split", "base": 1e4},
        InvalidArgumentError,
        "even number",
    ),
    ("embedding", [F, dense("f32", 1)], {}, UnsupportedError, "ids"),
    (
        "cache_append",
        [dense("f32", 1, 2, 4, 8), dense("f32", 1, 2, 5, 8), dense("i64")],
        {},
        InvalidArgumentError,
        "T up to 4",
    ),
    ("argmax", [dense("f32", 2, 0)], {}, InvalidArgumentError, "no elements along axis"),
    ("concat", [F, dense("f32", 2, 4)], {}, InvalidArgumentError, r"arrays\[1\]"),
    ("fill", [dense("f32")], {}, InvalidArgumentError, "out="),
    *[
        ("take_along_axis", [F, indices], {"axis": 1}, InvalidArgumentError, "rank of x")
        for indices in (dense("i64", 3), dense("i64", 3, 1))
    ],
    ("take_along_axis", [F, F], {"axis": 1}, UnsupportedError, "indices"),
    (
        "scatter",
        [F, dense("i64", 3, 3), dense("f32", 3, 3)],
        {"axis": 1, "reduction": "none"},
        InvalidArgumentError,
        "sizes up to its own",
    ),
    (
        "scatter",
        [F, dense("i64", 2, 3), F],
        {"axis": 1, "reduction": "multipy"},
        InvalidArgumentError,
        "did you mean 'multiply'",
    ),
    (
        "scatter",
        [dense("bool", 3), dense("i64", 3), dense("bool", 3)],
        {"axis": 0, "reduction": "add"},
        UnsupportedError,
        "x is bool",
    ),
    *[
        ("slice_update", [F, F, positions], {"starts": starts}, InvalidArgumentError, text)
        for positions, starts, text in (
            (None, None, "said nowhere"),
            (dense("i64", 2), (0, 0), "said twice"),
            (dense("i64", 3), None, "rank of x"),
            (None, (0, 1), "starts="),
            (None, (0, -1), "negative"),
        )
    ],
    ("slice_update", [F, dense("f32", 3, 3), None], {}, InvalidArgumentError, "no larger sizes"),
    ("pad", [F, None], {"pads": (1, 2)}, InvalidArgumentError, "must be 4 numbers"),
    ("pad", [F, None], {"pads": (0, -2, 0, -2)}, InvalidArgumentError, "elements left"),
    (
        "pad",
        [dense("f32", 0), None],
        {"pads": (1, 0), "mode": "edge"},
        InvalidArgumentError,
        "too few",
    ),
    (
        "pad",
        [F, dense("f32")],
        {"pads": (0,) * 4, "mode": "wrap"},
        InvalidArgumentError,
        "mode='constant'",
    ),
    ("one_hot", [F], {"depth": 3}, UnsupportedError, "indices"),
    ("one_hot", [dense("i64", 2)], {"depth": -1}, InvalidArgumentError, "negative"),
    ("one_hot", [dense("i64", 2)], {"depth": 3, "axis": 2}, InvalidArgumentError, "axis 2"),
    (
        "one_hot",
        [dense("i64", 2)],
        {"depth": 3, "dtype": "int8", "on_value": 0.5},
        InvalidArgumentError,
        "on_value=0.5",
    ),
    ("stack", [F, dense("f32", 2, 4)], {}, InvalidArgumentError, r"arrays\[1\]"),
    ("stack", [F, F], {"axis": 3}, InvalidArgumentError, "axis 3"),
    *[
        (
            "conv",
            [dense("f32", *x), dense("f32", *w), None, None],
            attrs,
            InvalidArgumentError,
            text,
        )
        for x, w, attrs, text in (
            ((2, 3), (2, 3), {}, "one to three spatial"),
            ((2, 3, 4), (2, 3, 1, 1), {}, "needs 3 dims"),
            ((2, 4, 4), (2, 3, 1), {}, "groups=1 does not fit"),
            ((2, 4, 4), (3, 2, 1), {"groups": 2}, "groups=2 does not fit"),
            ((2, 4, 4), (2, 4, 1), {"groups": 0}, "groups=0 does not fit"),
            ((2, 4, 4), (2, 4, 5), {}, "reaches over 5 elements"),
            ((2, 4, 4), (2, 4, 3), {"strides": (0,)}, r"strides=\(0,\)"),
            ((2, 4, 4), (2, 4, 3), {"pads": (-1, 0)}, "pads="),
            ((2, 4, 4), (2, 4, 3), {"pads": (1,)}, "must be 2 numbers"),
            ((2, 4, 4), (2, 4, 3), {"activation": "relo"}, "did you mean 'relu'"),
        )
    ],
    *[
        (
            "conv_transpose",
            [dense("f32", *x), dense("f32", *w), None],
            attrs,
            InvalidArgumentError,
            text,
        )
        for x, w, attrs, text in (
            ((2, 4, 4), (2, 4, 1), {}, "does not fit"),
            ((2, 4, 4), (4, 2, 1), {"groups": 3}, "does not fit"),
            ((2, 4, 4), (4, 2, 1), {"output_padding": (1,)}, "below stride or dilation"),
            ((2, 4, 2), (4, 2, 1), {"pads": (1, 1)}, "would have 0 elements"),
        )
    ],
    ("conv_transpose", [F, F, None], {}, InvalidArgumentError, "one to three spatial"),
    *[
        (
            name,
            [dense("f32", 1, 1, 3)],
            {"strides": (1,), "count_include_pad": True, **attrs},
            InvalidArgumentError,
            text,
        )
        for name in ("max_pool", "avg_pool")
        for attrs, text in (
            ({"kernel": (4,)}, "reaches over 4"),
            ({"kernel": (2, 2)}, "must be 1 numbers"),
            ({"kernel": (2,), "pads": (2, 0)}, "padding alone"),
        )
    ],
    ("avg_pool", [dense("i32", 1, 1, 3)], {"kernel": (1,), "strides": (1,)}, UnsupportedError, "x"),
    *[
        ("resize", [F], {"coordinates": "half_pixel", **attrs}, InvalidArgumentError, text)
        for attrs, text in (
            ({"mode": "nearest", "sizes": (3,)}, "rounding='none'"),
            ({"mode": "linear", "sizes": (3,), "rounding": "floor"}, "rounding='floor'"),
            ({"mode": "linear", "sizes": ()}, "one to three"),
            ({"mode": "linear", "sizes": (-1,)}, "one to three"),
            ({"mode": "linaer", "sizes": (1,)}, "did you mean 'linear'"),
        )
    ],
    (
        "resize",
        [dense("f32", 2, 0)],
        {"coordinates": "asymmetric", "mode": "linear", "sizes": (3,)},
        InvalidArgumentError,
        "axis of size 0",
    ),
    (
        "resize",
        [dense("i32", 2)],
        {"coordinates": "asymmetric", "mode": "linear", "sizes": (3,)},
        UnsupportedError,
        "x is i32",
    ),
]
MEAN = {"reduction": "mean"}
I2, F1 = dense("i64", 2), dense("f32")
WRONG += [
    ("cross_entropy", [F, I2], {"reduction": "men"}, InvalidArgumentError, "did you mean 'mean'"),
    ("cross_entropy", [F, dense("f32", 2)], MEAN, UnsupportedError, "targets"),
    ("cross_entropy", [F, dense("i64", 3)], MEAN, InvalidArgumentError, "targets is"),
    ("cross_entropy", [dense("f32", 2, 0), I2], MEAN, InvalidArgumentError, "no class"),
    (
        "cross_entropy",
        [F, I2],
        {**MEAN, "label_smoothing": 1.5},
        InvalidArgumentError,
        "from 0 to 1",
    ),
    ("cross_entropy_backward", [F, I2, I2, None], MEAN, UnsupportedError, "dloss"),
    ("softmax_backward", [F, dense("f32", 2, 2)], {}, InvalidArgumentError, "y is"),
    ("log_softmax_backward", [F, dense("f64", 2, 3)], {}, UnsupportedError, "astype"),
    ("rms_norm_backward", [F, F, F], {"eps": 0.1}, InvalidArgumentError, "weight is"),
    ("layer_norm_backward", [F1, F1, None], {"eps": 0.1}, InvalidArgumentError, "axis -1"),
    (
        "attention_backward",
        [dense("f32", 1, 2, 1, 5), *[dense("f32", 1, 2, 1, 4)] * 3, *(None,) * 4],
        {"scale": 1.0, "causal": "none"},
        InvalidArgumentError,
        "dout is",
    ),
    (
        "attention_backward",
        [*[dense("f32", 1, 2, 1, 4)] * 4, *(None,) * 3, dense("f16", 1, 2, 1)],
        {"scale": 1.0, "causal": "none"},
        UnsupportedError,
        "dlse is",
    ),
    (
        "attention_backward",
        [*[dense("f32", 1, 2, 1, 4)] * 4, None, None, dense("f32", 3), None],
        {"scale": 1.0, "causal": "none"},
        InvalidArgumentError,
        "sinks is",
    ),
    (
        "group_norm_backward",
        [F, F, None, None],
        {"eps": 0.1, "groups": 2},
        InvalidArgumentError,
        "must divide",
    ),
    (
        "group_norm_backward",
        [F, F, None, F1],
        {"eps": 0.1, "groups": 3},
        InvalidArgumentError,
        "residual is",
    ),
    (
        "batch_norm_backward",
        [F, F, dense("f32", 3), dense("f32", 2), None, None],
        {"eps": 0.1},
        InvalidArgumentError,
        "variance is",
    ),
    (
        "batch_norm_backward",
        [F, F, dense("f32", 3), dense("f32", 3), None, None],
        {"eps": -1.0},
        InvalidArgumentError,
        "eps=-1.0",
    ),
    ("rms_norm_backward", [F, F, None], {"eps": -0.1}, InvalidArgumentError, "0 or more"),
    ("embedding_backward", [F, dense("i64", 3)], {"rows": 4}, InvalidArgumentError, "ids is"),
    ("embedding_backward", [F, I2], {"rows": -1}, InvalidArgumentError, "rows=-1"),
    (
        "adamw_step",
        [F, F, F, F, F1, dense("i64")],
        {"beta1": 0.9, "beta2": 1.0, "eps": 1e-8, "weight_decay": 0.0},
        InvalidArgumentError,
        "beta2=1.0",
    ),
    *(
        (
            "adamw_step",
            [F, F, F, F, dense("f32"), dense("i64")],
            {"beta1": 0.9, "beta2": 0.9, "eps": 1e-8, "weight_decay": 0.0, **wrong},
            InvalidArgumentError,
            says,
        )
        for wrong, says in (
            ({"beta1": 1.0}, "beta1=1.0"),
            ({"beta1": -0.1}, "beta1=-0.1"),
            ({"beta2": 1 - 1e-9}, "beta2="),  # 1 in f32
            ({"eps": 0.0}, "above 0"),
            ({"eps": 1e-50}, "above 0 in f32"),
            ({"eps": float("nan")}, "eps=nan"),
            ({"weight_decay": float("inf")}, "weight_decay=inf"),
        )
    ),
    (
        "sgd_step",
        [F, F, F, dense("f32")],
        {"momentum": float("nan"), "weight_decay": 0.0, "nesterov": False},
        InvalidArgumentError,
        "momentum=nan",
    ),
    (
        "adamw_step",
        [dense("bf16", 2), dense("bf16", 2), dense("f32", 2), dense("bf16", 2), F1, dense("i64")],
        {"beta1": 0.9, "beta2": 0.9, "eps": 1e-8, "weight_decay": 0.0},
        UnsupportedError,
        "m is",
    ),
    ("conv_backward", [F, F, F], {}, InvalidArgumentError, "one to three spatial axes"),
    (
        "conv_backward",
        [dense("f32", 1, 2, 3), dense("f32", 1, 2, 3), dense("f32", 2, 2, 5)],
        {"pads": (1, 0)},
        InvalidArgumentError,
        "leaves the padded x",
    ),
    (
        "conv_backward",
        [dense("f32", 1, 2, 3), dense("f32", 1, 2, 3), dense("f32", 2, 2, 1)],
        {"strides": (1, 1)},
        InvalidArgumentError,
        "must be 1 numbers",
    ),
    ("sgd_step", [F, F, F, dense("f32", 1)], {"momentum": 0.0}, InvalidArgumentError, "lr is"),
    (
        "paged_attention",
        [dense("f32", 3, 4, 8), *[dense("f32", 9, 4, 3, 8)] * 2, *RAGGED],
        {"scale": 1.0},
        InvalidArgumentError,
        "multiple of the second",
    ),
    (
        "paged_attention",
        [dense("f32", 3, 4, 8), *[dense("f32", 9, 4, 2, 8)] * 2, *RAGGED[1:], dense("i64", 1)],
        {"scale": 1.0},
        InvalidArgumentError,
        r"block_table is i64\[2\]",
    ),
    (
        "paged_cache_append",
        [dense("f32", 9, 4, 3, 8), dense("f32", 3, 4, 8), *RAGGED],
        {},
        InvalidArgumentError,
        "one H and D",
    ),
    (
        "grouped_matmul",
        [F, dense("i64", 2), dense("f32", 2, 4, 5)],
        {},
        InvalidArgumentError,
        "inner sizes 3 and 4",
    ),
    (
        "grouped_matmul",
        [F, dense("f32", 2), dense("f32", 2, 3, 5)],
        {},
        UnsupportedError,
        "group_sizes",
    ),
    ("random_uniform", [dense("i64", 2)], {"shape": (3,)}, UnsupportedError, r"key is i64\[2\]"),
    ("random_uniform", [KEY], {"shape": (3, -1)}, InvalidArgumentError, "negative size"),
    ("random_normal", [dense("u64", 3)], {"shape": ()}, InvalidArgumentError, "seed, counter"),
    ("random_normal", [KEY], {"shape": (), "dtype": "int32"}, UnsupportedError, "not i32"),
    (
        "random_integers",
        [KEY],
        {"low": 3, "high": 3, "shape": ()},
        InvalidArgumentError,
        "nothing to choose",
    ),
    (
        "random_integers",
        [KEY],
        {"low": 0, "high": 129, "shape": (), "dtype": "int8"},
        InvalidArgumentError,
        "does not fit i8",
    ),
    ("dropout", [F, KEY], {"p": 1.5}, InvalidArgumentError, "no probability"),
    ("cast", [F], {"dtype": "f8_e5m2"}, InvalidArgumentError, "'saturate' or 'nonfinite'"),
    ("cast", [F], {"dtype": "f16", "overflow": "saturate"}, InvalidArgumentError, "leave overflow"),
    ("cast", [F], {"dtype": "i4"}, InvalidArgumentError, "even size; pad"),
    ("quantize", [F, dense("f16"), None], {"dtype": "i8"}, UnsupportedError, "scale is f16"),
    ("quantize", [F, dense("f32"), None], {"dtype": "i32"}, UnsupportedError, "give one of i8"),
    ("quantize", [F, dense("f32"), None], {"dtype": "u4"}, InvalidArgumentError, "even size; pad"),
    (
        "quantize",
        [F, dense("f32"), dense("i32")],
        {"dtype": "f8_e5m2"},
        InvalidArgumentError,
        "has its zero at 0; leave it out",
    ),
    (
        "dequantize",
        [dense("i4", 128, 512), dense("f32", 512, 1), None],
        {"axis": 1, "block_size": 128},
        InvalidArgumentError,
        r"ceil\(size / block_size\) at axis = \[128, 4\]; reshape",
    ),
    (
        "dequantize",
        [dense("i8", 2, 3), dense("f32", 3), None],
        {"axis": (0, 1)},
        InvalidArgumentError,
        "along one axis; name one",
    ),
    (
        "dequantize",
        [dense("i8", 2, 3), dense("f32", 3), None],
        {"block_size": 2},
        InvalidArgumentError,
        "name the axis",
    ),
    (
        "scaled_matmul",
        [dense("i8", 2, 3), dense("f8_e5m2", 3, 4), dense("f32"), dense("f32"), None, None, None],
        {},
        UnsupportedError,
        r"b is f8_e5m2\[3,4\]",
    ),
    (
        "scaled_matmul",
        [dense("i8", 2, 3), dense("i8", 3, 4), dense("f32", 4), dense("f32"), None, None, None],
        {},
        InvalidArgumentError,
        r"a_scale is f32\[4\] and does not broadcast to \[..., M\] = \[2\]",
    ),
]


@pytest.mark.parametrize(
    ("name", "inputs", "attrs", "error", "text"), WRONG, ids=lambda v: v if type(v) is str else ""
)
def test_wrong_calls_say_where_why_and_what_to_do(
    name: str,
    inputs: list[TensorSpec | None],
    attrs: dict[str, Any],
    error: type[HalError],
    text: str,
) -> None:
    spec = ops.lookup(name)
    full = {a.name: attrs.get(a.name, a.default) for a in spec.attrs}
    with pytest.raises(error, match=text) as caught:
        spec.infer(inputs, full)
    assert ";" in str(caught.value) or ": sizes" in str(caught.value) or "; " in text


def test_every_op_refuses_something_in_the_table_above() -> None:
    assert {row[0] for row in WRONG} == set(NUMBERS.values()) - {"copy"}
    assert ops.lookup("copy").infer([dense("q4_1", 2, 32)], {}) == dense("q4_1", 2, 32)


@pytest.mark.parametrize("axis", [None, 1, -1, (0, 1), (-1, 0), (0,)])
def test_reduce_takes_every_form_of_axis(axis: Any) -> None:
    spec = ops.lookup("reduce")
    attrs = {"fn": "sum", "axis": axis, "keepdims": False, "dtype": None}
    want = np.zeros((2, 3)).sum(axis=axis).shape
    out = spec.infer([F], attrs)
    assert out.shape == want
    _, record, kept = spec.lower([F], attrs, out)
    assert record["axis"] == tuple(
        sorted({a % 2 for a in np.atleast_1d((0, 1) if axis is None else axis)})
    )
    assert kept.rank == 2 and kept.size == out.size
