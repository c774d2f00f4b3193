"""Shared memory is proven by pointer and by what a use after free would show: in a child process
whose allocators overwrite what is freed, next to the same program with the mistake made on purpose.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import anyhal as hal

# Python's allocator fills freed memory with 0xdd, glibc's with the complement of the number; the
# pool of this project fills what it hands out. The sizes stay with the allocators: above 128 KiB
# glibc would unmap what is freed, and a read would end the process.
DEBUG = {"PYTHONMALLOC": "debug", "MALLOC_PERTURB_": "165", "ANYHAL_DEBUG_POOL": "1"}
COUNT = 8000

HEADER = f"""
import ctypes, gc, sys
import numpy as np
import anyhal as hal
from anyhal import _core
COUNT, right = {COUNT}, sys.argv[1] == "right"

def pointer(x): return np.asarray(x).__array_interface__["data"][0]
def at(address): return np.ctypeslib.as_array((ctypes.c_double * COUNT).from_address(address))
def unowned(a, address):
    where = a.device.native, address, 8 * COUNT, a._dtype_value, [COUNT], [1]
    return _core.import_host(*where, "not the owner", False)
def judge(values):
    kept = bool((np.asarray(values) == 3).all())
    print("kept" if kept else "overwritten")
"""

PROGRAMS = {
    "NumPy's memory in an array": """
x = np.full(COUNT, 3.0)
a = hal.from_dlpack(x)
assert pointer(a) == pointer(x) == _core.array_address(a)
if not right:  # the address without its owner
    a = unowned(a, pointer(x))
del x
gc.collect()
judge((a + 0.0).numpy())
""",
    "an array's memory in NumPy": """
a = hal.full((COUNT,), 3.0, dtype="float64")
view = np.from_dlpack(a) if right else at(_core.array_address(a))
assert pointer(view) == _core.array_address(a)
del a
gc.collect()
junk = [hal.empty((COUNT,), dtype="float64") for _ in range(4)]
judge(view)
""",
    "an array's memory in a memoryview": """
a = hal.full((COUNT,), 3.0, dtype="float64")
view = memoryview(a) if right else memoryview(at(_core.array_address(a)))
del a
gc.collect()
junk = [hal.empty((COUNT,), dtype="float64") for _ in range(4)]
judge(view)
""",
    "NumPy's memory through an array and out again": """
x = np.full(COUNT, 3.0)
a = hal.from_dlpack(x)
view = np.from_dlpack(a[:]) if right else at(pointer(a))
assert pointer(view) == pointer(x)
del x, a
gc.collect()
judge(view)
""",
    "a copy on the host": """
a = hal.full((COUNT,), 3.0, dtype="float64")
view = np.asarray(a.__array__(copy=True)) if right else at(a.numpy().ctypes.data)
del a
gc.collect()
judge(view)
""",
}
TORCH = {
    "torch's memory in an array": """
import torch
t = torch.full((COUNT,), 3.0, dtype=torch.float64)
a = hal.from_dlpack(t)
assert pointer(a) == t.data_ptr() == _core.array_address(a)
if not right:
    a = unowned(a, t.data_ptr())
del t
gc.collect()
judge((a + 0.0).numpy())
""",
    "an array's memory in torch": """
import torch
a = hal.full((COUNT,), 3.0, dtype="float64")
t = torch.from_dlpack(a)
assert t.data_ptr() == _core.array_address(a)
view = t.numpy() if right else at(t.data_ptr())
if not right: del t
del a
gc.collect()
junk = [hal.empty((COUNT,), dtype="float64") for _ in range(4)]
judge(view)
""",
}


def outcome(program: str, which: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", HEADER + program, which],
        env=os.environ | DEBUG,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()[-1]


@pytest.mark.parametrize("what", PROGRAMS)
def test_memory_is_kept_and_the_mistake_would_be_seen(what: str) -> None:
    assert outcome(PROGRAMS[what], "right") == "kept"
    assert outcome(PROGRAMS[what], "wrong") == "overwritten"


@pytest.mark.torch
@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("what", TORCH)
def test_torchs_memory_is_kept_and_the_mistake_would_be_seen(what: str) -> None:
    assert outcome(TORCH[what], "right") == "kept"
    assert outcome(TORCH[what], "wrong") == "overwritten"


class _Twice:
    """Gives one capsule to whoever asks, as a producer must not."""

    def __init__(self) -> None:
        self.capsule = np.arange(6, dtype=np.float32).__dlpack__()

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("importer", ["asarray", "from_dlpack"])
def test_a_capsule_that_another_takes_meanwhile_is_taken_once(importer: str) -> None:
    """The garbage collector runs code of anybody in the middle of an import."""
    outcomes = set()
    for at in range(40):
        source, taken, runs = _Twice(), [], itertools.count()

        def collected(phase: str, info: Any) -> None:
            if phase == "start" and next(runs) == at and not taken:  # noqa: B023
                with suppress(BufferError):
                    taken.append(hal.from_dlpack(source))  # noqa: B023

        before = gc.get_threshold()
        gc.callbacks.append(collected)
        gc.set_threshold(1, 1000, 1000)
        try:
            mine = [getattr(hal, importer)(source)]
        except BufferError:
            mine = []
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(collected)
        assert len(mine) + len(taken) == 1, "both would give the memory back"
        outcomes.add(bool(mine))
    # The collector may have nothing to count in an import in place, or all of it before.
    assert importer == "from_dlpack" or outcomes == {True, False}
