"""Gradient rules of pooling and resizing.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import anyhal as hal
from anyhal import Array
from anyhal.training.rules._shapes import Gradients, Rule, wide


@dataclass(frozen=True)
class _Windows:
    """Windows over x with its padding, for each spatial axis."""

    size: tuple[int, ...]
    places: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @staticmethod
    def of(c: Any) -> _Windows:
        kernel = tuple(c.attrs["kernel"])
        rank = len(kernel)
        dilations = tuple(c.attrs.get("dilations") or (1,) * rank)
        pads = tuple(c.attrs.get("pads") or (0,) * 2 * rank)
        size, places = c.inputs[0].shape[2:], c.out.shape[2:]
        strides = tuple(c.attrs["strides"])
        return _Windows(size, places, kernel, strides, dilations, pads[:rank], pads[rank:])

    def padded(self) -> tuple[int, ...]:
        """The length of each axis, with what the last window reaches past the padding."""
        lengths = zip(self.before, self.size, self.after, self._reach(), strict=True)
        return tuple(max(b + n + a, reach) for b, n, a, reach in lengths)

    def _reach(self) -> Iterator[int]:
        every = zip(self.places, self.strides, self.kernel, self.dilations, strict=True)
        return ((p - 1) * s + (k - 1) * d + 1 for p, s, k, d in every)

    def taps(self) -> Iterator[tuple[Any, ...]]:
        """For each element of the kernel, what it meets in all windows, as a key."""
        for tap in itertools.product(*(range(k) for k in self.kernel)):
            every = zip(tap, self.places, self.strides, self.dilations, strict=True)
            cut = (slice(k * d, k * d + (p - 1) * s + 1, s) for k, p, s, d in every)
            yield (slice(None), slice(None), *cut)

    def inner(self) -> tuple[Any, ...]:
        cut = (slice(b, b + n) for b, n in zip(self.before, self.size, strict=True))
        return (slice(None), slice(None), *cut)

    def counts(self, with_pads: bool) -> Any:
        """How many elements each window has, as [P...]."""
        found = np.ones(self.places)
        for axis, places in enumerate(self.places):
            start = np.arange(places)[:, None] * self.strides[axis]
            at = start + np.arange(self.kernel[axis]) * self.dilations[axis]
            first = 0 if with_pads else self.before[axis]
            last = self.before[axis] + self.size[axis] + (self.after[axis] if with_pads else 0)
            count = ((at >= first) & (at < last)).sum(axis=1)
            found = found * count.reshape(count.size, *(1,) * (len(self.places) - axis - 1))
        return found


def _avg_pool(c: Any, d: Array) -> Gradients:
    x, w = c.inputs[0], _Windows.of(c)
    d = wide(d)
    counts = w.counts(c.attrs["count_include_pad"]).astype(d.dtype)
    share = hal.divide(d, hal.asarray(counts, device=d.device))
    total = hal.zeros((*x.shape[:2], *w.padded()), dtype=d.dtype, device=d.device)
    for tap in w.taps():
        hal.add(total[tap], share, out=total[tap])
    return [total[w.inner()]]


def _max_pool(c: Any, d: Array) -> Gradients:
    """Shared evenly by all elements of a window that are equal to its largest."""
    x, w = c.inputs[0], _Windows.of(c)
    d = wide(d)
    ends = zip(w.padded(), w.before, w.size, strict=True)
    pads = (0, 0, *w.before, 0, 0, *(n - b - s for n, b, s in ends))
    padded = hal.pad(x, -np.inf, pads=pads)
    hits = [hal.astype(hal.equal(padded[tap], c.out), dtype=d.dtype) for tap in w.taps()]
    count = hits[0]
    for hit in hits[1:]:
        count = hal.add(count, hit)
    share = hal.divide(d, count)
    total = hal.zeros(padded.shape, dtype=d.dtype, device=d.device)
    for tap, hit in zip(w.taps(), hits, strict=True):
        hal.add(total[tap], hal.multiply(hit, share), out=total[tap])
    return [total[w.inner()]]


def _resize(c: Any, d: Array) -> Gradients:
    """Along each axis the transpose of what the op does to it, which it shows on unit vectors."""
    x = c.inputs[0]
    how = {k: v for k, v in c.attrs.items() if k != "sizes"}
    d = wide(d)
    letters = "abcdefghijklmnop"[: x.ndim]
    for axis in range(x.ndim - len(c.attrs["sizes"]), x.ndim):
        units = hal.asarray(np.eye(x.shape[axis], dtype=d.dtype), device=d.device)
        weights = hal.resize(units, sizes=(d.shape[axis],), **how)
        result = letters.replace(letters[axis], "z")
        d = hal.einsum(f"{letters},z{letters[axis]}->{result}", d, weights)
    return [d]


RULES: dict[str, Rule] = {"avg_pool": _avg_pool, "max_pool": _max_pool, "resize": _resize}
