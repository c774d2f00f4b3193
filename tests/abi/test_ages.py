"""Every backend on every core, by the age of the header that each was built from.

SPDX-License-Identifier: Apache-2.0

The headers are derived from backend.h (derive.py). The cores are the loader's sources of this tree,
compiled against each; the backends are one source, compiled against each header and floor.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import derive
import pytest
from aged import BACKENDS, load

# A version: the pair runs, and speaks that. A word: it is refused, and that side is to be upgraded.
MATRIX = """
              core 0.3      0.4      1.0      1.1      1.2      2.0      3.0
0.3                0.3  backend  backend  backend  backend  backend  backend
0.4               core      0.4  backend  backend  backend  backend  backend
1.0               core     core      1.0      1.0      1.0      1.0  backend
1.1               core     core     core      1.1      1.1      1.1  backend
1.1 from 1.0      core     core      1.0      1.1      1.1      1.1  backend
1.2               core     core     core     core      1.2      1.2  backend
1.2 from 1.0      core     core      1.0      1.1      1.2      1.2  backend
1.2 from 1.1      core     core     core      1.1      1.2      1.2  backend
2.0               core     core     core     core     core      2.0      2.0
3.0               core     core     core     core     core     core      3.0
"""

# fork of 1.1 -> what a core of 1.1 says of it; "" where it runs
FORKS = {
    "larger": "",
    "renamed_parameter": "",
    "smaller": "its anyhal_graph_entry ends before 'uint64_t weight', which contract 1.1 has",
    "inserted_field": "differs at anyhal_call.tag: it has something that this core does not know at"
    " byte 8, this core has 'uint64_t tag' at byte 8",
    "swapped_fields": "differs at anyhal_memory_request.kind: it has 'uint32_t purpose' at byte 8,"
    " this core has 'uint32_t kind' at byte 8",
    "other_type": "differs at anyhal_queue_options.priority: it has something that this core does"
    " not know at byte 8, this core has 'int32_t priority' at byte 8",
    "inserted_slot": "differs at anyhal_table.op_enqueue: it has something that this core does not"
    " know at byte 48, this core has 'anyhal_status (*op_enqueue)(anyhal_queue*,",
    "other_parameter": "differs at anyhal_table.queue_signal: ",
    "other_callback": "differs at anyhal_table.queue_notify: ",
    "grown_element": "its anyhal_copy_region has 4 fields in 48 bytes, this core's 3 in 40, and"
    " this record never grows",
}


def cell(row: dict[str, str]) -> str:
    if "chosen" in row:
        return row["chosen"]
    assert row["stage"] == "negotiate" and row["status"] == "abi_mismatch", row
    return row["text"].rpartition("upgrade the ")[2]


def test_every_backend_on_every_core(aged: Path) -> None:
    columns = {core: load(aged, core, *BACKENDS) for core in derive.VERSIONS}
    width = max(map(len, BACKENDS))
    head = " ".join(f"{core:>8}" for core in derive.VERSIONS)
    lines = [" " * width + "  core" + head.removeprefix("    ")]
    for name in BACKENDS:
        cells = " ".join(f"{cell(columns[core][name]):>8}" for core in derive.VERSIONS)
        lines.append(f"{name:<{width}}  {cells}")
    print("\n".join(lines))
    assert [line.split() for line in lines] == [row.split() for row in MATRIX.strip().splitlines()]


@pytest.mark.parametrize("core", derive.VERSIONS)
def test_each_side_reads_and_writes_as_far_as_the_other_reaches(aged: Path, core: str) -> None:
    ran = 0
    for name, row in load(aged, core, *BACKENDS).items():
        if "chosen" not in row:
            continue
        ran += 1
        both = min(core, BACKENDS[name][0])  # what is older than both is known to both
        new, newer = both >= "1.1", both >= "1.2"
        # three devices and two kinds each, in arrays that step by the backend's own sizes
        expected = {"name": "0 1 2", "hz": "100 101 102", "heap": "1001 1001 1001"}
        expected |= {"kernel": "aged", "bytes": "8"}
        expected["asked"] = "10205/0/0/1234" if new else "10205/999/999/999"
        if core >= "1.1":
            expected |= {"cores": "7 8 9" if new else "0 0 0", "code": "4096" if new else "0"}
            expected |= {"bandwidth": "71 71 71" if new else "0 0 0"}
            expected |= {"energy": "42 42" if new else "0 0", "physical": "55" if new else "0"}
            expected["filled"] = "10205/77/10/1234" if new else "10205/999/999/999"
            expected["slot26"] = "26" if new else "unsupported"
        if core >= "1.2":
            expected |= {"heat": "43 43" if newer else "0 0", "slot27": "unsupported"}
        if core >= "2.0":
            expected["slot28"] = "28" if both >= "2.0" else "unsupported"
        assert {key: row[key] for key in expected} == expected, (core, name)
    assert ran


def test_a_backend_that_is_too_new_can_still_say_why(aged: Path) -> None:
    row = load(aged, "1.0", "3.0")["3.0"]
    assert "aged: warning: this core is not one that I know" in row["log"]
    said = (
        "it does not know this core; it offers 3.0 only, this core loads 1.0 only; upgrade the core"
    )
    assert row["text"].endswith(f": {said}")


def test_what_a_backend_chose_is_checked_again(aged: Path) -> None:
    row = load(aged, "1.1", "greedy")["greedy"]
    assert row["stage"] == "negotiate"
    said = "it chose contract 1.2; it offers 1.2 only, this core loads 1.0 to 1.1; upgrade the core"
    assert row["text"].endswith(f": {said}")


def test_a_slot_is_required_from_the_version_that_requires_it(aged: Path) -> None:
    """2.0 requires device_wake: of its own backends, not of those of 1.2."""
    found = load(aged, "2.0", "sleepy", "1.2")
    assert found["sleepy"]["stage"] == "fingerprint"
    assert "lacks the required slot device_wake;" in found["sleepy"]["text"]
    assert found["1.2"]["slot28"] == "unsupported"


def test_a_table_is_read_as_far_as_its_fingerprints_say(aged: Path) -> None:
    """What lies behind is not called, whatever size the table claims."""
    row = load(aged, "1.1", "unstated")["unstated"]
    assert row["chosen"] == "1.0" and row["slot26"] == "unsupported"


@pytest.mark.parametrize("fork", FORKS)
def test_another_layout_under_the_same_number_is_named(aged: Path, fork: str) -> None:
    row = load(aged, "1.1", fork)[fork]
    if not FORKS[fork]:
        assert row["chosen"] == "1.1" and row["name"] == "0 1 2", row
        return
    assert (row["stage"], row["status"]) == ("fingerprint", "abi_mismatch"), row
    assert row["code"] == "layout_differs"
    assert FORKS[fork] in row["text"] and "; rebuild it with " in row["text"]


def test_every_fork_is_judged() -> None:
    assert set(FORKS) == set(derive.FORKS)


def test_plg_05_backends_of_three_ages_on_one_core(aged: Path) -> None:
    """PLG-05: n-3, n and n+1: the older and the same work; the newer comes down or says no."""
    found = load(aged, "1.1", "1.0", "1.1", "1.2 from 1.0", "1.2")
    assert [found[name]["chosen"] for name in ("1.0", "1.1", "1.2 from 1.0")] == [
        "1.0",
        "1.1",
        "1.1",
    ]
    assert found["1.2"]["stage"] == "negotiate" and "upgrade the core" in found["1.2"]["text"]
    # each record says its size, and nobody reads further
    assert found["1.2 from 1.0"]["filled"] == found["1.1"]["filled"] == "10205/77/10/1234"


def test_plg_11_one_number_two_sizes(aged: Path) -> None:
    """PLG-11: 48 bytes more: the known prefix is used. Fewer than that number has: refused."""
    found = load(aged, "1.1", "larger", "smaller")
    assert found["larger"]["hz"] == "100 101 102" and found["larger"]["cores"] == "7 8 9"
    assert found["smaller"]["stage"] == "fingerprint"
    assert "which contract 1.1 has" in found["smaller"]["text"]


@pytest.mark.parametrize("language", [["-x", "c", "-std=c11"], ["-x", "c++", "-std=c++17"]])
def test_a_header_with_the_fingerprints_of_another_does_not_compile(
    aged: Path, language: list[str]
) -> None:
    """It was edited without its fingerprints: the field is named."""
    edited, other = aged / "inserted_field", aged / "1.1"
    headers = [f"{edited}/anyhal/backend.h", f"{other}/anyhal/fingerprints.h"]
    ran = subprocess.run(
        ["gcc", *language, "-fsyntax-only", "-I", edited, "-"],
        input="".join(f'#include "{header}"\n' for header in headers),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "anyhal_call.tag is not as fingerprints.h has it" in ran.stderr
