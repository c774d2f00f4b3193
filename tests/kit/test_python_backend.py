"""A chip in one Python file: the same table, the same checks, and nothing of Python under a lock.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit_programs import COMMAND, Program

from anyhal import _core
from anyhal.errors import BackendLoadError
from anyhal.sdk import chip
from anyhal.sdk.backend import REASONS

Make = Callable[..., Path]
ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "src" / "anyhal" / "sdk" / "templates" / "python" / "chip.py"
ROWS = TEMPLATE.read_text().splitlines().index("    rows = (") + 1
BEGIN = """
import anyhal as hal, numpy as np, threading, os, sys, time
d = hal.device("pychip")
x = hal.asarray(np.arange(6, dtype=np.float32).reshape(2, 3), device=d)
"""


def good(done: object) -> str:
    assert done.returncode == 0, done.stderr  # type: ignore[attr-defined]
    assert "Traceback" not in done.stderr, done.stderr  # type: ignore[attr-defined]
    return str(done.stdout)  # type: ignore[attr-defined]


def test_statuses_and_reasons_are_those_of_the_contract() -> None:
    header = (ROOT / "include" / "anyhal" / "backend.h").read_text()
    for words, prefix in ((chip.STATUSES, "STATUS"), (REASONS, "REASON")):
        found = re.findall(rf"ANYHAL_{prefix}_(\w+) = (\d+),", header)
        assert [(w.lower(), int(n)) for w, n in found] == [(w, i) for i, w in enumerate(words)]


def test_it_computes_views_in_place_and_refuses(program: Program, python_chip: Make) -> None:
    python_chip("pychip")
    code = (
        BEGIN
        + """
assert d.fact.state == "uncertified" and d.fact.arch == "pychip1", d.fact
np.testing.assert_array_equal((x + x).numpy(), 2 * x.numpy())
t = hal.permute_dims(x, (1, 0))
np.testing.assert_array_equal(hal.matmul(x, t).numpy(), x.numpy() @ x.numpy().T)
np.testing.assert_array_equal(hal.add(t, hal.broadcast_to(x[:1, :1], (3, 2))).numpy(), t.numpy())
y = hal.asarray(np.ones((2, 3), np.float32), device=d)
hal.add(y, y, out=y)
assert (y.numpy() == 2).all()
try:
    hal.sin(x)
except hal.UnsupportedError as why:
    print(why)
assert [r["kernel"] for r in hal.receipts()] == []
with hal.use(receipts=True):
    x + x
    d.synchronize()
    print(hal.receipts()[-1]["kernel"], hal.receipts()[-1]["library"])
"""
    )
    out = good(program(code))
    assert "unary" in out and "reason attribute" in out and "of the functions" in out
    assert out.splitlines()[-1] == "binary: binary chip.py"


def test_a_raise_is_a_typed_failure_and_other_work_goes_on(
    program: Program, python_chip: Make
) -> None:
    kernel = (
        "    BINARY[fn](a, b, out=out)",
        "    if a.shape == (3,):\n        raise KeyError('three')\n    BINARY[fn](a, b, out=out)",
    )
    unary = (
        "    UNARY[fn](x, out=out)",
        "    if x.size == 5:\n        raise InvalidArgumentError('five are refused; pass four')\n"
        "    if x.size == 4:\n        raise MemoryError('no room')\n    UNARY[fn](x, out=out)",
    )
    imports = (
        "from anyhal.sdk",
        "from anyhal.errors import InvalidArgumentError\nfrom anyhal.sdk",
    )
    python_chip("pychip", kernel, unary, imports)
    code = (
        BEGIN
        + """
three = hal.asarray(np.ones(3, np.float32), device=d)
for call, kind in (
    (lambda: three + three, hal.ExecutionFailedError),
    (lambda: hal.exp(hal.asarray(np.ones(5, np.float32), device=d)), hal.InvalidArgumentError),
    (lambda: hal.exp(hal.asarray(np.ones(4, np.float32), device=d)), hal.OutOfMemoryError),
):
    try:
        call().numpy()
    except kind as why:
        print(why)
    else:
        raise SystemExit(f"nothing was raised of {kind}")
    assert (x + x).numpy()[1, 2] == 10, "the device goes on"
