"""Kernels that users bring: modules of device code, and calls of their functions in order.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anyhal import _core
from anyhal.dtypes import DType, dtype
from anyhal.errors import InvalidArgumentError, InvalidTypeError, typed_call, typed_calls
from anyhal.runtime.device import Device, of_native
from anyhal.runtime.device import device as find_device
from anyhal.runtime.queue import Queue, queue_of

_VENDOR = 6
# Names of formats; numbers of anyhal_payload_format, and the word that tells apart the vendor's.
_FORMATS = {
    "library": (_VENDOR, "host library"),
    "function": (_VENDOR, "host function"),
    "ptx": (1, ""),
    "cubin": (2, ""),
    "hsaco": (3, ""),
    "spirv": (4, ""),
    "opencl_c": (5, ""),
    "vendor": (_VENDOR, ""),
}
_PARAMETERS_MAX = 24
_GRIDS_KEPT = 64
_PARAMETER = re.compile(r"(?:(in|out|inout) )?([a-z0-9_]+)")
_FUNCTION: Any = ctypes.CFUNCTYPE(None).__mro__[1]  # of all functions of ctypes
_ACCESS = {"in": 1, "out": 2, "inout": 3}


@dataclass(frozen=True)
class _Parameter:
    access: int  # 0: a value
    dtype: DType
    text: str


@typed_calls
class Module:
    """Code loaded on one device; `kernel` makes its functions callable. See `load_module`."""

    def __init__(self, native: Any, on: Device, format: str, name: str) -> None:
        self.device = on
        self.format = format
        self._native = native
        self._name = name

    def kernel(
        self,
        entry: str,
        signature: Sequence[str],
        *,
        block: int | tuple[int, ...] = 1,
        shared_bytes: int = 0,
    ) -> Kernel:
        """A function of the module.

        `signature`: its parameters in order, first the arrays ("in f32", "out f32", "inout i64"),
        then the values ("i64", "f32"); at most 24. `block`: items of a block (work group), up to
        three sizes; `shared_bytes`: of memory that a block shares. Both mean nothing on a device
        that computes in host memory.

        Raises NotFoundError when the module has no such function, InvalidArgumentError for sizes
        that are none.
        """
        if not isinstance(entry, str) or not entry or "\0" in entry or not _encodes(entry):
            raise InvalidTypeError(
                f"making a kernel on {self.device.name}: {entry!r} is no function's name; pass a"
                " text"
            )
        plain = isinstance(shared_bytes, int) and not isinstance(shared_bytes, bool)
        if not plain or not 0 <= shared_bytes < 1 << 32:
            raise InvalidArgumentError(
                f"making the kernel {entry!r} on {self.device.name}:"
                f" shared_bytes={_shown(shared_bytes)} is no size of memory; pass an int from 0 to"
                " 2^32 - 1"
            )
        parameters = _parameters(entry, signature)
        return Kernel(self, entry, parameters, _sizes("block", block), shared_bytes)

    def __repr__(self) -> str:
        return f"Module({self._name!r}, {self.device.name!r}, {self.format})"


@typed_calls
class Kernel:
    """A user's function, called like an op: `kernel(x, y, 2.0, grid=4)`."""

    def __init__(
        self,
        module: Module,
        entry: str,
        parameters: tuple[_Parameter, ...],
        block: tuple[int, int, int],
        shared_bytes: int,
    ) -> None:
        self.module = module
        self.entry = entry
        self.signature = tuple(p.text for p in parameters)
        self._parameters = parameters
        self._block = block
        self._shared_bytes = shared_bytes
        self._plans: OrderedDict[tuple[int, int, int], Any] = OrderedDict()
        self._plan((1, 1, 1))  # a missing function is said now

    def __call__(
        self, *arguments: Any, grid: int | tuple[int, ...] = 1, queue: Queue | None = None
    ) -> None:
        """Queues one run, in order with the queue's calls; inside `hal.graph()` it is recorded.

        `arguments`: as the signature has them. Arrays are dense, of the signature's dtype, on the
        module's device; an array that is written shares no bytes with another. `grid`: the number
        of blocks (in host memory: parts, which may run on several threads at once), up to three
        sizes; `queue`: defaults to the scope's.

        Raises InvalidArgumentError before anything runs when an argument does not fit, and
        ExecutionFailedError when the function says that it failed, or what it reads was lost: what
        it was to write does not count then.
        """
        on = self.module.device
        where = f"kernel {self.entry!r} on {on.name}"
        if len(arguments) != len(self._parameters):
            raise InvalidTypeError(
                f"{where}: {len(arguments)} arguments, and its signature has"
                f" {len(self._parameters)}: {', '.join(self.signature)}; correct the call"
            )
        count = sum(p.access != 0 for p in self._parameters)
        arrays = list(arguments[:count])
        for i, (p, a) in enumerate(zip(self._parameters[:count], arrays, strict=True)):
            _check_array(f"{where}: argument {i} ({p.text})", p, a, on)
        self._check_overlaps(where, arrays)
        pairs = zip(self._parameters[count:], arguments[count:], strict=True)
        values = [
            _word(f"{where}: argument {count + i} ({p.text})", p, v)
            for i, (p, v) in enumerate(pairs)
        ]
        if queue is not None and queue.device is not on:
            raise InvalidArgumentError(
                f"{where}: the queue is one of {queue.device.name}; pass one of {on.name}"
            )
        native = queue._native if queue is not None else queue_of(on)
        _core.launch(self._plan(_sizes("grid", grid)), arrays, values, native)

    def _check_overlaps(self, where: str, arrays: list[_core.Array]) -> None:
        writes = [p.access & 2 for p in self._parameters]
        if len(arrays) < 2 or not any(writes):
            return
        for i, a in enumerate(arrays):
            for j in range(i):
                if (writes[i] or writes[j]) and _core.first_overlap([arrays[j], a]):
                    raise InvalidArgumentError(
                        f"{where}: arguments {j} and {i} share bytes, and one is written; pass"
                        " arrays apart, or one array as inout"
                    )

    def _plan(self, grid: tuple[int, int, int]) -> Any:
        plan = self._plans.get(grid)
        if plan is None:
            plan = self.module._native.prepare(
                self.entry,
                [p.access for p in self._parameters if p.access],
                [p.dtype.block_bytes for p in self._parameters if not p.access],
                grid,
                self._block,
                self._shared_bytes,
            )
            self._plans[grid] = plan
            if len(self._plans) > _GRIDS_KEPT:
                self._plans.popitem(last=False)
        return plan

    def __repr__(self) -> str:
        return f"Kernel({self.entry!r}, {', '.join(self.signature)}, on {self.module.device.name})"


