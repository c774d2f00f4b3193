"""Memory that runs out, work that fails later, a device that goes: who waits is told, others go on.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from plugin_double import Double

# d: the double's device; other: a plugin beside it; each part of a test is appended.
BEGIN = """
import ctypes, sys, time
import numpy as np, anyhal as hal
double = ctypes.CDLL(LIBRARY)
def script(text): double.pjrt_double_script(text.encode())
d, other, cpu = (hal.device(n) for n in ("pjrt:0", "pjrt:1", "cpu:0"))
A = np.arange(16, dtype=np.float32).reshape(4, 4)
def on(device): return hal.asarray(A, device=device)
x = on(d)
hal.matmul(hal.multiply(hal.add(x, x), x), x).numpy()  # everything is tested and compiled
def others_go_on():
    for device in (other, cpu):
        y = on(device)
        assert np.array_equal(hal.matmul(hal.add(y, y), y).numpy(), (A + A) @ A), device.name
def told(work, kind):
    try:
        work()
    except hal.HalError as why:
        assert type(why) is kind, (type(why), str(why))
        return str(why)
    raise AssertionError("nothing was said")
"""


def run(double: Double, code: str) -> None:
    double.python(BEGIN.replace("LIBRARY", repr(str(double.library))) + code)


def test_out_of_memory_at_a_call_is_typed_and_the_device_goes_on(each_double: Double) -> None:
    run(
        each_double,
        """
script("fail=LoadedExecutable_Execute@1+:8")
text = told(lambda: hal.add(x, x), hal.OutOfMemoryError)
assert "add" in text and "pjrt:0" in text and "free arrays" in text, text
script("fail=Client_BufferFromHostBuffer@1+:8")
text = told(lambda: on(d), hal.OutOfMemoryError)
assert "pjrt:0" in text, text
script("")
assert np.array_equal(hal.add(x, x).numpy(), A + A)
others_go_on()
""",
    )


def test_out_of_memory_once_is_tried_again(each_double: Double) -> None:
    run(
        each_double,
        """
script("fail=LoadedExecutable_Execute@1:8")
assert np.array_equal(hal.add(x, x).numpy(), A + A)
""",
    )


@pytest.mark.parametrize(
    "code, kind", [(8, "OutOfMemoryError"), (13, "ExecutionFailedError")], ids=["memory", "other"]
)
def test_work_that_fails_later_reaches_the_waiter(
    each_double: Double, code: int, kind: str
) -> None:
    """With the call's number and op; what it computed is refused, all else stays good."""
    run(
        each_double,
        f"""
good = hal.add(x, x)
script("delay=30ms; fault=run@2:{code}")
first = hal.multiply(x, x)
bad = hal.matmul(x, x)
after = hal.add(bad, x)
text = told(d.synchronize, hal.{kind})
assert "matmul" in text and "fails as asked" in text and "call " in text, text
for lost in (bad, after):
    text = told(lost.numpy, hal.{kind})
    assert "never computed" in text, text
script("")
assert np.array_equal(good.numpy(), A + A) and np.array_equal(x.numpy(), A)
assert np.array_equal(hal.matmul(x, x).numpy(), A @ A)
d.synchronize()
others_go_on()
""",
    )


def test_an_in_place_operand_of_a_run_that_fails_later_is_not_read(each_double: Double) -> None:
    run(
        each_double,
        """
y = on(d)
script("fault=run@1:13")
hal.add(y[1:], x[1:], out=y[1:])
told(y.numpy, hal.ExecutionFailedError)
told(lambda: hal.add(y, y).numpy(), hal.ExecutionFailedError)
script("")
y.set(A)
assert np.array_equal(hal.add(y, y).numpy(), A + A)
""",
    )


def test_a_region_that_fails_later_reaches_the_waiter(each_double: Double) -> None:
    run(
        each_double,
        """
with hal.graph(d) as graph:
    z = hal.add(hal.matmul(x, x), x)
assert graph.form == "compiled"
script("fault=run@1:13")
graph.launch()
text = told(z.numpy, hal.ExecutionFailedError)
assert "graph of 2 calls" in text, text
graph.launch()
assert np.array_equal(z.numpy(), A @ A + A)
""",
    )


@pytest.mark.parametrize(
    "where, code, work",
    [
        ("LoadedExecutable_Execute", 13, "hal.add(x, x)"),
        ("LoadedExecutable_Execute", 14, "hal.add(x, x)"),
        ("Buffer_ToHostBuffer", 14, "x.numpy()"),
        ("Client_BufferFromHostBuffer", 13, "on(d)"),
        ("Event_Await", 14, "(hal.add(x, x), d.synchronize())"),
        ("Event_IsReady", 13, "(hal.add(x, x), d.synchronize())"),
        ("Client_Compile", 14, "hal.maximum(x, x)"),
    ],
)
def test_str_09_a_lost_device_stays_lost_with_the_first_text(
    each_double: Double, where: str, code: int, work: str
) -> None:
    run(
        each_double,
        f"""
work = lambda: {work}
others_go_on()
script("gone={where}@1:{code}")
text = told(work, hal.DeviceLostError)
assert "the device has gone, seen by " in text, text
seen = text[text.index("seen by"):].split(";")[0]
script("")  # what has gone does not come back by itself
assert seen in told(lambda: hal.Queue(d), hal.DeviceLostError)
for again in (work, x.numpy, lambda: on(d), lambda: hal.matmul(x, x), lambda: hal.minimum(x, x),
              lambda: hal.device("pjrt:0"), d.synchronize):
    text = told(again, hal.DeviceLostError)
    assert seen in text and "other devices go on" in text, text
others_go_on()
from anyhal.runtime.device import facts
assert "lost" in next(f.why_not for f in facts().devices if f.name == d.name)
""",
    )


def test_one_failure_of_any_kind_does_not_lose_the_device(each_double: Double) -> None:
    run(
        each_double,
        """
for code in (1, 2, 4, 9, 10, 13, 14, 15):
    script(f"fail=LoadedExecutable_Execute@1:{code}")
    told(lambda: hal.add(x, x), hal.InternalError)
    assert np.array_equal(hal.add(x, x).numpy(), A + A)
""",
    )


def test_a_wait_has_its_limit_while_the_device_takes_its_time(each_double: Double) -> None:
    run(
        each_double,
        """
script("delay=400ms")
queue = hal.Queue(d)
with hal.use(queue=queue):
    y = hal.add(x, x)
event = queue.signal()
begin = time.monotonic()
told(lambda: event.wait(0.05), hal.HalTimeoutError)
assert time.monotonic() - begin < 0.3 and not event.done()
event.wait(20)
assert np.array_equal(y.numpy(), A + A)
""",
    )


def test_a_failure_is_told_when_the_rest_of_its_queue_has_ended(each_double: Double) -> None:
    """Else a copy that is still on its way would write into memory that was given to another."""
    run(
        each_double,
        """
script("delay=150ms; fault=run@1:13")
begin = time.monotonic()
bad = hal.add(x, x)
time.sleep(0.1)
good = hal.multiply(x, x)
told(bad.numpy, hal.ExecutionFailedError)
assert time.monotonic() - begin > 0.24
""",
    )
