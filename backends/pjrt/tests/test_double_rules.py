"""The double itself: it refuses what ends the process of a real plugin, and says so.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from plugin_double import Double

# Calls a slot of the double's table with a record of 64 words; words 0 and 1 are the header.
CALLER = """
import ctypes, os, sys
double = ctypes.CDLL(LIBRARY)
double.GetPjrtApi.restype = ctypes.c_void_p
double.pjrt_double_report.restype = ctypes.c_char_p
table = double.GetPjrtApi()
keep = []
def call(slot, words=()):
    record = (ctypes.c_uint64 * 64)(512, 0, *words)
    keep.append(record)
    at = ctypes.cast(table + 16 + 24 + 8 * slot, ctypes.POINTER(ctypes.c_void_p))
    error = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(at[0])(ctypes.addressof(record))
    return error, record
def place(what):
    keep.append(what)
    return ctypes.addressof(what)
name = ctypes.create_string_buffer(b"cpu_device_count")
option = (ctypes.c_uint64 * 7)(56, 0, place(name), 16, 1, 1, 1)
error, made = call(10, (place(option), 1))
assert not error
client = made[8]
device = ctypes.cast(call(16, (client,))[1][3], ctypes.POINTER(ctypes.c_uint64))[0]
data = ctypes.create_string_buffer(64)
dims = (ctypes.c_int64 * 1)(64)
def buffer(**other):
    words = {"client": client, "data": place(data), "type": 6, "dims": place(dims), "count": 1,
             "strides": 0, "stride_count": 0, "semantics": 0, "device": device, **other}
    return call(22, tuple(words.values()))
error, record = buffer()
assert not error
good = record[14]
call(5, (record[13],))
text = ctypes.create_string_buffer(
    b'module { func.func public @main(%0: tensor<64xui8>) -> tensor<64xui8> {'
    b' "func.return"(%0) : (tensor<64xui8>) -> () } }')
form = ctypes.create_string_buffer(b"mlir")
program = (ctypes.c_uint64 * 6)(48, 0, place(text), len(text) - 1, place(form), 4)
options = ctypes.create_string_buffer(bytes([0x1a, 4, 0x20, 1, 0x28, 1]), 6)
def compile(options):
    return call(20, (client, place(program), place(options), len(options)))
def run(arguments, with_options=True):
    listed = (ctypes.c_uint64 * 1)(place((ctypes.c_uint64 * 1)(*arguments)))
    room = (ctypes.c_uint64 * 1)(place((ctypes.c_uint64 * 1)(0)))
    wanted = place((ctypes.c_uint64 * 64)(512)) if with_options else 0
    return call(55, (loaded, wanted, place(listed), 1, 1, place(room), 0, 0))[0]
error, record = compile(options)
assert not error
loaded = record[6]
assert not run([good])
assert not any(line.startswith("violation") for line in
               double.pjrt_double_report().decode().splitlines())
"""
RULES = {
    "a buffer of null data": "buffer(data=0)",
    "a buffer type out of range": "buffer(type=0)",
    "a buffer type out of range, large": "buffer(type=999)",
    "a buffer on no device": "buffer(device=0)",
    "as many strides as there are no dims": "buffer(strides=place(dims), stride_count=2)",
    "a shape whose element count overflows": (
        "buffer(dims=place((ctypes.c_int64 * 2)(1 << 40, 1 << 40)), count=2)"
    ),
    "a null argument of a run": "run([0])",
    "a run without options": "run([good], False)",
    "Buffer_Destroy of no buffer that lives": "call(58, (good,)); call(58, (good,))",
    "an argument that was destroyed": "call(58, (good,)); run([good])",
    "a client was destroyed before its buffers": "call(11, (client,))",
    "a view without a callback for its end": (
        "call(93, (client, place(data), place(dims), 1, 6, 0, device, 0, 0))"
    ),
    "compile options without replica and partition counts": (
        "compile(ctypes.create_string_buffer(2))"
    ),
    "Event_Destroy of no event that lives": "call(5, (place(data),))",
    "LoadedExecutable_Destroy of no program that lives": (
        "call(50, (loaded,)); call(50, (loaded,))"
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_rule_is_noted_in_the_place_of_the_end_of_the_process(
    double: Double, rule: str
) -> None:
    done = double.run("-c", CALLER.replace("LIBRARY", repr(str(double.library))) + RULES[rule])
    report = double.report()
    assert report.violations == [rule.removesuffix(", large")], done.stdout + done.stderr
    # The process may end as it likes: nothing was cleared away.


def test_it_refuses_to_work_in_a_forked_child(double: Double) -> None:
    code = "child = os.fork()\nif child == 0: call(58, (good,)); os._exit(0)\n"
    code += "print(os.waitpid(child, 0)[1])"
    done = double.run("-c", CALLER.replace("LIBRARY", repr(str(double.library))) + code)
    assert done.stdout.strip() != "0", done.stderr
    assert "in a forked child" in done.stderr
