"""A slice of the op family on every OpenCL device, whole runs, and two devices at once.
SPDX-License-Identifier: Apache-2.0

The whole family: TEST_DEVICES=all pytest tests/ops. Each cell compiles kernels of its own, which
takes minutes on a machine that has not compiled them before.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import anyhal as hal
from anyhal.ops import BY_NAME

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "ops"))

import test_property as family  # noqa: E402

from positions import OUTSIDE, positions_outside  # noqa: E402

OWN = ("copy", "cast", "unary", "binary", "where", "reduce", "matmul", "gather", "scatter_add")
FUSED = ("rms_norm", "softmax", "quant_matmul", "attention")
PER_OP = int(os.environ.get("TEST_OPENCL_CASES", "4"))  # which ones, the seed says
SEED = int(os.environ.get("TEST_SEED", "1"))


@pytest.mark.parametrize("op", [*OWN, *FUSED])
def test_a_slice_meets_its_reference(cl: str, op: str) -> None:
    cases = list(enumerate(family.samples(op)))
    chosen = np.random.default_rng([SEED, BY_NAME[op].id]).permutation(len(cases))[:PER_OP]
    spec = BY_NAME[op]
    found = [family.outcome(spec, cases[i][1], cl, "chosen", cases[i][0]) for i in chosen]
    wrong = [f for f in found if f is not None]
    assert not wrong, "\n".join(wrong)


def test_fused_ops_run_whole(cl: str) -> None:
    """What the backend has rows for is not decomposed."""
    with hal.use(device=cl):
        x = hal.ones((4, 64))
        hal.rms_norm(x, hal.ones(64), eps=1e-5)
        hal.softmax(x)
        q = hal.ones((1, 2, 3, 8))
        hal.attention(q, q, q, scale=0.3, causal="none")
        hal.synchronize(cl)
    ran = {(r["op"], r["decomposed"]) for r in hal.routes() if r["device"] == cl}
    assert {("rms_norm", False), ("softmax", False), ("attention", False)} <= ran


def test_an_index_outside_costs_only_its_call(cl: str) -> None:
    with hal.use(device=cl):
        x = hal.asarray(np.arange(5, dtype=np.float32))
        for bad in (5, -1, 2**40):
            with pytest.raises(hal.InvalidArgumentError, match=f"index {bad}"):
                hal.take(x, hal.asarray(np.array([1, bad])), axis=0).numpy()
            with pytest.raises(hal.InvalidArgumentError, match=f"index {bad}"):
                hal.scatter_add(x, hal.asarray(np.array([bad])), x[:1], axis=0).numpy()
            np.testing.assert_array_equal(hal.take(x, hal.asarray(np.array([4])), axis=0), [4])


def test_denormals_zeros_and_infinities(cl: str) -> None:
    tiny = np.array([1e-40, -1e-45, 0.0, -0.0, np.inf, -np.inf, np.nan, 3e38], np.float32)
    with hal.use(device=cl):
        x = hal.asarray(tiny)
        with np.errstate(over="ignore"):
            doubled, halves = tiny + tiny, tiny.astype(np.float16)
        for got, want in (
            (hal.add(x, x), doubled),
            (hal.multiply(x, hal.asarray(np.float32(0.5))), tiny * np.float32(0.5)),
            (hal.negative(x), -tiny),
            (hal.astype(x, dtype="float16"), halves),
        ):
            found = got.numpy()
            assert found.dtype == want.dtype
            np.testing.assert_array_equal(found, want)
            whole = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(found[whole]), np.signbit(want[whole]))


def test_a_matrix_with_an_infinity_keeps_zeros_out(cl: str) -> None:
    """The padding of a tile must not meet an infinity."""
    a = np.zeros((5, 19), np.float32)
    b = np.full((19, 7), np.inf, np.float32)
    a[:, 3] = 1
    b[np.arange(19) != 3] = 0
    with hal.use(device=cl):
        np.testing.assert_array_equal(
            hal.matmul(hal.asarray(a), hal.asarray(b)), a[:, 3:4] @ b[3:4]
        )


def test_products_and_attention_on_two_devices_at_once(both: tuple[str, str]) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 64, 64)).astype(np.float32)
    first, second = both
    for _ in range(5):
        product = hal.matmul(hal.asarray(a, device=first), hal.asarray(b, device=first))
        k = hal.reshape(hal.asarray(product, device=second), (1, 4, 16, 64))
        q = hal.reshape(hal.asarray(b, device=second), (1, 4, 16, 64))
        out = hal.attention(q, k, k, scale=0.125, causal="none")
        back = hal.add(hal.asarray(out, device=first), hal.reshape(product, (1, 4, 16, 64)))
        rows = (a @ b).reshape(1, 4, 16, 64)
        scores = 0.125 * np.einsum("bhtd,bhsd->bhts", b.reshape(1, 4, 16, 64), rows)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        want = np.einsum("bhts,bhsd->bhtd", weights, rows) + rows
        np.testing.assert_allclose(back.numpy(), want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("shape", "at"), OUTSIDE)
@pytest.mark.parametrize("op", ["take", "scatter_add"])
def test_a_position_outside_where_there_is_nothing_to_read(
    cl: str, op: str, shape: tuple[int, int], at: int
) -> None:
    positions_outside(cl, op, shape, at)


# Two threads queue more than the device has done when the program ends.
PENDING = """
import sys, threading, time
import numpy as np, anyhal as hal
x = hal.asarray(np.zeros(5000, np.float32), device=sys.argv[1])
stop = time.time() + 2
def queue():
    with hal.use(queue=hal.Queue(sys.argv[1])):
        while time.time() < stop:
            hal.add(x, 1, out=x)
threads = [threading.Thread(target=queue) for _ in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
print("queued")
"""


def test_a_program_that_ends_with_pending_work_ends(cl: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PENDING, cl],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "queued\n", "")


def test_a_recording_sees_new_values(cl: str) -> None:
    with hal.use(device=cl):
        x = hal.asarray(np.arange(8, dtype=np.float32))
        with hal.graph() as graph:
            y = hal.multiply(hal.add(x, x), x)
        for start in (0, 5):
            values = np.arange(start, start + 8, dtype=np.float32)
            x.set(values)
            graph.launch()
            np.testing.assert_array_equal(y.numpy(), 2 * values * values)


def test_what_is_not_here_is_not_chosen(cl: str) -> None:
    """The processor's own backend stays first; an OpenCL device is used when asked for."""
    assert hal.device().name.partition(":")[0] != "opencl"