@typed_call("load_module")
def load_module(
    code: Any,
    *,
    device: Device | str | None = None,
    format: str | None = None,
    architecture: str = "",
) -> Module:
    """Loads a user's code on a device (default: the scope's).

    `code` and `format`: an absolute path and "library" (a shared library with C functions), a
    function and "function" (a Numba `cfunc`, a ctypes function or its address), text or bytes and
    "opencl_c", "ptx", "cubin", "hsaco", "spirv" or "vendor". A path or a function needs no format.
    `architecture`: what binary code was built for ("sm_90"). docs/how-to/bring-your-own-kernel.md
    has the form that each takes.

    The code runs with this process's rights: load what you trust. It returns 0, or another number
    when it failed. A ctypes callback that raises leaves an undefined number, which nobody can tell
    from one that it returned: catch in it, and return 1. Code that runs in this process calls
    nothing of anyhal: a call that would wait for the kernel itself is an InvalidArgumentError.

    Raises UnsupportedError where the
    device takes no such code, NotFoundError for a path where nothing is, InvalidArgumentError for
    one that is not absolute and for an address that is NULL.
    """
    chosen = find_device(device)
    if format is None:
        format = _format_of(code)
    if format not in _FORMATS:
        raise InvalidArgumentError(
            f"loading a module on {chosen.name}: format={format!r} is unknown; use one of"
            f" {', '.join(_FORMATS)}"
        )
    number, word = _FORMATS[format]
    if not isinstance(architecture, str) or "\0" in architecture:
        raise InvalidTypeError(
            f"loading a module on {chosen.name}: architecture={architecture!r} is no text; pass"
            ' what the code was built for, such as "sm_90"'
        )
    payload = _payload(chosen, code, format)
    native = _core.load_module(chosen.native, number, payload, word or architecture, code)
    name = getattr(code, "__name__", "") if format == "function" else ""
    shown = os.fspath(code) if format == "library" else name or format
    return Module(native, chosen, format, str(shown))


