"""The cache of plans is bounded, whatever shapes a program makes, and never takes one in use.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np

import anyhal as hal
from anyhal import _core

MOST = 4096  # entries: kMaxPlans in core/plan.cc

CHURN = """
import numpy as np, anyhal as hal
from anyhal import _core

def resident():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmRSS"))

base = hal.asarray(np.arange(20_000, dtype=np.float32))
hot = hal.asarray(np.ones(3, np.float32))
queue = hal.Queue()
with hal.use(queue=queue), hal.graph() as recorded:
    kept = hal.add(base[:7], base[:7])
half = 0.0
for n in range(1, 10_001):
    got = hal.add(base[:n], base[n : 2 * n])
    if n % 997 == 0:
        np.testing.assert_array_equal(got.numpy(), np.float32(2 * np.arange(n) + n))
    assert float(hal.add(hot, hot).numpy()[0]) == 2
    assert _core.plan_cache_size() <= MOST
    if n == 5_000:
        half = resident()
with hal.use(queue=queue):
    recorded.launch()
np.testing.assert_array_equal(kept.numpy(), 2 * np.arange(7))
ran = sum(r["calls"] for r in hal.routes() if r["op"] == "binary")
assert ran == 20_001, ran  # what dropped plans have run is not forgotten
print(resident() - half, half, _core.plan_cache_size())
"""


def test_ten_thousand_shapes_are_right_and_take_bounded_memory() -> None:
    program = CHURN.replace("MOST", str(MOST))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    grown, _, entries = map(float, done.stdout.split())
    # 5,000 more signatures at 7 KB each were 35 MB.
    assert grown < 18, f"{grown:.0f} MB more after twice the shapes"
    assert 0 < entries <= MOST


def test_a_warm_call_outlives_the_shapes_around_it() -> None:
    _core.clear_plan_cache()
    hot = hal.asarray(np.ones(5, np.float32))
    base = hal.asarray(np.ones(2 * MOST + 10, np.float32))
    hal.exp(hot)

    def id_of_hot() -> list[int]:
        rows = [r for r in _core.plans() if r["signature"].startswith("unary f32[5]")]
        return [r["id"] for r in rows if r["calls"] > 100]

    for n in range(1, 2 * MOST):
        hal.negative(base[:n])
        hal.exp(hot)
    before = id_of_hot()
    assert len(before) == 1 and _core.plan_cache_size() <= MOST


def test_clearing_takes_nothing_that_runs() -> None:
    """Two threads run plans that a third throws out of the cache all the time."""
    stop = threading.Event()
    wrong: list[str] = []

    def work(seed: int) -> None:
        x = hal.asarray(np.full((200, 200), float(seed), np.float32))
        while not stop.is_set():
            if float(hal.matmul(x, x).numpy()[0, 0]) != 200.0 * seed * seed:
                wrong.append(f"matmul of {seed}")

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2)]
    for t in threads:
        t.start()
    for _ in range(2000):
        _core.clear_plan_cache()
    stop.set()
    for t in threads:
        t.join()
    assert wrong == []


def test_constants_of_decompositions_are_bounded() -> None:
    """Each depth brings a constant of its own length, 0.8 MB here."""
    x = hal.asarray(np.array([1]), device="cpu:0")

    def held() -> int:
        return int(hal.ledger()["weights"]["in_use"])

    before = held()
    for depth in range(100_000, 100_400):
        hal.one_hot(x, depth=depth)
    assert held() - before < 200 << 20
