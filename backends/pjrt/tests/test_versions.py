"""Plugins of other ages: larger and smaller tables, missing functions, longer and shorter records.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from plugin_double import Double

WORKS = """
import numpy as np, anyhal as hal
d = hal.device("pjrt:0")
A = np.arange(16, dtype=np.float32).reshape(4, 4)
x = hal.asarray(A, device=d)
with hal.graph(d) as graph:
    at = hal.asarray(np.array([3, 0, 1, 2]), device=d)
    y = hal.add(hal.matmul(x, x), hal.take(x, at, axis=0))
graph.launch()
assert np.array_equal(y.numpy(), A @ A + A[[3, 0, 1, 2]])
print("right", len([d for d in hal.devices() if d.name.startswith("pjrt:")]))
"""
LISTS = """
import anyhal as hal
print([hal.add(*[hal.asarray([1.0], device=d.name)] * 2).numpy().tolist()
       for d in hal.devices() if d.name.startswith("pjrt:")])
"""


@pytest.mark.parametrize(
    "script",
    [
        "version=0.40; slots=97",  # ends behind the last function that is used
        "version=0.54; slots=120",
        "version=0.900; slots=160",  # many that nobody knows, all of them null
        "records=200",  # its records have grown since
        "null=Client_PlatformVersion,Device_GetDescription",
        "null=Executable_Serialize,Executable_DeserializeAndLoad",
        "null=Executable_GetCompiledMemoryStats",
        "null=Plugin_Initialize",
        "null=Event_Error,Event_OnReady,Buffer_CopyRawToHost,Client_Destroy",
    ],
)
def test_a_plugin_of_another_age_works(double: Double, script: str) -> None:
    assert double.python(WORKS, script).startswith("right 2")


@pytest.mark.parametrize(
    "script, why",
    [
        ("slots=50", "lacks function"),
        ("slots=0", "lacks function"),
        ("null=Buffer_ReadyEvent", "lacks function 72"),
        ("null=LoadedExecutable_Execute", "lacks function 55"),
        ("null=Error_Destroy", "lacks function 0"),
        ("version=1.0", "speaks PJRT 1.0"),
        ("records=600", "Unexpected size of the record"),
        ("records=exact", "Unexpected size of the record"),
    ],
)
def test_a_plugin_that_cannot_be_served_is_refused_and_the_other_works(
    double: Double, script: str, why: str
) -> None:
    done = double.run("-c", LISTS, script=script)
    assert done.stdout.strip() == "[[2.0]]", done.stderr
    assert why in done.stderr and "libpjrt_double.so" in done.stderr, done.stderr
    assert double.report().violations == []


def test_memory_without_an_address_is_not_read_by_the_host(each_double: Double) -> None:
    """As on a device with memory of its own: positions are looked at by the program."""
    code = """
at = hal.asarray(np.array([1, 4]), device=d)
try:
    hal.take(x, at, axis=0).numpy()
    raise AssertionError("position 4 of 4 was taken")
except hal.ExecutionFailedError as why:
    assert "outside its axis" in str(why), why
assert np.array_equal(hal.take(x, hal.add(at, at)[:1], axis=0).numpy(), A[2:3])
"""
    script = "null=Buffer_OpaqueDeviceMemoryDataPointer"
    assert each_double.python(WORKS + code, script).startswith("right 2")
