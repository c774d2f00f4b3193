"""Heavy families of checks and their stamped reports in docs/reports/.
SPDX-License-Identifier: Apache-2.0

A report holds date, command, figures and a hash of the files it covers; when one of those files
changes, the report is stale and says nothing about the tree any more.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reports"
NATIVE = ("include", "core", "backends", "CMakeLists.txt", "pyproject.toml")


@dataclass(frozen=True)
class Family:
    """One kind of heavy check. In a command, {seed} is the seed; `slice` () means none."""

    name: str
    what: str
    full: tuple[str, ...]
    slice: tuple[str, ...]
    covers: tuple[str, ...]  # files and folders whose change makes the report stale

    @property
    def script(self) -> str:
        """The file or folder that the command needs."""
        return next(word for word in self.full if "/" in word)


@dataclass(frozen=True)
class Outcome:
    passed: bool
    invalid: bool  # a benchmark found the machine unfit: neither good nor bad, and no report
    seconds: float
    summary: str
    figures: list[Any] = field(default_factory=list)


_PYTEST = ("{python}", "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider")
_PROOF = ("{python}", "tools/suite_proof.py")
_INVALID = 3  # exit status, mirrors benchmarks/timing.py
_LLM_SLICE = ("--blocks", "2", "--prefill", "64", "--decode", "8")
# Drivers that are missing fail this family: tools/drivers.py gathers them.
_FOREIGN = ("env", "TEST_FOREIGN=1", "FOREIGN_SEED={seed}")
_TOGETHER = (*_PYTEST, "tests/foreigners", "-n", "0", "-m", "foreign")
_FAMILIES = (
    Family(
        "properties",
        "every op against its reference, many random layouts, values and dtypes",
        (*_PYTEST, "tests/ops", "--hypothesis-profile=deep", "--hypothesis-seed={seed}"),
        (*_PYTEST, "tests/ops", "--hypothesis-profile=slice", "--hypothesis-seed={seed}"),
        (*NATIVE, "src/anyhal", "tests/ops", "tests/device_runs.py"),
    ),
    Family(
        "large",
        "arrays of more than 2^31 elements: no index wraps, every element is written",
        (*_PYTEST, "tests/field/test_large.py", "-n", "0", "-m", "large"),
        (*_PYTEST, "tests/field/test_large.py", "-n", "0", "-m", "large", "-k", "NUM_10"),
        (*NATIVE, "src/anyhal", "tests/field/test_large.py"),
    ),
    Family(
        "schedules",
        "producers and consumers over two backends under random schedules and hostile timing",
        ("{python}", "tests/doubles/schedules.py", "--count", "2000", "--seed", "{seed}"),
        ("{python}", "tests/doubles/schedules.py", "--count", "200", "--seed", "{seed}"),
        (*NATIVE, "src/anyhal", "tests/doubles"),
    ),
    Family(
        "foreigners",
        "the model, two devices at once, recordings and failures on every kind of device together",
        (*_FOREIGN, "FOREIGN_COUNT=2000", "FOREIGN_TOKENS=16", *_TOGETHER),
        (*_FOREIGN, "FOREIGN_COUNT=200", "FOREIGN_TOKENS=4", *_TOGETHER),
        (*NATIVE, "src/anyhal", "tests/foreigners", "tests/doubles"),
    ),
    Family(
        "fuzz",
        "any bytes as manifest, registry file, handshake, plan records, GGUF header",
        ("{python}", "tests/fuzz/run.py", "--json", "--seconds", "600"),
        ("{python}", "tests/fuzz/run.py", "--json", "--seconds", "20"),
        (
            *("include", "core", "tests/fuzz", "src/anyhal/runtime/manifest.py"),
            "src/anyhal/frontends/gguf/reader.py",
        ),
    ),
    Family(
        "mutants",
        "broken backends built from the reference ones: the conformance suite refuses every one",
        (*_PROOF, "mutants"),
        (*_PROOF, "mutants", "--sample", "20", "--seed", "{seed}"),
        (*NATIVE, "src/anyhal", "tools/suite_proof.py"),
    ),
    Family(
        "flips",
        "one operator, bound or index of a kernel flipped: 95 % of those that matter are refused",
        (*_PROOF, "flips", "--count", "200"),
        (),
        (*NATIVE, "src/anyhal", "tools/suite_proof.py"),
    ),
    Family(
        "unchanged",
        "the reference backend under ten nonces: the conformance suite refuses nothing",
        (*_PROOF, "runs", "--count", "10"),
        (),
        (*NATIVE, "src/anyhal", "tools/suite_proof.py"),
    ),
    Family(
        "opencl_call",
        "a call through the contract against the same OpenCL calls made directly: 5 us at most",
        ("{python}", "benchmarks/opencl_call.py", "--json", "--check"),
        ("{python}", "benchmarks/opencl_call.py", "--json", "--check"),
        (*NATIVE, "benchmarks/opencl_call.py", "benchmarks/opencl_call.c"),
    ),
    Family(
        "pjrt_call",
        "a call through the contract against the same plugin calls made directly: 5 us at most",
        ("{python}", "benchmarks/pjrt_call.py", "--json", "--check"),
        ("{python}", "benchmarks/pjrt_call.py", "--json", "--check"),
        (*NATIVE, "benchmarks/pjrt_call.py", "benchmarks/pjrt_call.cc"),
    ),
    Family(
        "pjrt_region",
        "a decode step as one program against the same step call by call: 10 times at least",
        ("{python}", "benchmarks/pjrt_region.py", "--json", "--check"),
        ("{python}", "benchmarks/pjrt_region.py", "--json", "--check"),
        (*NATIVE, "src/anyhal", "benchmarks/pjrt_region.py"),
    ),
    Family(
        "vendors",
        "every op on every device whose vendor's runtime compiles as it goes",
        ("env", "TEST_DEVICES=vendors", *_PYTEST, "tests/ops"),
        (),
        (*NATIVE, "src/anyhal", "tests/ops", "tests/device_runs.py"),
    ),
    Family(
        "wheel",
        "source archive and wheel as released: tag, size, and a run without compiler and network",
        ("{python}", "tools/wheel.py", "build/wheel", "--json"),
        (),
        (*NATIVE, "cmake", "src/anyhal", "tools/wheel.py"),
    ),
    Family(
        "aarch64",
        "core, cpu_ref and dayone cross-compiled, their answers on an emulated processor",
        ("{python}", "tools/aarch64.py", "--json"),
        ("{python}", "tools/aarch64.py", "--quick", "--json"),
        (*NATIVE, "cmake", "tests/abi", "tools/aarch64.py"),
    ),
    Family(
        "certify",
        "every device of this machine put to the conformance suite",
        ("{python}", "tools/certify_all.py", "--json", "--tier", "full"),
        ("{python}", "tools/certify_all.py", "--json", "--tier", "quick", "--seed", "{seed}"),
        (*NATIVE, "src/anyhal", "tools/certify_all.py"),
    ),
    Family(
        "gate",
        "twenty comparisons of one build with itself raise no alarm, a slower build is caught",
        ("{python}", "benchmarks/gate.py", "--json", "--check"),
        (),  # a shared machine is too restless for so few runs to say anything
        ("src/anyhal/conformance/performance", "benchmarks/gate.py", "tests/one_op.py"),
    ),
    Family(
        "dispatch",
        "what a small call costs, against NumPy in the same run",
        ("{python}", "benchmarks/dispatch.py", "--json"),
        ("{python}", "benchmarks/dispatch.py", "--json", "--blocks", "4"),
        (*NATIVE, "src/anyhal", "benchmarks/dispatch.py"),
    ),
    Family(
        "startup",
        "import and first matmul against import numpy: 1.5 times at most; what 100 manifests add",
        ("{python}", "benchmarks/startup.py", "--json", "--check"),
        # Figures only: no margin was shown yet on a machine as busy as a slice's.
        ("{python}", "benchmarks/startup.py", "--json", "--blocks", "9"),
        (*NATIVE, "src/anyhal", "benchmarks/startup.py"),
    ),
    Family(
        "gemm",
        "matrix products against the vendor library called directly",
        ("{python}", "benchmarks/gemm.py", "--json"),
        ("{python}", "benchmarks/gemm.py", "--json", "--blocks", "3", "--sizes", "256"),
        (*NATIVE, "benchmarks/gemm.py"),
    ),
    Family(
        "llm",
        "prefill and decode of the language model, against llama.cpp where it is installed",
        ("{python}", "benchmarks/llm.py", "--json"),
        ("{python}", "benchmarks/llm.py", "--json", *_LLM_SLICE),
        (*NATIVE, "src/anyhal", "benchmarks/llm.py"),
    ),
)


def families() -> list[Family]:
    """Those whose tests or script exist in this tree."""
    return [f for f in _FAMILIES if (ROOT / f.script).exists()]


def tree_hash(covers: tuple[str, ...]) -> str:
    """One hash over path and content of every tracked file that a family covers."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *covers], cwd=ROOT, capture_output=True, check=True
    ).stdout
    digest = hashlib.sha256()
    for name in sorted(part for part in listed.split(b"\0") if part):
        path = ROOT / name.decode()
        content = path.read_bytes() if path.is_file() else b""
        digest.update(name + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()


def read(family: Family) -> dict[str, Any] | None:
    try:
        data = json.loads((FOLDER / f"{family.name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def is_current(family: Family) -> bool:
    report = read(family)
    return bool(report and report["passed"] and report["tree"] == tree_hash(family.covers))


def status() -> Iterator[str]:
    """One line per family: current, stale or missing, with the date of its report."""
    for family in families():
        report = read(family)
        if report is None:
            yield f"{family.name}: no report; python tools/check.py --all makes one"
        elif report["tree"] == tree_hash(family.covers):
            yield f"{family.name}: current, {report['date']}, {report['summary']}"
        else:
            yield f"{family.name}: stale, {report['date']}; files it covers have changed since"


def run_family(family: Family, seed: int | None) -> Outcome | None:
    """Runs a slice (no report) or the whole (report written). None: the family has no slice."""
    command = family.full if seed is None else family.slice
    if not command:
        return None
    filled = [
        word.replace("{python}", sys.executable).replace("{seed}", str(seed or 0))
        for word in command
    ]
    started = time.monotonic()
    done = subprocess.run(filled, cwd=ROOT, capture_output=True, text=True)
    outcome = _outcome(done, time.monotonic() - started)
    if not outcome.passed and not outcome.invalid:
        print("\n".join((done.stdout + done.stderr).splitlines()[-40:]))
    if seed is None and not outcome.invalid:
        _write(family, filled, outcome)
    return outcome


def _outcome(done: subprocess.CompletedProcess[str], seconds: float) -> Outcome:
    if done.returncode == _INVALID:
        return Outcome(False, True, seconds, done.stderr.strip().splitlines()[-1])
    passed = done.returncode == 0
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    try:
        figures = json.loads(done.stdout)["figures"]
        summary = f"{len(figures)} figures"
    except (ValueError, KeyError, TypeError):
        figures, summary = [], lines[-1].strip("= ") if lines else "no output"
    return Outcome(passed, False, seconds, summary, figures)


def _write(family: Family, command: list[str], outcome: Outcome) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    shown = " ".join("python" if word == sys.executable else word for word in command)
    report = {
        "schema": 1,
        "family": family.name,
        "what": family.what,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "tree": tree_hash(family.covers),
        "command": shown,
        **{k: v for k, v in asdict(outcome).items() if k != "invalid"},
    }
    report["seconds"] = round(outcome.seconds, 1)
    part = FOLDER / f".{family.name}.part"
    part.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    part.replace(FOLDER / f"{family.name}.json")
