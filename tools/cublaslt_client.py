"""One matrix product through cuBLASLt itself, as a yardstick: no code of the backend on the way.
SPDX-License-Identifier: Apache-2.0

Row-major C = A @ B of square matrices. Used by tools/first_light.py.
"""

from __future__ import annotations

import ctypes as c
import time
from pathlib import Path

P, U64, I32 = c.c_void_p, c.c_uint64, c.c_int32
TYPES = {"f32": (0, 69, 4), "bf16": (14, 68, 2)}  # cudaDataType, cublasComputeType, bytes
WORKSPACE = 32 << 20


class Algo(c.Structure):
    _fields_ = [("data", U64 * 8)]


class Heuristic(c.Structure):
    _fields_ = [
        ("algo", Algo), ("workspace", c.c_size_t), ("state", I32), ("waves", c.c_float),
        ("reserved", I32 * 4),
    ]  # fmt: skip


class Gemm:
    """Plans one product; `run` times a number of them."""

    def __init__(self, driver: Path | str, library: Path | str, size: int, dtype: str) -> None:
        self.cuda, self.lt = c.CDLL(str(driver)), c.CDLL(str(library))
        self.number, compute, bytes_each = TYPES[dtype]
        self.size = size
        context, self.stream, self.event = P(), P(), P()
        self._driver("cuInit", 0)
        self._driver("cuDevicePrimaryCtxRetain", c.byref(context), 0)
        self._driver("cuCtxSetCurrent", context)
        self._driver("cuStreamCreateWithPriority", c.byref(self.stream), 1, 0)
        self._driver("cuEventCreate", c.byref(self.event), 2)
        self.blocks = [self._alloc(size * size * bytes_each) for _ in range(3)]
        self.workspace = self._alloc(WORKSPACE)
        for block in self.blocks:
            self._driver(
                "cuMemsetD8Async", block, 0, c.c_size_t(size * size * bytes_each), self.stream
            )
        self._plan(compute)

    def _driver(self, name: str, *arguments: object) -> None:
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} answered {code}")

    def _library(self, name: str, *arguments: object) -> None:
        code = getattr(self.lt, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} answered {code}")

    def _alloc(self, count: int) -> U64:
        pointer = U64()
        self._driver("cuMemAlloc_v2", c.byref(pointer), c.c_size_t(count))
        return pointer

    def _plan(self, compute: int) -> None:
        self.handle, self.desc, self.layout, preference = P(), P(), P(), P()
        self._library("cublasLtCreate", c.byref(self.handle))
        self._library("cublasLtMatmulDescCreate", c.byref(self.desc), compute, 0)
        n = U64(self.size)
        self._library(
            "cublasLtMatrixLayoutCreate", c.byref(self.layout), self.number, n, n,
            c.c_int64(self.size),
        )  # fmt: skip
        self._library("cublasLtMatmulPreferenceCreate", c.byref(preference))
        most = U64(WORKSPACE)
        self._library(
            "cublasLtMatmulPreferenceSetAttribute", preference, 1, c.byref(most), c.c_size_t(8)
        )
        self.best, found = Heuristic(), I32()
        self._library(
            "cublasLtMatmulAlgoGetHeuristic", self.handle, self.desc, self.layout, self.layout,
            self.layout, self.layout, preference, 1, c.byref(self.best), c.byref(found),
        )  # fmt: skip
        if found.value == 0:
            raise RuntimeError("cuBLASLt has no algorithm for this product")

    def run(self, times: int) -> float:
        """Seconds of one product, the mean over `times` that follow each other."""
        alpha, beta = c.c_float(1), c.c_float(0)
        a, b, d = self.blocks
        begin = time.perf_counter()
        for _ in range(times):
            self._library(
                "cublasLtMatmul", self.handle, self.desc, c.byref(alpha), b, self.layout, a,
                self.layout, c.byref(beta), d, self.layout, d, self.layout,
                c.byref(self.best.algo), self.workspace, c.c_size_t(WORKSPACE), self.stream,
            )  # fmt: skip
        self._driver("cuEventRecord", self.event, self.stream)
        while (code := self.cuda.cuEventQuery(self.event)) == 600:  # not ready
            pass
        if code != 0:
            raise RuntimeError(f"cuEventQuery answered {code}")
        return (time.perf_counter() - begin) / times
