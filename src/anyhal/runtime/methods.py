"""The methods and operators of Array, set on the native type at import.
SPDX-License-Identifier: Apache-2.0

In-place operators (`a += b`) are the plain ones: they bind the name to a new array and leave views
and other names of the old one alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from anyhal import _core
from anyhal.dtypes import dtype as find_dtype
from anyhal.dtypes import of_value
from anyhal.errors import (
    HalError,
    InvalidArgumentError,
    InvalidTypeError,
    UnsupportedError,
    typed_call,
)
from anyhal.ops._spec import describe
from anyhal.runtime.array import (
    OPS,
    Array,
    device_of,
    host_view,
    numpy,
    set_values,
    spec_of,
)
from anyhal.runtime.dlpack import dlpack_device, export_dlpack
from anyhal.runtime.views import getitem, matrix_transpose, reshape, transpose


@typed_call("item")
def _item(a: Any) -> Any:
    if a.size != 1:
        raise InvalidArgumentError(
            f"reading {describe(spec_of(a))} as one number: it has {a.size} elements; index it"
        )
    return numpy(a).reshape(-1)[0].item()


@typed_call("__array__")
def _array(a: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """NumPy 2's rules: the array's own memory where the host addresses it and no copy is asked
    for, read-only where the array is constant."""
    view = None if copy else host_view(a, not a.constant)
    values = numpy(a) if view is None and copy is not False else view
    want = None if values is None or dtype is None else np.dtype(dtype)
    other = want is not None and values is not None and want != values.dtype
    if values is None or (copy is False and other):
        raise InvalidArgumentError(
            f"an ndarray of {describe(spec_of(a))} on {a._device_name} needs a copy; leave out"
            " copy=False"
        )
    if view is not None and a.constant:
        view.flags.writeable = False
    return values if want is None else values.astype(want, copy=False)


def _shown(a: Any, wait: bool) -> str:
    state, why, readable = _core.state(a)
    head = f"Array({describe(spec_of(a))}, {a._device_name}"
    if a.constant:
        head += ", constant"
    if state == "pending" and wait:
        state, readable = "ready", True  # once the values are here
    reason = f": {why}" if why else ""
    plain = f"{head}, {state}{reason})"
    if state != "ready" or a.size > 1000 or of_value(a._dtype_value).is_block:
        return plain
    if not readable and not wait:
        return plain
    try:
        values = numpy(a)
    except HalError as failed:  # what was found out by reading; to show an array never raises
        return f"{head}, values not readable: {failed})"
    return f"{head}, {state},\n{np.array2string(values)})"


def _repr(a: Any) -> str:
    """Waits for nothing: values are shown where they are there and nothing is in front of them."""
    return _shown(a, wait=False)


def _str(a: Any) -> str:
    """Waits for the values."""
    return _shown(a, wait=True)


def _copy(a: Any) -> Any:
    """Another Array of the same memory, as a view is."""
    return getitem(a, ...)


def _deepcopy(a: Any, memo: Any) -> Any:
    """An array with memory of its own on the same device; constant where this one is."""
    made = OPS["copy"](a)
    return _core.as_constant(made) if a.constant else made


def _no_pickle(a: Any, protocol: Any) -> NoReturn:
    raise InvalidTypeError(
        f"pickling {describe(spec_of(a))} of {a._device_name}: its memory is of this process;"
        " pickle a.numpy() and make it again with asarray"
    )


def _binary(name: str, swapped: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, Array | int | float | np.ndarray | np.generic):
            return NotImplemented
        op = OPS[name]
        return op(other, self) if swapped else op(self, other)

    return method


def _unary(name: str) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        return OPS[name](self)

    return method


@typed_call("astype")
def _astype(a: Any, dtype: object, overflow: str = "unstated") -> Any:
    want = find_dtype(dtype)
    if want.value == a._dtype_value:
        return OPS["copy"](a)
    return OPS["astype"](a, dtype=want.name, overflow=overflow)


def _length(a: Any) -> int:
    if a.ndim == 0:
        raise InvalidTypeError(
            f"len of {describe(spec_of(a))}: a 0-d array has no length and no rows; read it with"
            " item()"
        )
    return int(a.shape[0])


def _positive(a: Any) -> Any:
    d = of_value(a._dtype_value)
    if d.is_block or d.kind == "bool":
        raise UnsupportedError(
            f"positive: x is {describe(spec_of(a))}, which holds no plain numbers; cast it with"
            " astype",
            reason="dtype",
        )
    return OPS["copy"](a)


def _as_index(a: Any) -> int:
    if a.size != 1:
        raise InvalidTypeError(
            f"using {describe(spec_of(a))} as an index: it has {a.size} elements; index it"
        )
    value = _item(a)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidTypeError(
            f"using {describe(spec_of(a))} as an index: it is no integer; cast it with astype"
        )
    return value.__index__()


def _as_int(a: Any) -> int:
    value = _item(a)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgumentError(
            f"reading {describe(spec_of(a))} as an int: it holds {value}; use float() or item()"
        )
    return int(value)


def _no_assignment(a: Any, key: Any, value: Any) -> None:
    raise InvalidTypeError(
        f"assigning to a part of {describe(spec_of(a))}: indexing makes views, which are written"
        " with set; write a[key].set(values)"
    )


_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


def install() -> None:
    """Sets the methods on the native type; once, at import."""
    methods: dict[str, Any] = {
        "dtype": property(lambda a: of_value(a._dtype_value).name, doc="Name of the element type."),
        "device": property(device_of, doc="The device that holds the array."),
        "nbytes": property(lambda a: spec_of(a).nbytes, doc="Bytes of the values, stored densely."),
        "T": property(transpose, doc="The view with its dims reversed."),
        "mT": property(matrix_transpose, doc="The view with the last two dims exchanged."),
        "numpy": numpy,
        "set": set_values,
        "reshape": reshape,
        "transpose": transpose,
        "astype": _astype,
        "item": _item,
        "__getitem__": getitem,
        "__setitem__": _no_assignment,
        "__array__": _array,
        "__dlpack__": export_dlpack,
        "__dlpack_device__": dlpack_device,
        "__len__": _length,
        "__iter__": lambda a: (getitem(a, i) for i in range(_length(a))),
        "__repr__": _repr,
        "__str__": _str,
        "__copy__": _copy,
        "__deepcopy__": _deepcopy,
        "__reduce_ex__": _no_pickle,
        "__bool__": lambda a: bool(_item(a)),
        "__int__": _as_int,
        "__float__": lambda a: float(_item(a)),
        "__complex__": lambda a: complex(_item(a)),
        "__index__": _as_index,
        "__bytes__": lambda a: numpy(a).tobytes(),
        "__pos__": _positive,
        "__neg__": _unary("negative"),
        "__abs__": _unary("abs"),
        "__invert__": _unary("bitwise_invert"),
        "__hash__": None,
        "__array_priority__": 1000,
        "__array_ufunc__": None,  # NumPy leaves mixed operators to us
    }
    for slot, name in _OPERATORS.items():
        methods[f"__{slot}__"] = _binary(name)
        methods[f"__r{slot}__"] = _binary(name, swapped=True)
    for slot, name in _COMPARISONS.items():
        methods[f"__{slot}__"] = _binary(name)
    for name, value in methods.items():
        setattr(Array, name, value)


install()
