"""Recorded calls with products as CUDA graphs: captured once, launched with new values, updated.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from simulated import Double

import anyhal as hal

# One step of a small decoder: an embedding row, products, attention over a cache, a norm.
STEP = """
import ctypes, os
import numpy as np, anyhal as hal
rng = np.random.default_rng(5)
WEIGHTS = rng.standard_normal((3, 32, 32)).astype(np.float32) * 0.2
TABLE, CACHE = rng.standard_normal((2, 10, 32)).astype(np.float32)

def step(device):
    put = lambda x: hal.asarray(x, device=device)
    table, cache, token = put(TABLE), put(CACHE), put(np.array([0]))
    q, k, o = (put(w) for w in WEIGHTS)
    with hal.graph(device) as graph:
        x = hal.take(table, token, axis=0)
        scores = hal.softmax((x @ q) @ (cache @ k).T, axis=-1)
        hal.copy(x + (scores @ cache) @ o, out=cache[4:5])
        y = hal.rms_norm(cache[4:5], weight=None, eps=1e-5) @ k
    return graph, token, cache, y

def run(device, tokens):
    graph, token, cache, y = step(device)
    out = []
    for t in tokens:
        token.set(np.array([t]))
        graph.launch()
        out.append(y.numpy())
    return graph, out, cache.numpy()
"""


def test_a_decode_step_is_one_graph_with_the_librarys_products(
    double: Double, tmp_path: Path
) -> None:
    log = tmp_path / "calls.log"
    code = STEP + (
        "graph, made, cache = run('cuda:0', [3, 7, 1])\n"
        "_, want, kept = run('cpu:0', [3, 7, 1])\n"
        "np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-5)\n"
        "np.testing.assert_allclose(cache, kept, rtol=1e-4, atol=1e-5)\n"
        "print(graph.form)\n"
    )
    assert double.python(code, f"seed=9; log={log}") == "recorded\n"
    calls = [line.split()[0] for line in log.read_text().splitlines()]
    assert calls.count("cuGraphLaunch") == 3
    # New values in the same operands: captured and made once, at the first launch.
    assert calls.count("cuStreamBeginCapture_v2") == calls.count("cuGraphInstantiateWithFlags") == 1
    assert calls.count("cuGraphExecUpdate_v2") == 0
    report = double.report()
    assert report.runs["cublasLtMatmul"] >= 5 and report.violations == []


def test_a_new_queue_is_an_update_of_the_graph(double: Double, tmp_path: Path) -> None:
    """The record that kernels write faults to is the queue's, so it is one of what is captured."""
    log = tmp_path / "calls.log"
    code = STEP + (
        "graph, token, cache, y = step('cuda:0')\n"
        "good = hal.asarray(cache.numpy(), device='cuda:0')\n"
        "token.set(np.array([3])); graph.launch(); first = y.numpy()\n"
        "token.set(np.array([10])); graph.launch()\n"
        "try: y.numpy()\n"
        "except hal.InvalidArgumentError as why: print('index 10 is outside' in str(why))\n"
        "token.set(np.array([3])); hal.copy(good, out=cache); graph.launch()\n"
        "np.testing.assert_array_equal(y.numpy(), first)\n"
    )
    assert double.python(code, f"seed=3; log={log}") == "True\n"
    calls = [line.split()[0] for line in log.read_text().splitlines()]
    assert (calls.count("cuGraphLaunch"), calls.count("cuGraphExecUpdate_v2")) == (3, 1)
    assert calls.count("cuGraphInstantiateWithFlags") == 1
    assert double.report().violations == []


def test_a_graphs_workspace_is_nobody_elses_while_it_runs(simulated: Any) -> None:
    """The double's library fills its workspace with NaN whenever it runs."""
    x = np.eye(64, dtype=np.float32)
    with hal.use(device=simulated.name):
        a = hal.asarray(x)
        for value in range(20):
            with hal.graph() as graph:
                y = (a @ a) @ a
            assert graph.form == "recorded"
            graph.launch()
            del graph
            with hal.use(queue=hal.Queue(simulated)):
                others = [hal.asarray(np.full(1024, value, np.float32)) for _ in range(8)]
                with hal.graph() as second:
                    z = [hal.add(other, 1.0) for other in others]
                second.launch()
                for one in z:
                    np.testing.assert_array_equal(one.numpy(), np.full(1024, value + 1))
            np.testing.assert_array_equal(y.numpy(), x)
