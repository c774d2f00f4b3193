"""Runs a sample through the public API: inputs in odd layouts, poisoned outputs between guards.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.dtypes import DType, of_value
from anyhal.ops import BY_NAME
from anyhal.ops._spec import Blocks, OpSpec, Sample, TensorSpec, describe
from anyhal.routing.policy import Policy

LAYOUTS = ("dense", "offset", "gaps", "transposed", "negative")


def modes(spec: OpSpec) -> tuple[str, ...]:
    """How an op can run: as routing chooses, and for rich ops through core ops alone. `call` knows
    "fused" besides: by the backend's own kernel, or not at all."""
    return ("chosen",) if spec.is_core else ("chosen", "decomposed")


def forced(mode: str) -> AbstractContextManager[Any]:
    if mode == "decomposed":
        return hal.use(policy=Policy(prefer_decomposed=True))
    if mode == "fused":
        return hal.use(fallback="never")
    return nullcontext()


def poison(shape: tuple[int, ...], d: DType) -> Any:
    """NaN for floats, a value unlike any result for the rest."""
    assert d.numpy is not None
    if d.kind == "float":
        return np.full(shape, np.nan).astype(d.numpy)
    return np.full(shape, True if d.kind == "bool" else 0x5B, d.numpy)


def place(x: Any, layout: str, device: Any) -> Any:
    """A device array with the values of x; its strides and offset depend on `layout`."""
    if isinstance(x, Blocks):
        data = np.ascontiguousarray(x.data).reshape(-1)
        return hal.frombuffer(data, x.dtype.name, x.shape, device=device)
    repeats = [s == 0 and n > 1 for n, s in zip(x.shape, x.strides, strict=True)]
    if any(repeats) and x.size:
        once = x[tuple(slice(0, 1) if r else slice(None) for r in repeats)]
        return hal.broadcast_to(place(once, layout, device), x.shape)
    if layout == "negative" and x.ndim:
        flip = (slice(None, None, -1),) * x.ndim
        return hal.asarray(np.ascontiguousarray(x[flip])[flip], device=device)
    if layout == "transposed" and x.ndim > 1:
        return hal.asarray(np.ascontiguousarray(x.T), device=device).T
    if layout in ("offset", "gaps") and x.ndim:
        frame, window = framed(x.shape, layout)
        base = np.resize(np.asarray([1], x.dtype), frame)
        base[window] = x
        return hal.asarray(base, device=device)[window]
    return hal.asarray(x, device=device)


def framed(shape: tuple[int, ...], layout: str) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    """A larger shape and the part of it that has `shape`: shifted, or every other element."""
    if layout == "gaps":
        return tuple(2 * n + 1 for n in shape), tuple(slice(1, 2 * n, 2) for n in shape)
    return tuple(n + 3 for n in shape), tuple(slice(2, n + 2) for n in shape)


class OutsideError(AssertionError):
    """Something was written that is no element of the output."""


def shown_array(array: Any) -> str:
    """f32[3,5] strides (5,1), which are in elements."""
    strides = ",".join(map(str, array.strides))
    kind = TensorSpec.dense(of_value(array._dtype_value), array.shape)
    return f"{describe(kind)} strides ({strides})"


def _elements(count: int) -> str:
    return "1 element" if count == 1 else f"{count} elements"


class Output:
    """A poisoned output inside a frame that may not change."""

    def __init__(self, shape: tuple[int, ...], d: DType, layout: str, device: Any) -> None:
        layout = layout if layout == "gaps" else "offset"
        frame, self.window = framed(shape, layout)
        self.before, self.device = poison(frame, d), device
        self.frame = hal.asarray(self.before, device=device)
        self.view = self.frame[self.window]

    def hold(self, what: str) -> None:
        """Begins anew with something else in it: all bits set ("ones"), or what it holds now with
        the other sign ("negated"), which is plausible and wrong."""
        held = self.frame.numpy()[self.window].copy()
        if held.dtype.kind == "b":
            held = ~held
        elif what == "ones":
            held.reshape(-1).view(np.uint8)[...] = 0xFF
        else:
            held = np.invert(held) if held.dtype.kind in "iu" else -held
        self.before[self.window] = held
        self.frame = hal.asarray(self.before, device=self.device)
        self.view = self.frame[self.window]

    def values(self) -> Any:
        """What was written; OutsideError where something was written around it."""
        after = self.frame.numpy()
        found = after[self.window].copy()
        after[self.window] = self.before[self.window]
        if after.tobytes() != self.before.tobytes():
            output = shown_array(self.view)
            raise OutsideError(f"written outside the output {output}: {self._where(after)}")
        return found

    def _where(self, after: Any) -> str:
        """The first element that changed around the output, and what is there now."""
        width = after.dtype.itemsize
        now, held = (
            np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(-1, width)
            for x in (after, self.before)
        )
        at = int(np.flatnonzero((now != held).any(axis=1))[0])
        inside = np.arange(after.size).reshape(after.shape)[self.window].reshape(-1)
        what = f"{after.reshape(-1)[at]} is written"
        if not inside.size:
            return f"{what}, and the output is empty"
        if at < inside[0]:
            return f"{what} {_elements(inside[0] - at)} before its first element"
        if at > inside[-1]:
            return f"{what} {_elements(at - inside[-1])} after its last element"
        return f"{what} between its elements, {_elements(at - inside[0])} after its first"

    def untouched(self) -> bool:
        return bool(self.frame.numpy().tobytes() == self.before.tobytes())


def public_call(spec: OpSpec, attrs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The public function whose presets these attributes meet, and the attributes left over."""
    for name, preset in spec.functions.items():
        if all(attrs.get(k) == v for k, v in preset.items()):
            return getattr(hal, name), {k: v for k, v in attrs.items() if k not in preset}
    raise AssertionError(f"{spec.name} has no public function for {attrs}")


def call(
    spec: OpSpec,
    arrays: Sequence[Any],
    attrs: dict[str, Any],
    out: Any = None,
    mode: str = "chosen",
) -> Any:
    function, left = public_call(spec, attrs)
    if out is not None:
        left["out"] = out
    operands = [list(arrays)] if spec.inputs[0].variadic else list(arrays)
    while operands and operands[-1] is None:
        operands.pop()
    with forced(mode):
        return function(*operands, **left)


def run(op: str, *inputs: Any, device: str, mode: str = "chosen", **attrs: Any) -> Any:
    """One op on NumPy values, as NumPy values; for the field cases."""
    spec = BY_NAME[op]
    arrays = [None if x is None else place(x, "dense", device) for x in inputs]
    return call(spec, arrays, attrs, mode=mode).numpy()


def layouts_of(sample: Sample, seed: int) -> Iterator[str]:
    """A layout for each input, drawn from the seed."""
    rng = np.random.default_rng(seed)
    for _ in sample.inputs:
        yield LAYOUTS[int(rng.integers(len(LAYOUTS)))]
