"""One verb for all checks: format, lint, types, direction rules, generated files, reports.
SPDX-License-Identifier: Apache-2.0

    python tools/check.py                fast checks, under a minute
    python tools/check.py NAME...        only these
    python tools/check.py --fix          let the formatters write
    python tools/check.py --slice SEED   a seeded slice of every heavy family
    python tools/check.py --all          fast checks, then the heavy families whose report is stale
    python tools/check.py --all --force  the same, current reports too
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import layers  # noqa: E402
import reports  # noqa: E402
import sizes  # noqa: E402
import symbols  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
PYTHON_FOLDERS = ("src", "tests", "tools", "backends", "benchmarks", "examples")
FAST_TESTS = ("tests/repo", "tests/unit", "tests/abi")

Check = Callable[[bool], list[str]]  # (fix) -> what is wrong; the first line is the summary


def run(command: Sequence[str], keep: int = 40) -> list[str]:
    """The command's last lines when it fails, else nothing."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return [f"{command[0]} is not installed; pip install '.[check]'"]
    if done.returncode == 0:
        return []
    lines = (done.stdout + done.stderr).strip().splitlines()
    return [f"{' '.join(command[:4])} failed", *lines[-keep:]]


def tool(name: str) -> str:
    """A tool of this environment before one of the system."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.is_file() else shutil.which(name) or name


def python_folders() -> list[str]:
    return [f for f in PYTHON_FOLDERS if (ROOT / f).is_dir()]


def check_format(fix: bool) -> list[str]:
    found = run([tool("ruff"), "format", *([] if fix else ["--check"]), *python_folders()])
    sources = [p for p in sizes.tracked() if p.endswith((".c", ".cc", ".cpp", ".h", ".hh", ".hpp"))]
    sources = [p for p in sources if "/history/" not in p]
    mode = ["-i"] if fix else ["--dry-run", "-Werror"]
    if sources:
        found += run([tool("clang-format"), *mode, *sources])
    return found


def check_lint(fix: bool) -> list[str]:
    return run([tool("ruff"), "check", *(["--fix"] if fix else []), *python_folders()])


def check_types(fix: bool) -> list[str]:
    return run([tool("mypy")])


def check_layers(fix: bool) -> list[str]:
    return layers.violations()


def check_symbols(fix: bool) -> list[str]:
    spec = importlib.util.find_spec("anyhal")
    if spec is None or spec.origin is None:
        return ["anyhal is not installed here, so its libraries cannot be read; pip install ."]
    folder = Path(spec.origin).parent / "backends"
    libraries = sorted(folder.glob("*/*.so"))
    if not libraries:
        return [f"no backend library lies under {folder}; pip install ."]
    return [v for path in libraries for v in symbols.violations(path)]


_GENERATORS = (
    *("generate", "abi_files", "environment", "command_page", "python_page"),
    "support_matrix",
)


def check_generated(fix: bool) -> list[str]:
    flag = [] if fix else ["--check"]
    found = []
    for name in _GENERATORS:
        found += run([sys.executable, f"tools/{name}.py", *flag])
    return found


def check_abi(fix: bool) -> list[str]:
    return run([sys.executable, "tools/abi_layout.py", "--check"])


def check_sizes(fix: bool) -> list[str]:
    return sizes.violations()


def check_reports(fix: bool) -> list[str]:
    """Stale reports are shown, not failed: only a heavy run can renew them."""
    for line in reports.status():
        print(f"    {line}")
    return []


def check_tests(fix: bool) -> list[str]:
    folders = [f for f in FAST_TESTS if (ROOT / f).is_dir()]
    return run([sys.executable, "-m", "pytest", "-q", "--no-header", *folders])


CHECKS: dict[str, Check] = {
    "format": check_format,
    "lint": check_lint,
    "types": check_types,
    "layers": check_layers,
    "symbols": check_symbols,
    "generated": check_generated,
    "abi": check_abi,
    "sizes": check_sizes,
    "reports": check_reports,
    "tests": check_tests,
}


def run_checks(names: Sequence[str], fix: bool) -> int:
    failed = []
    for name in names:
        print(f"  {name} ...", end="", flush=True)
        started = time.monotonic()
        problems = CHECKS[name](fix)
        word = f"{len(problems)} problems" if problems else "ok"
        print(f"\r  {name:<10} {word:<12} {time.monotonic() - started:6.1f} s")
        if problems:
            failed.append(name)
            print("\n".join(f"    {line}" for line in problems))
    if names == list(CHECKS):
        print("\n".join(f"  {line}" for line in sizes.report("HEAD~1")))
    print(f"{len(names) - len(failed)} checks passed, {len(failed)} failed" + _listed(failed))
    return 1 if failed else 0


def _listed(names: Sequence[str]) -> str:
    return f": {', '.join(names)}" if names else ""


def run_families(seed: int | None, force: bool) -> int:
    """Heavy families: a seeded slice, or in full with a report; what is current is left out."""
    failed = []
    for family in reports.families():
        if seed is None and not force and reports.is_current(family):
            print(f"  {family.name:<12} report is current")
            continue
        print(f"  {family.name} ...", flush=True)
        outcome = reports.run_family(family, seed)
        if outcome is not None:
            word = "unfit" if outcome.invalid else "passed" if outcome.passed else "FAILED"
            print(f"  {family.name:<12} {word} {outcome.seconds:7.1f} s  {outcome.summary}")
            if not outcome.passed and not outcome.invalid:
                failed.append(family.name)
    print(f"heavy families: {len(failed)} failed" + _listed(failed))
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*CHECKS, []], help="checks; all by default")
    parser.add_argument("--fix", action="store_true", help="let formatters and generators write")
    parser.add_argument("--all", action="store_true", help="heavy families too, with reports")
    parser.add_argument("--slice", type=int, metavar="SEED", help="a slice of the heavy families")
    parser.add_argument("--force", action="store_true", help="run families with current reports")
    given = parser.parse_args()
    if given.slice is not None:
        return run_families(given.slice, force=True)
    status = run_checks(given.names or list(CHECKS), given.fix)
    if given.all:
        status |= run_families(None, given.force)
    return status


if __name__ == "__main__":
    sys.exit(main())