lost, later = three + three, x + x
try:
    lost.numpy()  # its value lies before the last signal
except hal.ExecutionFailedError:
    pass
"""
    )
    first, second, third = good(program(code)).splitlines()
    assert "KeyError: 'three' (chip.py, line " in first and "correct the backend's" in first
    assert "five are refused; pass four" in second
    assert "no room; free arrays" in third


def test_an_operand_that_is_kept_is_found(program: Program, python_chip: Make) -> None:
    keep = ("    UNARY[fn](x, out=out)", "    UNARY[fn](x, out=out)\n    KEPT.append(x)")
    python_chip("pychip", keep, ("UNARY = ", "KEPT = []\nUNARY = "))
    code = (
        BEGIN
        + """
try:
    hal.exp(x).numpy()
except hal.UnsupportedError as why:
    print(why)  # of the known answers, which come before anybody's call
"""
    )
    assert "kept an operand after its call" in good(program(code))


def test_threads_wait_without_keeping_the_kernels_from_it(
    program: Program, python_chip: Make
) -> None:
    """Kernels need the interpreter's lock; a caller that waits with it would wait for ever."""
    python_chip("pychip")
    code = (
        BEGIN
        + """
def work():
    for i in range(100):
        assert (x * x).numpy()[1, 2] == 25
        hal.asarray(hal.add(x, x), device="cpu").numpy()
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
first, second = hal.Queue(d), hal.Queue(d)
with hal.use(queue=first):
    y = x + x
with hal.use(queue=second):
    z = y + x
assert z.numpy()[1, 2] == 15
d.synchronize()
"""
    )
    good(program(code))


@pytest.mark.parametrize("size", [77, 1])  # 1: in the known answers, beside a lock that is held
def test_a_kernel_that_calls_ops_is_refused_and_hangs_nothing(
    program: Program, python_chip: Make, size: int
) -> None:
    wait = (
        "    BINARY[fn](a, b, out=out)",
        f"    import anyhal as hal\n    if a.size == {size}:\n"
        "        hal.exp(hal.asarray(np.ones(2, a.dtype), device='pychip')).numpy()\n"
        "    BINARY[fn](a, b, out=out)",
    )
    python_chip("pychip", wait)
    code = (
        BEGIN
        + f"""
hal.exp(hal.asarray(np.ones(2, np.float32), device=d)).numpy()
x = hal.asarray(np.ones({size}, np.float32), device=d)
try:
    (x + x).numpy()
except hal.HalError as why:
    print(why)
"""
    )
    out = good(program(code))
    assert "a kernel waits for its own device" in out or "code of a Python backend" in out


def test_a_kernel_may_wait_for_a_thread_that_uses_another_device(
    program: Program, python_chip: Make
) -> None:
    """No lock is held while known answers run, which is when the kernel runs first."""
    thread = (
        "    BINARY[fn](a, b, out=out)",
        "    import threading\n    import anyhal as hal\n"
        "    def other():\n        hal.exp(hal.ones(4, dtype=str(a.dtype), device='cpu')).numpy()\n"
        "    one = threading.Thread(target=other)\n    one.start()\n    one.join()\n"
        "    BINARY[fn](a, b, out=out)",
    )
    python_chip("pychip", thread)
    good(program(BEGIN + "assert (x + x).numpy()[1, 2] == 10"))


def test_threads_that_ask_for_one_cell_test_it_once(program: Program, python_chip: Make) -> None:
    python_chip("pychip")
    code = (
        BEGIN
        + """
from anyhal.dispatch import known_answers
run, seen = known_answers.run, []
def counted(device, spec, *more):
    seen.append(spec.name)
    time.sleep(0.2)
    return run(device, spec, *more)
known_answers.run = counted
def work():
    assert (x + x).numpy()[1, 2] == 10
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(seen)
"""
    )
    assert good(program(code)).split() == ["['binary']"]


def test_a_fork_a_pending_call_and_the_end(program: Program, python_chip: Make) -> None:
    slow = ("    BINARY[fn]", "    import time; time.sleep(0.02)\n    BINARY[fn]")
    python_chip("pychip", slow)
    code = (
        BEGIN
        + """
(x + x).numpy()
y = x + x
child = os.fork()
if child == 0:
    try:
        x + x
    except hal.DeviceLostError as why:
        assert "forked" in str(why), why
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert y.numpy()[1, 2] == 10
for i in range(5):
    y = x + x  # pending when the interpreter ends
print("through")
"""
    )
    assert good(program(code)) == "through\n"


