"""Calls and copies are on their way when the call returns; a queue holds back at its depth.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from plugin_double import Double
from test_device_loss import run
from test_plugins import run as run_on

# The double lets completion be seen that much later, whatever the plugin does.
TIMED = """
def timed(work):
    begin = time.monotonic()
    kept = work()
    return time.monotonic() - begin, kept
with hal.graph(d) as graph:
    z = hal.add(hal.matmul(x, x), x)
graph.launch()
hal.add(x, x)
d.synchronize()
script("delay=500ms")
"""


@pytest.mark.parametrize(
    "work", ["hal.add(x, x)", "hal.matmul(x, x)", "graph.launch()", "on(d)", "x.set(A)"]
)
def test_work_is_under_way_when_the_call_returns(double: Double, work: str) -> None:
    run(
        double,
        f"""{TIMED}
took, kept = timed(lambda: {work})
waited, _ = timed(d.synchronize)
assert took < 0.25, took
assert took + waited > 0.45, (took, waited)
""",
    )


def test_a_copy_out_waits_where_its_bytes_are_read(double: Double) -> None:
    run(double, f"{TIMED}took, value = timed(x.numpy)\nassert took > 0.45 and (value == A).all()\n")


def test_a_queue_holds_back_at_its_depth_and_not_before(double: Double) -> None:
    """24 calls, which is less than the 32 at which a plugin would block inside its own call."""
    run(
        double,
        f"""{TIMED}
took, kept = timed(lambda: [hal.add(x, x) for _ in range(24)])
assert took < 0.4, took
took, one = timed(lambda: hal.add(x, x))
assert took > 0.05, took
assert all((y.numpy() == A + A).all() for y in [*kept, one])
""",
    )


def damaged(entry: Path, kind: str, others: dict[Path, bytes]) -> None:
    data = bytearray(entry.read_bytes())
    head = data.index(0) + 1  # the key; what the core keeps before what the backend gave
    if kind == "cut off":
        data = data[: head + (len(data) - head) // 2]
    elif kind == "empty":
        data = data[:head]
    elif kind == "one bit":
        data[head + (len(data) - head) // 2] ^= 1
    elif kind == "longer":
        data += b"\0" * 64
    elif kind == "of another program":
        theirs = next(body for path, body in others.items() if path != entry)
        data = data[:head] + bytearray(theirs[theirs.index(0) + 1 :])
    elif kind == "garbage":
        data = data[:head] + bytearray(np.random.default_rng(0).bytes(len(data) - head))
    entry.write_bytes(data)


@pytest.mark.parametrize(
    "kind", ["cut off", "empty", "one bit", "longer", "of another program", "garbage"]
)
def test_a_damaged_cache_entry_is_compiled_anew(
    paths: list[Path], tmp_path: Path, kind: str
) -> None:
    code = (
        "import numpy as np, anyhal as hal\n"
        "d = hal.device('pjrt:0')\n"
        "x = hal.asarray(np.arange(15, dtype=np.float32), device=d)\n"
        "print(hal.add(hal.exp(x * 0.0), x).numpy().sum())\n"
        "print(d.counter(3), d.counter(4))\n"
    )
    for plugin in paths:
        cache = tmp_path / plugin.stem
        first = run_on(code, str(plugin), ANYHAL_CACHE=str(cache)).stdout.split()
        entries = sorted((cache / "artefacts" / "pjrt").glob("*.bin"))
        assert len(entries) >= 3 and first[0] == "120.0"
        bodies = {entry: entry.read_bytes() for entry in entries}
        for entry in entries:
            damaged(entry, kind, bodies)
        again = run_on(code, str(plugin), ANYHAL_CACHE=str(cache))
        assert again.stdout.split()[0] == "120.0", again.stderr
        assert int(again.stdout.split()[2]) == 0, "a damaged entry was loaded"
        mended = run_on(code, str(plugin), ANYHAL_CACHE=str(cache)).stdout.split()
        assert mended[0] == "120.0" and int(mended[1]) == 0 and int(mended[2]) > 0
