"""Arrays: making them, moving their values to and from the host; `views` has what moves nothing.
SPDX-License-Identifier: Apache-2.0

The Array type itself is native (fields only); `methods` sets its methods on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np

from anyhal import _core
from anyhal.dtypes import DType, dtype, of_value
from anyhal.errors import InvalidArgumentError, InvalidTypeError, UnsupportedError, typed_call
from anyhal.ops._checks import FP8
from anyhal.ops._spec import TensorSpec, describe
from anyhal.printable import get_close_matches
from anyhal.runtime import copies, foreign
from anyhal.runtime import device as devices
from anyhal.runtime.device import Device

Array = _core.Array
# The ops by public name; filled by anyhal.dispatch, which stands above this module.
OPS: dict[str, Callable[..., Any]] = {}
PURPOSES = {"activations": 0, "weights": 1, "cache": 2, "workspace": 3, "staging": 4, "arena": 5}


def needs_array(function: str, a: Any) -> None:
    if not isinstance(a, Array):
        raise InvalidTypeError(
            f"{function}: a {type(a).__name__} is no Array; make one with asarray first"
        )


def _needs_bool(function: str, name: str, value: Any) -> None:
    if not isinstance(value, bool | np.bool_):
        raise InvalidTypeError(
            f"{function}: {name} is a {type(value).__name__}, not a bool; pass True or False"
        )


def spec_of(a: Any) -> TensorSpec:
    """The array's description for the registry."""
    return TensorSpec(of_value(a._dtype_value), a.shape, a.strides)


def device_of(a: Any) -> Device:
    return devices.of_native(a._device_name)


# ------------------------------------------------------------------------------------- creation


def is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def shape_of(shape: int | Sequence[int]) -> list[int]:
    one = is_int(shape) or not isinstance(shape, Iterable)
    dims: list[Any] = [shape] if one else list(cast("Sequence[int]", shape))
    if any(not is_int(n) or not 0 <= n < 1 << 63 for n in dims):
        raise InvalidArgumentError(
            f"making an array: shape {shape!r} must be whole numbers from 0 to 2**63 - 1; correct"
            " it"
        )
    return [int(n) for n in dims]


@typed_call("empty")
def empty(
    shape: int | Sequence[int],
    *,
    dtype: object = "float32",
    device: Device | str | None = None,
    pool: str = "activations",
) -> Array:
    """An array with unspecified contents. `pool`: activations, weights or cache."""
    if not isinstance(pool, str) or pool not in PURPOSES:
        near = get_close_matches(str(pool), PURPOSES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "use " + ", ".join(map(repr, PURPOSES))
        raise InvalidArgumentError(f"empty: pool {pool!r} is not known; {hint}")
    return _empty(devices.device(device), _dtype(dtype), shape_of(shape), PURPOSES[pool])


def _dtype(spec: object) -> DType:
    return dtype(spec)


def _empty(on: Device, d: DType, shape: Sequence[int], purpose: int = 0) -> Array:
    return _core.empty(on.native, d.value, list(shape), purpose)


@typed_call("full")
def full(
    shape: int | Sequence[int],
    value: float,
    *,
    dtype: object = None,
    device: Device | str | None = None,
) -> Array:
    """An array with `value` everywhere. Without a dtype, the one that asarray(value) has: bool for
    a bool, int64 for an int, float32 for a float."""
    given: Any = value
    values = _host_values(numpy(given) if isinstance(given, Array) else given, dtype, "full")
    d = _dtype(values.dtype if dtype is None else dtype)
    if d.is_block:
        raise UnsupportedError(
            f"full: block format {d.name} cannot be filled with a number; use frombuffer",
            reason="dtype",
        )
    out = _empty(devices.device(device), d, shape_of(shape))
    _write(out, values, fresh=True, casting="unsafe")
    return out


@typed_call("zeros")
def zeros(
    shape: int | Sequence[int], *, dtype: object = "float32", device: Device | str | None = None
) -> Array:
    """An array of zeros."""
    return full(shape, 0, dtype=dtype, device=device)


@typed_call("ones")
def ones(
    shape: int | Sequence[int], *, dtype: object = "float32", device: Device | str | None = None
) -> Array:
    """An array of ones."""
    return full(shape, 1, dtype=dtype, device=device)


@typed_call("arange")
def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: object = None,
    device: Device | str | None = None,
) -> Array:
    """start, start + step, ... below stop; int64, or float32 when an argument is a float."""
    if stop is None:
        start, stop = 0, start
    for v in (start, stop, step):
        if isinstance(v, bool) or not isinstance(v, int | float | np.integer | np.floating):
            raise InvalidTypeError(
                f"arange: {v!r} is a {type(v).__name__}, not a number; pass ints or floats"
            )
    if dtype is None:
        floats = any(isinstance(v, float | np.floating) for v in (start, stop, step))
        dtype = "float32" if floats else "int64"
    if step == 0:
        raise InvalidArgumentError("arange: step is 0, the sequence never ends; give another step")
    try:
        values = np.arange(start, stop, step)
    except (ValueError, OverflowError, MemoryError) as why:
        raise InvalidArgumentError(
            f"arange: from {start} to {stop} by {step} is no sequence that fits memory ({why});"
            " correct the ends"
        ) from None
    return asarray(values, dtype=dtype, device=device)


