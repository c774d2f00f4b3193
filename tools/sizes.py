"""Budgets as guides: sizes of files and functions, with the trend against an earlier commit.
SPDX-License-Identifier: Apache-2.0

    python tools/sizes.py [COMMIT]     the commit to compare with; the previous one by default
"""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = (".py", ".c", ".cc", ".cpp", ".h", ".hh", ".hpp")
AIM_LINES, STOP_LINES, FUNCTION_LINES = 400, 800, 60
AREAS = ("include", "core", "backends", "src", "tests", "tools", "benchmarks", "examples")

# Files that may pass STOP_LINES, each with its reason.
WAIVERS = {
    "include/anyhal/backend.h": "the contract is one header on purpose, half of it comments",
    "include/anyhal/hal_ops.h": "generated",
    "src/anyhal/functions.py": "generated",
}


@dataclass(frozen=True)
class Area:
    files: int
    lines: int


def tracked(commit: str | None = None) -> dict[str, int]:
    """Lines of every source file, in the working tree or in a commit."""
    if commit is None:
        listed = _git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
        paths = [p for p in listed if p.endswith(SUFFIXES) and (ROOT / p).is_file()]
        return {p: (ROOT / p).read_bytes().count(b"\n") for p in paths}
    rows = _git("grep", "-c", "", commit, "--", *(f"*{s}" for s in SUFFIXES)).splitlines()
    counted = (row.removeprefix(f"{commit}:").rpartition(":") for row in rows)
    return {path: int(lines) for path, _, lines in counted}


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def by_area(lines: dict[str, int]) -> dict[str, Area]:
    found = {}
    for area in AREAS:
        inside = [n for p, n in lines.items() if p.startswith(f"{area}/")]
        found[area] = Area(len(inside), sum(inside))
    return found


def long_functions(lines: dict[str, int]) -> list[tuple[str, int]]:
    """Python functions over the budget; C++ is left to review."""
    found = []
    for path in lines:
        if not path.endswith(".py") or path in WAIVERS:
            continue
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES:
                    found.append((f"{path}:{node.lineno} {node.name}", length))
    return sorted(found, key=lambda row: -row[1])


def violations() -> list[str]:
    return [
        f"{path}: {n} lines, the stop is {STOP_LINES}; split it, or give a reason in WAIVERS"
        for path, n in sorted(tracked().items())
        if n > STOP_LINES and path not in WAIVERS and "/history/" not in path
    ]


def report(commit: str) -> list[str]:
    now, before = tracked(), by_area(tracked(commit))
    rows = []
    for area, size in by_area(now).items():
        trend = f"{size.lines - before[area].lines:+d} lines since {commit}"
        rows.append(f"{area:<11} {size.files:4d} files {size.lines:6d} lines  {trend}")
    large = sorted(((n, p) for p, n in now.items() if n > AIM_LINES), reverse=True)
    rows += [f"{p}: {n} lines, the aim is {AIM_LINES}" for n, p in large if p not in WAIVERS]
    aim = f"lines, the aim is {FUNCTION_LINES}"
    rows += [f"{where}: {n} {aim}" for where, n in long_functions(now)[:10]]
    return rows


def main() -> int:
    commit = sys.argv[1] if len(sys.argv) > 1 else "HEAD~1"
    found = violations()
    print("\n".join([*report(commit), *found]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
