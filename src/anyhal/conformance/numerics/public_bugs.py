"""Defects of other libraries, as their users reported them: each row is a case of its own.
SPDX-License-Identifier: Apache-2.0

Left out is what needs gigabytes, threads, streams or a second device: behaviour has those. The
right value is the reference's; an exact row allows nothing beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from anyhal.conformance.numerics import fills
from anyhal.conformance.numerics.exact import mirrored
from anyhal.conformance.numerics.probes import Probe, case_of, forms
from anyhal.conformance.suite import Case
from anyhal.conformance.worker import rng_of
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._spec import Sample
from anyhal.records import record

Rng = np.random.Generator
_REPEATS = 20


@record
class Row:
    """`inputs` makes the operands; what is `exact` has one right answer to the bit."""

    number: int
    issue: str
    op: str
    dtype: str
    right: str
    inputs: Callable[[Rng], tuple[Any, ...]]
    attrs: Mapping[str, Any] = {}
    exact: bool = False
    layouts: str = ""  # of every operand
    repeats: int = 1
    into: int = -1


def f(*values: Any, as_: str = "float32") -> Any:
    return np.array(values, dtype(as_).numpy)


def _normal(rng: Rng, *shape: int, as_: str = "float32") -> Any:
    return rng.standard_normal(shape).astype(dtype(as_).numpy)


def _ints(rng: Rng, *shape: int, most: int = 4, as_: str = "float32") -> Any:
    return rng.integers(-most, most, shape, endpoint=True).astype(dtype(as_).numpy)


def _attention(rng: Rng, t: int, s: int, d: int, as_: str = "float32") -> tuple[Any, ...]:
    q = _normal(rng, 1, 2, t, d, as_=as_)
    return q, _normal(rng, 1, 1, s, d, as_=as_), _normal(rng, 1, 1, s, d, as_=as_)


def _mirrored(rng: Rng, k: int) -> tuple[Any, ...]:
    kind = dtype("bf16").numpy
    return tuple(x.astype(kind) for x in mirrored(rng, (3, k, 5), (1, 8), k // 2))


def _half_sums(rng: Rng) -> tuple[Any, ...]:
    up_and_down = np.where(np.arange(64) < 32, 64, -64).astype(np.float16)
    return np.full((2, 64), 64, np.float16), up_and_down[:, None]


def _masked_row(rng: Rng) -> tuple[Any, ...]:
    mask = np.ones((1, 1, 3, 5), bool)
    mask[..., 1, :] = False
    return (*_attention(rng, 3, 5, 8), None, mask)


def _dead_values(rng: Rng, lengths: bool) -> tuple[Any, ...]:
    q, k, v = _attention(rng, 3, 9, 8)
    k[:, :, 6:], v[:, :, 6:] = np.nan, np.inf
    if lengths:
        return q, k, v, np.array(6)
    mask = np.broadcast_to(np.arange(9) < 6, (1, 1, 3, 9)).copy()
    return q, k, v, None, mask


def _overlapping(rng: Rng) -> tuple[Any, ...]:
    q, k, v = _attention(rng, 4, 33, 64, "bfloat16")
    return q, np.broadcast_to(k[:, :, :1], k.shape), np.broadcast_to(v[:, :, :1], v.shape)


_BMM = {"scale": 0.25, "causal": "none"}
_ONE = np.asarray(np.float32(1))
_EPS = {"eps": 1e-5}
_ZEROS = "zeros over whatever the output held"

ROWS = (
    Row(1, "pytorch#31421", "matmul", "f32", "zeros [3, 2, 3]",
        lambda r: (np.zeros((3, 2, 0), "f4"), np.zeros((3, 0, 3), "f4")), exact=True),
    Row(2, "mlx#2698", "matmul_epilogue", "f32", "K = 0 leaves the residual",
        lambda r: (np.zeros((2, 0), "f4"), np.zeros((0, 2), "f4"), None, None,
                   np.full((2, 2), 2, "f4")),
        exact=True),
    Row(3, "pytorch#175902", "matmul", "f32", _ZEROS,
        lambda r: (np.zeros((65, 0), "f4"), np.zeros((0, 33), "f4")), exact=True),
    Row(4, "oneAPI.jl#628", "matmul_epilogue", "f32", "K = 0 leaves the bias",
        lambda r: (np.zeros((3, 0), "f4"), np.zeros((0, 4), "f4"), f(1, 2, 3, 4)), exact=True),
    Row(5, "Paddle#79511", "matmul", "f16", _ZEROS,
        lambda r: (np.zeros((4, 0), "f2"), np.zeros((0, 4), "f2")), exact=True),
    Row(11, "Theano#6045", "conv", "f32", "the last of 65537 is right",
        lambda r: (_ints(r, 65537, 1, 1), _ints(r, 1, 1, 1)), exact=True),
    Row(12, "burn#5310", "binary", "f32", "empty", lambda r: (np.zeros((0, 3), "f4"),) * 2,
        {"fn": "add"}, exact=True),
    Row(13, "csarofeen/pytorch#1466", "softmax", "f32", "empty",
        lambda r: (np.zeros((3, 0), "f4"),)),
    Row(14, "tensorflow#34390", "reduce", "u8", "an exact sum, no wrap",
        lambda r: (np.full((2, 256), 255, "u1"),), {"fn": "sum", "axis": (1,)}, exact=True),
    Row(16, "modular#6248", "conv", "f32", "exact for 8 channels and more",
        lambda r: (_ints(r, 1, 9, 5, 5), _ints(r, 3, 9, 3, 3)), exact=True),
    Row(17, "flashinfer#4452", "attention", "f32", "rows without keys are 0, their lse -inf",
        lambda r: _attention(r, 7, 3, 8), {**_BMM, "causal": "last_key", "return_lse": True}),
    Row(18, "pytorch#110120", "unary", "f32", "as of a dense copy",
        lambda r: (_normal(r, 17, 9),), {"fn": "exp"}, layouts="transposed"),
    Row(19, "pytorch#183419", "unary", "f32", "neighbours keep their bits",
        lambda r: (_normal(r, 5, 7),), {"fn": "isfinite"}, layouts="gaps", exact=True),
    Row(20, "pytorch#112577", "attention", "f32", "as of a dense copy",
        lambda r: _attention(r, 5, 33, 16), _BMM, layouts="gaps"),
    Row(21, "mlx#1163", "matmul", "f32", "exact of a slice",
        lambda r: (_ints(r, 3, 3), _ints(r, 3, 1)),
        layouts="gaps", exact=True),
    Row(22, "aiter#5385", "matmul", "f32", "exact with batch strides of their own",
        lambda r: (_ints(r, 3, 5, 7), _ints(r, 3, 7, 4)), layouts="offset", exact=True),
    Row(23, "pytorch#191937", "attention", "bf16", "as of expanded keys", _overlapping, _BMM),
    Row(24, "pytorch#167154", "binary", "f32", "as of a copy",
        lambda r: (np.broadcast_to(_normal(r, 1, 9), (5, 9)), _normal(r, 5, 9)), {"fn": "add"}),
    Row(27, "llama.cpp#27771", "matmul", "bf16", "within the bound 2 bytes off",
        lambda r: (_normal(r, 1057, 129, as_="bfloat16"), _normal(r, 129, 1, as_="bfloat16")),
        layouts="offset"),
    Row(28, "qkan#26", "binary", "bf16", "as of an aligned copy",
        lambda r: (_normal(r, 1024, as_="bfloat16"),) * 2, {"fn": "multiply"}, layouts="offset"),
    Row(29, "cutlass#49", "matmul", "f16", "exact for odd M and K",
        lambda r: (_ints(r, 7, 13, as_="float16"), _ints(r, 13, 5, as_="float16")), exact=True),
    Row(30, "triton#1297", "reduce", "f32", "right on an odd base", lambda r: (_ints(r, 5, 129),),
        {"fn": "sum", "axis": (1,)}, layouts="offset", exact=True),
    Row(31, "llama.cpp#28193", "attention", "f32", "within the bound for 1025 keys, permuted",
        lambda r: _attention(r, 3, 1025, 16), _BMM, layouts="transposed"),
    Row(32, "cumo#473", "binary", "f32", "in place is as if copied",
        lambda r: (_ints(r, 9, 9), _ints(r, 9, 9)), {"fn": "add"}, exact=True, into=0),
    Row(39, "rocBLAS#340", "matmul", "f16", "105 at the end",
        lambda r: (f([3, 6, 7, 8, 1], [1, 2, 3, 4, 5], [5, 6, 4, 3, 3], as_="float16"),
                   f([3], [4], [5], [8], [7], as_="float16")), exact=True),
    Row(40, "rocBLAS#1680", "matmul", "f32", "within the bound for 256 cubed",
        lambda r: (_normal(r, 256, 256), _normal(r, 256, 256))),
    Row(45, "llama.cpp#27015", "scatter_add", "f32", "both contributions",
        lambda r: (np.zeros((3, 4), "f4"), np.array([1, 1, 2]), _ints(r, 3, 4)),
        {"axis": 0}, exact=True),
    Row(48, "pytorch#53635", "matmul", "f32", "1024.5",
        lambda r: (f([1024.5]), f([1.0])), exact=True),
    Row(49, "pytorch#67384", "matmul", "f32", "float32 factors",
        lambda r: (np.full((5, 9), 4097, "f4"), _ints(r, 9, 7, most=1)), exact=True),
    Row(51, "TransformerEngine#3440", "matmul", "bf16", "cancelling sums come back",
        lambda r: _mirrored(r, 4096),
        exact=True),
    Row(52, "modular#7165", "matmul_epilogue", "bf16", "cancelling sums come back",
        lambda r: _mirrored(r, 1024),
        exact=True),
    Row(54, "llama.cpp#18969", "matmul", "f16", "finite: the sum passes 65504 on its way",
        _half_sums,
        exact=True),
    Row(56, "tt-metal#19882", "cast", "f32", "ties to even",
        lambda r: (fills.around(np.arange(256.0, 512, 2), "f32"),),
        {"dtype": "bfloat16", "overflow": "unstated"}),
    Row(57, "iree#23914", "matmul", "f32", "1", lambda r: (f([1, -1e10]), f([1], [0])), exact=True),
    Row(58, "llvm-project#57589", "binary", "f32", "2^-140 stays",
        lambda r: (f(2.0**-140, 2.0**-149), f(1, 1)), {"fn": "multiply"}),
    Row(59, "pytorch#103963", "attention", "f32", "a row without keys is 0", _masked_row, _BMM),
    Row(61, "pytorch#101967", "attention", "f32", "NaN behind a mask stays there",
        lambda r: _dead_values(r, False), _BMM),
    Row(62, "llama.cpp#26744", "attention", "f32", "dead cells have no part",
        lambda r: _dead_values(r, True), {**_BMM, "return_lse": True}),
    Row(63, "flashinfer#4267", "softmax", "f32", "weights, not zeros",
        lambda r: (np.full((2, 65), -5e4, "f4") + np.arange(65, dtype="f4") % 3,)),
    Row(64, "flash-attention#443", "attention_backward", "f32", "finite",
        lambda r: (_normal(r, 1, 2, 7, 8), *_attention(r, 7, 5, 8)),
        {**_BMM, "causal": "last_key"}),
    Row(65, "flashinfer#1178", "softmax", "f32", "finite after -inf",
        lambda r: (np.where(np.arange(129) < 64, -np.inf, _normal(r, 3, 129)).astype("f4"),)),
    Row(66, "PaddleOCR#18341", "softmax", "f32", "finite", lambda r: (_normal(r, 2, 3, 71, 71),)),
    Row(67, "pytorch#6864", "logsumexp", "f32", "-inf of nothing but -inf",
        lambda r: (np.full((2, 9), -np.inf, "f4"),), {"axis": (1,)}),
    Row(68, "oneDNN#5510", "attention", "f32", "within the bound for heads of 64",
        lambda r: _attention(r, 33, 65, 64), {**_BMM, "scale": 0.125}),
    Row(69, "ggml#946", "attention", "f32", "runs or is refused for heads of 576",
        lambda r: _attention(r, 2, 9, 576), {**_BMM, "scale": 1 / 24}),
    Row(70, "mlx#2238", "layer_norm", "f32", "the bound at a mean of 1449",
        lambda r: (_normal(r, 3, 257) + np.float32(1449),), _EPS),
    Row(71, "onnxruntime#28463", "layer_norm", "f32", "+-1.3416 and +-0.4472",
        lambda r: (f([40000, 40001, 40002, 40003]),), _EPS),
    Row(72, "onnxruntime#21935", "layer_norm", "f32", "0 exactly",
        lambda r: (np.full((2, 129), 1234, "f4"),), _EPS, exact=True),
    Row(73, "burn#5607", "layer_norm", "f32", "the bound at mean / sigma of 2^10",
        lambda r: (_normal(r, 3, 1024) + np.float32(1024),), _EPS),
    Row(74, "pytorch#162489", "rms_norm", "f32", "no overflow",
        lambda r: (_normal(r, 3, 65) * np.float32(1e30),), _EPS),
    Row(75, "onnxruntime#11010", "unary", "f32", "NaN",
        lambda r: (f(np.nan, -1, 2),), {"fn": "relu"}),
    Row(75, "onnx#6003", "max_pool", "f32", "NaN", lambda r: (f([[1, np.nan, 3, 4]]),),
        {"kernel": (2,), "strides": (1,)}),
    Row(75, "tvm#19579", "clip", "f32", "NaN", lambda r: (f(np.nan, 5), f(0.0), f(1.0))),
    Row(76, "openvino#37748", "topk", "f32", "NaN first, in range",
        lambda r: (f(1, np.nan, 3, np.nan, 2),), {"k": 3, "axis": -1, "largest": True}),
    Row(77, "torch-xpu-ops#4839", "argmax", "f32", "never -1",
        lambda r: (np.full((2, 9), np.nan, "f4"),),
        {"axis": -1}),
    Row(78, "pytorch#22853", "argmax", "f32", "the first of equal ones",
        lambda r: (np.ones((3, 257), "f4"),), {"axis": -1}),
    Row(79, "mlx#1895", "argmin", "f32", "the subnormal, unless flushed",
        lambda r: (f(0, -1.4e-45, 1),), {"axis": -1}),
    Row(80, "triton#10745", "cast", "f8_e4m3fnuz", "0x80 is NaN",
        lambda r: (fills.codes("f8_e4m3fnuz"),), {"dtype": "float32", "overflow": "unstated"}),
    Row(81, "ml_dtypes#400", "cast", "f32", "465 as declared",
        lambda r: (f(448, 463, 464, 465, 480),),
        {"dtype": "float8_e4m3fn", "overflow": "nonfinite"}),
    Row(82, "onnx#6220", "cast", "f32", "infinity as declared",
        lambda r: (f(np.inf, -np.inf, 240, 250),),
        {"dtype": "float8_e4m3fnuz", "overflow": "saturate"}),
    Row(83, "tilelang-metax#140", "cast", "f32", "256", lambda r: (f(256, 272, 264),),
        {"dtype": "float8_e4m3fn", "overflow": "saturate"}),
    Row(84, "ram-coffers#716", "cast", "f8_e4m3fn", "0x7F is NaN",
        lambda r: (fills.codes("f8_e4m3fn"),),
        {"dtype": "float32", "overflow": "unstated"}),
    Row(85, "oneDNN#518", "scaled_matmul", "u8", "64770",
        lambda r: (np.full((1, 2), 255, "u1"), np.full((2, 1), 127, "i1"), _ONE,
                   _ONE), {"dtype": "float32"}, exact=True),
    Row(86, "onnxruntime#31573", "matmul", "i8", "-128 x -128 at k and k + 8",
        lambda r: (np.full((1, 16), -128, "i1"), np.full((16, 1), -128, "i1")), exact=True),
    Row(87, "ComputeLibrary#1012", "cast", "f32", "255, not 0", lambda r: (f(300, 256, 1e9, -5),),
        {"dtype": "uint8", "overflow": "unstated"}, exact=True),
    Row(88, "tensorflow#3638", "gather", "f32", "the last row, not a stale one",
        lambda r: (_normal(r, 5, 3), np.array([4, 0, 4])), {"axis": 0}, exact=True),
    Row(89, "pytorch#75240", "cumsum", "f32", "the same bits 20 times",
        lambda r: (_normal(r, 4097),),
        {"axis": 0}, repeats=_REPEATS),
    Row(89, "pytorch#133204", "scatter_add", "f32", "the same bits 20 times",
        lambda r: (np.zeros((3, 5), "f4"), r.integers(0, 3, 999), _normal(r, 999, 5)), {"axis": 0},
        repeats=_REPEATS),
    Row(91, "pytorch#194676", "random_uniform", "u64", "the same bits everywhere",
        lambda r: (np.array([7, 9], "u8"),), {"shape": (40961,), "dtype": "float32"}, exact=True),
    Row(92, "Theano#3971", "conv", "f32", "exact",
        lambda r: (_ints(r, 2, 3, 7, 6), _ints(r, 4, 3, 3, 2)),
        {"strides": (2, 1), "pads": (1, 0, 1, 1)}, exact=True),
)  # fmt: skip


def cases() -> Iterator[Case]:
    for row in ROWS:
        spec = BY_NAME[row.op]
        for mode in forms(spec):
            tier = "quick" if mode == "fused" else "full"
            path = (f"{row.number:03}-{row.issue.replace('/', '-').replace('#', '-')}",)
            yield case_of(row.op, "public_bugs", path, tier, row.dtype, mode, number=row.number)


def probes(case: Case, seed: int) -> Iterator[Probe]:
    name = case.id.split("/")[3].partition("-")[2]
    row = next(
        r
        for r in ROWS
        if r.number == case.given["number"] and r.issue.replace("/", "-").replace("#", "-") == name
    )
    inputs = row.inputs(rng_of(seed))
    inputs += (None,) * (len(BY_NAME[row.op].inputs) - len(inputs))
    layouts = (row.layouts,) * len(inputs) if row.layouts else ()
    sample = Sample(f"{row.issue}: {row.right}", inputs, row.attrs)
    yield Probe(sample, layouts, row.exact, repeats=row.repeats, into=row.into)
