"""Every code block of the pages runs and prints what the page shows; see page_runner.py.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_runner import Block, blocks

from anyhal import errors

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("tutorials", "how-to", "explanation")
PAGES = [ROOT / "README.md", *(p for f in FOLDERS for p in sorted((DOCS / f).glob("*.md")))]
NEEDS_TORCH = [p for p in PAGES if "import torch" in p.read_text(encoding="utf-8")]
MARKED = [pytest.param(p, marks=pytest.mark.torch) if p in NEEDS_TORCH else p for p in PAGES]
RUN = ("python", "console")
ELSEWHERE = {"use-from-c": ("c",)}  # built, run and compared by tests/capi
SHOWN = ("", "text", "mermaid", "toml")  # output, drawings and data: nothing that could run


def printed(page: Path, folder: Path) -> list[str]:
    # A page is written for a plain machine: no settings of the person who runs the tests.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ANYHAL_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, Path(__file__).with_name("page_runner.py"), page]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment | {"COLUMNS": "80", "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    texts: list[str] = json.loads(done.stdout)
    return texts


def same(shown: str, got: str) -> bool:
    """Whether the page shows what was printed; "..." stands for anything, spaces count as one."""

    def plain(text: str) -> str:
        return " ".join(text.split())

    pattern = ".*?".join(re.escape(plain(part)) for part in re.split(r"(?:\.\.\.|…)", shown))
    return re.fullmatch(pattern, plain(got), re.DOTALL) is not None


@pytest.mark.parametrize("page", MARKED, ids=lambda p: p.stem)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if page in NEEDS_TORCH:
        request.getfixturevalue("torch")
    wanted = [b for b in blocks(page) if b.language in RUN and not b.part_of]
    if not wanted:
        return
    for block, got in zip(wanted, printed(page, tmp_path), strict=True):
        if block.shown is not None:
            assert same(block.shown, got), f"{page.name}:{block.line} prints\n{got}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_block_that_is_not_run_is_part_of_a_file_or_nothing_to_run(page: Path) -> None:
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.part_of:
            source = (ROOT / block.part_of).read_text(encoding="utf-8")
            assert block.text in source, f"{where} differs from {block.part_of}"
        else:
            known = (*RUN, *SHOWN, *ELSEWHERE.get(page.stem, ()))
            assert block.language in known, f"{where}: say which file it is part of"


def test_the_comparison_can_fail() -> None:
    assert same("a  b ...\n", "a b\nc") and same("a ... d", "a b c d")
    assert not same("a b", "a c") and not same("a ... d", "a b") and not same("a", "a b")


def test_a_page_is_split_into_its_blocks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    fence = "```"
    page.write_text(
        f"{fence}python\nprint(1)\n{fence}\n\n{fence}\n1\n{fence}\ntext\n\n"
        f"{fence}console\n$ echo 2\n2\n$ echo 3\n{fence}\n\n"
        f"<!-- part of a.c -->\n{fence}c\nint x;\n{fence}\n"
    )
    assert blocks(page) == [
        Block("python", "print(1)\n", 2, "", "1\n"),
        Block("console", "echo 2", 11, "", "2\n"),
        Block("console", "echo 3", 13),
        Block("c", "int x;\n", 18, "a.c"),
    ]


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = [p.relative_to(DOCS).as_posix() for p in DOCS.glob("*/*.md") if p.parent.name != "adr"]
    assert [p for p in pages if f"({p})" not in index] == []


def test_the_page_of_errors_has_a_row_for_each_class() -> None:
    text = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    text = text.partition("## Codes of the loader")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == sorted(errors.__all__)


def test_the_page_of_refusals_has_a_section_for_each_reason() -> None:
    header = (ROOT / "include" / "anyhal" / "backend.h").read_text(encoding="utf-8")
    reasons = [r.lower() for r in re.findall(r"ANYHAL_REASON_(\w+) = [1-9]", header)]
    text = (DOCS / "how-to" / "debug-a-refusal.md").read_text(encoding="utf-8")
    assert re.findall(r"^### `(\w+)`", text, re.MULTILINE) == reasons


def test_who_runs_an_op_fused_is_what_the_devices_declare() -> None:
    """The pages read the backends' sources; here the backends themselves are asked."""
    import anyhal as hal

    sys.path.insert(0, str(ROOT / "tools"))
    import op_pages

    rows = op_pages.fused_on()
    for device in hal.devices():
        backend = device.fact.backend
        if (ROOT / "backends" / backend).is_dir() and device.fact.state == "self-tested":
            declared = {row["op"] for row in device.capabilities()}
            read = {op for op, names in rows.items() if backend in names}
            assert read and (read == declared or not declared), "none: it is asked op by op"


def test_the_page_of_python_has_the_gradients_and_signatures_that_there_are() -> None:
    """The page is made from the sources; here the package itself is asked."""
    import inspect

    import anyhal as hal
    from anyhal.training.rules import RULES

    sys.path.insert(0, str(ROOT / "tools"))
    import python_page

    assert python_page.rules() == sorted(RULES)
    text = python_page.page()
    for name in " ".join(python_page.GROUPS.values()).split():
        assert f"- `{name}" in text
        if inspect.isfunction(value := getattr(hal, name)):
            bare = [p.replace(annotation="x") for p in inspect.signature(value).parameters.values()]
            plain = str(inspect.Signature(bare)).replace(": 'x'", "").replace(" = ", "=")
            assert f"- `{name}{plain}`: " in text


@pytest.mark.parametrize("name", ["softmax", "cache_append", "concat"])
def test_a_drawing_has_a_node_for_each_call_and_no_loose_end(name: str) -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    import op_pages

    from anyhal.ops import BY_NAME

    drawn = op_pages.drawing(BY_NAME[name])
    calls = int(re.search(r"(\d+) core call", drawn)[1])  # type: ignore[index]
    nodes = set(re.findall(r'^  (c\d+)\["', drawn, re.MULTILINE))
    assert len(nodes) == min(calls, op_pages.MOST_CALLS)
    ends = re.findall(r"^  (\w+)\S* --> (\w+)$", drawn, re.MULTILINE)
    assert {b for _, b in ends} <= nodes and {a for a, _ in ends if a[0] == "c"} <= nodes
    assert drawn.count("```") == 2 and "\n\n" not in drawn.strip().split("\n\n", 1)[1]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_links_lead_to_pages_and_to_headings_that_are_there() -> None:
    broken = []
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        text = re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []
