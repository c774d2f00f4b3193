"""The known answers before a cell's first use: what a wrong kernel can hide, and who shares them.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit_programs import Program

Make = Callable[..., Path]
RIGHT = "    BINARY[fn](a, b, out=out)"
CALL = """
import anyhal as hal, numpy as np
d = hal.device("pychip")
x = hal.asarray(np.arange(6, dtype=np.float32).reshape(2, 3), device=d)
try:
    print((x + x).numpy().tolist())
except hal.UnsupportedError as why:
    print(why)
"""
# What the kernel does, and what the test says of it.
DEEDS = {
    "stale": (
        "    out[...] = KEPT.setdefault((fn, a.shape), BINARY[fn](a, b))",
        "in its second call: ",
    ),
    "before": (
        f"{RIGHT}\n    import ctypes; ctypes.memset(out.ctypes.data - 4, 0, 4)",
        "it wrote in front of an operand",
    ),
    "behind": (
        f"{RIGHT}\n    import ctypes; ctypes.memset(out.ctypes.data + out.nbytes, 0, 4)",
        "it wrote behind an operand",
    ),
    "input": (
        f"{RIGHT}\n    import ctypes; ctypes.memset(a.ctypes.data - 4, 0, 4)",
        "it wrote in front of an operand",
    ),
    "reads": (
        f"{RIGHT}\n    import ctypes\n"
        "    f = ctypes.c_float.from_address(a.ctypes.data + a.nbytes).value\n"
        "    if a.dtype == np.float32: out[...] += 0 * f",
        "nan instead of",
    ),
    "one_function": (
        f"{RIGHT}\n    if fn == 'add': out += 1",
        "elements are wrong",
    ),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_what_a_wrong_kernel_can_hide_is_found(
    program: Program, python_chip: Make, deed: str
) -> None:
    does, said = DEEDS[deed]
    python_chip("pychip", (RIGHT, does), ("class ", "KEPT = {}\n\n\nclass "))
    done = program(CALL)
    assert said in done.stdout and "the cell is quarantined" in done.stdout, done
    assert program(CALL).stdout == done.stdout  # from what is kept


def test_a_kernel_that_takes_padded_rows_for_dense_ones_is_found(
    program: Program, python_chip: Make
) -> None:
    old = "    np.matmul(a, b, out=out)"
    wrong = (
        "    if 0 not in a.strides:\n"
        "        dense = np.empty(a.shape, a.dtype).strides\n"
        "        a = np.lib.stride_tricks.as_strided(a, a.shape, dense)\n"
    )
    python_chip("pychip", (old, wrong + old))
    done = program(CALL.replace("x + x", "hal.matmul(x[:, :2], x[:, :2])"))
    assert "with NaN between the rows: " in done.stdout and "quarantined" in done.stdout, done


def test_a_right_kernel_passes(program: Program, python_chip: Make) -> None:
    python_chip("pychip")
    assert program(CALL).stdout == "[[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]\n"


def test_one_wrong_function_leaves_the_others(
    program: Program, python_chip: Make, tmp_path: Path
) -> None:
    """For C programs, which know ops and no functions, it takes its op along."""
    python_chip("pychip", (RIGHT, DEEDS["one_function"][0]))
    assert "quarantined" in program(CALL).stdout
    done = program(CALL.replace("x + x", "x * x"))
    assert done.stdout == "[[0.0, 1.0, 4.0], [9.0, 16.0, 25.0]]\n", done
    code = "from anyhal.runtime.registry import write_registry\nprint(write_registry())"
    text = Path(program(code).stdout.strip()).read_text()
    assert text.count("quarantine\tpychip1\tbinary\tf32\t") == 1


ADD = """
import sys
from anyhal.runtime import verdicts
print("ready", flush=True)
sys.stdin.read(1)
for n in range(40):
    verdicts.save("{fingerprint}", {{f"{{sys.argv[1]}} cell {{n}}": "wrong" if n % 2 else ""}})
print("done", flush=True)
"""


def test_processes_that_add_verdicts_at_once_lose_none(tmp_path: Path) -> None:
    """Nor does one that is killed in the middle take away what others wrote."""
    fingerprint = "a" * 64
    code = ADD.format(fingerprint=fingerprint)
    env = {**os.environ, "ANYHAL_CACHE": str(tmp_path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(n)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(5)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("x")
        process.stdin.flush()
    time.sleep(0.01)
    for killed in processes[:2]:
        killed.send_signal(signal.SIGKILL)
    outs = [process.communicate(timeout=60)[0] for process in processes]
    assert [out.strip() for out in outs[2:]] == ["done"] * 3
    kept = (tmp_path / "selftest" / f"{fingerprint[:32]}.json").read_text()
    found = json.loads(kept.partition("\n")[2])  # below the line with its hash
    for n in (2, 3, 4):
        mine = {key: why for key, why in found.items() if key.startswith(f"{n} ")}
        assert mine == {f"{n} cell {i}": "wrong" if i % 2 else "" for i in range(40)}


# What one step of a language model asks for.
CELLS = [
    *(("quant_matmul", ""), ("matmul", ""), ("attention", ""), ("rms_norm", ""), ("rope", "")),
    *(("embedding", ""), ("cache_append", ""), ("softmax", ""), ("argmax", ""), ("copy", "")),
    *(("binary", "add"), ("binary", "multiply"), ("unary", "silu"), ("cast", "")),
    *(("reduce", "sum"), ("gather", ""), ("where", ""), ("fill", "")),
]


@pytest.mark.parametrize("device", ["cpu", "cpu_ref"])
def test_the_cells_of_a_language_model_take_under_a_second(device: str) -> None:
    """Of this process's processor time, so that a busy machine changes little."""
    import anyhal as hal
    from anyhal.dispatch import known_answers
    from anyhal.dtypes import dtype
    from anyhal.ops import BY_NAME

    chosen = hal.device(device)
    hal.zeros(1, device=chosen)
    began = time.process_time()
    for op, function in CELLS:
        assert known_answers.run(chosen, BY_NAME[op], dtype("f32"), (0, 0, 0, 0), function) == "", (
            op
        )
    assert time.process_time() - began < 1
