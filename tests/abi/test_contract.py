"""The contract header: compiles everywhere, has the layout it promises, says what each slot does.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import abi_layout
import pytest

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
HEADER = (INCLUDE / "anyhal/backend.h").read_text()
TABLE = Path(__file__).with_name("layout_0_3.c")


WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
DIALECTS = {"C11": ("c", "c11"), "C++17": ("c++", "c++17")}

# Bytes of each record, from the paper trial that the contract was written from.
SIZES = {
    "error": 256,
    "ref": 16,
    "hello": 48,
    "reply": 64,
    "memory_kind": 56,
    "device_info": 256,
    "memory_request": 48,
    "memory_block": 56,
    "memory_import": 56,
    "queue_options": 16,
    "tensor_desc": 128,
    "op_desc": 104,
    "verdict": 88,
    "prepared": 80,
    "pack": 32,
    "call": 64,
    "queue_state": 40,
    "copy_region": 40,
    "graph_value": 40,
    "graph_entry": 88,
    "graph_desc": 56,
    "payload": 40,
    "signature": 64,
    "native_queue": 32,
    "table": 8 + 25 * 8,
}

SLOTS = [
    "device_list",
    "device_open",
    "memory_alloc",
    "op_query",
    "op_prepare",
    "op_enqueue",
    "release",
    "queue_create",
    "queue_signal",
    "queue_wait",
    "host_wait",
    "queue_copy",
    "device_query",
    "memory_map",
    "memory_import",
    "constant_pack",
    "queue_fill",
    "queue_notify",
    "graph_prepare",
    "module_load",
    "kernel_prepare",
    "queue_native",
    "native_handle",
    "notify",
    "extension",
]
LABELS = ["Units", "Memory", "Order", "Threads", "Errors", "Required"]


def compile_source(source: str, dialect: str, *flags: str, compiler: str = "gcc") -> str:
    language, standard = DIALECTS[dialect]
    command = [compiler, "-x", language, f"-std={standard}", f"-I{INCLUDE}", *flags]
    ran = subprocess.run(
        [*command, "-fsyntax-only", "-"], check=False, input=source, capture_output=True, text=True
    )
    return ran.stderr


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("header", ["backend.h", "ops.h"])
def test_header_compiles_alone_without_a_warning(header: str, dialect: str, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = f'#include "anyhal/{header}"\n'
    assert compile_source(source, dialect, *WARNINGS, compiler=compiler) == ""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_layout_is_the_checked_table(dialect: str) -> None:
    assert compile_source(TABLE.read_text(), dialect, "-Werror") == ""


def test_the_layout_check_can_fail() -> None:
    wrong = TABLE.read_text().replace("SIZE(anyhal_call, 64)", "SIZE(anyhal_call, 72)")
    assert "layout" in compile_source(wrong, "C11")


def test_no_record_has_padding() -> None:
    source = '#include "anyhal/backend.h"\n'
    assert compile_source(source, "C11", "-Wpadded", "-Werror") == ""


def test_every_declared_name_is_in_the_table() -> None:
    header = abi_layout.parse(HEADER)
    table = TABLE.read_text()
    wanted = {f"SIZE({record}, " for record in header.records}
    wanted |= {
        f"FIELD({record}, {field}, "
        for record, fields in header.records.items()
        for field in fields
    }
    wanted |= {f"VALUE({name}, " for name in header.constants}
    assert len(wanted) > 400
    assert [line for line in sorted(wanted) if line not in table] == []


def test_record_sizes_are_those_of_the_paper_trial() -> None:
    found = dict(re.findall(r"^SIZE\(anyhal_(\w+), (\d+)\);", TABLE.read_text(), re.MULTILINE))
    assert {name: int(found[name]) for name in SIZES} == SIZES


def test_slots_are_the_25_in_order() -> None:
    fields = list(abi_layout.parse(HEADER).records["anyhal_table"])
    assert fields == ["size", "flags", *SLOTS]


def test_growing_records_begin_with_their_size() -> None:
    fixed = {"anyhal_ref", "anyhal_setting", "anyhal_copy_region", "anyhal_parameter"}
    fixed |= {"anyhal_pack", "anyhal_want", "anyhal_native_operand", "anyhal_capability"}
    for record, fields in abi_layout.parse(HEADER).records.items():
        assert (next(iter(fields)) == "size") == (record not in fixed), record


def test_layout_uses_fixed_width_types_only() -> None:
    code = abi_layout._COMMENT.sub(" ", HEADER)
    assert re.findall(r"\b(?:long|short|unsigned|bool|_Bool|size_t|wchar_t|int)\b", code) == []
    assert re.findall(r"\w+ \w+ : \d+;", code) == []


def slot_comments() -> dict[str, str]:
    table = HEADER[HEADER.index("struct anyhal_table {") :]
    pairs = re.findall(r"/\*((?:(?!\*/).)*)\*/\s+anyhal_status \(\*(\w+)\)", table, re.DOTALL)
    return {name: comment for comment, name in pairs}


@pytest.mark.parametrize("slot", SLOTS)
def test_slot_comment_has_the_seven_slot_form(slot: str) -> None:
    comment = slot_comments()[slot]
    assert re.match(rf"\s*{SLOTS.index(slot) + 1}\. [A-Z]", comment), "number, then the effect"
    labels = re.findall(r"^   \* (\w+)  ?", comment, re.MULTILINE)
    order = [LABELS.index(label) for label in labels if label in LABELS]
    assert order == sorted(order) and len(order) == len(set(order)), labels
    assert labels[-1] == "Required", "required and since come last"
    assert re.search(r"Required (yes|no|unless|when|with)\b[^.]*\. Since 0\.1\.", comment)
    assert "Errors" in labels or "Memory" in labels


@pytest.mark.parametrize("record", ["error", "services", "hello", "reply"])
def test_frozen_record_comment_says_memory_and_since(record: str) -> None:
    comment = re.search(
        rf"/\*((?:(?!\*/).)*)\*/\s+typedef struct anyhal_{record} \{{", HEADER, re.DOTALL
    )
    assert comment is not None
    assert " * Memory   " in comment[1] and " * Since    0.1" in comment[1]


def test_has_macro_tells_short_records_apart() -> None:
    source = """
#include "anyhal/backend.h"
int main(void) {
  anyhal_services services = {0};
  services.size = (uint32_t)offsetof(anyhal_services, span);
  if (ANYHAL_HAS(&services, anyhal_services, span)) return 1;
  return ANYHAL_HAS(&services, anyhal_services, setting) ? 0 : 2;
}
"""
    assert abi_layout.run_probe(source, INCLUDE) == []