def test_after_the_end_slots_answer_that_it_is_lost(program: Program, python_chip: Make) -> None:
    python_chip("pychip")
    code = (
        BEGIN
        + """
from anyhal import _core
(x + x).numpy()
_core.end_python()
try:
    (x + x).numpy()
except hal.DeviceLostError as why:
    print(why)
"""
    )
    assert "the Python interpreter that runs its kernels has ended" in good(program(code))


def test_a_kernel_that_does_not_return_does_not_hold_the_end_for_ever(
    program: Program, python_chip: Make
) -> None:
    slow = ("    BINARY[fn]", "    import time; time.sleep(40 * (a.size == 77))\n    BINARY[fn]")
    python_chip("pychip", slow)
    code = """
(x + x).numpy()
x = hal.asarray(np.ones(77, np.float32), device=d)
y = x + x
print("through")
"""
    begin = time.monotonic()
    done = program(BEGIN + code)
    assert good(done) == "through\n"
    assert time.monotonic() - begin < 36, "the end waited for the kernel"


def test_what_was_hashed_is_what_runs(program: Program, python_chip: Make) -> None:
    folder = python_chip("pychip")
    cached = folder / "__pycache__"
    code = f"""
import anyhal as hal
from anyhal.runtime.discovery import discover
from pathlib import Path
record = next(r for r in discover().backends if r.name == "pychip")
file = Path({str(folder)!r}) / "chip.py"
file.write_text(file.read_text() + "\\nraise SystemExit('it ran')\\n")
from anyhal.sdk.chip import load
try:
    load(record.library, record.sha256, "pychip", [])
except hal.BackendLoadError as why:
    print(why.stage, why)
"""
    out = good(program(code))
    assert out.startswith("trust ") and "was changed after it was found" in out
    assert not cached.exists()


@pytest.mark.parametrize(
    ("change", "stage", "words"),
    [
        (("import numpy as np", "import numpy as np\nimport nobody"), "init", "pip install nobody"),
        (("class Chip(PythonBackend)", "class Chip"), "init", "defines 0 subclasses"),
        (('Row("copy"', 'Row("copi"'), "init", "copi"),
        (('FLOATS = ("f32",', 'FLOATS = ("q4_k",'), "init", "NumPy has no q4_k"),
        (("def copy(x, out):", "def copy(x, out:"), "init", "SyntaxError"),
        (("return [HostDevice", "return 3 + [HostDevice"), "init", "TypeError"),
    ],
)
def test_a_file_that_cannot_be_a_chip_costs_only_itself(
    program: Program, python_chip: Make, change: tuple[str, str], stage: str, words: str
) -> None:
    python_chip("pychip", change)
    code = """
import anyhal as hal
assert hal.asarray([1.0, 2.0]).numpy().tolist() == [1, 2]
try:
    hal.load_backend("pychip", instance="other")
except hal.BackendLoadError as why:
    print(why.stage, why)
"""
    out = good(program(code))
    assert out.startswith(stage + " ") and words in out, out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('python = "../chip.py"', "without a folder"),
        ('python = "chip.so"', "ending in .py"),
        ('python = "chip.py"\nlibrary = "a.so"', "remove one of the two"),
        ('python = "other.py"', "there is no such file"),
    ],
)
def test_a_manifest_names_one_file_beside_it(
    program: Program, python_chip: Make, line: str, words: str
) -> None:
    folder = python_chip("pychip")
    manifest = folder / "backend.toml"
    manifest.write_text(manifest.read_text().replace('python = "chip.py"', line))
    code = """
from anyhal.runtime.discovery import discover
print(next(r for r in discover().backends if r.name == "pychip").error)
"""
    assert words in good(program(code))


