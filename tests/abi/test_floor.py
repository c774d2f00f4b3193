"""The floor: what is newer than the oldest core a backend wants does not compile unguarded.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

DIALECTS = {"C11": ("c", "c11"), "C++17": ("c++", "c++17")}
COMPILERS = ["gcc", "clang"]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wundef", "-Werror"]

# Each a function body over the records of a core.
UNGUARDED = {
    "read": "return desc->deadline_ns;",
    "write": "verdict->energy = 1; return 0;",
    "service": "return services->clock_ns(services->context);",
    "slot": "table->device_rest = NULL; return 0;",
    "has": "return ANYHAL_HAS(desc, anyhal_op_desc, deadline_ns) ? desc->deadline_ns : 0;",
}
GUARDED = {
    "read": "return ANYHAL_READ(desc, anyhal_op_desc, 1_1, deadline_ns, 0);",
    "write": "ANYHAL_WRITE(verdict, anyhal_verdict, 1_1, energy, 1u); return 0;",
    "service": "uint64_t (*clock)(void*) ="
    " ANYHAL_READ(services, anyhal_services, 1_1, clock_ns, NULL);"
    " return clock ? clock(services->context) : 0;",
    "slot": "table->ANYHAL_OWN(1_1, device_rest) = NULL; return 0;",
    "has": "return ANYHAL_HAS(desc, anyhal_op_desc, ANYHAL_OWN(1_1, deadline_ns)) ? 1u : 0u;",
}


def errors(include: Path, body: str, dialect: str, floor: str | None, compiler: str = "gcc") -> str:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    language, standard = DIALECTS[dialect]
    source = f"""
#include "anyhal/fingerprints.h"
uint64_t use(const anyhal_op_desc* desc, anyhal_verdict* verdict, const anyhal_services* services,
             anyhal_table* table);
uint64_t use(const anyhal_op_desc* desc, anyhal_verdict* verdict, const anyhal_services* services,
             anyhal_table* table) {{
  (void)desc, (void)verdict, (void)services, (void)table, (void)anyhal_fingerprints;
  {body}
}}
"""
    command = [compiler, "-x", language, f"-std={standard}", "-fsyntax-only", *WARNINGS]
    command += [f"-DANYHAL_ABI_FLOOR=ANYHAL_ABI({floor.replace('.', ',')})"] if floor else []
    ran = subprocess.run(
        [*command, "-I", include, "-"], input=source, capture_output=True, text=True, check=False
    )
    return ran.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("use", UNGUARDED)
def test_a_newer_name_does_not_compile_unguarded(
    aged: Path, use: str, dialect: str, compiler: str
) -> None:
    found = errors(aged / "1.2", UNGUARDED[use], dialect, "1.0", compiler)
    assert "error" in found and "no member named" in found
    assert errors(aged / "1.2", UNGUARDED[use], dialect, "1.1", compiler) == ""
    assert errors(aged / "1.2", UNGUARDED[use], dialect, None, compiler) == ""


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("use", GUARDED)
def test_a_newer_name_compiles_guarded_at_every_floor(
    aged: Path, use: str, dialect: str, compiler: str
) -> None:
    for floor in ("1.0", "1.1", None):
        assert errors(aged / "1.2", GUARDED[use], dialect, floor, compiler) == "", floor


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_wrong_age_in_a_guard_does_not_compile(aged: Path, dialect: str) -> None:
    wrong = GUARDED["read"].replace("1_1", "1_2")
    assert "no member named" in errors(aged / "1.2", wrong, dialect, "1.1")


@pytest.mark.parametrize(
    ("version", "floor"), [("1.1", "1.2"), ("1.1", "2.0"), ("2.0", "1.2"), ("0.3", "0.2")]
)
def test_a_floor_that_cannot_be_is_an_error(aged: Path, version: str, floor: str) -> None:
    found = errors(aged / version, "return 0;", "C11", floor)
    assert "#error" in found and "ANYHAL_ABI_FLOOR" in found
    assert errors(aged / version, "return 0;", "C11", None) == ""
