"""The structural rules: directions, names, first lines, unique test files, what import pulls in.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from anyhal.runtime.manifest import CONTRACT

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import layers
import sizes

SOURCES = {".py", ".c", ".cc", ".cpp", ".h", ".hh", ".hpp"}
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout, so what belongs to the project is unknown")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_includes_and_imports_follow_the_direction_rules() -> None:
    assert [*layers.python_violations(), *layers.cpp_violations()] == []


def test_no_quoted_backend_name_where_a_branch_on_it_could_stand() -> None:
    assert list((ROOT / "backends").glob("*/backend.toml")), "no backend folder was found"
    assert list(layers.name_violations()) == []


def test_the_name_rule_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "backends" / "chip").mkdir(parents=True)
    (tmp_path / "backends" / "chip" / "backend.toml").touch()
    (tmp_path / "src" / "anyhal" / "routing").mkdir(parents=True)
    (tmp_path / "src" / "anyhal" / "routing" / "policy.py").write_text('if name == "chip":\n')
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "x.cc").write_text('#include "backends/chip/x.h"\n#include <Python.h>\n')
    monkeypatch.setattr(layers, "ROOT", tmp_path)
    (named,) = layers.name_violations()
    assert named == 'src/anyhal/routing/policy.py:1: names the backend "chip"'
    whys = [v.rpartition(": ")[2] for v in layers.cpp_violations()]
    assert whys == ["the core knows no backend", "only core/bindings knows Python"]


@pytest.mark.parametrize(
    ("layer", "source", "why"),
    [
        ("routing/policy.py", "import time", "routing reads no clock"),
        ("routing/policy.py", "import numpy", "routing may not import numpy"),
        ("ops/matmul.py", "from anyhal.routing import facts", "ops may not import anyhal.routing"),
        ("ops/matmul.py", "from ..runtime import x", "ops may not import anyhal.runtime"),
        ("frontends/a/x.py", "import anyhal.frontends.b", "may not import each other"),
        ("frontends/a/x.py", "import torch", "frontends may not import torch"),
        ("newcomer.py", "", "has no row"),
    ],
)
def test_the_import_rules_can_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layer: str, source: str, why: str
) -> None:
    path = tmp_path / "src" / "anyhal" / layer
    path.parent.mkdir(parents=True)
    path.write_text(source + "\n")
    monkeypatch.setattr(layers, "ROOT", tmp_path)
    (found,) = layers.python_violations()
    assert why in found


def test_every_source_file_opens_with_its_purpose_and_licence() -> None:
    bad = []
    for path in tracked():
        if path.suffix not in SOURCES or path.stat().st_size == 0 or "history" in path.parts:
            continue
        head = path.read_text(encoding="utf-8").splitlines()[:4]
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in head):
            bad.append(f"{path.relative_to(ROOT)}: no SPDX line among the first four")
        elif len(re.sub(r"[^a-zA-Z]", "", head[0])) < 8:
            bad.append(f"{path.relative_to(ROOT)}: the first line does not say what it is for")
    assert bad == []


def test_no_file_is_named_after_nothing() -> None:
    assert [str(p) for p in tracked() if p.stem.lower() in VAGUE] == []


def test_no_file_passes_the_stop() -> None:
    assert sizes.violations() == []


def test_test_files_have_unique_names() -> None:
    names = Counter(p.name for p in tracked() if p.name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_import_pulls_in_no_framework_and_opens_no_library() -> None:
    code = (
        "import sys, anyhal\n"
        "maps = open('/proc/self/maps').read()\n"
        "heavy = {'torch', 'onnx', 'tokenizers', 'jinja2', 'typer', 'rich', 'gguf'}\n"
        "print(sorted(heavy & set(sys.modules)), 'libanyhal_' in maps)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"


def test_plg_07_import_starts_no_thread() -> None:
    count = "import os, {}; print(len(os.listdir('/proc/self/task')))"
    threads = [
        subprocess.run(
            [sys.executable, "-c", count.format(modules)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for modules in ("numpy, ml_dtypes", "anyhal")
    ]
    assert int(threads[1]) <= int(threads[0])


def test_a_front_page_command_is_the_one_that_ci_runs() -> None:
    command = re.compile(r"^ *(python3 -m venv .*&& pytest) *$", re.MULTILINE)
    assert len(command.findall((ROOT / "README.md").read_text(encoding="utf-8"))) == 1
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_version_numbers_agree() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "([^"]+)"', project, re.MULTILINE)
    header = (ROOT / "include" / "anyhal" / "backend.h").read_text(encoding="utf-8")
    abi = re.findall(r"#define ANYHAL_ABI_M(?:AJOR|INOR) (\d+)u", header)
    assert CONTRACT == ".".join(abi)
    assert version is not None
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"version: {version[1]}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    for manifest in (ROOT / "backends").glob("*/backend.toml"):
        assert f'abi = "{".".join(abi)}"' in manifest.read_text(encoding="utf-8"), manifest


def test_relative_links_in_documents_lead_somewhere() -> None:
    link = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in tracked()
        if path.suffix == ".md"
        for target in link.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert broken == []
