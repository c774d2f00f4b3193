"""Clipping of gradients by their common norm.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Sequence

import anyhal as hal
from anyhal import Array, _core
from anyhal.errors import InvalidArgumentError, InvalidTypeError, UnsupportedError, typed_call


@typed_call("clip_grad_norm")
def clip_grad_norm(grads: Sequence[Array], max_norm: float) -> Array:
    """Scales all gradients in place so that their common 2-norm is at most `max_norm`, and returns
    the norm they had, as an array on their device; nothing waits for it.

    Gradients that share memory, or whose byte ranges meet, are refused. Squares are summed in f32
    (f64 for f64); the norm is infinite from about 1e19 (1e154) on. An infinite norm makes finite
    gradients 0 and the others NaN, a norm of NaN makes all of them NaN: check what is returned.
    """
    if not isinstance(grads, list | tuple) or any(not isinstance(g, Array) for g in grads):
        raise InvalidTypeError(
            "clip_grad_norm: the gradients must be a list of arrays; pass a list"
        )
    if any("float" not in g.dtype for g in grads):
        raise UnsupportedError(
            f"clip_grad_norm: gradients are {', '.join(sorted({g.dtype for g in grads}))}, and only"
            " floating ones can be scaled; cast them with astype",
            reason="dtype",
        )
    if isinstance(max_norm, bool) or not isinstance(max_norm, int | float):
        raise InvalidTypeError(f"clip_grad_norm: max_norm is {max_norm!r}; pass a number")
    if not grads or not max_norm > 0:
        raise InvalidArgumentError(
            f"clip_grad_norm: {len(grads)} gradients and max_norm={max_norm}: there must be one at "
            "least and a limit above 0; correct the call"
        )
    twice = _core.first_overlap(grads)
    if twice is not None:
        raise InvalidArgumentError(
            "clip_grad_norm: gradients {} and {} share memory, which would be scaled twice; pass "
            "each once, and copies of views".format(*twice)
        )
    wide = "float64" if any(g.dtype == "float64" for g in grads) else "float32"
    total: Array | None = None
    for g in grads:
        x = g if g.dtype == wide else hal.astype(g, dtype=wide)
        square = hal.sum(hal.multiply(x, x))
        total = square if total is None else hal.add(total, square)
    assert total is not None
    norm: Array = hal.sqrt(total)
    # Written so that a norm of NaN goes on, and that what is short enough keeps its bits.
    share = hal.multiply(hal.reciprocal(norm), max_norm)
    scale = hal.where(hal.less_equal(norm, max_norm), 1.0, share)
    for g in grads:
        part = scale if g.dtype == wide else hal.astype(scale, dtype=g.dtype)
        hal.multiply(g, part, out=g)
    return norm
