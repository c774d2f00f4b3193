"""f32 products against oneDNN called directly, on the same threads, in the same run.
SPDX-License-Identifier: Apache-2.0

    python benchmarks/gemm.py [--json] [--blocks N] [--sizes 256 512 1024 2048] [--device NAME]
    python benchmarks/gemm.py --numerics bf16   what the permission gains over strict products
    python benchmarks/gemm.py --numerics int8   the same for weights in blocks

The peer is the faster of oneDNN's two entries, its matmul primitive and its sgemm, run by its own
threads. Blocks rotate over operand sets with different values; results are compared.
"""

from __future__ import annotations

import argparse
import ctypes as c
import sys
import time
from collections.abc import Callable
from importlib import metadata

import numpy as np
from timing import Figure, compare, invalid, show, threads

import anyhal as hal
from anyhal.ops._oracle import random_blocks

SETS_MAX, SET_BYTES = 64, 192 << 20  # operand sets, and the memory that all of them may take
BLOCK_SECONDS = 0.1
CRIPPLED = 100.0  # GF/s per thread: below, the peer is no peer and the run says nothing


class OneDnn:
    """The library in ctypes: one matmul primitive per size, and sgemm."""

    def __init__(self, count: int) -> None:
        files = metadata.files("onednn-cpu-gomp") or []
        path = next(str(f.locate().resolve()) for f in files if f.name == "libdnnl.so.3")
        self.dnnl = c.CDLL(path)
        self.dnnl.omp_set_num_threads(count)
        self.version = metadata.version("onednn-cpu-gomp")
        self.engine, self.stream = c.c_void_p(), c.c_void_p()
        self._call("dnnl_engine_create", c.byref(self.engine), 1, c.c_size_t(0))
        self._call("dnnl_stream_create", c.byref(self.stream), self.engine, 1)
        self.dnnl.dnnl_sgemm.argtypes = [
            *(c.c_char, c.c_char, c.c_int64, c.c_int64, c.c_int64, c.c_float),
            *(c.c_void_p, c.c_int64, c.c_void_p, c.c_int64, c.c_float, c.c_void_p, c.c_int64),
        ]

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self.dnnl, name)(*arguments)
        if status:
            sys.exit(f"{name} answered status {status}; install onednn-cpu-gomp 2023.2.0")

    def sgemm(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Callable[[], None]:
        (m, k), n = a.shape, b.shape[1]
        arguments = (b"N", b"N", m, n, k, 1.0, a.ctypes.data, k, b.ctypes.data, n, 0.0)
        return lambda: self.dnnl.dnnl_sgemm(*arguments, out.ctypes.data, n)

    def matmul(self, size: int) -> Callable[..., Callable[[], None]]:
        desc, pd, primitive = c.c_void_p(), c.c_void_p(), c.c_void_p()
        dims, strides = (c.c_int64 * 12)(size, size), (c.c_int64 * 12)(size, 1)
        self._call("dnnl_memory_desc_create_with_strides", c.byref(desc), 2, dims, 3, strides)
        matrices = (desc, desc, None, desc)
        self._call("dnnl_matmul_primitive_desc_create", c.byref(pd), self.engine, *matrices, None)
        self._call("dnnl_primitive_create", c.byref(primitive), pd)

        class Argument(c.Structure):
            _fields_ = [("index", c.c_int), ("memory", c.c_void_p)]

        def bind(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Callable[[], None]:
            arguments = (Argument * 3)()
            for i, (index, x) in enumerate(((1, a), (33, b), (17, out))):
                memory, data = c.c_void_p(), c.c_void_p(x.ctypes.data)
                self._call("dnnl_memory_create", c.byref(memory), desc, self.engine, data)
                arguments[i] = Argument(index, memory)
            return lambda: self.dnnl.dnnl_primitive_execute(primitive, self.stream, 3, arguments)

        return bind


def seconds(calls: list[Callable[[], None]]) -> float:
    """Time of one pass, the better of two after a first one."""
    found = []
    for _ in range(3):
        started = time.perf_counter()
        for call in calls:
            call()
        found.append(time.perf_counter() - started)
    return min(found[1:])


def measure(size: int, peer: OneDnn, device: str, blocks: int) -> Figure:
    rng = np.random.default_rng(size)
    sets = max(2, min(SETS_MAX, SET_BYTES // (3 * size * size * 4)))
    left = [rng.standard_normal((size, size)).astype(np.float32) for _ in range(sets)]
    right = [rng.standard_normal((size, size)).astype(np.float32) for _ in range(sets)]
    theirs = [np.empty((size, size), np.float32) for _ in range(sets)]
    a = [hal.asarray(x, device=device) for x in left]
    b = [hal.asarray(x, device=device) for x in right]
    out = [hal.empty((size, size), dtype="float32", device=device) for _ in range(sets)]
    bind = peer.matmul(size)
    triples = list(zip(left, right, theirs, strict=True))
    entries = {
        "matmul": [bind(*t) for t in triples],
        "sgemm": [peer.sgemm(*t) for t in triples],
    }
    times = {name: seconds(calls) for name, calls in entries.items()}
    entry = min(times, key=lambda name: times[name])
    rounds = max(1, round(BLOCK_SECONDS / times[entry]))

    def ours() -> None:
        for _ in range(rounds):
            for x, y, z in zip(a, b, out, strict=True):
                hal.matmul(x, y, out=z)
        hal.synchronize()

    def direct() -> None:
        for _ in range(rounds):
            for call in entries[entry]:
                call()

    mine, other, (low, high) = compare(ours, direct, blocks)
    for x, y, z, w in zip(left, right, out, theirs, strict=True):
        bound = 64 * np.finfo(np.float32).eps * (np.abs(x) @ np.abs(y))
        if not (np.abs(z.numpy() - w) <= bound).all():
            sys.exit(f"gemm {size}: the two products differ by more than rounding; fix that first")
    work = 2.0 * size**3 * sets * rounds * 1e-9
    value, baseline = work / mine, work / other
    return Figure(
        f"gemm f32 {size}",
        value,
        "GF/s",
        f"oneDNN {entry}",
        baseline,
        value / baseline,
        (1 / high, 1 / low),
        {
            "peer_version": peer.version,
            "threads": threads(),
            "operand_sets": sets,
            "peer_primitive_gf_s": round(2.0 * size**3 * sets * 1e-9 / times["matmul"], 1),
            "peer_sgemm_gf_s": round(2.0 * size**3 * sets * 1e-9 / times["sgemm"], 1),
            "valid": baseline >= CRIPPLED * threads(),
        },
    )


# Rows, inner size and columns: a cube, the prompt of a small model, few rows, one row.
PERMITTED = ((1024, 1024, 1024), (512, 576, 1536), (64, 576, 1536), (32, 576, 1536), (1, 576, 1536))


def permitted(
    dims: tuple[int, int, int], numerics: str, block: str, device: str, blocks: int
) -> Figure:
    """One product under a permission and strictly, in the same run; `block`: the weights' dtype."""
    (m, k, n), rng = dims, np.random.default_rng(7)
    x = hal.asarray(rng.standard_normal((m, k)).astype(np.float32), device=device)
    out = hal.empty((m, n), dtype="float32", device=device)
    if block:
        data = random_blocks(rng, block, (n, k)).data.reshape(-1)
        w = hal.frombuffer(data, block, (n, k), device=device, constant=True)
    else:
        w = hal.asarray(rng.standard_normal((k, n)).astype(np.float32), device=device)
    multiply = hal.quant_matmul if block else hal.matmul
    rounds = max(1, int(4e9 / (2.0 * m * k * n)))

    def under(contract: str) -> Callable[[], None]:
        def run() -> None:
            with hal.use(device=device, numerics=contract):
                for _ in range(rounds):
                    multiply(x, w, out=out)
                hal.synchronize()

        return run

    call = f"{'quant_' if block else ''}matmul f32[{m},{k}] "
    call += f"{block}[{n},{k}]" if block else f"f32[{k},{n}]"
    with hal.use(device=device, numerics=numerics):
        kernel = hal.explain(call).kernels[0]
    mine, other, (low, high) = compare(under(numerics), under("strict"), blocks)
    work = 2.0 * m * k * n * rounds * 1e-9
    return Figure(
        f"gemm f32 x {block or 'f32'} {m}x{k}x{n}, {numerics} allowed",
        work / mine,
        "GF/s",
        "strict",
        work / other,
        other / mine,
        (1 / high, 1 / low),
        {"threads": threads(), "numerics": kernel.numerics, "kernel": kernel.kernel},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 512, 1024, 2048])
    parser.add_argument("--device", default="cpu:0")
    parser.add_argument("--numerics", choices=("bf16", "int8"))
    options = parser.parse_args()
    if options.numerics:
        dtypes = ("", "q4_1") if options.numerics == "bf16" else ("q4_1", "q8_0")
        pairs = [(d, dims) for d in dtypes for dims in PERMITTED]
        how = options.numerics
        found = [permitted(dims, how, d, options.device, options.blocks) for d, dims in pairs]
        show(found, options.json)
        return
    peer = OneDnn(threads())
    figures = [measure(s, peer, options.device, options.blocks) for s in options.sizes]
    show(figures, options.json)
    bad = [f.name for f in figures if not f.details["valid"]]
    if bad:
        invalid(f"{', '.join(bad)}: the peer ran below {CRIPPLED:g} GF/s per thread")


if __name__ == "__main__":
    main()