def test_settings_reach_it_and_unread_ones_are_named(program: Program, python_chip: Make) -> None:
    python_chip(
        "pychip",
        ("    def devices(self):\n", "    def devices(self):\n        n = self.settings['name']\n"),
        ('HostDevice("pychip"', "HostDevice(n"),
    )
    code = """
import anyhal as hal
(d,) = hal.load_backend("pychip", instance="two", settings={"name": "called", "nmae": "x"})
print(d.name, d.native.record["name"])
"""
    done = program(code)
    assert good(done) == "two:0 called\n"
    assert "'nmae' was given and the backend did not ask for it" in done.stderr
    assert "'name'" not in done.stderr


def test_an_entry_that_refuses_is_a_refused_backend() -> None:
    """A chip in Python is negotiated with as a library is."""
    with pytest.raises(BackendLoadError, match="not loaded from /no/chip.py: no"):
        _core.load_python("/no/chip.py", "x", [], lambda given: 1 / 0, lambda why, n: (10, 0, "no"))


@pytest.mark.parametrize(
    ("change", "words", "status"),
    [
        (
            ('Row("copy"', 'Row("coppy"'),
            ("coppy", "copy", f"(chip.py, line {ROWS + 1})"),
            "failed init_failed",
        ),
        (
            ("def copy(x, out):", "def copy(x):"),
            ("its kernel takes 1 operands, the op gives 2",),
            "failed init_failed",
        ),
        (("def unary(x, out, *, fn):", "def unary(x, out, *, gn):"), ("gn",), "failed init_failed"),
        (("import numpy as np", "import numpy as np\nimport nobody"), ("nobody",), "absent driver"),
        (("anyhal.sdk import", "anyhal.skd import"), ("anyhal.skd",), "failed init_failed"),
        (
            (
                "    def devices(self):\n",
                "    def devices(self):\n        import anyhal\n"
                "        raise anyhal.NotFoundError('no card; put one in')\n",
            ),
            ("no card",),
            "absent driver_absent",
        ),
        (("return [HostDevice", "return 3 + [HostDevice"), ("(chip.py, line",), "failed"),
    ],
)
def test_only_what_is_missing_is_absent(
    program: Program,
    python_chip: Make,
    change: tuple[str, str],
    words: tuple[str, ...],
    status: str,
) -> None:
    python_chip("pychip", change)
    code = """
from anyhal.runtime.discovery import discover
from anyhal.runtime import device
import anyhal as hal
hal.devices()
record = next(r for r in device._loaded().discovery.backends if r.name == "pychip")
row = record.stages.first_failure
print(row.status, row.code, row.detail, row.hint)
"""
    out = good(program(code))
    assert out.startswith(status) and all(word in out for word in words), out
    assert out.count("(chip.py") <= 1 and "line" not in out.partition("(chip.py, line")[2], out


def test_an_interrupt_while_it_loads_is_the_users(program: Program, python_chip: Make) -> None:
    interrupt = "import numpy as np\nimport signal; signal.raise_signal(signal.SIGINT)"
    python_chip("pychip", ("import numpy as np", interrupt))
    done = program(COMMAND, "devices", ANYHAL_PROBE="off")
    assert done.returncode == 130 and "interrupted" in done.stderr, done.stdout + done.stderr


def test_what_it_prints_does_not_reach_standard_output(program: Program, python_chip: Make) -> None:
    python_chip("pychip", ("import numpy as np", "import numpy as np\nprint('hello')"))
    done = program(COMMAND, "devices", "--json", ANYHAL_PROBE="off")
    assert any(d["name"] == "pychip:0" for d in json.loads(done.stdout)["devices"]), done.stdout
    assert "hello" in done.stderr


LINTED = [
    (("import numpy as np", "import numpy as np"), ""),
    (("def copy(x, out):", "def copy(x, out:"), "it does not compile"),
    (("class Chip(PythonBackend)", "class Chip"), "defines 0 subclasses"),
    (("class Chip(", "class Other(PythonBackend):\n    pass\n\n\nclass Chip("), "2 subclasses"),
]


@pytest.mark.parametrize(("change", "words"), LINTED)
def test_lint_looks_at_it_as_python(
    program: Program, python_chip: Make, change: tuple[str, str], words: str
) -> None:
    done = program(COMMAND, "backend", "lint", str(python_chip("pychip", change)))
    assert words in done.stdout and "ELF" not in done.stdout, done.stdout
    assert done.returncode == (1 if words else 0), done.stdout
