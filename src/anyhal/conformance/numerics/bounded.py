"""Phase B: real numbers of several distributions, each element inside its rounding-error bound.
SPDX-License-Identifier: Apache-2.0

Every op of floating dtypes meets every distribution in the shapes of its own samples; ops that sum
meet long sums besides, up to K of 4,096 at quick.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from anyhal.conformance.numerics import fills
from anyhal.conformance.numerics.probes import Probe, case_of, forms
from anyhal.conformance.numerics.products import MULTIPLES, PRODUCTS, SUMS, product, total
from anyhal.conformance.numerics.samples import main_dtype, size_of
from anyhal.conformance.suite import Case
from anyhal.conformance.worker import rng_of
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._checks import FLOATS
from anyhal.ops._oracle import random_blocks
from anyhal.ops._spec import OpSpec, Sample
from anyhal.records import replace

# Operands that are no data: what they may hold is a matter of the op.
_FACTORS = ("variance", "m", "v", "scale", "a_scale", "b_scale", "freq_factors", "lr", "mask")
_KEPT = (*_FACTORS, "y", "lse", "sinks", "dlse", "min", "max")
# Ops whose values have a domain, or that only move values.
_LEFT_OUT = ("unary", "binary", "cast", "quantize", "dequantize", "dropout", "random_normal")
# Ops whose bounds know that equal terms are rounded alike, one after the other.
_SAME = ("matmul", "matmul_epilogue", "grouped_matmul", "reduce", "cumsum", "conv", "attention")
_LARGEST = 4096  # elements of all operands together
_LONG_K = {"quick": (257, 1025, 4096), "full": (257, 1025, 4096, 16385)}
_DISTRIBUTIONS = {
    "quick": ("normal", "positive", "cancelling", "outliers", "constant"),
    "full": tuple(fills.DISTRIBUTIONS),
}
# Distributions that say little at great length: kept at quick for the longest sum.
_LONG_FILLS = {"quick": ("normal", "positive", "rows_apart"), "full": tuple(fills.DISTRIBUTIONS)}


def cases() -> Iterator[Case]:
    for spec in BY_NAME.values():
        if not spec.public:
            continue
        for mode in forms(spec):
            for short in spec.dtypes:
                if short not in FLOATS or spec.bound in ("exact", "chosen", "selection"):
                    continue
                tier = "quick" if mode == "fused" or short == "f32" else "full"
                if spec.name not in _LEFT_OUT:
                    yield case_of(spec.name, "bounded", (short, "fills"), tier, short, mode)
                    yield case_of(spec.name, "bounded", (short, "all_fills"), "full", short, mode)
                if spec.name in {*PRODUCTS, *SUMS}:
                    yield case_of(spec.name, "bounded", (short, "long"), tier, short, mode)
                    yield case_of(spec.name, "bounded", (short, "longest"), "full", short, mode)


def probes(case: Case, seed: int) -> Iterator[Probe]:
    what = case.id.split("/")[4]
    effort = "full" if what in ("all_fills", "longest") else "quick"
    rng, spec = rng_of(seed), BY_NAME[case.op]
    if what in ("long", "longest"):
        yield from _long(rng, spec, case.dtype, effort)
        return
    few = 1 if case.given["mode"] == "decomposed" else 3
    for sample in _bases(rng, spec, case.dtype, few if effort == "quick" else 8):
        for name in _DISTRIBUTIONS[effort]:
            if name == "constant" and spec.name not in _SAME:
                continue
            yield Probe(refilled(rng, spec, sample, name))


def _bases(rng: fills.Rng, spec: OpSpec, short: str, count: int) -> list[Sample]:
    """The largest samples of the op's file, with attributes as different as there are."""
    found = [s for s in spec.samples(rng) if main_dtype(spec.name, s) == short]
    found = [s for s in found if s.inputs[0].size and _finite(s) and size_of(s) <= _LARGEST]
    found.sort(key=size_of, reverse=True)
    seen: dict[str, Sample] = {}
    for sample in found:
        present = [x is not None for x in sample.inputs]
        seen.setdefault(f"{present} {sorted(map(str, sample.attrs.items()))}", sample)
    plain = [s for s in found if sum(x is not None for x in s.inputs) == len(_needed(spec))]
    return list(seen.values())[: count - 1] + plain[:1]


def _needed(spec: OpSpec) -> list[Any]:
    return [a for a in spec.inputs if not a.optional]


def _finite(sample: Sample) -> bool:
    rows = (x for x in sample.inputs if isinstance(x, np.ndarray) and x.dtype.kind not in "iub")
    return all(np.isfinite(x.astype(np.float64)).all() for x in rows)


def refilled(rng: fills.Rng, spec: OpSpec, sample: Sample, name: str) -> Sample:
    """The sample with other numbers in its data operands."""
    fill = fills.DISTRIBUTIONS[name]
    inputs: list[Any] = []
    names = [a.name for a in spec.inputs]
    for i, x in enumerate(sample.inputs):
        known = names[min(i, len(names) - 1)]
        float_data = isinstance(x, np.ndarray) and x.dtype.kind not in "iub" and known not in _KEPT
        if not float_data or dtype(x.dtype).short not in FLOATS:
            inputs.append(x)
        else:
            inputs.append(np.asarray(fill(rng, x.shape)).astype(x.dtype))
    if spec.name == "cross_entropy_backward" and inputs[3] is not None:
        inputs[3] = _lse_of(inputs, sample.attrs).astype(inputs[3].dtype)
    return replace(sample, label=f"{name}: {sample.label}", inputs=tuple(inputs))


def _lse_of(inputs: list[Any], attrs: Mapping[str, Any]) -> Any:
    """What belongs to these logits; that of others overflows exp(logits - lse)."""
    return BY_NAME["cross_entropy"].reference(*inputs[:2], **attrs, return_lse=True)[1]


def _lengths(op: str, form: str, effort: str) -> tuple[int, ...]:
    """Fewer where the reference goes through them one by one."""
    if op == "scatter" or form in ("dw", "dbias"):
        return (257,) if effort == "quick" else (257, 1025)
    return _LONG_K[effort]


def _long(rng: fills.Rng, spec: OpSpec, short: str, effort: str) -> Iterator[Probe]:
    kind = dtype(short).numpy
    for form in PRODUCTS.get(spec.name, ()):
        step = MULTIPLES.get(form, 1)
        for k in _lengths(spec.name, form, effort):
            k = -(-k // step) * step
            for name in _LONG_FILLS[effort]:
                fill = fills.DISTRIBUTIONS[name]
                a, b = (np.asarray(fill(rng, s)).astype(kind) for s in ((4, k), (k, 5)))
                if spec.name == "quant_matmul":
                    w = random_blocks(rng, form, (5, k))
                    inputs: tuple[Any, ...] = (a, w, None, None, None)
                    yield Probe(Sample(f"{name} {form} K {k}", inputs))
                else:
                    yield Probe(product(spec.name, form, a, b, f"{name} K {k}"))
    for form in SUMS.get(spec.name, ()):
        for k in _lengths(spec.name, form, effort):
            for name in _LONG_FILLS[effort]:
                b = np.asarray(fills.DISTRIBUTIONS[name](rng, (k, 5))).astype(kind)
                sample = total(spec.name, form, b, f"{name} K {k}")
                yield Probe(sample)
                if spec.name == "reduce" and name != "positive":
                    yield Probe(replace(sample, attrs={**sample.attrs, "fn": "mean"}))
