"""The double under the whole runtime: which exception a program sees, and that others go on.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from opencl_double import Double

SETUP = """
import ctypes, re, sys
import numpy as np, anyhal as hal
library, number, others = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
double = ctypes.CDLL(library)
double.opencl_double_report.restype = ctypes.c_char_p
script = lambda text="": double.opencl_double_script(text.encode())
loads = 0
def load():
    global loads
    loads += 1
    hal.load_backend("opencl", instance=f"odd{loads}x", settings={"opencl_library": library})
    return f"odd{loads}x:{number}"
values = np.arange(64, dtype=np.float32).reshape(8, 8)
def compute(device):
    with hal.use(device=device):
        x = hal.asarray(values)
        y = hal.add(x, x)
        return hal.matmul(x, y).numpy()
right = values @ (2 * values)
def whole(device):
    np.testing.assert_array_equal(compute(device), right)
device = load()
neighbours = [device.partition(":")[0] + ":" + n for n in others if n] + ["cpu:0"]
"""

OUT_OF_MEMORY = """
whole(device)
x = hal.asarray(values, device=device)
for call in ("clEnqueueNDRangeKernel", "clCreateBuffer", "clEnqueueMapBuffer"):
    script(f"fail={call}@1+:-4")
    try:
        kept = [hal.ones((1 << 24,), device=device), hal.add(x, x)]
        hal.asarray(np.ones(1 << 24, np.float32), device=device)
        raise SystemExit(call + " failed and nobody said so")
    except hal.OutOfMemoryError as why:
        assert "free arrays" in str(why), why
    whole("cpu:0")
    script()
    np.testing.assert_array_equal(hal.add(x, x).numpy(), 2 * values)
    whole(device)
print("right")
"""

LOST = """
whole(device)
x = hal.asarray(values, device=device)
script("delay=300; gone=clEnqueueNDRangeKernel@3:-36; silent=1")
queued = [hal.add(x, x)]
texts = []
def refused(function):
    try:
        function()
    except hal.DeviceLostError as why:
        texts.append(str(why).partition(" was lost: ")[2])
    else:
        raise SystemExit("the device is gone and nobody said so")
def more():
    for _ in range(9):
        queued.append(hal.add(x, x))
refused(more)
refused(queued[0].numpy)  # it was accepted and never ended
refused(x.numpy)
script()
refused(lambda: hal.add(x, x))  # it answers again, and is lost all the same
refused(lambda: hal.matmul(x, x))
try:
    compute(device)
except hal.DeviceLostError as why:
    assert "was lost: clEnqueueNDRangeKernel answered" in str(why), why
assert len(set(texts)) == 1, texts
assert "clEnqueueNDRangeKernel answered INVALID_COMMAND_QUEUE" in texts[0]
for name in neighbours:
    whole(name)
print("right")
"""

ASYNCHRONOUS = """
whole(device)
with hal.use(device=device):
    x = hal.asarray(values)
    good = hal.add(x, x)
    hal.multiply(good, x).numpy()  # both were tested before
    script("fault=clEnqueueNDRangeKernel@2:-5")
    fine, bad = hal.add(good, x), hal.multiply(good, x)
    after = hal.add(bad, x)
    try:
        after.numpy()
        raise SystemExit("a kernel failed and nobody said so")
    except hal.ExecutionFailedError as why:
        said = re.search(r"call (\\d+) of its queue failed: call (\\d+) ended with", str(why))
        assert said and said[1] == said[2], why
    np.testing.assert_array_equal(fine.numpy(), 3 * values)  # what came before is good
    script()
    np.testing.assert_array_equal(hal.multiply(good, x).numpy(), 2 * values * values)
for name in [device, *neighbours]:
    whole(name)
print("right")
"""

SWEEP = """
whole(device)
script()
whole(load())
calls = re.findall(r"^calls (\\w+) (\\d+)$", double.opencl_double_report().decode(), re.M)
seen, errors = 0, set()
for name, count in calls:
    for n in sorted({1, 2, int(count)}):
        code = (-5, -36, -4, -2, -30)[(n + seen) % 5]
        script(f"delay=3; fail={name}@{n}:{code}")
        try:
            whole(load())
        except hal.HalError as why:
            errors.add(type(why).__name__)
        seen += 1
script()
assert seen > 40 and errors >= {"OutOfMemoryError", "DeviceLostError", "BackendLoadError"}, errors
whole("cpu:0")
whole(load())
print("right")
"""


@pytest.mark.parametrize(
    "program", [OUT_OF_MEMORY, LOST, ASYNCHRONOUS, SWEEP], ids=["memory", "lost", "late", "sweep"]
)
def test_a_program_sees_the_right_error_and_the_rest_goes_on(
    cl: str, opencl: list[str], double: Double, program: str
) -> None:
    others = ",".join(n.partition(":")[2] for n in opencl if n != cl)
    ran = subprocess.run(
        [sys.executable, "-c", SETUP + program, double.path, cl.partition(":")[2], others],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert ran.returncode == 0 and ran.stdout == "right\n", ran.stdout + ran.stderr[-3000:]