def _format_of(code: Any) -> str:
    if isinstance(code, os.PathLike) or (isinstance(code, str) and code.endswith(".so")):
        return "library"
    if isinstance(code, str | bytes | bytearray | memoryview):
        raise InvalidArgumentError(
            "loading a module: a text may be of several formats; say which, such as"
            ' format="opencl_c"'
        )
    return "function"


def _payload(on: Device, code: Any, format: str) -> bytes:
    if format == "function":
        return _address(on, code).to_bytes(8, "little")
    if format == "library":
        if not isinstance(code, str | os.PathLike):
            raise InvalidTypeError(
                f"loading a library on {on.name}: a {type(code).__name__} is no path; pass the"
                " absolute path of a shared library"
            )
        path = os.fsencode(code)
        if b"\0" in path:
            raise InvalidArgumentError(
                f"loading a library on {on.name}: {str(code)!r} has a zero byte, where a path ends;"
                " pass the path of a file"
            )
        return path
    if isinstance(code, str):
        if not _encodes(code):
            raise InvalidArgumentError(
                f"loading a module on {on.name}: the text has a lone surrogate, which is no UTF-8;"
                " pass the code as bytes"
            )
        return code.encode()
    if isinstance(code, bytes | bytearray | memoryview):
        return bytes(code)
    raise InvalidTypeError(
        f"loading a module on {on.name}: a {type(code).__name__} is no code of format {format!r};"
        " pass text or bytes"
    )


def _address(on: Device, code: Any) -> int:
    """Of a C function: an int, a ctypes function, or what has an `address` (a Numba cfunc)."""
    found = getattr(code, "address", code)
    if isinstance(found, _FUNCTION):
        found = ctypes.cast(found, ctypes.c_void_p).value or 0
    if isinstance(found, bool) or not isinstance(found, int):
        raise InvalidTypeError(
            f"loading a function on {on.name}: a {type(code).__name__} has no address; pass a Numba"
            " cfunc, a ctypes function or an address"
        )
    if not 0 < found < 1 << 64:
        raise InvalidArgumentError(
            f"loading a function on {on.name}: its address is {found}; pass one that is not NULL"
        )
    declared = getattr(getattr(code, "_sig", None), "args", None)  # a Numba cfunc's
    if declared is not None and len(declared) != 4:
        raise InvalidArgumentError(
            f"loading a function on {on.name}: it takes {len(declared)} arguments, and is called"
            " with four: arrays, values, part, parts; declare those"
        )
    return found


