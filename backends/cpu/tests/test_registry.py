"""Every op of the registry on the cpu library, at each instruction set, against its reference.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from contract_client import Cpu, Refused

from anyhal.conformance.tolerance import bound, mismatch
from anyhal.dtypes import DType, dtype
from anyhal.ops import BY_NAME
from anyhal.ops._oracle import decode
from anyhal.ops._spec import Blocks, OpSpec, Sample

UNSUPPORTED = 2
# The rich ops that this backend has a kernel for; all others are refused and decompose.
FUSED = ("matmul_epilogue", "quant_matmul", "attention", "rms_norm", "softmax", "rope")
FUSED += ("embedding", "cache_append", "argmax", "concat", "sort", "topk", "cumsum")
FUSED += ("layer_norm", "log_softmax", "cross_entropy", "adamw_step", "attention_backward")
FUSED += ("softmax_backward", "log_softmax_backward", "cross_entropy_backward")
FUSED += ("rms_norm_backward", "layer_norm_backward")
FUSED += ("random_uniform", "random_normal", "random_integers", "dropout")
# float64 forms that this backend leaves to their decomposition into core ops.
# as are these forms of attention.
LEFT_ATTRS = ("window", "softcap", "return_lse")
DECOMPOSED = {
    (op, "f64")
    for op in (
        *("matmul_epilogue", "attention", "rms_norm", "rope", "layer_norm", "log_softmax"),
        *("cross_entropy", "cross_entropy_backward", "attention_backward"),
        *("softmax_backward", "log_softmax_backward", "rms_norm_backward", "layer_norm_backward"),
    )
}


def as_is(x: Any) -> Any:
    return x


def strided(x: Any) -> Any:
    """The same values with gaps, reversed memory order of dims and an odd offset."""
    if x is None or isinstance(x, Blocks) or x.ndim == 0:
        return x
    wide = np.zeros((*reversed([2 * n for n in x.shape[:-1]]), 3 * x.shape[-1] + 1), x.dtype)
    lead = tuple(range(x.ndim - 2, -1, -1))
    view = wide.transpose(*lead, x.ndim - 1)[tuple(slice(None, None, 2) for _ in x.shape[:-1])]
    view = view[..., 1::3]
    view[...] = x
    return view


def check(cpu: Cpu, op: str, sample: Sample, layout: Callable[[Any], Any]) -> None:
    spec = BY_NAME[op]
    inputs = [layout(x) for x in sample.inputs]
    first = next(x for x in sample.inputs if x is not None)
    short = first.dtype.short if isinstance(first, Blocks) else dtype(first.dtype).short
    options: dict[str, Any] = {}
    if sample.out_shape is not None:
        options["out"] = np.full(sample.out_shape, 7, first.dtype)
    if spec.aliasing == "required":
        inputs = [layout(x.copy()) for x in sample.inputs]  # no two states in one place
        options |= {"out": tuple(inputs[: 1 + len(spec.more_outputs)]), "alias_of": 1}
        sample = Sample(sample.label, tuple(x.copy() for x in sample.inputs), sample.attrs)
    try:
        out = cpu.run(op, inputs, sample.attrs, **options)
    except Refused as refused:
        added = op == "rms_norm" and sample.inputs[2] is not None  # its residual
        left = (op, short) in DECOMPOSED or added or not (spec.is_core or op in FUSED)
        if op == "attention":
            left = left or any(map(sample.attrs.get, LEFT_ATTRS)) or inputs[5] is not None
        # Lines over several dims must lie like one dim.
        left |= op == "layer_norm" and layout is strided and sample.attrs.get("axes", 1) > 1
        if op == "attention_backward":
            left |= any(map(sample.attrs.get, ("window", "softcap")))
            left |= any(x is not None for x in sample.inputs[6:])  # sinks, dlse
        left |= op == "concat" and short not in ("q4_1", "q8_0") and isinstance(first, Blocks)
        left |= op == "quant_matmul" and sample.inputs[1].dtype.short not in ("q4_1", "q8_0")
        assert left and refused.status == UNSUPPORTED, refused
        return
    assert spec.is_core or op in FUSED, f"{op} has a kernel now; list it in FUSED"
    full = {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}
    found = out if spec.more_outputs else (out,)
    for i, reference in enumerate(spec.reference_outs(*sample.inputs, **full)):
        if found[i] is not None:
            compare(cpu, spec, i, sample, found[i], reference)


def compare(cpu: Cpu, spec: OpSpec, i: int, sample: Sample, out: Any, reference: Any) -> None:
    op, first = spec.name, next(x for x in sample.inputs if x is not None)
    made = dtype(sample.attrs["dtype"]) if op == "cast" else first.dtype
    if isinstance(made, DType) and made.is_block and out.dtype == np.uint8:
        blocks = out.reshape(-1, made.block_bytes)
        assert (decode(Blocks(blocks, made, reference.shape)) == reference).all(), op
        return
    reference = np.asarray(reference)
    if sample.out_shape is not None:
        reference = np.broadcast_to(reference, sample.out_shape)
    tolerance = bound(
        spec.bound_of(i), spec, sample.inputs, sample.attrs, reference, dtype(out.dtype)
    )
    wrong = mismatch(out, reference, tolerance, dtype(out.dtype))
    assert wrong is None, f"{op} {sample.label} ({cpu.kernel}): {wrong}"


@pytest.mark.parametrize("layout", [as_is, strided])
@pytest.mark.parametrize("op", BY_NAME)
def test_samples(cpu: Cpu, op: str, layout: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(7)
    for sample in BY_NAME[op].samples(rng):
        if op == "fill" and not isinstance(sample.inputs[0], np.ndarray):
            continue
        check(cpu, op, sample, layout)
