"""What an op touches: its outputs' elements and nothing else, its inputs' elements and no others.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np

import anyhal as hal
from anyhal import _core
from anyhal.conformance.behaviour import child
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotApplicableError,
    behaviour,
    if_declared,
    require,
    require_equal,
)
from anyhal.dtypes import dtype

_Calls = dict[str, Callable[..., Any]]


def _calls() -> _Calls:
    """Of two [17, 19] inputs; `out` where the result has that shape."""
    return {
        "add": lambda x, y, **out: hal.add(x, y, **out),
        "exp": lambda x, y, **out: hal.exp(x, **out),
        "softmax": lambda x, y, **out: hal.softmax(x, axis=1, **out),
        "copy": lambda x, y, **out: hal.copy(x, **out),
        "matmul": lambda x, y, **out: hal.matmul(x, y.T),
        "sum": lambda x, y, **out: hal.sum(x, axis=0),
        "rows": lambda x, y, **out: hal.sum(x, axis=1),
        "cumsum": lambda x, y, **out: hal.cumsum(x, axis=1),
        "log_softmax": lambda x, y, **out: hal.log_softmax(x, axis=1),
        "logsumexp": lambda x, y, **out: hal.logsumexp(x, axis=1),
        "argmax": lambda x, y, **out: hal.argmax(x, axis=1),
        "sort": lambda x, y, **out: hal.sort(x, axis=1)[0],
        "topk": lambda x, y, **out: hal.topk(x, k=3, largest=True)[0],
        "concat": lambda x, y, **out: hal.concat([x, y]),
        "where": lambda x, y, **out: hal.where(hal.greater(x, y), x, y),
    }


_NO_OUT: tuple[str, ...]
_NO_OUT = (
    "matmul",
    "sum",
    "rows",
    "cumsum",
    "log_softmax",
    "logsumexp",
    "argmax",
    "sort",
    "topk",
)
_NO_OUT += ("concat", "where")


def _tried(call: Callable[..., Any], *inputs: Any) -> np.ndarray | None:
    """The result; None where the device refuses the op."""
    try:
        found: np.ndarray = call(*inputs).numpy()
        return found
    except hal.UnsupportedError:
        return None


_SHAPE = (17, 19)


def _values(bench: Bench, name: str) -> np.ndarray:
    return bench.rng(name).standard_normal(_SHAPE).astype(np.float32)


@behaviour("extent/inputs-unchanged", 27, tier="smoke")
def inputs_unchanged(bench: Bench) -> Measured:
    """No op changes its inputs."""
    x, y = _values(bench, "x"), _values(bench, "y")
    there = hal.asarray(x, device=bench.device), hal.asarray(y, device=bench.device)
    for name, call in _calls().items():
        _tried(call, *there)
        for array, right in zip(there, (x, y), strict=True):
            require_equal(array.numpy(), right, "input_changed", f"an input of {name}")
    return None


def _framed(bench: Bench, values: np.ndarray, around: float) -> tuple[Any, Any]:
    """An array with a margin on all sides, and its inside."""
    frame = np.full((values.shape[0] + 4, values.shape[1] + 6), around, np.float32)
    frame[2:-2, 3:-3] = values
    there = hal.asarray(frame, device=bench.device)
    return there, there[2:-2, 3:-3]


@behaviour("extent/outside-not-read", 27, tier="smoke")
def outside_not_read(bench: Bench) -> Measured:
    """What lies between and around the elements of an input changes no bit of the result, be it NaN
    or huge."""
    x, y = _values(bench, "x"), _values(bench, "y")
    for name, call in _calls().items():
        results = []
        for around in (0.0, np.nan, 3e38):
            inside = [_framed(bench, v, around)[1] for v in (x, y)]
            results.append(_tried(call, *inside))
        for number, found in enumerate(results[1:]):
            if found is None or results[0] is None:
                continue
            what = ("NaN", "huge numbers")[number]
            require_equal(found, results[0], "outside_read", f"{name} with {what} around it")
    return None


@behaviour("extent/outside-not-written", 27, tier="smoke")
def outside_not_written(bench: Bench) -> Measured:
    """Nothing is written around and between the elements of an output."""
    x, y = _values(bench, "x"), _values(bench, "y")
    there = hal.asarray(x, device=bench.device), hal.asarray(y, device=bench.device)
    for name, call in _calls().items():
        if name in _NO_OUT:
            continue
        frame, inside = _framed(bench, np.full(_SHAPE, np.nan, np.float32), 77)
        if if_declared(bench, call, *there, out=inside) is None:
            continue
        found = frame.numpy()
        require(
            not np.isnan(found[2:-2, 3:-3]).any(), "wrong_value", f"{name} left elements unwritten"
        )
        found[2:-2, 3:-3] = 77
        require_equal(found, np.full_like(found, 77), "outside_written", f"around {name}'s output")
    return None


def _at_the_end_of_a_page(bench: Bench) -> dict[str, int]:
    """Operands that end where memory ends; a touch of the next byte ends the process."""
    libc, page = c.CDLL(None, use_errno=True), mmap.PAGESIZE
    libc.mmap.restype = c.c_void_p
    device, done = bench.device, 0

    def placed(values: np.ndarray) -> Any:
        size = values.nbytes
        pages = -(-size // page)
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        start = libc.mmap(None, c.c_size_t((pages + 1) * page), 3, private, -1, c.c_size_t(0))
        libc.mprotect(c.c_void_p(start + pages * page), c.c_size_t(page), 0)
        at = start + pages * page - size
        c.memmove(at, values.ctypes.data, size)
        kind = dtype(str(values.dtype)).value
        strides = [s // values.itemsize for s in values.strides]
        shape = list(values.shape)
        return _core.import_host(device.native, at, size, kind, shape, strides, (), False)

    rng = bench.rng("x")
    for n in (1, 3, 17, 64, 1023, 5000):
        x = rng.standard_normal(n).astype(np.float32)
        try:
            there, out = placed(x), placed(np.zeros(n, np.float32))
        except (hal.UnsupportedError, hal.InvalidArgumentError) as why:
            raise NotApplicableError(f"the device does not compute in host memory: {why}") from why
        if if_declared(bench, hal.add, there, there, out=out) is not None:
            require_equal(out.numpy(), x + x, "wrong_value", f"{n} elements at the end of a page")
        if_declared(bench, hal.exp, there, out=out)
        if_declared(bench, hal.sum, there)
        square = placed(rng.standard_normal((n % 40 + 1, 23)).astype(np.float32))
        if_declared(bench, hal.matmul, square, square.T)
        if_declared(bench, hal.softmax, square, axis=1)
        done += 5
    return {"calls": done}


@behaviour("extent/end-of-memory", 27, seconds=30)
def end_of_memory(bench: Bench) -> Measured:
    """Operands that end with a page behind which there is no memory are read and written to their
    last byte and not one further."""
    if not bench.device.native.host_memory:
        raise NotApplicableError("the device does not compute in host memory")
    ended = child.ask(bench, _at_the_end_of_a_page, 25)
    why = ended.said()
    require(not why, "outside_read", f"with operands at the end of a page: {why}")
    return dict(ended.told)
