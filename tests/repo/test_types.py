"""What a type checker sees of the package: a small program under mypy --strict.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import anyhal as hal

# tools/check.py has mypy and runs this folder; plain pytest need not.
pytest.importorskip("mypy", reason="the extra check is not installed")

PROGRAM = """\
import numpy as np
import anyhal as hal

x = hal.asarray(np.ones((2, 3), np.float32))
reveal_type(x)  # Array
reveal_type(hal.zeros((2,)))  # Array
reveal_type(hal.softmax(x))  # Array
reveal_type(hal.add(x, 1.0))  # Array
reveal_type(2.0 * x[0] - x.T)  # Array
reveal_type(x == x)  # Array
reveal_type(hal.einsum("ij,kj->ik", x, x))  # Array
reveal_type(hal.split(x, 2))  # list[Array]
reveal_type(hal.topk(x, k=1))  # tuple[Array, Array]
reveal_type(x.device.name)  # str
hal.softmax(x, axes=1)  # error: call-arg
hal.scatter(x, x, x, axis=0, reduction="ad")  # error: arg-type
hal.softmax()  # error: call-arg
x.nonsense  # error: attr-defined
"""


def test_a_strict_program_sees_arrays_and_signatures(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    # The installed package, py.typed and all; mypy takes no site-packages as a path of sources.
    found = tmp_path / "found"
    found.mkdir()
    (found / "anyhal").symlink_to(Path(str(hal.__file__)).parent)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--follow-imports=silent",
         "--cache-dir", str(tmp_path / "cache"), program.name],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": str(found)}, capture_output=True, text=True,
    )  # fmt: skip
    said = [line for line in done.stdout.splitlines() if line.startswith(program.name)]
    seen: dict[int, str] = {}
    for line in said:
        number, text = line.split(":", 2)[1:]
        shown = re.search(r'Revealed type is "(.*)"', text) or re.search(r"\[([a-z-]+)\]$", text)
        if shown is not None:
            seen[int(number)] = re.sub(r"[\w.]+\.", "", shown[1])
    wanted = {
        number: line.split("# ")[1].removeprefix("error: ")
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "# " in line
    }
    assert seen == wanted, done.stdout + done.stderr
