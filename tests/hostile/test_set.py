"""A walk over the whole hostile set: each is refused by its own reason, the one in order is used.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from members import SET, build_set

SECONDS = 20  # four of them hang, at once
WALK = """
import json, sys
import anyhal as ah
from anyhal.runtime import device
facts = device.facts()
refused = {r.name: [r.stage, r.sentence] for r in facts.refused}
json.dump({"refused": refused, "devices": [d.name for d in facts.devices]}, sys.stdout)
"""
COMMAND = "from anyhal_command import main; main()"


@pytest.fixture(scope="module")
def backends(objects: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("set")
    build_set(root / "backends", objects, root / "stub")
    return root / "backends"


def run(backends: Path, cache: Path, *command: str) -> tuple[dict[str, Any], float]:
    environ = dict(os.environ, ANYHAL_BACKEND_PATH=str(backends), ANYHAL_CACHE=str(cache))
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, *command], env=environ, capture_output=True, text=True, timeout=120
    )
    seconds = time.monotonic() - began
    print(ran.stderr[-3000:])
    assert ran.returncode == 0
    found: dict[str, Any] = json.loads(ran.stdout)
    return found, seconds


def test_each_of_the_set_is_refused_by_its_reason(backends: Path, own_cache: Path) -> None:
    found, seconds = run(backends, own_cache, "-c", WALK)
    again, warm = run(backends, own_cache, "-c", WALK)
    print(f"{len(SET)} hostile backends: {seconds:.1f} s at first contact, {warm:.1f} s after that")
    assert seconds <= SECONDS and again == found
    assert "in_order:0" in found["devices"]
    assert [name for name in SET if f"{name}:0" in found["devices"]] == []
    for name, member in SET.items():
        stage, sentence = found["refused"][name]
        assert stage in member.stages, f"{name}: {stage}: {sentence}"
        assert [word for word in member.words if word not in sentence] == [], sentence
        assert sentence.isprintable()


@pytest.mark.skipif(
    importlib.util.find_spec("anyhal.cli.doctor") is None, reason="there is no doctor here yet"
)
def test_doctor_lists_the_whole_set(backends: Path, own_cache: Path) -> None:
    found, seconds = run(backends, own_cache, "-c", COMMAND, "doctor", "--json")
    print(f"doctor over {len(SET)} hostile backends: {seconds:.1f} s")
    assert seconds <= SECONDS
    rows = {row["backend"]: row["stages"] for row in found["backends"]}
    for name, member in SET.items():
        failed = [one for one in rows[name] if one["status"] == "failed"]
        assert len(failed) == 1 and failed[0]["stage"] in member.stages, f"{name}: {rows[name]}"
        assert failed[0]["code"] and failed[0]["detail"]
        text = failed[0]["detail"] + failed[0]["hint"]
        assert [word for word in member.words if word not in text] == [], text
