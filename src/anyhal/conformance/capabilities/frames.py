"""An operand inside a larger block of memory, at any stride and offset, with guards around it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anyhal import _core
from anyhal.conformance.placing import framed, poison
from anyhal.dtypes import DType
from anyhal.ops._spec import Shape, TensorSpec, dense_strides
from anyhal.runtime import array as arrays

LAYOUTS = ("offset", "gaps", "transposed", "repeated", "shifted", "odd")
_GUARD = 64  # elements on either side: whole cache lines, so that what follows keeps its alignment


def strided(shape: Shape, layout: str) -> tuple[Shape, int]:
    """Strides in elements, and where the first element is."""
    if layout in ("offset", "gaps"):
        frame, window = framed(shape, layout)
        steps = _dense(frame)
        first = sum(s.start * step for s, step in zip(window, steps, strict=True))
        return tuple(step * (s.step or 1) for s, step in zip(window, steps, strict=True)), first
    if layout == "transposed":
        return tuple(reversed(_dense(shape[::-1]))), 0
    if layout == "repeated":
        axis = repeated_axis(shape)
        once = tuple(1 if d == axis else n for d, n in enumerate(shape))
        return tuple(0 if d == axis else s for d, s in enumerate(_dense(once))), 0
    return _dense(shape), 1 if layout == "shifted" else 0


def repeated_axis(shape: Sequence[int]) -> int:
    return next((d for d, n in enumerate(shape) if n > 1), -1)


def _dense(shape: Sequence[int]) -> Shape:
    from anyhal.dtypes import dtype

    return dense_strides(tuple(shape), dtype("u8"))


class Frame:
    """One operand on the device; without `values` it is poisoned. Blocks lie densely, unguarded."""

    def __init__(
        self, device: Any, d: DType, shape: Shape, layout: str, values: Any = None
    ) -> None:
        self.dtype, self.shape = d, tuple(shape)
        if d.is_block:
            self._place_blocks(device, values)
            return
        assert d.numpy is not None
        strides, first = strided(self.shape, layout)
        span = 1 + sum((n - 1) * s for n, s in zip(self.shape, strides, strict=True))
        size, width = first + max(span, 1) + 2 * _GUARD, d.numpy.itemsize
        self._odd = int(layout == "odd")
        self._first, self._strides = (_GUARD + first) * width, [s * width for s in strides]
        fill = poison((size,), d) if values is None else np.ones((size,), d.numpy)
        self._before = np.zeros(size * width + self._odd, np.uint8)
        self._before[self._odd :] = fill.view(np.uint8)
        if values is not None:
            self._window(self._before)[...] = values
        host = self._before if self._odd else self._before.view(d.numpy)
        self._base = arrays.asarray(host, device=device)
        self.view = _core.view(
            self._base, d.value, list(self.shape), list(strides), self._first + self._odd
        )

    def _place_blocks(self, device: Any, values: Any) -> None:
        d = self.dtype
        bytes_ = TensorSpec.dense(d, self.shape).nbytes
        data = np.full(bytes_, 0xA5, np.uint8) if values is None else values.data
        flat = np.array(data).reshape(-1)
        self.view = self._base = arrays.frombuffer(flat, d, self.shape, device=device)
        self._before = self._now()

    def _window(self, bytes_: Any) -> Any:
        """The elements among the bytes of the whole."""
        if 0 in self.shape:
            return np.zeros(self.shape, self.dtype.numpy)
        start = self._first + self._odd
        return np.ndarray(self.shape, self.dtype.numpy, bytes_, start, self._strides)

    def _now(self) -> Any:
        return np.array(arrays.numpy(self._base)).reshape(-1).view(np.uint8)

    def changed(self) -> bool:
        return not np.array_equal(self._now(), self._before)

    def outside(self) -> bool:
        """Whether anything but the elements changed."""
        if self.dtype.is_block:
            return False
        now, before = self._now(), self._before.copy()
        self._window(before)[...] = self._window(now)
        return not np.array_equal(now, before)

    def values(self) -> Any:
        if self.dtype.is_block:
            return self._now()
        return self._window(self._now()).copy()
