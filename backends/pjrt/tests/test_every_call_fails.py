"""One failure at a time, at every call of the plugin that a program makes: a typed error or a right
result, and nothing left over.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plugin_double import Double

RESOURCE_EXHAUSTED, INTERNAL = 8, 13
# By what they are about; each group is one process.
SLOTS = {
    "opening": (
        "Plugin_Initialize",
        "Client_Create",
        "Client_PlatformName",
        "Client_PlatformVersion",
        "Client_AddressableDevices",
        "Device_GetDescription",
        "DeviceDescription_Kind",
    ),
    "compiling": (
        "Client_Compile",
        "Executable_Serialize",
        "LoadedExecutable_GetExecutable",
        "Executable_NumOutputs",
    ),
    "programs": (
        "Executable_DeserializeAndLoad",
        "Executable_GetCompiledMemoryStats",
        "Executable_Destroy",
        "LoadedExecutable_Destroy",
    ),
    "runs": ("LoadedExecutable_Execute", "Buffer_OpaqueDeviceMemoryDataPointer"),
    "buffers": (
        "Client_BufferFromHostBuffer",
        "Buffer_ToHostBuffer",
        "Buffer_ReadyEvent",
        "Buffer_Destroy",
    ),
    "events": ("Event_IsReady", "Event_Await", "Event_Destroy"),
}
# Only errors lead to these.
AFTER_ERRORS = {"Error_Destroy", "Error_Message", "Error_GetCode", "Buffer_IsDeleted"}
# A failure of these leaves the object where it was.
ENDS = {
    "Executable_Destroy": "executables",
    "LoadedExecutable_Destroy": "loaded",
    "Buffer_Destroy": "buffers",
    "Event_Destroy": "events",
}
# The caller never needs their answer, so their failures cost nothing.
HARMLESS = {
    *ENDS,
    "Client_PlatformVersion",
    "Executable_DeserializeAndLoad",
    "Executable_GetCompiledMemoryStats",
    "Executable_Serialize",
    "Event_IsReady",
}


def runs_of(double: Double, code: int, slots: tuple[str, ...]) -> list[dict[str, Any]]:
    program = str(Path(__file__).with_name("one_failure.py"))
    cache = str(double.folder / "programs")
    done = double.run(program, str(double.library), cache, str(code), *slots)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(run: dict[str, Any], code: int) -> None:
    slot, where = run["slot"], run["script"]
    assert run["violations"] == [], where
    if not where:
        assert run["outcome"] == "right", run
        assert slot in AFTER_ERRORS or run["calls"].get(slot, 0) > 0, f"nothing calls {slot}"
    elif run["outcome"] not in ("right", "no device"):
        assert run["outcome"] in (
            ("OutOfMemoryError", "InternalError", "ExecutionFailedError")
            if code == RESOURCE_EXHAUSTED
            else ("InternalError", "ExecutionFailedError")
        ), run
        assert "fails as asked" in run["text"], run
    elif run["outcome"] == "no device":
        assert run["text"] == "" or "no plugin could be used" in run["text"], run
    if slot in HARMLESS:
        assert run["outcome"] == "right", run
    left = dict(run["left"])
    plans = left.pop("plans")
    allowed = {"clients": 1, "loaded": plans, "executables": plans}
    if slot in ENDS and where:
        allowed[ENDS[slot]] = allowed.get(ENDS[slot], 0) + 1
    for kind, count in left.items():
        assert count <= allowed.get(kind, 0), (kind, run)


@pytest.mark.parametrize("group", SLOTS)
def test_a_failure_of_any_call_is_typed_and_leaves_nothing(double: Double, group: str) -> None:
    for run in runs_of(double, INTERNAL, SLOTS[group]):
        check(run, INTERNAL)


def test_also_of_those_that_load_a_program_and_on_another_plugin(each_double: Double) -> None:
    slots = ("Executable_DeserializeAndLoad", "LoadedExecutable_GetExecutable")
    runs_of(each_double, INTERNAL, slots)  # fills the cache
    found = runs_of(each_double, INTERNAL, slots)
    assert found[0]["calls"]["Executable_DeserializeAndLoad"] > 5
    for run in found:
        check(run, INTERNAL)


@pytest.mark.parametrize("slot", ["LoadedExecutable_Execute", "Client_BufferFromHostBuffer"])
def test_memory_that_runs_out_is_out_of_memory_or_found_by_a_second_try(
    each_double: Double, slot: str
) -> None:
    found = runs_of(each_double, RESOURCE_EXHAUSTED, (slot,))
    for run in found:
        check(run, RESOURCE_EXHAUSTED)
    outcomes = {run["outcome"] for run in found if run["script"]}
    assert outcomes <= {"right", "OutOfMemoryError", "no device"}, outcomes


def test_no_call_of_the_plugin_is_left_out(double: Double) -> None:
    """What the program calls is in the groups above, so that a new call finds its failure test."""
    (run,) = runs_of(double, INTERNAL, ("Buffer_IsDeleted",))
    listed = {slot for group in SLOTS.values() for slot in group}
    assert set(run["calls"]) - AFTER_ERRORS <= listed