@typed_call("asarray")
def asarray(
    x: Any,
    *,
    dtype: object = None,
    device: Device | str | None = None,
    constant: bool = False,
) -> Array:
    """A copy of `x` (nested lists, NumPy or other host arrays, Array) as an array.

    dtype: default x's own; Python bools become bool, ints int64, floats float32. Numbers that the
    dtype does not hold raise InvalidArgumentError: those out of range and, for integers, fractions
    and NaN; `astype` of an Array decides about them. device: default the scope's, for an Array its
    own. constant: writes are refused later and backends may pack it.
    """
    _needs_bool("asarray", "constant", constant)
    if isinstance(x, Array):
        on = device_of(x) if device is None else devices.device(device)
        want = _dtype(dtype) if dtype is not None else of_value(x._dtype_value)
        return _moved(x, on, want, constant)
    values = _host_values(x, dtype)
    want = _dtype(dtype if dtype is not None else values.dtype)
    if want.is_block:
        raise InvalidArgumentError(
            f"asarray: {want.name} is a block format, which numbers are not turned into; give its"
            " bytes to frombuffer"
        )
    on = devices.device(device)
    out = _empty(on, want, values.shape, PURPOSES["weights" if constant else "activations"])
    _write(out, values, fresh=True, casting="unsafe")
    return _core.as_constant(out) if constant else out


def _host_values(x: Any, want: object, who: str = "asarray") -> np.ndarray[Any, Any]:
    if isinstance(x, np.ndarray | np.generic):
        return _numbers(x, np.asarray(x), who)
    if hasattr(x, "__dlpack__"):
        return foreign.host_values(x)
    if isinstance(x, int) and abs(x) >> 63 and want is not None and _dtype(want).kind == "float":
        x = float(x) if x.bit_length() <= 1023 else x  # NumPy would make an object of it
    try:
        values = np.asarray(x)
    except ValueError as why:
        raise InvalidArgumentError(
            f"{who}: the nested lists are ragged: {why}; make all rows of a level equally long"
        ) from None
    _numbers(x, values, who)
    if values.dtype == np.float64 and isinstance(x, list | tuple):
        values = _not_rounded(x, values, want, who)
    return _as_floats(values, want, who) if values.dtype.kind in "fiu" else values


