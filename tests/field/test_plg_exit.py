"""PLG-09: a program with work, buffers and threads on every device ends as it means to.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

REPEATS = int(os.environ.get("EXIT_REPEATS", "4"))  # 50 and more by hand

# Everything stays in globals: arrays, devices, a graph, a queue with work that nobody waited for.
USE = """
import sys, threading
import numpy as np
import anyhal as ah

kept = []
names = dict.fromkeys([*(d.name for d in ah.devices()), "fake:0"])
for name in names:
    with ah.use(device=ah.device(name)):
        a = ah.asarray(np.ones((64, 64), np.float32))
        kept += [a, ah.add(a, a), ah.device(name)]
        kept += [ah.matmul(a, a) for _ in range(20)]
print(" ".join(names), flush=True)

def work(stop=None):
    with ah.use(device=ah.device("fake:0")):
        b = ah.asarray(np.ones((64, 64), np.float32))
        for _ in range(50):
            kept.append(ah.add(b, b))
    if stop is not None:
        sys.exit(stop)
"""
# way out -> its code, and the exit status
WAYS = {
    "end": ("pass", 0),
    "exception": ("raise ValueError('on purpose')", 1),
    "sys_exit": ("sys.exit(3)", 3),
    "sys_exit_in_a_thread": (
        "t = threading.Thread(target=work, args=(5,)); t.start(); t.join()",
        0,
    ),
    "thread_still_at_work": ("threading.Thread(target=work).start(); sys.exit(4)", 4),
    "daemon_at_work": ("threading.Thread(target=work, daemon=True).start(); sys.exit(6)", 6),
    "exception_while_a_thread_works": (
        "threading.Thread(target=work).start(); raise ValueError('on purpose')",
        1,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_plg_09_every_way_out_gives_its_status(way: str) -> None:
    code, status = WAYS[way]
    environ = dict(os.environ, ANYHAL_FAKE="mode=async; delay=2ms")

    def run(_: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-X", "faulthandler", "-c", USE + code]
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=180, check=False
        )

    with ThreadPoolExecutor(2) as workers:
        ran = list(workers.map(run, range(REPEATS)))
    print(ran[0].stdout, f"{REPEATS} times")
    for one in ran:
        assert one.returncode == status, f"{one.returncode}: {one.stderr[-3000:]}"
        assert "Fatal Python error" not in one.stderr and "fake:0" in one.stdout
        assert ("Traceback" in one.stderr) == (status == 1)
