"""A chip of few ops is asked for those alone, and for all of those.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.conformance import runner
from anyhal.conformance.behaviour import records
from anyhal.conformance.behaviour.driver import NO_SUCH_OP, op_name
from anyhal.conformance.behaviour.registry import WrongError, require_equal
from anyhal.conformance.placing import Output, OutsideError
from anyhal.dtypes import dtype
from anyhal.sdk.backend import REASONS
from anyhal.sdk.scaffold import new_backend


def _certified(folder: Path, home: Path, *ids: str) -> dict[str, Any]:
    """What the smoke tier's behaviours, or those cases, found on the chip: case by id."""
    report = runner.certify(
        folder.name, "smoke", groups=() if ids else ("behaviour",), ids=ids, journal_folder=home,
        environ={**os.environ, "ANYHAL_BACKEND_PATH": str(folder.parent)},
    )  # fmt: skip
    return {case["id"]: case for case in report["cases"]}


@pytest.mark.parametrize("language", ["python", "c"])
def test_a_template_fails_no_behaviour(language: str, tmp_path: Path) -> None:
    folder = new_backend("fewops", language, tmp_path)
    if language == "c":
        if shutil.which("make") is None or shutil.which("cc") is None:
            pytest.skip("the C template is built by make and cc, and one of them is not here")
        subprocess.run(["make", "-C", str(folder)], check=True, capture_output=True)
    found = _certified(folder, tmp_path / "journal")
    assert {k: c["reason"] for k, c in found.items() if c["outcome"] == "fail"} == {}
    assert found["behaviour/extent/outside-not-written"]["outcome"] == "pass"
    assert found["behaviour/threads/one-plan"]["outcome"] == "pass"


def test_what_is_not_declared_is_named_and_what_is_must_run(tmp_path: Path) -> None:
    folder = new_backend("fewops", "python", tmp_path)
    case = "behaviour/plan_keys/attribute"
    found = _certified(folder, tmp_path / "first", case)[case]
    assert (found["outcome"], found["code"]) == ("refused", "not_declared")
    assert found["reason"] == "it needs reduce sum, which fewops does not declare"
    chip = folder / "chip.py"
    text = chip.read_text()
    honest = "    return None if fn in UNARY else"
    assert honest in text
    chip.write_text(
        text.replace(honest, '    return No("layout", "not today") if fn in UNARY else')
    )
    case = "behaviour/host_state/computing"
    assert _certified(folder, tmp_path / "second", case)[case]["outcome"] == "fail"


def test_a_chip_in_python_refuses_what_is_absent(tmp_path: Path) -> None:
    folder = new_backend("fewops", "python", tmp_path)
    ids = [f"capabilities/lattice/{op}/floats/near" for op in ("matmul", "binary")]
    found = _certified(folder, tmp_path / "journal", *ids)
    assert {k: c["reason"] for k, c in found.items() if c["outcome"] == "fail"} == {}


@pytest.mark.parametrize(
    ("at", "where"),
    [
        ((0, 0), "18 elements before its first element"),
        ((5, 7), "9 elements after its last element"),
        ((3, 1), "between its elements, 7 elements after its first"),
    ],
)
def test_what_is_written_outside_has_a_place(at: tuple[int, int], where: str) -> None:
    out = Output((3, 5), dtype("f32"), "offset", "cpu:0")
    changed = out.frame.numpy().copy()
    changed[at] = 9
    out.frame = hal.asarray(changed, device="cpu:0")
    with pytest.raises(OutsideError) as why:
        out.values()
    assert str(why.value).endswith(f"output f32[3,5] strides (8,1): 9.0 is written {where}")


def test_numbers_and_ops_are_plain_in_sentences() -> None:
    with pytest.raises(WrongError, match=r"x: element 0 is 1\.0001, right is 2\.0 \(1 of 1"):
        require_equal(np.float32([1.0001]), np.float32([2]), "wrong_value", "x")
    assert records.REASONS == REASONS
    assert op_name(8) == "matmul"
    assert op_name(NO_SUCH_OP) == "op 9999 (a number that no op has)"