def _as_floats(values: np.ndarray[Any, Any], want: object, who: str) -> np.ndarray[Any, Any]:
    """Python's numbers, which stay finite in the floats they become; float32 where none is asked
    for. Arrays of NumPy are converted as they are."""
    if want is None and values.dtype != np.float64:
        return values
    d = dtype("float32") if want is None else _dtype(want)
    if d.kind != "float" or d.short in FP8:  # `_fitting` judges those
        return values
    with np.errstate(all="ignore"):
        made = values.astype(d.numpy)
    beyond = np.isfinite(values) & ~np.isfinite(made)
    if beyond.any():
        raise InvalidArgumentError(
            f"{who}: the number {values[beyond].flat[0]} does not fit {d.name}; pass inf, or a"
            " wider dtype"
        )
    return made if want is None else values


def _not_rounded(
    x: Any, values: np.ndarray[Any, Any], want: object, who: str
) -> np.ndarray[Any, Any]:
    """Integers of which some are beyond int64 as uint64; NumPy made floats of them."""
    if want is not None and _dtype(want).kind == "float":
        return values
    if not (np.abs(values) >= 1 << 63).any():
        return values
    exact = np.asarray(x, object)
    if not all(isinstance(v, int | np.integer) for v in exact.flat):
        return values
    if exact.min() >= 0:
        return exact.astype(np.uint64)
    raise InvalidArgumentError(
        f"{who}: the integers go from {exact.min()} to {exact.max()}, which no integer dtype"
        " holds; pass dtype='float64', or smaller ones"
    )


def _numbers(x: Any, values: np.ndarray[Any, Any], who: str) -> np.ndarray[Any, Any]:
    """`values`, unless they are of a kind that no dtype here is: text, objects, complex, dates."""
    kind = values.dtype.kind
    if kind in "biufV":  # V: bfloat16 and other additions to NumPy, judged by name
        return values
    if kind == "O" and isinstance(x, int):
        way = "above what uint64" if x > 0 else "below what int64"
        raise InvalidArgumentError(
            f"{who}: the integer, of {x.bit_length()} bits, is {way} holds; pass a float"
        )
    why = _NO_NUMBERS.get(kind, "it is none")
    raise InvalidTypeError(
        f"{who}: cannot turn {type(x).__name__} into numbers: {why};"
        " pass numbers in nested lists, NumPy arrays or anything with __dlpack__"
    )


_NO_NUMBERS = {
    "c": "no dtype here is complex",
    "U": "it holds text",
    "S": "it holds text",
    "M": "it holds dates",
    "m": "it holds times",
    "O": "it holds what is no number, or an integer beyond int64",
}


def _moved(x: Any, on: Device, want: DType, constant: bool) -> Array:
    source = device_of(x)
    if want != of_value(x._dtype_value):
        x = OPS["astype"](x, dtype=want.name)
    if source is on and not constant:
        return cast("Array", OPS["copy"](x))
    if source is not on:
        copies.note(source.name, on.name, spec_of(x).nbytes)
    if want.is_block:
        return frombuffer(numpy(x), want, x.shape, device=on, constant=constant)
    return asarray(numpy(x), device=on, constant=constant)


@typed_call("frombuffer")
def frombuffer(
    data: Any,
    dtype: object,
    shape: Sequence[int],
    *,
    device: Device | str | None = None,
    constant: bool = True,
) -> Array:
    """Bytes as stored (a uint8 array, memory map or bytes) as an array; how block formats come in.

    Zero copy where the device computes in host memory: then the bytes must not change while the
    array lives. Elsewhere they are copied. Raises InvalidArgumentError when `data` is too short.
    """
    _needs_bool("frombuffer", "constant", constant)
    d, dims = _dtype(dtype), shape_of(shape)
    raw = _bytes_of(data)
    if not raw.flags.c_contiguous:
        raise InvalidArgumentError("frombuffer: the bytes must be contiguous; copy them first")
    raw = raw.reshape(-1).view(np.uint8)
    spec = TensorSpec.dense(d, dims)
    if dims and dims[-1] % d.block_elements:
        raise InvalidArgumentError(
            f"frombuffer: the last size of a {d.name} array is a multiple of {d.block_elements},"
            f" not {dims[-1]}; correct the shape"
        )
    if raw.nbytes != spec.nbytes:
        raise InvalidArgumentError(
            f"frombuffer: {describe(spec)} takes {spec.nbytes} bytes, {raw.nbytes} were given;"
            " correct the shape or the slice"
        )
    on = devices.device(device)
    if on.native.host_memory and raw.nbytes and (raw.flags.writeable or constant):
        return _core.import_host(
            *(on.native, raw.ctypes.data, raw.nbytes, d.value, dims, list(spec.strides)),
            *(raw, bool(constant)),
        )
    out = _empty(on, d, dims, PURPOSES["weights" if constant else "activations"])
    _write_bytes(out, raw, fresh=True)
    return _core.as_constant(out) if constant else out


