"""Recorded graphs as one program: state, inputs, constants, positions.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyhal as hal

RUNS, COMPILED = 2, 3  # counters


def on(device: Any, x: Any, **kind: Any) -> Any:
    return hal.asarray(np.asarray(x), device=device, **kind)


def test_a_region_sees_changed_inputs_and_keeps_state(device: Any) -> None:
    x, state = on(device, np.ones(6, np.float32)), on(device, np.zeros(6, np.float32))
    with hal.graph(device) as graph:
        hidden = hal.multiply(x, x)
        hal.add(state, hidden, out=state)
        total = hal.softmax(state, axis=-1)
    del hidden
    assert graph.form == "compiled"
    want = np.zeros(6, np.float32)
    for k in range(3):
        values = np.arange(6, dtype=np.float32) * (k + 1) * 0.1
        x.set(values)
        before = device.counter(RUNS)
        graph.launch()
        assert device.counter(RUNS) == before + 1, "a launch is one run"
        want += values * values
        np.testing.assert_allclose(state.numpy(), want, rtol=1e-6)
        e = np.exp(want - want.max())
        np.testing.assert_allclose(total.numpy(), e / e.sum(), rtol=1e-5)


def test_parts_of_blocks_inside_a_region(device: Any) -> None:
    x = on(device, np.arange(12, dtype=np.float32).reshape(3, 4))
    out = on(device, np.zeros((5, 4), np.float32))
    with hal.graph(device) as graph:
        hal.negative(x[1:], out=out[2:4])
        hal.add(out[2], x[0], out=out[0])
    graph.launch()
    want = np.zeros((5, 4), np.float32)
    want[2:4] = -x.numpy()[1:]
    want[0] = want[2] + x.numpy()[0]
    np.testing.assert_array_equal(out.numpy(), want)


def test_what_is_constant_is_computed_once(device: Any) -> None:
    """Block weights are decoded at prepare: the values are those of the single ops."""
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 256, (8, 2, 20), dtype=np.uint8)
    raw[..., :4] = rng.uniform(-1, 1, (8, 2, 2)).astype(np.float16).view(np.uint8)
    weight = hal.frombuffer(raw.reshape(-1), "q4_1", (8, 64), device=device, constant=True)
    x = on(device, rng.standard_normal((1, 64)).astype(np.float32))
    single = hal.quant_matmul(x, weight).numpy()
    with hal.graph(device) as graph:
        y = hal.quant_matmul(x, weight)
    assert graph.form == "compiled"
    graph.launch()
    np.testing.assert_allclose(y.numpy(), single, rtol=1e-5, atol=1e-5)


def test_positions_from_outside_are_looked_at_before_the_launch(device: Any) -> None:
    x, at = on(device, np.arange(5, dtype=np.float32)), on(device, np.array([1, 2]))
    with hal.graph(device) as graph:
        y = hal.take(x, at, axis=0)
    graph.launch()
    assert y.numpy().tolist() == [1, 2]
    at.set(np.array([1, 9]))
    with pytest.raises(hal.InvalidArgumentError, match="index 9"):
        graph.launch()
    assert y.numpy().tolist() == [1, 2], "nothing ran"
    at.set(np.array([0, 4]))
    graph.launch()
    assert y.numpy().tolist() == [0, 4]


def test_positions_computed_inside_fail_the_run(device: Any) -> None:
    x, at = on(device, np.arange(5, dtype=np.float32)), on(device, np.array([1, 2]))
    with hal.graph(device) as graph:
        y = hal.take(x, hal.add(at, at), axis=0)
    graph.launch()
    assert y.numpy().tolist() == [2, 4]
    at.set(np.array([1, 3]))
    graph.launch()
    with pytest.raises(hal.ExecutionFailedError, match="outside its axis"):
        y.numpy()
    at.set(np.array([0, 1]))
    graph.launch()
    assert y.numpy().tolist() == [0, 2], "the device goes on"


def test_a_graph_that_only_touches_its_own_is_still_right(device: Any) -> None:
    x = on(device, np.ones(3, np.float32), constant=True)
    with hal.graph(device) as graph:
        y = hal.add(x, x)
    graph.launch()
    assert y.numpy().tolist() == [2] * 3


VALUES = np.random.default_rng(1).integers(-4, 5, (8, 2, 4, 4)).astype(np.float32)


@pytest.mark.parametrize("order", ["xc", "cx"])
@pytest.mark.parametrize("column", [False, True])
def test_what_reads_the_old_value_sees_nothing_of_an_update_in_part(
    device: Any, order: str, column: bool
) -> None:
    def part(a: Any) -> Any:
        return a[:, 2] if column else a[2]

    made = {name: on(device, VALUES[0, 0]) for name in order}
    x, c = made["x"], made["c"]
    with hal.graph(device) as graph:
        turned = hal.copy(hal.permute_dims(x, (1, 0)))
        total = hal.add(x, c)
        own = hal.copy(x)
        hal.add(own[1], own[0], out=own[1])
        hal.add(part(x), hal.copy(turned[0]), out=part(x))
        most = hal.maximum(total, x)
        again = hal.copy(hal.permute_dims(x, (1, 0)))
    assert graph.form == "compiled"
    for given, other in VALUES:
        x.set(given), c.set(other)
        graph.launch()
        new, copied = given.copy(), given.copy()
        part(new)[...] += given[:, 0]
        copied[1] += copied[0]
        want = [new, given.T, given + other, copied, np.maximum(given + other, new), new.T]
        for got, expected in zip((x, turned, total, own, most, again), want, strict=True):
            np.testing.assert_array_equal(got.numpy(), expected)


STEPS = ("copy", "turn", "most", "row from row", "row from column", "column from row")


def step(kind: str, a: Any, b: Any, i: int, j: int, lib: Any) -> Any:
    """One random call of `lib`, anyhal or NumPy: a new array, or a change of part of `a`."""
    if kind == "copy":
        return lib.copy(a)
    if kind == "turn":
        return lib.copy(lib.permute_dims(a, (1, 0)) if lib is hal else a.T)
    if kind == "most":
        return lib.maximum(a, b)
    to = a[:, i] if kind == "column from row" else a[i]
    lib.maximum(to, lib.negative(b[:, j] if kind == "row from column" else b[j]), out=to)
    return None


@pytest.mark.parametrize("seed", range(12))
def test_updates_in_part_between_reads(device: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    calls = [(STEPS[rng.integers(len(STEPS))], *rng.integers(0, 4, 4).tolist()) for _ in range(8)]

    def run(arrays: list[Any], lib: Any) -> list[Any]:
        for kind, a, b, i, j in calls:
            made = step(kind, arrays[-a], arrays[-b], i, j, lib)
            arrays += [] if made is None else [made]
        return arrays

    given = [on(device, VALUES[0, 0]) for _ in range(3)]
    with hal.graph(device) as graph:
        found = run(list(given), hal)
    for k in range(4):
        new = [VALUES[k + n, n % 2] for n in range(3)]
        for array, values in zip(given, new, strict=True):
            array.set(values)
        graph.launch()
        for got, want in zip(found, run([v.copy() for v in new], np), strict=True):
            np.testing.assert_array_equal(got.numpy(), want, str(calls))


TWICE = """
import sys, numpy as np, anyhal as hal
pad = [hal.empty((n,), device="pjrt:0") for n in range(1, int(sys.argv[1]))]
a, b, c = (hal.asarray(np.ones((3, n), np.float32), device="pjrt:0") for n in (4, 5, 6))
del pad
with hal.graph("pjrt:0") as graph:
    for x in (c, a, b):
        hal.add(x, x, out=x)
        hal.negative(x[1], out=x[1])
graph.launch()
assert a.numpy()[0].tolist() == [2] * 4
print(hal.device("pjrt:0").counter(COMPILED), graph.form)
"""


def test_another_process_finds_what_the_first_has_compiled(
    paths: list[Path], tmp_path: Path
) -> None:
    env = {**os.environ, "ANYHAL_PJRT_PLUGINS": str(paths[0]), "ANYHAL_CACHE": str(tmp_path)}
    said = []
    for number in ("1", "40", "7", "300"):
        command = [sys.executable, "-c", TWICE.replace("COMPILED", str(COMPILED)), number]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.split())
    assert int(said[0][0]) > 0 and said[0][1] == "compiled"
    assert [s[0] for s in said[1:]] == ["0"] * 3, "the same text, whatever the addresses are"
