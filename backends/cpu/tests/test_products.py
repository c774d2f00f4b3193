"""Products of every shape class: small, thin, panels, steps of k, bands, blocks, oneDNN.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from contract_client import Cpu

from anyhal.conformance.tolerance import bound, mismatch
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._oracle import random_blocks

SIZES = [
    (1, 300, 70),
    (1, 1, 1),
    (3, 33, 257),
    (4, 4, 4),
    (5, 17, 31),
    (8, 8, 8),
    (13, 90, 100),
    (14, 64, 32),
    (29, 1700, 40),  # the sum over k in steps
    (33, 7, 129),
    (61, 128, 65),
    (100, 100, 300),
    (400, 64, 100),  # bands of rows
    (600, 1601, 33),
]


def judge(op: str, inputs: list[Any], attrs: dict[str, Any], out: Any, where: str) -> None:
    spec = BY_NAME[op]
    full = {a.name: attrs.get(a.name, a.default) for a in spec.attrs}
    reference = np.asarray(spec.reference_outs(*inputs, **full)[0])
    tolerance = bound(spec.bound, spec, inputs, attrs, reference, dtype(out.dtype))
    wrong = mismatch(out, reference, tolerance, dtype(out.dtype))
    assert wrong is None, f"{op} {where}: {wrong}"


def matrices(rng: np.random.Generator, m: int, k: int, n: int, name: str) -> tuple[Any, Any]:
    np_type = dtype(name).numpy
    if name.startswith(("i", "u")):
        return (
            rng.integers(0, 100, (m, k)).astype(np_type),
            rng.integers(0, 100, (k, n)).astype(np_type),
        )
    return rng.standard_normal((m, k)).astype(np_type), rng.standard_normal((k, n)).astype(np_type)


@pytest.mark.parametrize("name", ["f32", "bf16", "f64", "i8", "i64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_matmul(cpu: Cpu, size: tuple[int, int, int], name: str) -> None:
    a, b = matrices(np.random.default_rng(1), *size, name)
    out = cpu.run("matmul", [a, b])
    judge("matmul", [a, b], {}, out, f"{size} {name} ({cpu.kernel})")


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_transposed_operands(cpu: Cpu, size: tuple[int, int, int]) -> None:
    m, k, n = size
    a, b = matrices(np.random.default_rng(2), m, k, n, "f32")
    straight = cpu.run("matmul", [a, b])
    for first in (a, np.asfortranarray(a)):
        for second in (b, np.asfortranarray(b)):
            out = cpu.run("matmul", [first, second])
            judge("matmul", [a, b], {}, out, f"{size} ({cpu.kernel})")
            np.testing.assert_allclose(out, straight, rtol=0, atol=1e-3)


def test_batches_share_stride_zero(cpu: Cpu) -> None:
    rng = np.random.default_rng(3)
    for m, k, n in ((4, 6, 5), (40, 70, 66)):
        a = rng.standard_normal((3, 1, m, k)).astype(np.float32)
        b = rng.standard_normal((1, 4, k, n)).astype(np.float32)
        judge("matmul", [a, b], {}, cpu.run("matmul", [a, b]), f"batch {(m, k, n)}")


def test_num_07_k_zero_writes_zeros(cpu: Cpu) -> None:
    for m, n in ((4, 4), (70, 90)):
        out = cpu.run("matmul", [np.zeros((m, 0), np.float32), np.zeros((0, n), np.float32)])
        assert (out == 0).all()


def test_same_bits_for_any_number_of_threads() -> None:
    rng = np.random.default_rng(4)
    few, many = Cpu(threads=1), Cpu(threads=4)
    w = random_blocks(rng, "q4_1", (192, 256))
    for m in (1, 7, 40, 600):
        a, b = matrices(rng, m, 256, 300, "f32")
        np.testing.assert_array_equal(few.run("matmul", [a, b]), many.run("matmul", [a, b]))
        inputs = [a, w, None, None, None]
        np.testing.assert_array_equal(
            few.run("quant_matmul", inputs, constant=(1,)),
            many.run("quant_matmul", inputs, constant=(1,)),
        )


@pytest.mark.parametrize("constant", [(1,), ()], ids=["packed", "repacked"])
@pytest.mark.parametrize("blocks", ["q4_1", "q8_0"])
@pytest.mark.parametrize("m", [1, 2, 3, 7, 8, 13, 32, 33, 50])
def test_quantised_weights(cpu: Cpu, m: int, blocks: str, constant: tuple[int, ...]) -> None:
    rng = np.random.default_rng(m)
    for n, k, name in ((37, 96, "f32"), (64, 32, "bf16"), (5, 1600, "f16")):
        np_type = dtype(name).numpy
        x = rng.standard_normal((m, k)).astype(np_type)
        w = random_blocks(rng, blocks, (n, k))
        bias = rng.standard_normal(n).astype(np_type)
        gate = rng.standard_normal((m, n)).astype(np_type)
        for activation in ("none", "silu"):
            inputs = [x, w, bias, gate, gate[::-1].copy()]
            attrs = {"activation": activation, "scale": 0.5}
            out = cpu.run("quant_matmul", inputs, attrs, constant=constant)
            judge("quant_matmul", inputs, attrs, out, f"m={m} n={n} k={k} {name} ({cpu.kernel})")


def test_activations_are_not_rounded(cpu: Cpu) -> None:
    """One weight of 1, the others 0: the activation must come back bit by bit."""
    rng = np.random.default_rng(5)
    w = random_blocks(rng, "q8_0", (16, 32))
    w.data[:] = 0
    w.data[:, :2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    for row in range(16):
        w.data[row, 2 + row] = 1
    for m in (1, 40):
        x = rng.standard_normal((m, 32)).astype(np.float32)
        out = cpu.run("quant_matmul", [x, w, None, None, None], constant=(1,))
        np.testing.assert_array_equal(out, x[:, :16])


def test_onednn_runs_large_products(onednn: str) -> None:
    device = Cpu(onednn=onednn)
    assert "oneDNN 3." in device.notes()
    rng = np.random.default_rng(6)
    for m, k, n in ((128, 128, 128), (100, 70, 300), (257, 65, 90), (70, 800, 50), (65, 1700, 80)):
        a, b = matrices(rng, m, k, n, "f32")
        for first in (a, np.asfortranarray(a)):
            for second in (b, np.asfortranarray(b)):
                out = device.run("matmul", [first, second])
                assert device.library.startswith("oneDNN"), device.kernel
                judge("matmul", [a, b], {}, out, f"{(m, k, n)} ({device.kernel})")
    device.run("matmul", list(matrices(rng, 40, 40, 40, "f32")))
    assert device.library == ""  # it costs more to call than such a product to compute


STRICT = """
import numpy as np
from contract_client import Cpu, onednn_path
rng = np.random.default_rng(0)
a = rng.standard_normal((256, 512)).astype(np.float32)
b = rng.standard_normal((512, 256)).astype(np.float32)
device = Cpu(onednn=onednn_path())
out = device.run("matmul", [a, b])
assert device.library.startswith("oneDNN"), device.kernel
print(np.abs(out - a.astype(np.float64) @ b.astype(np.float64)).max())
"""


@pytest.mark.parametrize("mode", ["BF16", "ANY"])
def test_num_33_strict_f32_whatever_the_environment_says(onednn: str, mode: str) -> None:
    here = os.path.dirname(__file__)
    environment = {
        **os.environ,
        "ONEDNN_DEFAULT_FPMATH_MODE": mode,
        "PYTHONPATH": os.pathsep.join([here, *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, "-c", STRICT], env=environment, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 1e-4  # bf16 inputs would be off by about 0.2


def test_one_plan_from_two_threads_at_once(onednn: str) -> None:
    device = Cpu(onednn=onednn, threads=2)
    rng = np.random.default_rng(8)
    pairs = [
        tuple(rng.integers(-8, 9, (160, 160)).astype(np.float32) for _ in "ab") for _ in range(4)
    ]
    wrong: list[int] = []

    def loop(i: int, call: Any) -> None:
        a, b = pairs[i]
        for _ in range(20):
            if not (call(a, b) == a @ b).all():
                wrong.append(i)

    call = device.plan("matmul", list(pairs[0]))
    threads = [threading.Thread(target=loop, args=(i, call)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_missing_library_is_a_sentence_not_a_failure() -> None:
    for path in ("", "/nowhere/libdnnl.so.3", "libdnnl.so.3"):
        device = Cpu(onednn=path)
        assert "oneDNN is not used" in device.notes()
        # What was named and is of no use is told once, by itself.
        assert [level for level, _ in device.logged] == ([2] if path else [])
        a, b = matrices(np.random.default_rng(9), 90, 90, 90, "f32")
        judge("matmul", [a, b], {}, device.run("matmul", [a, b]), "without the library")