def _bytes_of(data: Any) -> np.ndarray[Any, Any]:
    if isinstance(data, np.ndarray) and not data.dtype.hasobject:
        return data
    try:
        return np.frombuffer(data, np.uint8)
    except (TypeError, ValueError, BufferError) as why:
        empty_bytes = isinstance(data, bytes | bytearray | memoryview) and len(data) == 0
        if empty_bytes:
            return np.empty(0, np.uint8)
        raise InvalidTypeError(
            f"frombuffer: a {type(data).__name__} does not give its bytes ({why}); pass bytes, a"
            " memory map or a uint8 array"
        ) from None


# ----------------------------------------------------------------------------- host reads, writes


class _HostMemory:
    """Host memory of an array as NumPy's array interface; keeps the array alive."""

    __slots__ = ("__array_interface__", "_array")

    def __init__(self, array: Any, address: int, spec: TensorSpec, item: np.dtype[Any]) -> None:
        size = spec.dtype.block_bytes
        self._array = array
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": spec.shape,
            "strides": tuple(s * size for s in spec.strides),
            "typestr": item.str,
        }


def _raw_spec(a: Any) -> tuple[TensorSpec, np.dtype[Any], np.dtype[Any]]:
    """How NumPy sees the bytes: a spec, an item type it can name, and the type to view it as.
    Block formats become uint8 with the innermost dim in bytes."""
    spec = spec_of(a)
    d = spec.dtype
    if d.is_block:
        byte = dtype("uint8")
        inner = spec.shape[-1] // d.block_elements * d.block_bytes
        strides = (*(s * d.block_bytes for s in spec.strides[:-1]), 1)
        u8 = np.dtype(np.uint8)
        return TensorSpec(byte, (*spec.shape[:-1], inner), strides), u8, u8
    assert d.numpy is not None
    known = d.numpy.kind in "fiub" and d.short not in FP8  # to the array interface of NumPy
    plain = d.numpy if known else np.dtype(f"u{d.block_bytes}")
    return spec, plain, d.numpy


def host_view(a: Any, for_write: bool, fresh: bool = False) -> np.ndarray[Any, Any] | None:
    """The array's own bytes as an ndarray, once they may be touched; None where the host cannot."""
    address = _core.host_pointer(a, for_write, fresh)
    if not address:
        return None
    spec, plain, item = _raw_spec(a)
    if a.size == 0:
        return np.empty(spec.shape, item)
    return np.asarray(_HostMemory(a, address, spec, plain)).view(item)


def _span_view(a: Any, data: bytes | bytearray) -> np.ndarray[Any, Any]:
    spec, plain, item = _raw_spec(a)
    size = spec.dtype.block_bytes
    strides = tuple(s * size for s in spec.strides)
    return np.ndarray(spec.shape, plain, data, 0, strides).view(item)


@typed_call("numpy")
def numpy(a: Any) -> np.ndarray[Any, Any]:
    """A new ndarray with the array's values; waits for them. Block formats come as their bytes."""
    view = host_view(a, False)
    if view is None:
        data = _core.download(a)
        if a.size == 0:
            spec, _, item = _raw_spec(a)
            return np.empty(spec.shape, item)
        view = _span_view(a, data)
    if view.dtype == np.bool_:  # whatever byte another library wrote for True
        return np.asarray(np.not_equal(view.view(np.uint8), 0, order="C"))
    return view.copy()


