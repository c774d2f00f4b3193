"""The user's Ctrl-C while Python code of a chip runs: it reaches the program, and nothing is lost.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kit_programs import Program

Make = Callable[..., Path]

# The first time only.
ONCE = """import builtins, signal
{0}count = getattr(builtins, "count", 0)
{0}builtins.count = count + 1
{0}if not count:
{0}    signal.raise_signal(signal.SIGINT)
"""


def test_an_interrupt_while_it_loads_loses_no_backend(program: Program, python_chip: Make) -> None:
    python_chip("pychip", ("def copy(x, out):", ONCE.format("") + "\n\ndef copy(x, out):"))
    code = """
import anyhal as hal
try:
    hal.devices()
except KeyboardInterrupt:
    print("interrupted")
print(*(d.name for d in hal.devices()), hal.device("cpu").name)
"""
    done = program(code, ANYHAL_PROBE="off")
    assert done.returncode == 0, done.stderr
    out = done.stdout.splitlines()
    assert out[0] == "interrupted"
    assert {"cpu:0", "cpu_ref:0", "pychip:0"} <= set(out[1].split())


def asked(where: str, code: str) -> tuple[str, str]:
    """A change to the chip: it runs the code when it starts, or when it is asked what it takes.
    `{0}` in the code is the indentation of its further lines."""
    if where == "start":
        before = "    def devices(self):"
        return before, f"    def start(self):\n        {code.format(' ' * 8)}\n{before}"
    before = "def binary_accepts(a, b, out, *, fn):"
    return before, f"{before}\n    {code.format(' ' * 4)}"


@pytest.mark.parametrize("where", ["start", "accepts"])
def test_an_interrupt_while_it_is_asked_is_the_users(
    program: Program, python_chip: Make, where: str
) -> None:
    python_chip("pychip", asked(where, ONCE))
    code = """
import anyhal as hal
import numpy as np
d = hal.device("pychip")
with hal.use(device=d, allow_uncertified=("pychip",)):
    x = hal.asarray(np.ones(3, np.float32))
    try:
        x + x
    except KeyboardInterrupt:
        print("interrupted")
    print((x + x).numpy().sum())
"""
    done = program(code, ANYHAL_PROBE="off")
    assert (done.stdout, done.returncode) == ("interrupted\n6.0\n", 0), done.stderr


@pytest.mark.parametrize("wait", ["y.numpy()", "memoryview(y)", "d.synchronize()", "q.wait()"])
def test_an_interrupt_ends_a_wait_for_a_kernel(
    program: Program, python_chip: Make, wait: str
) -> None:
    """The kernel goes on, and so may the program."""
    python_chip(
        "pychip",
        (
            "    BINARY[fn](a, b, out=out)",
            "    import os, time\n    while os.path.exists('busy'):\n        time.sleep(0.01)\n"
            "    BINARY[fn](a, b, out=out)",
        ),
    )
    code = f"""
import anyhal as hal
import numpy as np
import os, signal, threading
d = hal.device("pychip")
with hal.use(device=d, allow_uncertified=("pychip",)):
    x = hal.asarray(np.ones(3, np.float32))
    (x + x).numpy()
    open("busy", "w").close()
    q = hal.Queue(d)
    with hal.use(queue=q):
        y = x + x
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    threading.Timer(20, os.unlink, ("busy",)).start()
    try:
        {wait}
    except KeyboardInterrupt:
        print("interrupted", os.path.exists("busy"))
    os.unlink("busy")
    print(y.numpy().sum(), flush=True)
os._exit(0)  # the second timer
"""
    done = program(code, ANYHAL_PROBE="off")
    assert (done.stdout, done.returncode) == ("interrupted True\n6.0\n", 0), done.stderr


@pytest.mark.parametrize("where", ["start", "accepts"])
def test_an_op_called_by_what_is_asked_is_refused(
    program: Program, python_chip: Make, where: str
) -> None:
    call = (
        "import anyhal\n{0}x = anyhal.asarray([1.0], device='pychip')\n{0}x + x\n{0}return None\n"
    )
    python_chip("pychip", asked(where, call))
    code = """
import anyhal as hal
import numpy as np
with hal.use(device="pychip", allow_uncertified=("pychip",)):
    x = hal.asarray(np.ones(3, np.float32))
    try:
        x + x
    except hal.HalError as why:
        print(why)
"""
    done = program(code, ANYHAL_PROBE="off")
    assert done.returncode == 0 and "compute with NumPy there" in done.stdout, done.stderr