def _parameters(entry: str, signature: Sequence[str]) -> tuple[_Parameter, ...]:
    where = f"the signature of kernel {entry!r}"
    if isinstance(signature, str) or not isinstance(signature, Sequence):
        raise InvalidTypeError(
            f'{where}: {signature!r} is no list; pass texts such as ["in f32", "out f32", "i64"]'
        )
    if len(signature) > _PARAMETERS_MAX:
        raise InvalidArgumentError(
            f"{where}: {len(signature)} parameters, and at most {_PARAMETERS_MAX} are possible; put"
            " values into an array"
        )
    out: list[_Parameter] = []
    for text in signature:
        found = _PARAMETER.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise InvalidArgumentError(
                f'{where}: cannot read {text!r}; write "in f32", "out f32" or "inout f32" for an'
                ' array, "f32" for a value'
            )
        kind = dtype(found[2])
        access = _ACCESS.get(found[1] or "", 0)
        if access and out and not out[-1].access:
            raise InvalidArgumentError(
                f"{where}: the array {text!r} stands behind a value; arrays come first"
            )
        if not access and kind.is_block:
            raise InvalidArgumentError(
                f"{where}: {text!r} is no value, its elements come in blocks; pass an array"
            )
        out.append(_Parameter(access, kind, text))
    return tuple(out)


def _encodes(text: str) -> bool:
    """Whether it is UTF-8: no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sizes(what: str, given: int | tuple[int, ...]) -> tuple[int, int, int]:
    sizes = given if isinstance(given, tuple) else (given,)
    plain = all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < 1 << 31 for n in sizes)
    if not plain or not 0 < len(sizes) <= 3:
        raise InvalidArgumentError(
            f"{what}={given!r} is no size; pass an int from 1, or a tuple of up to three"
        )
    return (*sizes, 1, 1)[:3]  # type: ignore[return-value]


def _check_array(where: str, p: _Parameter, a: Any, on: Device) -> None:
    if not isinstance(a, _core.Array):
        raise InvalidTypeError(f"{where}: a {type(a).__name__} is no array; pass an anyhal Array")
    if of_native(a._device_name) is not on:
        raise InvalidArgumentError(
            f"{where}: the array is on {a._device_name}; copy it to {on.name}"
        )
    if a._dtype_value != p.dtype.value:
        raise InvalidArgumentError(f"{where}: the array is of dtype {a.dtype}; cast it")
    if not a._dense:
        raise InvalidArgumentError(
            f"{where}: the array is strided, and the kernel gets one address; copy it first"
        )
    if p.access & 2 and a.constant:
        raise InvalidArgumentError(f"{where}: the array is a constant; write a copy of it")


def _word(where: str, p: _Parameter, value: Any) -> int:
    """The value's bytes, low ones first, as an int."""
    number = value.item() if isinstance(value, np.generic) else value
    allowed: tuple[type, ...] = {"float": (int, float), "bool": (bool,)}.get(p.dtype.kind, (int,))
    wrong_bool = isinstance(number, bool) and p.dtype.kind != "bool"
    if not isinstance(number, allowed) or wrong_bool:
        raise InvalidTypeError(f"{where}: {value!r} is no {p.dtype.name}; pass a plain number")
    if p.dtype.kind in ("int", "uint"):
        limits: Any = np.iinfo(p.dtype.numpy)
        if not limits.min <= number <= limits.max:
            raise InvalidArgumentError(
                f"{where}: {_shown(number)} does not fit, the range is {limits.min} to"
                f" {limits.max}; pass another value, or declare a wider dtype"
            )
    if p.dtype.kind == "float":
        return _float_word(where, p, number)
    return int.from_bytes(np.array(number, p.dtype.numpy).tobytes(), "little")


def _float_word(where: str, p: _Parameter, number: Any) -> int:
    try:
        made = float(number)  # NumPy's own floats, and those that it learnt, take any of Python's
    except OverflowError:
        made = math.inf
    with np.errstate(over="ignore"):
        stored = np.array(made, p.dtype.numpy)
    if not math.isfinite(stored) and (isinstance(number, int) or math.isfinite(number)):
        raise InvalidArgumentError(
            f"{where}: {_shown(number)} is too large for {p.dtype.name}; pass a smaller one, or"
            " declare a wider dtype"
        )
    return int.from_bytes(stored.tobytes(), "little")


def _shown(number: Any) -> str:
    """Python refuses to write very long ints."""
    long = isinstance(number, int) and number.bit_length() > 128
    return f"an int of {number.bit_length()} bits" if long else repr(number)
