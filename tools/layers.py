"""Direction rules: who may include whom (C side), who may import whom (Python side).
SPDX-License-Identifier: Apache-2.0

    python tools/layers.py        print every violation, exit 1 when there is one
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "anyhal"
CPP = {".c", ".cc", ".cpp", ".h", ".hh", ".hpp"}
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)

# What a package of src/anyhal may import of the others; a missing row may import nothing of ours.
# `_core` is the compiled binding, `anyhal` the package's public names.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": {"printable"},
    "printable": set(),
    "records": set(),
    "dtypes": {"errors", "printable", "records"},
    "settings": {"errors", "printable", "records"},
    "ops": {"errors", "printable", "records", "dtypes"},
    "routing": {"errors", "printable", "records", "dtypes", "ops"},
    "runtime": {
        *("errors", "printable", "records", "dtypes", "settings", "ops", "routing", "_core"),
    },
    # The known answers of the self-test are judged by the formulas of conformance.
    "dispatch": {
        *("errors", "printable", "records", "dtypes", "settings", "ops", "routing", "runtime"),
        *("conformance", "_core"),
    },
    "functions": {"errors", "dtypes", "ops", "runtime", "dispatch", "_core"},
    "sdk": {"errors", "dtypes", "ops", "runtime", "dispatch", "_core"},
    "conformance": {
        *("errors", "printable", "records", "dtypes", "settings", "ops", "routing", "runtime"),
        *("functions", "anyhal", "_core"),
    },
    "frontends": {"errors", "dtypes", "settings", "anyhal"},
    "training": {"errors", "printable", "anyhal", "_core"},
    "cli": {
        *("errors", "printable", "dtypes", "settings", "ops", "routing", "runtime"),
        *("conformance", "frontends", "sdk", "anyhal", "_core"),
    },
    "anyhal": {
        *("errors", "dtypes", "settings", "ops", "routing", "runtime", "dispatch", "functions"),
        "_core",
    },
}
# Imports inside a function that may point upwards, each with its reason.
MAY_IMPORT_LATE = {
    # An Array's operators are ops; a chip in Python is one of the sdk; a certificate is read by
    # conformance, once.
    "runtime": {"functions", "sdk", "conformance"},
}
# Beside the standard library.
MAY_IMPORT_OUTSIDE: dict[str, set[str]] = {
    "errors": set(),
    "printable": set(),
    "records": set(),
    "settings": set(),
    "dtypes": {"numpy", "ml_dtypes"},
    "ops": {"numpy", "ml_dtypes"},
    "routing": set(),
    "runtime": {"numpy", "opt_einsum"},
    "dispatch": {"numpy"},
    "functions": {"numpy"},
    "sdk": {"numpy"},
    "conformance": {"numpy", "ml_dtypes", "rich", "cryptography", "scipy", "matplotlib", "jinja2"},
    "frontends": {"numpy", "tokenizers", "jinja2"},
    "training": {"numpy"},
    "cli": {"typer", "rich"},
    "anyhal": {"numpy"},
}
# Routing is a pure function of its facts: no clock, no environment, no files, no processes.
ROUTING_BANS = {"os", "time", "datetime", "random", "pathlib", "subprocess", "socket", "ctypes"}


def python_violations() -> Iterator[str]:
    base = ROOT / "src" / PACKAGE
    for path in sorted(base.rglob("*.py")):
        relative = path.relative_to(base)
        layer = relative.parts[0].removesuffix(".py")
        layer = PACKAGE if layer == "__init__" else layer
        where = path.relative_to(ROOT)
        if layer not in MAY_IMPORT:
            yield f"{where}: {layer!r} has no row in tools/layers.py; add what it may import"
            continue
        for line, name, late in _imports(path, relative):
            yield from _judge(f"{where}:{line}", layer, relative, name, late)


def _judge(where: str, layer: str, relative: Path, name: str, late: bool) -> Iterator[str]:
    parts = name.split(".")
    if parts[0] == PACKAGE:
        target = parts[1] if len(parts) > 1 else PACKAGE
        if target not in MAY_IMPORT and target != "_core":
            target = PACKAGE  # a public name: `from anyhal import matmul`
        allowed = (
            {layer} | MAY_IMPORT[layer] | (MAY_IMPORT_LATE.get(layer, set()) if late else set())
        )
        if target not in allowed:
            yield f"{where}: {layer} may not import {name}"
        if layer == "frontends" and target == "frontends" and relative.parts[1] != parts[2]:
            yield f"{where}: front ends may not import each other ({name})"
    elif parts[0] in sys.stdlib_module_names:
        if layer == "routing" and parts[0] in ROUTING_BANS:
            yield f"{where}: routing reads no clock, environment, file or process ({name})"
    elif parts[0] not in MAY_IMPORT_OUTSIDE[layer]:
        yield f"{where}: {layer} may not import {name}"


def _imports(path: Path, relative: Path) -> Iterator[tuple[int, str, bool]]:
    """Absolute names of all imports that run, and whether only inside a function; those under
    TYPE_CHECKING do not run."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            skipped.update(inner for part in node.body for inner in ast.walk(part))
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    inside = {inner for function in functions for inner in ast.walk(function)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        late = node in inside
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = [PACKAGE, *relative.parts[:-1]]
            base = above[: len(above) - node.level + 1] if node.level else []
            name = ".".join([*base, node.module] if node.module else base)
            if name == PACKAGE:
                yield from ((node.lineno, f"{PACKAGE}.{a.name}", late) for a in node.names)
            else:
                yield node.lineno, name, late


def cpp_violations() -> Iterator[str]:
    for path in _sources("include", "core", "backends"):
        where = path.relative_to(ROOT)
        for match in _INCLUDE.finditer(path.read_text(encoding="utf-8")):
            quoted, name = match[1] == '"', match[2]
            why = _include_rule(path, name, quoted)
            if why:
                yield f"{where}: includes {name}: {why}"


def _include_rule(path: Path, name: str, quoted: bool) -> str:
    parts = path.relative_to(ROOT).parts
    ours = name.startswith(("anyhal/", "core/", "backends/"))
    python = name == "Python.h" or name.startswith(("nanobind/", "pybind11/"))
    if parts[0] == "include":
        if python or name.startswith(("core/", "backends/")):
            return "public headers see only each other"
    elif parts[0] == "backends":
        folder = ROOT / "backends" / parts[1]
        if python:
            return "a backend knows no Python"
        seen = ("anyhal/backend.h", "anyhal/fingerprints.h", "anyhal/ops.h", "anyhal/sdk/")
        if ours and not name.startswith(seen):
            return f"a backend sees {', '.join(seen)}* and its own files"
        if quoted and not ours:
            found = any((p / name).is_file() for p in (path.parent, folder))
            inside = (path.parent / name).resolve().is_relative_to(folder) or (
                (folder / name).resolve().is_relative_to(folder)
            )
            if not found or not inside:
                return "not a file of this backend's folder"
    elif parts[0] == "core":
        if name.startswith("backends/"):
            return "the core knows no backend"
        if python and parts[1] != "bindings":
            return "only core/bindings knows Python"
        if name.startswith("core/bindings/") and parts[1] != "bindings":
            return "the core does not see its binding"
    return ""


def name_violations() -> Iterator[str]:
    """Quoted names of backend folders where no branch on one may stand."""
    names = sorted(p.parent.name for p in (ROOT / "backends").glob("*/backend.toml"))
    if not names:
        return
    quoted = re.compile(rf"[\"']({'|'.join(names)})[\"']")
    base = ROOT / "src" / PACKAGE
    watched = _sources("core")
    for folder in ("routing", "runtime", "dispatch", "ops"):
        watched += sorted((base / folder).rglob("*.py"))
    for path in watched:
        if not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for found in quoted.finditer(line):
                yield f"{path.relative_to(ROOT)}:{number}: names the backend {found[0]}"


def _sources(*folders: str) -> list[Path]:
    found = [p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in CPP]
    return sorted(p for p in found if "history" not in p.parts)


def violations() -> list[str]:
    return [*python_violations(), *cpp_violations(), *name_violations()]


def main() -> int:
    found = violations()
    print("\n".join(found) if found else "all includes and imports follow the direction rules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
