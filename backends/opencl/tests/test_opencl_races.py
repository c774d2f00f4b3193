"""Kernels under Oclgrind: no two items touch a place without an order, none leaves its buffer.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
LIBRARIES = ("/usr/lib/oclgrind/liboclgrind-rt.so", "/usr/local/lib/oclgrind/liboclgrind-rt.so")

PROGRAM = """
import sys
sys.path[:0] = [{here!r}, {fake!r}]
import ctypes, numpy as np, contract
from contract import MATMUL, REDUCE, Reader, Ref, ptr, put
from cl_client import OpenCL

SOFTMAX, SUM = 15, 1
device = OpenCL(opencl_library={library!r}).open(0)
queue = device.queue()
rng = np.random.default_rng(0)
x = rng.standard_normal((3, 300)).astype(np.float32)
op = sys.argv[1]
if op == "matmul":
    shapes = [("float32", (20, 37)), ("float32", (37, 18)), ("float32", (20, 18))]
    a, b = x.ravel()[:740].reshape(20, 37), x.ravel()[100:766].reshape(37, 18)
    arrays, want = [a, b], a @ b
    plan = device.prepare(MATMUL, shapes, 2)
elif op == "reduce":
    arrays, want = [x], x.sum(1, keepdims=True)
    plan = device.prepare(REDUCE, [("float32", (3, 300)), ("float32", (3, 1))], 1, fn=SUM, axes=2)
else:
    e = np.exp(x - x.max(1, keepdims=True))
    arrays, want = [x], e / e.sum(1, keepdims=True)
    plan = device.prepare(SOFTMAX, [("float32", (3, 300))] * 2, 1, fn=1)
out = Ref(device.alloc(max(64, -(-want.nbytes // 64) * 64)).memory, 0)
plan.run(queue, *[put(device, queue, np.ascontiguousarray(v)) for v in arrays], out)
read = Reader(device, queue, out, want.astype(np.float32))
device.signal(queue, 1)
device.wait(queue, 1)
np.testing.assert_allclose(read.values(), want, rtol=1e-4, atol=1e-5)
print("right")
"""

PLANTED = """
import sys
sys.path[:0] = [{here!r}, {fake!r}]
import ctypes as c, contract
from contract import U32, U64, P, ptr
from cl_client import OpenCL

device = OpenCL(opencl_library={library!r}).open(0)
queue, cl = device.queue(), c.CDLL({library!r})
cl.clCreateProgramWithSource.restype = cl.clCreateKernel.restype = P
found = {{}}
for kind, handle in ((contract.DEVICE, device.handle.value), (contract.QUEUE, queue.value)):
    value, kind_of, owned = U64(), U32(), U32()
    device.instance.call(
        "native_handle", P(device.instance.reply.self), U32(kind), U64(handle), ptr(value),
        ptr(kind_of), ptr(owned),
    )
    found[kind] = P(value.value)
text = c.c_char_p(
    b"__kernel void f(void) {{ __local int x[8]; int i = get_local_id(0);"
    b" x[i] = i; x[(i + 1) % 8] += 1; }}"
)
code = c.c_int()
program = P(cl.clCreateProgramWithSource(found[contract.DEVICE], 1, c.byref(text), None, None))
assert cl.clBuildProgram(program, 0, None, b"", None, None) == 0
kernel = P(cl.clCreateKernel(program, b"f", c.byref(code)))
size = (c.c_size_t * 1)(8)
run = cl.clEnqueueNDRangeKernel
assert run(found[contract.QUEUE], kernel, 1, None, size, size, 0, None, None) == 0
device.signal(queue, 1)
device.wait(queue, 1)
"""


def oclgrind() -> str:
    for library in LIBRARIES:
        if Path(library).is_file():
            return library
    if os.environ.get("TEST_OPENCL"):
        pytest.fail("TEST_OPENCL is set, and oclgrind is not installed")
    pytest.skip("oclgrind is not installed")


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    text = program.format(
        here=str(HERE), fake=str(HERE.parents[2] / "tests" / "fake"), library=oclgrind()
    )
    environment = os.environ | {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_UNINITIALIZED": "1"}
    return subprocess.run(
        [sys.executable, "-c", text, *arguments],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_planted_race_is_seen() -> None:
    ran = run(PLANTED)
    assert ran.returncode == 0 and "race" in ran.stderr.lower(), ran.stdout + ran.stderr


@pytest.mark.parametrize("op", ["reduce", "matmul", "softmax"])
def test_kernels_are_free_of_races(op: str) -> None:
    ran = run(PROGRAM, op)
    assert ran.returncode == 0 and ran.stdout.strip() == "right", ran.stdout + ran.stderr
    assert "race" not in ran.stderr.lower() and "Invalid" not in ran.stderr, ran.stderr
