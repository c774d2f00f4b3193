"""A DLPack producer that can say anything, right or wrong, and counts how often it is let go.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    POINTER,
    byref,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    cast,
)
from typing import Any

import numpy as np

CPU, CUDA, ROCM, ONEAPI = (1, 0), (2, 0), (10, 0), (14, 0)
READ_ONLY, COPIED = 1, 2
FLOAT32 = (2, 32, 1)
NAME, VERSIONED = b"dltensor", b"dltensor_versioned"


class DataType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("dtype", DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class Plain(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", Tensor),
    ]


_api = ctypes.pythonapi
_new, _valid, _pointer = _api.PyCapsule_New, _api.PyCapsule_IsValid, _api.PyCapsule_GetPointer
_new.restype, _new.argtypes = ctypes.py_object, [c_void_p, c_void_p, c_void_p]
# By address: a capsule on its way out must not be counted up again.
_valid.restype, _valid.argtypes = ctypes.c_int, [c_void_p, c_void_p]
_pointer.restype, _pointer.argtypes = c_void_p, [c_void_p, c_void_p]
_names = {name: ctypes.create_string_buffer(name) for name in (NAME, VERSIONED)}


def _address(name: bytes) -> int:
    return ctypes.addressof(_names[name])


@CFUNCTYPE(None, c_void_p)
def _end_capsule(capsule: int) -> None:
    """As a capsule's destructor must: the deleter only while the name is the unconsumed one."""
    for name, record in ((NAME, Plain), (VERSIONED, Versioned)):
        if _valid(capsule, _address(name)):
            managed = _pointer(capsule, _address(name))
            deleter = cast(managed, POINTER(record)).contents.deleter
            if deleter:
                CFUNCTYPE(None, c_void_p)(deleter)(managed)


def managed_of(capsule: Any) -> tuple[int, Any]:
    """The address of a capsule's managed tensor, and its record."""
    for name, record in ((NAME, Plain), (VERSIONED, Versioned)):
        if _valid(id(capsule), _address(name)):
            found = _pointer(id(capsule), _address(name))
            return found, cast(found, POINTER(record)).contents
    raise ValueError("no unconsumed DLPack capsule")


_BITS = {"f": 2, "i": 0, "u": 1, "b": 6}


# A capsule may outlive its producer, and its deleter is code: of a library, that stays.
_DELETERS: list[Any] = []


class Producer:
    """Hands out capsules of `data` with whatever is said differently here."""

    def __init__(
        self,
        data: np.ndarray[Any, Any],
        *,
        version: tuple[int, int] | None = (1, 1),
        dtype: tuple[int, int, int] | None = None,
        shape: tuple[int, ...] | None = None,
        strides: Any = "real",
        byte_offset: int = 0,
        device: tuple[int, int] = CPU,
        flags: int = 0,
        no_data: bool = False,
        no_shape: bool = False,
        ndim: int | None = None,
        no_deleter: bool = False,
        on_delete: Callable[[], None] | None = None,
    ) -> None:
        self.data = data
        self.device = device
        self.asked: list[dict[str, Any]] = []
        self.made = self.deleted = 0
        self.on_delete = on_delete
        self._version = version
        code = _BITS[data.dtype.kind] if dtype is None else 0
        self._dtype = dtype or (code, data.dtype.itemsize * 8, 1)
        self._shape = data.shape if shape is None else shape
        self._ndim = len(self._shape) if ndim is None else ndim
        steps = tuple(s // data.itemsize for s in data.strides)
        self._strides = steps if strides == "real" else strides
        self._offset, self._flags = byte_offset, flags
        self._no_data, self._no_shape = no_data, no_shape
        self._deleter = None if no_deleter else CFUNCTYPE(None, c_void_p)(self._delete)
        self._kept: list[Any] = []
        _DELETERS.append(self._deleter)

    def _delete(self, managed: int) -> None:
        self.deleted += 1
        if self.on_delete is not None:
            self.on_delete()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append(options)
        self.made += 1
        tensor = Tensor()
        tensor.data = None if self._no_data else self.data.ctypes.data
        tensor.device_type, tensor.device_id = self.device
        tensor.ndim = self._ndim
        tensor.dtype = DataType(*self._dtype)
        tensor.byte_offset = self._offset
        room = max(len(self._shape), 1)
        if not self._no_shape:
            tensor.shape = (c_int64 * room)(*self._shape)
        if self._strides is not None:
            tensor.strides = (c_int64 * room)(*self._strides)
        deleter = None if self._deleter is None else cast(self._deleter, c_void_p).value
        record: Any
        if self._version is None:
            record, name = Plain(tensor, None, deleter), NAME
        else:
            record = Versioned(*self._version, None, deleter, self._flags, tensor)
            name = VERSIONED
        self._kept.append((record, tensor))
        return _new(ctypes.addressof(record), _address(name), cast(_end_capsule, c_void_p).value)


class Once:
    """Hands out one capsule, again and again."""

    def __init__(self, capsule: Any, device: tuple[int, int] = CPU) -> None:
        self.capsule = capsule
        self.device = device

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def on_a_foreign_thread(function: int, argument: int) -> None:
    """Calls a C function on a thread that Python knows nothing of."""
    threads = ctypes.CDLL(None)
    thread = c_uint64()
    assert threads.pthread_create(byref(thread), None, c_void_p(function), c_void_p(argument)) == 0
    assert threads.pthread_join(thread, None) == 0
