"""The values of an accepted call against the op file's reference, in the oracle's process.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anyhal.conformance.capabilities.calls import Call
from anyhal.conformance.numerics.calls import judge_sample
from anyhal.conformance.tolerance import bound, mismatch, rounded_factors
from anyhal.dtypes import dtype
from anyhal.ops._oracle import wide
from anyhal.ops._spec import Blocks


def wrong(call: Call, arrays: tuple[Any, ...], flushes: bool) -> str:
    """ "" for right values, else what is wrong."""
    spec, sample, outs = call.spec, call.sample, call.output_specs()
    coarse = call.words[0]
    if not coarse and all(o is None or not o.dtype.is_block for o in outs):
        return judge_sample(spec, sample, arrays, flushes).wrong
    references = spec.reference_outs(*sample.inputs, **sample.attrs)
    for i, (out, actual) in enumerate(zip(outs, arrays, strict=True)):
        if out is None:
            continue
        reference = np.broadcast_to(np.asarray(references[i]), out.shape)
        if out.dtype.is_block:  # moved, never computed: the values must be equal
            actual = wide(Blocks(actual, out.dtype, out.shape))
            found = mismatch(actual, reference, np.zeros(out.shape), dtype("float64"))
        else:
            name = spec.bound_of(i)
            given = (name, spec, sample.inputs, sample.attrs, reference, out.dtype)
            limit = bound(*given, flushes=flushes)
            limit = limit + rounded_factors(coarse, spec, sample.inputs, sample.attrs)
            found = mismatch(actual, reference, limit, out.dtype, flushes=flushes)
        if found:
            return f"{spec.outputs[i].name}: {found}"
    return ""
