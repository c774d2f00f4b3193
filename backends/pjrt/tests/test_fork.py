"""After a fork: the child is refused at once and ends as it likes, the parent goes on.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from pathlib import Path

import pytest
from plugin_double import Double
from test_killers import plain

# The double aborts a child that calls it, so a status of 0 shows that none did.
BEGIN = """
import gc, multiprocessing, os, signal, sys, time
import numpy as np, anyhal as hal
x = hal.asarray(np.arange(4, dtype=np.float32), device="pjrt:0")
other = hal.asarray(np.arange(4, dtype=np.float32), device="pjrt:1")
with hal.graph("pjrt:0") as graph:
    z = hal.add(x, x)
graph.launch()
y = hal.add(x, x)
def in_child(work):
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        code = 9
        try:
            work()
            code = 3
        except hal.DeviceLostError as why:
            code = 0 if "fork" in str(why) else 4
        except BaseException as why:
            sys.stderr.write(f"{type(why)} {why}")
            code = 5
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert status == 0, (work, status)
    assert time.monotonic() - begin < 10
def parent_goes_on():
    assert hal.add(y, x).numpy().tolist() == [0, 3, 6, 9]
    graph.launch()
    assert z.numpy().tolist() == [0, 2, 4, 6]
    assert hal.add(other, other).numpy().tolist() == [0, 2, 4, 6]
"""


def run(double: Double, code: str) -> None:
    assert "went on" in double.python(BEGIN + code + "parent_goes_on()\nprint('went on')\n")


def test_every_use_in_a_child_is_refused_at_once(each_double: Double) -> None:
    run(
        each_double,
        """
for work in (
    lambda: hal.add(x, x), lambda: x.numpy(), lambda: hal.maximum(x, y), graph.launch,
    lambda: hal.asarray([1.0], device="pjrt:0"), lambda: hal.asarray([1.0], device="pjrt:1"),
    lambda: hal.device("pjrt:0").synchronize(), lambda: hal.Queue("pjrt:0"),
    lambda: x.set(np.zeros(4, np.float32)), lambda: hal.add(other, other).numpy(),
):
    in_child(work)
def a_fresh_instance():
    try:
        made = hal.load_backend("pjrt", instance="again",
                                settings={"plugins": os.environ["ANYHAL_PJRT_PLUGINS"]})
    except hal.BackendLoadError as why:
        raise hal.DeviceLostError(str(why)) from None
in_child(a_fresh_instance)
""",
    )


def test_a_child_lets_go_of_everything_and_ends_in_any_way(each_double: Double) -> None:
    run(
        each_double,
        """
for end in (lambda: sys.exit(0), lambda: os._exit(0)):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        del x, y, z, graph, other
        gc.collect()
        mine = hal.asarray([1.0, 2.0], device="cpu")
        assert hal.add(mine, mine).numpy().tolist() == [2, 4]
        end()
    assert os.waitpid(child, 0)[1] == 0
""",
    )


def test_a_fork_while_work_is_on_its_way(each_double: Double) -> None:
    run(
        each_double,
        """
a = hal.asarray(np.full((256, 256), 1 / 256, np.float32), device="pjrt:0")
for _ in range(5):
    b = a
    for _ in range(15):
        b = hal.matmul(b, a)
    in_child(lambda: b.numpy())
    assert abs(b.numpy().sum() - 256) < 1
""",
    )


def test_multiprocessing_by_fork(each_double: Double) -> None:
    run(
        each_double,
        """
def work(kind):
    try:
        return hal.add(x, x).numpy().tolist()
    except hal.DeviceLostError as why:
        one = hal.asarray([1.0], device="cpu")
        return "fork" in str(why) and hal.add(one, one).numpy().tolist() == [2]
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map_async(work, range(4)).get(60) == [True] * 4
""",
    )


@pytest.mark.parametrize("asked", ["", "hal.device('cpu')"])
def test_a_child_may_be_the_first_to_use_a_plugin(paths: list[Path], asked: str) -> None:
    """Nothing was started before the fork, so nothing of the plugin is broken."""
    code = f"""
import os, signal, anyhal as hal
{asked}
child = os.fork()
if child == 0:
    signal.alarm(60)
    x = hal.asarray([1.0], device="pjrt:0")
    os._exit(0 if hal.add(x, x).numpy().tolist() == [2] else 3)
print(os.waitpid(child, 0)[1])
x = hal.asarray([1.0], device="pjrt:0")
print(hal.add(x, x).numpy())
"""
    done = plain(code, str(paths[0]))
    assert done.stdout.split("\n")[:2] == ["0", "[2.]"], done.stdout + done.stderr
