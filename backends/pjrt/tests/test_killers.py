"""What ends the process of a plugin, tried from where users are: arguments, settings, environment,
files. The process lives and says why.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_double import Double

BEGIN = """
import numpy as np, anyhal as hal
d = hal.device("pjrt:0")
x = hal.asarray(np.arange(4, dtype=np.float32), device=d)
def refused(work):
    try:
        work()
    except hal.HalError as why:
        text = str(why)
        assert len(text) > 20, text
        return type(why)
    raise AssertionError("it was taken")
"""
END = "\nassert hal.add(x, x).numpy().tolist() == [0, 2, 4, 6]\nd.synchronize()\nprint('alive')\n"

# The number is that of the list of inputs which end a plugin's process.
FROM_PYTHON = {
    "3 an element count that overflows": """
big = (1 << 40, 1 << 40)
for work in (lambda: hal.zeros(big, device=d), lambda: hal.empty(big, device=d),
             lambda: hal.broadcast_to(x[:1], big) + x[:1],
             lambda: hal.sum(hal.broadcast_to(x[:1], (1 << 31, 1 << 31, 1)))):
    refused(work)
""",
    "6 a view of memory that ends before the device": """
import gc
views = []
for n in range(20):
    whole = hal.asarray(np.arange(4, dtype=np.float32) + n, device=d)
    views.append(whole[1:3])
    del whole
gc.collect()
for n, y in enumerate(views):
    assert hal.add(y, y).numpy().tolist() == [2 + 2 * n, 4 + 2 * n], n
""",
    "7 dtypes that have no number in the plugin": """
for dtype in ("q4_1", "q8_0", "u4", "i4", "float8_e4m3fn", "nonsense", None, 7):
    try:
        y = hal.zeros((256,), dtype=dtype, device=d)
        z = hal.add(y, y).numpy()
    except (hal.HalError, TypeError) as why:
        assert isinstance(why, hal.HalError), (dtype, why)
    else:
        assert dtype is None and (z == 0).all(), (dtype, z)
""",
    "8 strides that are none": """
base = np.arange(24, dtype=np.float32)
y = hal.asarray(base, device=d)
turned = hal.permute_dims(hal.reshape(y, (2, 3, 4)), (2, 0, 1))
pairs = ((hal.broadcast_to(y[7:8], (2, 3)), np.full((2, 3), 7, np.float32)), (y[1::2], base[1::2]),
         (turned, base.reshape(2, 3, 4).transpose(2, 0, 1)))
for view, want in pairs:
    assert np.array_equal(hal.add(view, view).numpy(), want + want), want
    out = hal.add(hal.asarray(want, device=d), view)
    assert np.array_equal(out.numpy(), want + want), want
""",
    "9 nothing to copy": """
for shape in ((0,), (0, 3), (3, 0, 2)):
    y = hal.asarray(np.zeros(shape, np.float32), device=d)
    assert y.numpy().shape == shape and hal.add(y, y).numpy().shape == shape
    assert hal.sum(y).numpy() == 0
""",
    "11 arrays that were never written": """
y = hal.empty((3,), device=d)
assert hal.add(y, y).numpy().shape == (3,)
with hal.graph(d) as graph:
    z = hal.add(y, y)
graph.launch()
assert z.numpy().shape == (3,)
""",
    "12 objects that end twice": """
import gc
for _ in range(3):
    y = hal.add(x, x)
    queue, graph = hal.Queue(d), hal.graph(d)
    with graph:
        z = hal.add(y, x)
    graph.launch()
    assert z.numpy().tolist() == [0, 3, 6, 9]
    del y, z, graph, queue
    gc.collect()
    d.trim()
    assert hal.add(x, x).numpy().tolist() == [0, 2, 4, 6]
    alive = d.counter(0), d.counter(1)  # buffers, programs
    first = alive if _ == 0 else first
    assert alive == first, (alive, first)
""",
    "13 everything let go of at once": """
held = [hal.add(x, x) for _ in range(40)]
with hal.graph(d) as graph:
    y = hal.matmul(hal.broadcast_to(x, (4, 4)), hal.broadcast_to(x, (4, 4)))
graph.launch()
del held, graph, y
""",
}


@pytest.mark.parametrize("what", FROM_PYTHON)
def test_an_input_from_python_does_not_reach_the_plugin(double: Double, what: str) -> None:
    assert double.python(BEGIN + FROM_PYTHON[what] + END).strip() == "alive"


def test_every_compile_has_its_counts_and_every_run_its_options(double: Double) -> None:
    """1, 2, 4, 10, 11: the double notes each of them, and a program of all kinds makes none."""
    code = """