def _check_writable(a: Any) -> None:
    if a.constant:
        raise InvalidArgumentError(
            f"writing {describe(spec_of(a))} on {a._device_name}: the array is constant; make a"
            " writable copy with asarray"
        )


@typed_call("set")
def set_values(a: Array, values: Any) -> Array:
    """Overwrites the array with values from the host (broadcast to its shape); returns it."""
    _check_writable(a)
    if isinstance(values, Array):
        values = numpy(values)
    else:
        values = _host_values(values, of_value(a._dtype_value), "set")
    _write(a, values)
    return a


def _write(a: Any, values: Any, fresh: bool = False, casting: Any = "same_kind") -> None:
    spec, _, item = _raw_spec(a)
    try:
        view = host_view(a, True, fresh)
        if view is not None:
            if a.size:
                _copy_values(view, values, casting)
            return
        if a.size == 0:
            return
        data = bytearray(a._span_bytes) if a._dense else bytearray(_core.download(a))
        _copy_values(_span_view(a, data), values, casting)
    except (TypeError, ValueError, OverflowError) as why:
        if isinstance(why, InvalidArgumentError):
            raise
        raise InvalidArgumentError(
            f"writing {describe(spec)} on {a._device_name}: {why}; convert the values first"
        ) from None
    _core.upload(a, bytes(data), fresh)


def _copy_values(view: np.ndarray[Any, Any], values: Any, casting: Any) -> None:
    if values.dtype.kind not in "biu" and view.dtype.kind in "iu":
        values, casting = _whole(values, view.dtype), "unsafe"
    if view.dtype != values.dtype and dtype(view.dtype).short in FP8:
        values = _fitting(values, dtype(view.dtype))
    if values.dtype.kind in "iu" and view.dtype.kind in "iu" and values.size:
        limits = np.iinfo(view.dtype)
        low, high = values.min(), values.max()
        if low < limits.min or high > limits.max:
            raise ValueError(
                f"the values go from {low} to {high}, {view.dtype.name} holds {limits.min} to"
                f" {limits.max}"
            )
        casting = "unsafe"  # every value fits, whatever NumPy says of the two types
    with np.errstate(all="ignore"):
        np.copyto(view, values, casting=casting)


def _whole(values: Any, item: np.dtype[Any]) -> Any:
    """Floats as integers; what is not whole or does not fit is refused, astype rounds and clips."""
    wide, limits = np.asarray(values, np.float64), np.iinfo(item)
    # The first number beyond the largest: the largest itself may be no float64.
    bad = (wide < limits.min) | (wide >= float(limits.max + 1)) | (wide != np.trunc(wide))
    if bad.any():
        raise ValueError(
            f"{wide[bad].flat[0]} is no whole number from {limits.min} to {limits.max}, which is"
            f" what {item.name} holds; astype rounds toward zero and clips"
        )
    return wide.astype(item)


def _fitting(values: Any, d: DType) -> Any:
    """Numbers rounded to an 8-bit float; one past its largest is refused."""
    from anyhal.ops._oracle import convert

    made = convert(np.asarray(values, np.float64), d, "nonfinite")
    if not np.array_equal(np.isfinite(made), ~np.isnan(values)):
        raise ValueError(
            f"a value is past the largest of {d.name}, which astype(dtype, overflow=) decides about"
        )
    return made.astype(d.numpy)


def _write_bytes(a: Any, raw: np.ndarray[Any, Any], fresh: bool = False) -> None:
    if raw.nbytes == 0:
        return
    view = host_view(a, True, fresh)
    if view is not None:
        view.reshape(-1).view(np.uint8)[...] = raw
    else:
        _core.upload(a, raw.tobytes(), fresh)
