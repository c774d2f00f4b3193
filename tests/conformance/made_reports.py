"""Reports of the suite as `anyhal certify --json` writes them, made by hand, and strangers to
certify. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from anyhal.conformance.required import floor_of, required
from anyhal.runtime.discovery import hash_of, package_folder
from other_build import copy_as_other_build


def case(op: str, number: int, outcome: str = "pass", **more: Any) -> dict[str, Any]:
    made = {"id": f"numerics/{op}/exact/f32/{number}", "group": "numerics", "op": op}
    made |= {"dtype": "f32", "outcome": outcome, "code": "", "reason": "", "seconds": 0.01}
    return made | {"measured": {}, "reproduce": ""} | more


def report(library: Path, **more: Any) -> dict[str, Any]:
    """Of a run that passed: every required op has as many right answers as it needs."""
    ops = required("recommended")
    cases = [case(op, n) for op in ops for n in range(floor_of(op))]
    cases.append(case("sort", 0, "refused", code="op", reason="it has no kernel"))
    made: dict[str, Any] = {
        "schema": 1,
        "backend": library.parent.name,
        "device": f"{library.parent.name}:0",
        "library": library.name,
        "library_sha256": hash_of(library),
        "dependencies": [],
        "suite": {
            "version": "1",
            "digest": "1" * 64,
            "tolerances": "2" * 64,
            "nonce": "ab12",
            "anyhal": "0.1.0",
        },
        "tier": "quick",
        "complete": True,
        "platform": {
            "arch": os.uname().machine,
            "driver": "",
            "os": "Linux",
            "kernel": "6",
            "cpu": "a processor",
        },
        "claims": [
            {"op": op, "dtypes": ["f32"], "determinism": "run_to_run", "flushes_denormals": False}
            for op in ops
        ],
        "coverage": {op: {"informative": floor_of(op), "refused": 0} for op in ops},
        "cases": cases,
        "classes": {"matmul/f32": {"declared": "f32", "measured_bits": 23.1}},
        "started": "2026-11-30T20:00:00Z",
        "seconds": 9.8,
        "workers": {"restarts": 0},
        "perf": {"tier": "not measured", "scores": {}},
        "certificate": None,
        "certified": True,
    }
    made |= more
    made["outcomes"] = {
        name: sum(c["outcome"] == name for c in made["cases"])
        for name in ("pass", "refused", "waived", "fail")
    }
    return made


def stranger(root: Path, name: str, rank: int = 1000) -> Path:
    """The library of a backend that this build did not make: dayone under another name."""
    place = root / "backends" / name
    place.mkdir(parents=True, mode=0o755)
    source = Path(package_folder()) / "backends" / "dayone"
    lines = [
        line
        for line in (source / "backend.toml").read_text().splitlines()
        if not line.startswith(("name", "rank"))
    ]
    text = "\n".join([f'name = "{name}"', f"rank = {rank}", *lines, ""])
    (place / "backend.toml").write_text(text.replace("libanyhal_dayone.so", f"lib{name}.so"))
    (library,) = source.glob("*.so")
    copy_as_other_build(library, place / f"lib{name}.so")
    return place / f"lib{name}.so"


def environment(root: Path, **more: str) -> dict[str, str]:
    """Of a user of his own."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("ANYHAL_")}
    plain |= {"ANYHAL_CACHE": str(root / "cache"), "ANYHAL_TRUST": str(root / "trust")}
    return plain | {"ANYHAL_BACKEND_PATH": str(root / "backends"), "ANYHAL_PROBE": "off"} | more


def run(root: Path, code: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    env = environment(root, **more)
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def anyhal(root: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from anyhal.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, *arguments]
    env = environment(root, COLUMNS="200", **more)
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
