"""Phase C: the precision class that a kernel really has, and whether its roundings are fair.
SPDX-License-Identifier: Apache-2.0

Effective bits are -log2(rms(error) / sqrt(mean(sum a^2 b^2))) on normal data. A float32 sum of K
products has some 23.8 bits at K = 16 and 19.7 at 4,096; with factors of 11 bits 11.8, with partial
sums in bfloat16 8.3. The limits lie midway, so that no order of summation is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from anyhal.conformance.numerics import probes as common
from anyhal.conformance.numerics.calls import answers_of
from anyhal.conformance.numerics.probes import Probe, case_of, forms
from anyhal.conformance.numerics.products import MULTIPLES, PRODUCTS, product, widest
from anyhal.conformance.suite import Answer, Case, Finding
from anyhal.conformance.worker import rng_of
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._oracle import random_blocks
from anyhal.ops._spec import OpSpec, Sample

_LENGTHS = (16, 256, 1024)
_LEAST = {"f32": {16: 17.8, 256: 16.8, 1024: 16.2}, "f64": {16: 38.0, 256: 38.0, 1024: 38.0}}
_FAIR = 6.0  # standard errors that a mean may be off; 1 in 5e8 fair kernels is
_BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
_STORES = ("copy", "cast", "binary", "unary", "softmax", "rms_norm", "layer_norm", "reduce")


def cases() -> Iterator[Case]:
    for op in PRODUCTS:
        spec = BY_NAME[op]
        for mode in forms(spec):
            for short in spec.dtypes:
                if short in _BITS:
                    tier = "quick" if mode == "fused" else "full"
                    yield case_of(op, "classes", (short, "bits"), tier, short, mode)
                    yield case_of(op, "classes", (short, "bias"), tier, short, mode)
    for op in ("cast", "binary", "softmax", "rms_norm", "layer_norm", "reduce"):
        for short in ("f16", "bf16"):
            yield case_of(op, "classes", (short, "bias"), "quick", short, "fused")


def probes(case: Case, seed: int) -> Iterator[Probe]:
    rng, spec, bits = rng_of(seed), BY_NAME[case.op], "/bits/" in case.id
    if case.op not in PRODUCTS:
        yield Probe(_stored(rng, case.op, case.dtype))
        return
    kind = dtype(case.dtype).numpy
    form = PRODUCTS[case.op][0]
    for k in _LENGTHS if bits else (64,):
        k = max(k, MULTIPLES.get(form, 1))
        m, n = (24, 24) if bits else (64, 64)
        draw = rng.standard_normal if bits else lambda shape: rng.uniform(0.1, 1, shape)
        a, b = (draw(s).astype(kind) for s in ((m, k), (k, n)))
        if case.op == "quant_matmul":
            inputs = (a, random_blocks(rng, form, (n, k)), None, None, None)
            yield Probe(Sample(f"K {k}", inputs, widest(case.op, case.dtype)))
            continue
        sample = product(case.op, form, a, b, f"K {k}")
        if not bits and case.dtype in ("f16", "bf16"):  # the store is what may be unfair
            sample = Sample(
                sample.label, sample.inputs, {k: v for k, v in sample.attrs.items() if k != "dtype"}
            )
        yield Probe(sample)
    assert spec.public


def _stored(rng: np.random.Generator, op: str, short: str) -> Sample:
    """4,096 values that the op rounds to a short dtype."""
    kind = dtype(short).numpy
    x = rng.uniform(0.5, 3.5, (64, 64))
    if op == "cast":
        return Sample(
            "store", (x.astype(np.float32),), {"dtype": dtype(short).name, "overflow": "unstated"}
        )
    x = x.astype(kind)
    if op == "binary":
        return Sample("store", (x, rng.uniform(0.5, 2, (64, 64)).astype(kind)), {"fn": "multiply"})
    if op == "reduce":
        tall = rng.uniform(0.5, 3.5, (4096, 9)).astype(kind)
        return Sample("store", (tall,), {"fn": "sum", "axis": (1,)})
    if op == "softmax":
        return Sample("store", (x,), {"axis": -1})
    nothing = (None,) * (len(BY_NAME[op].inputs) - 1)
    return Sample("store", (x, *nothing), {"eps": 1e-5})


def judge(case: Case, answer: Answer, probes: Iterable[Probe]) -> Finding:
    """Bound first, then the statistics of all elements together."""
    made = list(probes)
    found = common.judge(case, answer, made)
    if found.outcome != "pass":
        return found
    spec, measured = BY_NAME[case.op], dict(found.measured)
    for probe, part in zip(made, answer.parts, strict=False):
        if part.refusal:
            continue
        if "/bits/" in case.id:
            wrong = _measure(spec, case.dtype, probe.sample, part.arrays, measured)
        else:
            wrong = _fair(spec, probe.sample, part.arrays, measured)
        if wrong:
            code = "precision_class" if "/bits/" in case.id else "biased"
            return Finding("fail", f"{probe.sample.label}: {wrong}", code, measured)
    return Finding("pass", measured=measured)


def _product_of(spec: OpSpec, sample: Sample, arrays: Any) -> tuple[Any, Any, Any, Any]:
    """Of the output that is the product: result, reference, tolerance, and sum of squares."""
    index = 0
    right = answers_of(spec, sample)[index]
    assert right is not None
    return arrays[index].astype(np.longdouble), right.want, right.allowed, right.kind


def _squares(spec: OpSpec, sample: Sample) -> Any:
    """sum a^2 b^2 of each output: the op itself on squares."""
    from anyhal.ops._oracle import wide
    from anyhal.ops._spec import Blocks

    if spec.name == "quant_matmul":
        a, w = wide(sample.inputs[0]), wide(sample.inputs[1])
        return np.matmul(a * a, (w * w).T)
    inputs = tuple(
        x
        if x is None or isinstance(x, Blocks) or x.dtype.kind in "iu"
        else np.square(wide(x)).astype(np.float64)
        for x in sample.inputs
    )
    return np.asarray(spec.reference_outs(*inputs, **sample.attrs)[0], np.float64)


def _measure(
    spec: OpSpec, short: str, sample: Sample, arrays: Any, measured: dict[str, Any]
) -> str:
    result, want, _, kind = _product_of(spec, sample, arrays)
    k = int(sample.label.split()[-1])
    error = (result - want).astype(np.float64)
    size = np.sqrt(np.mean(np.abs(_squares(spec, sample))))
    rms = np.sqrt(np.mean(np.square(error)))
    bits = float(-np.log2(rms / size)) if rms > 0 else float(_BITS[kind.short])
    declared = spec.dtypes[short]
    measured |= {"class": declared, "declared": declared, "measured_bits": round(bits, 2)}
    measured[f"bits_{k}"] = round(bits, 2)
    if _BITS[kind.short] < _BITS[declared]:  # rounded to the output: no more is to be seen
        least = _BITS[kind.short] - 1.5
    else:
        least = next((v for n, v in sorted(_LEAST[declared].items()) if k <= n), 15.7)
    if bits < least:
        return f"{bits:.1f} effective bits, of which {declared} has at least {least:g} at K = {k}"
    return ""


def _fair(spec: OpSpec, sample: Sample, arrays: Any, measured: dict[str, Any]) -> str:
    """Whether errors away from zero are as many as those toward it."""
    result, want, allowed, _ = _product_of(spec, sample, arrays)
    use = np.isfinite(want.astype(np.float64)) & (allowed > 0)
    if np.count_nonzero(use) < 256:
        return ""
    z = ((result - want) * np.sign(want) / np.where(allowed > 0, allowed, 1))[use]
    z = z.astype(np.float64)
    if z.std() == 0:
        return ""
    off = float(abs(z.mean()) * np.sqrt(z.size) / z.std())
    measured["bias"] = round(off, 2)
    if off >= _FAIR:
        way = "away from" if z.mean() > 0 else "toward"
        return (
            f"its roundings go {way} zero: {off:.1f} standard errors, of which {_FAIR:g} is chance"
        )
    return ""
