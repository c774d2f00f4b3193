"""Makes headers of versions that do not exist yet out of backend.h, by the contract's own rules.

SPDX-License-Identifier: Apache-2.0

A minor only appends: fields to records, slots to the table, services to the core's, each declared
through the macro of its version. 2.0 makes its new slot required. A fork is a header that breaks
the rules: it changes the layout and keeps the number.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import abi_files

ROOT = Path(__file__).resolve().parents[2]
SOURCE = (ROOT / "include/anyhal/backend.h").read_text()

# version -> record -> what it appends; {} is the name of the field
FIELDS = {
    "1.1": {
        "services": "uint64_t (*{clock_ns})(void* context);",
        "device_info": "uint64_t {core_count};",
        "memory_kind": "uint64_t {bandwidth};",
        "op_desc": "uint64_t {deadline_ns};",
        "tensor_desc": "uint64_t {grain};",
        "graph_entry": "uint64_t {weight};",
        "verdict": "uint64_t {energy};",
        "prepared": "uint64_t {code_bytes};",
        "memory_block": "uint64_t {physical};",
    },
    "1.2": {
        "services": "void (*{hint})(void* context, uint32_t what);",
        "device_info": "char {firmware}[32];",
        "tensor_desc": "uint64_t {lifetime};",
        "verdict": "uint64_t {heat};",
    },
    "2.0": {"op_desc": "uint64_t {owner};"},
}
# version -> the slot that it appends, and whether a backend of that version must have it
SLOTS = {"1.1": ("device_rest", "no"), "1.2": ("queue_rest", "no"), "2.0": ("device_wake", "yes")}
VERSIONS = ["0.3", "0.4", "1.0", "1.1", "1.2", "2.0", "3.0"]

# what is wrong -> the edit of a header that keeps its number
Edit = Callable[[str], str]


def replaced(old: str, new: str) -> Edit:
    def edit(text: str) -> str:
        assert text.count(old) == 1, old
        return text.replace(old, new)

    return edit


SIGNAL = "(*queue_signal)(anyhal_queue* queue, uint64_t value,"
KIND = "  uint32_t kind; /* index into device_info.kinds */\n"
CALL = "  uint64_t tag;\n  const anyhal_ref* operands;"
REGION = "  anyhal_ref source;\n  uint64_t bytes;\n"
CHECK = "  anyhal_status (*op_check)(anyhal_device* device);\n\n"
NOTIFY = "(*anyhal_notify_fn)({})"
FORKS: dict[str, Edit] = {
    "larger": lambda text: appended(text, "device_info", "uint64_t more[6];"),
    "smaller": replaced("\n  uint64_t ANYHAL_SINCE_1_1(weight);", ""),
    "inserted_field": replaced(CALL, "  uint64_t age;\n" + CALL),
    "swapped_fields": replaced(
        KIND + "  uint32_t purpose;", "  uint32_t purpose;\n  uint32_t kind;"
    ),
    "other_type": replaced("  int32_t priority;", "  uint32_t priority;"),
    "inserted_slot": replaced("  /* 6. Runs a plan:", CHECK + "  /* 6. Runs a plan:"),
    "other_parameter": replaced(SIGNAL, SIGNAL.replace("uint64_t", "uint32_t")),
    "other_callback": replaced(
        NOTIFY.format("void* argument, anyhal_status status"),
        NOTIFY.format("anyhal_status status, void* argument"),
    ),
    "grown_element": replaced(REGION, REGION + "  uint64_t step;\n"),
    "renamed_parameter": replaced(SIGNAL, "(*queue_signal)(anyhal_queue* where, uint64_t what,"),
}


def appended(text: str, record: str, declaration: str) -> str:
    return replaced(f"\n}} anyhal_{record};", f"\n  {declaration}\n}} anyhal_{record};")(text)


def block(version: str) -> str:
    """What a minor adds to the header for its own names; see "Names by age" there."""
    major, minor = version.split(".")
    macro = f"#define ANYHAL_SINCE_{major}_{minor}(name)"
    return (
        f"#if ANYHAL_ABI_FLOOR >= ANYHAL_ABI({major}, {minor})\n{macro} name\n"
        f"#else\n{macro} newer_than_the_floor_##name\n#endif\n\n"
    )


def header(version: str) -> str:
    """The text of that version's backend.h."""
    major, minor = (int(part) for part in version.split("."))
    text = re.sub(r"(#define ANYHAL_ABI_MAJOR) \d+u", rf"\1 {major}u", SOURCE)
    text = re.sub(r"(#define ANYHAL_ABI_MINOR) \d+u", rf"\1 {minor}u", text)
    if version == "0.4":
        return appended(text, "queue_state", "uint64_t queued;")
    for number, slot in SLOTS.items():
        if number > version or major == 0:
            continue
        text = replaced("/* Marks the one exported", block(number) + "/* Marks the one exported")(
            text
        )
        spelt = f"ANYHAL_SINCE_{number.replace('.', '_')}({{}})"
        for record, declaration in FIELDS[number].items():
            declared = re.sub(r"\{(\w+)\}", lambda m, to=spelt: to.format(m[1]), declaration)
            text = appended(text, record, declared)
        name, required = slot
        text = replaced(
            "\n};\n\n#ifdef __cplusplus\n}",
            f"\n\n  /* 26. Of {number}.\n   *\n   * Required {required}. Since {number}. */\n"
            f"  anyhal_status (*{spelt.format(name)})(anyhal_device* device,\n"
            "      uint64_t* out_number, anyhal_error* error);\n};\n\n#ifdef __cplusplus\n}",
        )(text)
    return text


def write(folder: Path, text: str) -> Path:
    """An include folder with that header, its fingerprints and the ops; returns it."""
    inside = folder / "anyhal"
    inside.mkdir(parents=True)
    (inside / "backend.h").write_text(text)
    shutil.copy(ROOT / "include/anyhal/ops.h", inside)
    shutil.copytree(ROOT / "include/anyhal/sdk", inside / "sdk")  # extensions that the core knows
    (inside / "fingerprints.h").write_text(abi_files.fingerprints(inside / "backend.h"))
    return folder
