"""Files that commands are given: read as JSON, written as text, refused in one sentence.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anyhal.errors import InvalidArgumentError


def read_json(file: Path, made_by: str) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as why:
        said = (why.strerror or str(why)).lower()
    except (ValueError, RecursionError) as why:
        said = f"it is no JSON: {why}"
    raise InvalidArgumentError(f"reading {file}: {said}; make one with {made_by}")


@contextmanager
def understood(files: str, made_by: str) -> Iterator[None]:
    """Turns what goes wrong over a document of the wrong shape into one sentence."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as why:
        if isinstance(why, InvalidArgumentError):
            raise
        raise InvalidArgumentError(
            f"reading {files}: something in it is missing or of another kind ({why}); make it"
            f" again with {made_by}"
        ) from None


def is_stdout(file: Path | None) -> bool:
    return str(file) == "-"


def check_writable(files: Mapping[str, Path | None]) -> None:
    """By option, before what is written is worked for: InvalidArgumentError where none could go."""
    for option, file in files.items():
        if file is None or is_stdout(file):
            continue
        if not (why := _why_not(file)):
            continue
        raise InvalidArgumentError(f"{option} {file}: {why}; name a file that can be written")
    if sum(map(is_stdout, files.values())) > 1:
        raise InvalidArgumentError(
            f"writing to standard output: {' and '.join(o for o in files if is_stdout(files[o]))}"
            " both name it; give one of them a file"
        )


def _why_not(file: Path) -> str:
    """Found out by opening it, which changes nothing."""
    if file.is_dir():
        return "it is a folder"
    if not file.parent.is_dir():
        return f"there is no folder {file.parent}"
    if file.exists() and not file.is_file():  # a device or a pipe, which opening may block
        return "" if os.access(file, os.W_OK) else "permission denied"
    fresh = not file.exists()
    try:
        file.open("ab").close()
        if fresh:
            file.unlink(missing_ok=True)
    except OSError as why:
        return (why.strerror or str(why)).lower()
    return ""


def write(file: Path | None, text: str) -> None:
    """To the file, to standard output for "-", nowhere for None."""
    if file is None:
        return
    if is_stdout(file):
        print(text, end="")
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as why:
        raise InvalidArgumentError(
            f"writing {file}: {(why.strerror or str(why)).lower()}; name a file that can be written"
        ) from None