w = hal.asarray(np.ones((8, 4), np.float32), device=d, constant=True)
y = hal.softmax(hal.matmul(hal.broadcast_to(x, (2, 4)), w.T), axis=-1)
with hal.graph(d) as graph:
    both = hal.matmul(hal.broadcast_to(x, (2, 4)), w.T)
    z = hal.rms_norm(both, hal.ones((8,), device=d), eps=1e-5)
graph.launch()
y.numpy(), z.numpy(), hal.argmax(z, axis=-1).numpy()
"""
    assert double.python(BEGIN + code + END).strip() == "alive"
    assert double.report().calls["Client_Compile"] > 3


def plain(code: str, plugins: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ANYHAL_PJRT_PLUGINS": plugins, **more},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize(
    "variable, value",
    [
        ("XLA_FLAGS", "--xla_no_such_flag=1"),
        ("XLA_FLAGS", "--xla_cpu_enable_fast_math=what"),
        ("XLA_FLAGS", "/no/such/file"),
        ("XLA_FLAGS", "\x01\x02 -- = --"),
        ("TF_XLA_FLAGS", "--no_such_flag"),
        ("PJRT_NPROC", "0"),
        ("PJRT_NPROC", "-1"),
        ("PJRT_NPROC", "many"),
        ("PJRT_NPROC", "100000"),
        ("NPROC", "100000"),
        ("TF_CPP_MIN_LOG_LEVEL", "loud"),
        ("TF_CPP_VMODULE", ",=,"),
    ],
)
def test_the_environment_does_not_end_the_process(
    paths: list[Path], variable: str, value: str
) -> None:
    code = (
        f"import os\nwas = os.environ[{variable!r}]\n{BEGIN}{END}\n"
        f"assert os.environ[{variable!r}] == was == {value!r}\n"
        "assert hal.add(*[hal.asarray([1.0], device='pjrt:1')] * 2).numpy().tolist() == [2]\n"
    )
    done = plain(code, ":".join(map(str, paths)), **{variable: value})
    assert done.returncode == 0 and done.stdout.strip() == "alive", done.stderr


def no_plugin(kind: str, folder: Path, real: Path) -> Path:
    """A file that is no plugin."""
    bad = folder / "bad.so"
    if kind == "empty":
        bad.touch()
    elif kind == "text":
        bad.write_text("#!/bin/sh\n")
    elif kind == "cut off":
        bad.write_bytes(real.open("rb").read(1 << 20))
    elif kind == "a header alone":
        bad.write_bytes(real.open("rb").read(64))
    elif kind == "another machine":
        head = bytearray(real.open("rb").read(1 << 16))
        head[18:20] = (243).to_bytes(2, "little")  # RISC-V
        bad.write_bytes(head)
    elif kind == "a folder":
        bad.mkdir()
    elif kind == "a pipe":
        os.mkfifo(bad)
    elif kind == "a device file":
        bad.symlink_to("/dev/zero")
    elif kind == "a circle of links":
        bad.symlink_to(bad)
    elif kind == "unreadable":
        bad.write_bytes(real.open("rb").read(1 << 16))
        bad.chmod(0)
    else:
        source = folder / "source.cc"
        source.write_text(
            'extern "C" const void* GetPjrtApi() { return nullptr; }\n'
            if kind == "a null table"
            else 'extern "C" const unsigned long* GetPjrtApi() {\n'
            "  static const unsigned long t[8] = {16}; return t; }\n"
            if kind == "a table that is too short"
            else "int nothing;\n"
        )
        command = ["g++", "-shared", "-fPIC", str(source), "-o", str(bad)]
        subprocess.run(command, check=True, capture_output=True)
    return bad


@pytest.mark.parametrize(
    "kind, why",
    [
        ("empty", "not a whole library"),
        ("text", "not a whole library"),
        ("cut off", "not a whole library"),
        ("a header alone", "not a whole library"),
        ("another machine", "not a whole library"),
        ("a folder", "no regular file"),
        ("a pipe", "no regular file"),
        ("a device file", "no regular file"),
        ("a circle of links", "no such file"),
        ("unreadable", "cannot be read: Permission denied"),
        ("no symbol", "no GetPjrtApi"),
        ("a null table", "no GetPjrtApi that answers"),
        ("a table that is too short", "no GetPjrtApi that answers"),
    ],
)
def test_a_file_that_is_no_plugin_costs_only_itself(
    paths: list[Path], tmp_path: Path, kind: str, why: str
) -> None:
    if kind == "unreadable" and os.geteuid() == 0:
        why = "not a whole library"  # root reads it all the same
    bad = no_plugin(kind, tmp_path, paths[0])
    done = plain(BEGIN + END, f"{bad}:{paths[0]}")
    assert done.stdout.strip() == "alive", done.stderr
    assert why in done.stderr and "bad.so" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "end", ["pass", "raise SystemExit(7)", "raise RuntimeError", "sys.exit(3)"]
)
def test_plg_09_the_process_ends_as_it_wanted(paths: list[Path], end: str) -> None:
    """15: libraries are never closed, and arrays, graphs and queues may outlive everything."""
    code = BEGIN + (
        "import sys, threading\n"
        "y = hal.add(x, x)\n"
        "q = hal.Queue(d)\n"
        "other = hal.asarray([1.0], device='pjrt:1')\n"
        "with hal.graph(d) as g:\n    z = hal.matmul(hal.broadcast_to(x, (4, 4)), y[:, None])\n"
        f"g.launch()\n{end}\n"
    )
    done = plain(code, ":".join(map(str, paths)))
    wanted = {"pass": 0, "raise SystemExit(7)": 7, "raise RuntimeError": 1, "sys.exit(3)": 3}[end]
    assert done.returncode == wanted, (done.returncode, done.stderr)


def test_a_setting_that_names_no_plugin_is_said(paths: list[Path]) -> None:
    code = """
