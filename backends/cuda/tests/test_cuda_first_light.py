"""The script for the first machine with a card, rehearsed: devices, ops, table, model, products.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from simulated import ROOT, Double

SCRIPT = str(ROOT / "tools" / "first_light.py")


def test_the_rehearsal_passes_and_quotes_no_speed(double: Double, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the extra llm is not installed")
    from anyhal.frontends.gguf.fetch import FetchError, locate_model

    try:
        locate_model("smollm2")
    except FetchError as error:
        pytest.skip(f"the model is not here: {error}")
    out = tmp_path / "first_light.json"
    done = double.run(sys.executable, SCRIPT, "--out", str(out), timeout=360)
    assert done.returncode == 0, done.stderr + out.read_text()
    document = json.loads(out.read_text())
    steps = document["steps"]
    assert list(steps) == ["devices", "primitives", "table", "model", "gemm"]
    assert (
        "test double" in document["simulated"]
        and steps["devices"]["simulated"]
        and steps["primitives"]["cases"] > 1000
    )
    assert len(steps["model"]["tokens"]) == 3  # those of the float64 oracle
    assert "tflops" not in out.read_text() and "per_s" not in out.read_text()


def test_a_step_that_hangs_is_cut_and_named(double: Double, tmp_path: Path) -> None:
    out = tmp_path / "first_light.json"
    command = [sys.executable, SCRIPT, "--out", str(out), "--only", "gemm", "--limit", "12"]
    # A product that never ends, in the self-test or later.
    done = double.run(
        *command, script="fault=cublasLtMatmul@1:-1", timeout=90, ANYHAL_CACHE=str(tmp_path)
    )
    assert done.returncode == 1, done.stderr
    steps = json.loads(out.read_text())["steps"]
    assert list(steps) == ["devices", "gemm"] and steps["devices"]["passed"]
    assert "the step gemm was cut: it took more than 12 s" in steps["gemm"]["error"]


def test_without_a_card_it_says_so(double: Double, tmp_path: Path) -> None:
    out = tmp_path / "first_light.json"
    done = double.run(sys.executable, SCRIPT, "--out", str(out), script="devices=none")
    assert done.returncode == 1
    steps = json.loads(out.read_text())["steps"]
    assert list(steps) == ["devices"] and "found no device" in steps["devices"]["error"]


def test_all_limits_together_stay_under_six_minutes() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    import first_light

    assert sum(limit for _, limit in first_light.STEPS.values()) <= 360
