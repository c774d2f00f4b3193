"""Fuzzes the readers of what others write; prints a line per target, exits 1 on a finding.
SPDX-License-Identifier: Apache-2.0

    python tests/fuzz/run.py [--seconds 60] [--only TARGET ...] [--keep]

C++ targets are built with clang's libFuzzer and sanitisers, Python ones run under atheris (the
extra `fuzz`). Each begins with its folder of corpus/; with --keep what it learnt goes there too,
reduced.
A finding is left in the folder that the line names, with the command that repeats it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CORPUS = HERE / "corpus"
NATIVE = ("handshake", "plan", "registry")
PYTHON = ("manifest", "model_file")
MOST_BYTES = {
    "handshake": 4096,
    "manifest": 2048,
    "model_file": 4096,
    "plan": 2048,
    "registry": 2048,
}
# Statuses come from C, where an enum holds any number.
SANITISERS = ("-fsanitize=fuzzer-no-link,address,undefined", "-fno-sanitize=enum")
_MOST_KEPT = 200  # of one run in Python, the shortest: what they cover is not compared
_COUNTS = re.compile(r"^#(\d+)\s+DONE\s+cov: (\d+).* corp: (\d+)/", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    target: str
    executions: int
    edges: int  # covered
    inputs: int  # that each covered something new
    seconds: float
    finding: str = ""  # the command that repeats it


def build_native(targets: list[str], folder: Path) -> dict[str, list[str]]:
    """Compiles the core once and each target against it; the command of each."""
    clang = shutil.which("clang++")
    if clang is None:
        raise SystemExit("fuzzing needs clang++ with libFuzzer: apt-get install clang")
    flags = ["-std=c++20", "-O1", "-g", *SANITISERS, "-fno-sanitize-recover=all"]
    flags += [f"-I{ROOT}", f"-I{ROOT / 'include'}"]
    sources = [*(ROOT / "core").glob("*.cc"), *(ROOT / "core/api").glob("*.cc")]
    sources += [HERE / f"{name}.cc" for name in targets]
    objects = {s: folder / f"{s.parent.name}-{s.stem}.o" for s in sources}

    def compile_one(source: Path) -> None:
        subprocess.run(
            [*launcher(), clang, *flags, "-c", str(source), "-o", str(objects[source])], check=True
        )

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, sources))
    core = [str(o) for s, o in objects.items() if s.parent != HERE]
    made = {}
    for name in targets:
        program = folder / name
        own = str(objects[HERE / f"{name}.cc"])
        link = ["-fsanitize=fuzzer,address,undefined", "-ldl", "-lpthread", "-o", str(program)]
        subprocess.run([clang, own, *core, *link], check=True)
        made[name] = [str(program)]
    return made


def launcher() -> list[str]:
    return ["ccache"] if shutil.which("ccache") else []


def fuzz(target: str, command: list[str], seconds: int, folder: Path, keep: bool) -> Outcome:
    """One target for so long; libFuzzer writes what covers something new into `grown`."""
    grown, found = folder / f"{target}-grown", folder / f"{target}-found"
    grown.mkdir()
    found.mkdir()
    options = [f"-max_total_time={seconds}", f"-max_len={MOST_BYTES[target]}", "-timeout=10"]
    options += ["-rss_limit_mb=2048", f"-artifact_prefix={found}/", "-print_final_stats=1"]
    options += ["-detect_leaks=0"] if target == "plan" else []  # a device lives for ever
    seeds = CORPUS / target
    started = time.monotonic()
    ran = subprocess.run(
        [*command, *options, str(grown), str(seeds)],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + 300,
    )
    log = ran.stdout + ran.stderr
    (folder / f"{target}.log").write_text(log)
    counts = _COUNTS.search(log)
    executions, edges, inputs = map(int, counts.groups()) if counts else (0, 0, 0)
    finding = ""
    if ran.returncode != 0 or counts is None:
        cases = sorted(str(p) for p in found.iterdir())
        finding = " ".join([*command, *cases[:1]]) + f" (log: {folder / target}.log)"
    elif keep:
        keep_reduced(command, seeds, grown, folder / f"{target}-reduced")
    return Outcome(target, executions, edges, inputs, time.monotonic() - started, finding)


def keep_reduced(command: list[str], seeds: Path, grown: Path, reduced: Path) -> None:
    """Old and new inputs, less those that cover nothing of their own. They are named by their
    bytes, so that a change shows only what is new."""
    reduced.mkdir()
    if len(command) == 1:
        merge = [*command, "-merge=1", str(reduced), str(seeds), str(grown)]
        subprocess.run(merge, check=True, capture_output=True)
        for old in seeds.iterdir():
            old.unlink()
    else:  # a merge starts the program anew by its first word, which would be Python's
        reduced = grown
    for new in sorted(reduced.iterdir(), key=lambda p: p.stat().st_size)[:_MOST_KEPT]:
        data = new.read_bytes()
        (seeds / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="of each target")
    parser.add_argument("--only", nargs="*", choices=(*NATIVE, *PYTHON), help="these targets")
    parser.add_argument("--keep", action="store_true", help="grow corpus/")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    given = parser.parse_args()
    targets = given.only or [*NATIVE, *PYTHON]
    if set(PYTHON) & set(targets) and importlib.util.find_spec("atheris") is None:
        raise SystemExit('fuzzing readers in Python needs atheris: pip install "anyhal[fuzz]"')
    folder = Path(tempfile.mkdtemp(prefix="anyhal-fuzz-"))
    start = [sys.executable, str(HERE / "under_atheris.py")]
    commands = {name: [*start, name] for name in PYTHON if name in targets}
    commands |= build_native([n for n in NATIVE if n in targets], folder)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = [
            pool.submit(fuzz, name, commands[name], given.seconds, folder, given.keep)
            for name in targets
        ]
        outcomes = [each.result() for each in running]
    for one in outcomes:
        word = f"FOUND {one.finding}" if one.finding else "ok"
        line = f"{one.target:<10} {one.executions:>10} runs {one.edges:>6} edges"
        print(f"{line} {one.inputs:>5} inputs  {word}", file=sys.stderr if given.json else None)
    if given.json:
        print(json.dumps({"schema": 1, "figures": [asdict(one) for one in outcomes]}))
    failed = any(one.finding for one in outcomes)
    if not failed:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
