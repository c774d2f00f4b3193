"""ILK-03 and ILK-04 on the simulated driver: streams of another library, by events, both ways.
SPDX-License-Identifier: Apache-2.0

The consumer is ctypes on the driver's own functions: it knows addresses and streams, nothing of
this project. What only a card can show: that NVIDIA's driver does with the events what its manual
says.
"""

from __future__ import annotations

import pytest
from simulated import ROOT, Double

HEADER = f"""
import ctypes, gc, os, sys
sys.path.insert(0, {str(ROOT / "tests" / "doubles")!r})
from dlpack_producer import Producer, managed_of
import numpy as np
import anyhal as hal
from anyhal import _core

cu = ctypes.CDLL(os.path.join(os.environ["ANYHAL_CUDA_DRIVER"], "libcuda.so.1"))
P, N = ctypes.c_void_p, ctypes.c_size_t
cu.cuStreamWaitEvent.argtypes = [P, P, ctypes.c_uint]
cu.cuMemcpyAsync.argtypes = [ctypes.c_uint64, ctypes.c_uint64, N, P]
cu.cuMemHostAlloc.argtypes = [P, N, ctypes.c_uint]
cu.cuMemAlloc_v2.argtypes = [P, N]
cu.cuEventRecord.argtypes = [P, P]
cu.cuEventQuery.argtypes = [P]

def good(code):
    assert code == 0, code

class Consumer:
    "Another library: a context it shares, a stream, pinned memory."
    def __init__(self):
        self.context = P()
        good(cu.cuInit(0))
        good(cu.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0))
        good(cu.cuCtxSetCurrent(self.context))
        self.stream, pinned = P(), P()
        good(cu.cuStreamCreateWithPriority(ctypes.byref(self.stream), 1, 0))
        good(cu.cuMemHostAlloc(ctypes.byref(pinned), 1 << 16, 1))
        self.host = np.ctypeslib.as_array((ctypes.c_float * (1 << 14)).from_address(pinned.value))
        self.pinned = pinned.value
    def read(self, address, count, stream):
        good(cu.cuMemcpyAsync(self.pinned, address, 4 * count, stream))
        self.finish(stream)
        return self.host[:count].copy()
    def finish(self, stream):
        event = P()
        good(cu.cuEventCreate(ctypes.byref(event), 2))
        good(cu.cuEventRecord(event, stream))
        while cu.cuEventQuery(event) == 600: pass
        good(cu.cuEventDestroy_v2(event))

X = np.arange(256, dtype=np.float32)
def busy(rounds):
    "An array whose work is long, on a queue of its own."
    b = hal.asarray(X)
    for _ in range(rounds): b = b + 1
    return b
"""


def test_ilk_04_a_consumers_stream_runs_after_the_arrays_work(double: Double) -> None:
    code = (
        HEADER
        + """
c = Consumer()
wrong = {True: 0, False: 0}
with hal.use(device="cuda:0"):
    assert hal.asarray(X).__dlpack_device__() == (2, 0)
    for k in range(60):
        for ordered in (True, False):
            stream = [c.stream.value, None, 1, 2][k % 4]
            runs_on = {None: 1}.get(stream, stream)
            b = busy(20)
            before = hal.counters("cuda:0")["host_waits"]
            capsule = b.__dlpack__(stream=stream if ordered else -1, max_version=(1, 0))
            assert hal.counters("cuda:0")["host_waits"] == before
            record = managed_of(capsule)[1].tensor
            assert (record.device_type, record.device_id) == (2, 0)
            wrong[ordered] += not (c.read(record.data, 256, runs_on) == X + 20).all()
            hal.synchronize("cuda:0")
print(wrong[True], wrong[False])
"""
    )
    right, unordered = map(int, double.python(code, "seed=7").split()[-2:])
    assert right == 0, "by the event every value is there"
    assert unordered > 0, "without it some are not: the test can tell"
    assert not double.report().violations


def test_numbers_that_name_no_stream_never_reach_the_driver(double: Double) -> None:
    code = (
        HEADER
        + """
with hal.use(device="cuda:0"):
    b = hal.asarray(X) + 1
    for stream in (0, -2, 2**64, True, "1", object()):
        try: b.__dlpack__(stream=stream)
        except hal.InvalidTypeError as why: assert "stream" in str(why)
        else: raise SystemExit(f"{stream} was taken")
    print("refused")
"""
    )
    assert "refused" in double.python(code)
    assert double.report().calls.get("cuStreamWaitEvent", 0) == 0


def test_ilk_03_an_import_is_read_after_its_producer_and_kept_until_then(double: Double) -> None:
    """The producer fills its memory late on its own stream, and takes it back in its deleter."""
    code = (
        HEADER
        + """
cu.cuMemsetD32Async.argtypes = [ctypes.c_uint64, ctypes.c_uint, N, P]
c = Consumer()
address = ctypes.c_uint64()
good(cu.cuMemAlloc_v2(ctypes.byref(address), 4096))
BITS = {v: int(np.float32(v).view(np.uint32)) for v in (1.0, 5.0)}

def fill(value):
    good(cu.cuMemsetD32Async(address.value, BITS[value], 256, c.stream))

class Library(Producer):
    "Exports as the standard asks: the consumer's stream waits for its own."
    def __dlpack__(self, *, stream=None, **options):
        for _ in range(20): fill(5.0)
        fill(1.0)
        if self.ordered:
            event = P()
            good(cu.cuEventCreate(ctypes.byref(event), 2))
            good(cu.cuEventRecord(event, c.stream))
            good(cu.cuStreamWaitEvent(stream, event, 0))
        return super().__dlpack__(**options)

class Where:
    class ctypes:
        data = address.value + 16

wrong = {True: 0, False: 0}
with hal.use(device="cuda:0"):
    for k in range(40):
        for ordered in (True, False):
            p = Library(X[:200], device=(2, 0))
            p.data, p.ordered = Where(), ordered
            def taken_back():
                good(cu.cuCtxSetCurrent(c.context))
                fill(5.0)
            p.on_delete = taken_back
            total = hal.from_dlpack(p)
            for _ in range(10): total = total + 0.0
            gc.collect()
            wrong[ordered] += not (total.numpy() == 1).all()
            hal.synchronize("cuda:0")
            assert p.deleted == 1
            c.finish(c.stream)
print(wrong[True], wrong[False])
"""
    )
    right, unordered = map(int, double.python(code, "seed=3").split()[-2:])
    assert right == 0 and unordered > 0
    assert not double.report().violations


@pytest.mark.parametrize("skip", [0, 1, 3])
def test_an_import_of_any_address_reports_its_true_alignment(double: Double, skip: int) -> None:
    code = (
        HEADER
        + f"""
with hal.use(device="cuda:0"):
    whole = hal.asarray(X)
    part = hal.from_dlpack(whole[{skip}:])
    assert _core.alignment(part) == [64, 4, 4, 4][{skip}], _core.alignment(part)
    print((part + 1).numpy().tolist() == (X[{skip}:] + 1).tolist())
"""
    )
    assert double.python(code).split()[-1] == "True"
    assert not double.report().violations
