"""Runs the python and console blocks of one page, in order, and prints what each of them printed.
SPDX-License-Identifier: Apache-2.0

    python page_runner.py PAGE      in the folder that the page's files may be written to

The python blocks of a page share their names, as in one program. A console block holds commands,
each after "$ "; lines between them are what the page says they print. A block under the comment
`<!-- part of FILE -->` is not run here: it is a piece of a file of this tree that other tests run.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FENCE = re.compile(
    r"(?:^<!-- part of (?P<file>\S+) -->\n\n?)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Block:
    """One fenced block: `shown` is what the page says it prints, None where it says nothing."""

    language: str
    text: str
    line: int
    part_of: str = ""
    shown: str | None = None


def blocks(page: Path) -> list[Block]:
    """The fenced blocks; one without a language right after a python block is its output."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    end = 0
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("text")) + 1
        one = Block(match["language"], match["text"], line, match["file"] or "")
        follows = bool(found) and not text[end : match.start()].strip()
        if follows and found[-1].language == "python" and one.language in ("", "text"):
            found[-1].shown = one.text
        elif one.language == "console":
            found += _commands(one)
        else:
            found.append(one)
        end = match.end()
    return found


def _commands(block: Block) -> list[Block]:
    """The commands of a console block, each with the lines under it."""
    made: list[Block] = []
    for number, line in enumerate(block.text.splitlines()):
        if line.startswith("$ "):
            made.append(Block("console", line[2:], block.line + number, block.part_of))
        elif not made:
            raise ValueError(f"line {block.line}: a console block begins with '$ '")
        elif made[-1].shown is None and made[-1].text.endswith("\\"):
            made[-1].text += "\n" + line
        else:
            made[-1].shown = (made[-1].shown or "") + line + "\n"
    return made


def run(block: Block, names: dict[str, Any]) -> str:
    if block.language == "console":
        both = subprocess.STDOUT
        done = subprocess.run(["bash", "-c", block.text], stdout=subprocess.PIPE, stderr=both)
        printed = done.stdout.decode()
        if done.returncode != 0:
            raise SystemExit(f"line {block.line}: exit status {done.returncode}\n{printed}")
        return printed
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        # As many empty lines as stand above the block: a traceback then names the page's line.
        source = "\n" * (block.line - 1) + block.text
        exec(compile(source, names["__file__"], "exec"), names)
    return stream.getvalue()


def main() -> None:
    page = Path(sys.argv[1])
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(page)}
    ran = [b for b in blocks(page) if b.language in ("python", "console") and not b.part_of]
    print(json.dumps([run(block, names) for block in ran]))


if __name__ == "__main__":
    main()
