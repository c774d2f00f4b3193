"""The language model on every device of the machine, through the command.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from everywhere import DEVICES

pytestmark = pytest.mark.foreign

PROMPT = "The capital of France is"
TOKENS = int(os.environ.get("FOREIGN_TOKENS", "4"))


@pytest.fixture(scope="module")
def runs(needs: Callable[..., None]) -> dict[str, dict[str, Any]]:
    needs(*DEVICES)
    command = Path(sys.executable).parent / "anyhal"
    done = subprocess.run(
        [command, "run", "smollm2", PROMPT, "--raw", "--every-device", "--json", "--max-tokens",
         str(TOKENS)],
        capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return {run["device"]: run for run in json.loads(done.stdout)["runs"]}


def test_every_device_writes_the_same_tokens(runs: dict[str, dict[str, Any]]) -> None:
    """All of them compute in f32, so that the margins of these tokens allow no other."""
    assert set(DEVICES) <= set(runs)
    tokens = {name: run["token_ids"] for name, run in runs.items()}
    assert all(t == tokens["cpu_ref:0"] for t in tokens.values()), tokens
    assert runs["cpu_ref:0"]["text"].startswith(" Paris")


def test_what_is_simulated_is_marked(runs: dict[str, dict[str, Any]]) -> None:
    assert {name for name, run in runs.items() if run["simulated"]} == {"cuda:0"}