import anyhal as hal
bad = ("", ":", "relative.so", "/no/such.so", "/dev/null", "/", "\\n", "/tmp/\\x7f:" * 50)
for number, plugins in enumerate(bad):
    given = dict(instance=f"p{number}", settings={"plugins": plugins})
    if not plugins.strip(":"):
        assert hal.load_backend("pjrt", **given) == [], plugins
        continue
    try:
        hal.load_backend("pjrt", **given)
    except hal.BackendLoadError as why:
        named = plugins.strip()[:5]
        assert named in str(why) and "correct ANYHAL" in str(why) or "absolute" in str(why), why
    else:
        raise AssertionError(plugins)
print("alive")
"""
    done = plain(code, "none")
    assert done.stdout.strip() == "alive", done.stderr
    assert done.stderr.count("correct ANYHAL_PJRT_PLUGINS") > 3, done.stderr


def test_a_bad_file_alone_is_the_reason_that_there_is_no_device(paths: list[Path]) -> None:
    code = """
import anyhal as hal
try:
    hal.device("pjrt:0")
except hal.BackendLoadError as why:
    assert "/no/such.so: there is no such file" in str(why), why
    print("alive")
"""
    done = plain(code, "/no/such.so")
    assert done.stdout.strip() == "alive", done.stderr


def test_a_file_that_is_named_twice_is_one_device_and_is_said(paths: list[Path]) -> None:
    code = BEGIN + "assert [n for n in hal.devices() if 'pjrt' in str(n)] == [d]" + END
    done = plain(code, f"{paths[0]}:{paths[0]}")
    assert done.stdout.strip() == "alive", done.stderr
    code = f"""
import anyhal as hal
twice = {{"plugins": "{paths[0]}:{paths[0]}"}}
print(len(hal.load_backend("pjrt", instance="p", settings=twice)))
"""
    done = plain(code, "none")
    assert done.stdout.strip() == "1" and "named twice" in done.stderr, done.stderr


RACE = """
import sys, threading, time
import numpy as np, anyhal as hal
d = hal.device(sys.argv[1])
x = hal.asarray(np.zeros(5000, np.float32), device=d)
stop, runs, wrong = time.monotonic() + 3, [], []
def on_a_queue(call):
    try:
        with hal.use(device=d, queue=hal.Queue(d)):
            launches = 0
            while time.monotonic() < stop:
                call()
                launches += 1
        runs.append(launches)
    except BaseException as why:
        wrong.append(repr(why))
def read():
    values = hal.add(x, 0).numpy()
    assert (values == values[0]).all(), values
def change():
    hal.add(x, 1, out=x)
calls = (change, read, change, read, lambda: x.set(np.zeros(5000, np.float32)))
threads = [threading.Thread(target=on_a_queue, args=(call,)) for call in calls]
[t.start() for t in threads]
[t.join() for t in threads]
assert not wrong, wrong
assert len(runs) == 5 and min(runs) > 1, runs
print("alive")
"""


@pytest.mark.parametrize("number", [0, 1])
def test_queues_that_change_and_read_one_cell(paths: list[Path], number: int) -> None:
    """A cell's buffer is let go of by one queue only after another has handed it over."""
    code = RACE.replace("sys.argv[1]", repr(f"pjrt:{number}"))
    done = plain(code, ":".join(map(str, paths)))
    assert done.returncode == 0 and done.stdout.strip() == "alive", done.stderr
