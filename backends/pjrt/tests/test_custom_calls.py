"""Weights that stay packed: products in a region that are a custom call of our own.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from pathlib import Path
from platform import machine
from typing import Any

import numpy as np
import pytest
from oracle import DATA, Oracle
from tiny_llama import Q4_0, Q4_1, Q4_K, Q6_K, Q8_0, Tiny, build

import anyhal as hal
from anyhal.conformance.tolerance import bound, mismatch
from anyhal.dtypes import dtype
from anyhal.frontends.gguf.fetch import FetchError, locate_model
from anyhal.frontends.gguf.llama import LlamaModel
from anyhal.frontends.gguf.reader import open_gguf
from anyhal.frontends.gguf.session import Session
from anyhal.ops import BY_NAME
from anyhal.ops._oracle import random_blocks

PRODUCTS = 5  # counter
ROWS_MAX = 16  # of x; from there on weights are decoded once
FORMATS = ("q4_0", "q4_1", "q8_0", "q4_k", "q6_k")
SPEC = BY_NAME["quant_matmul"]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def plain(paths: list[Path]) -> list[Any]:
    """The same plugins without custom calls."""
    settings = {"plugins": ":".join(map(str, paths)), "custom_calls": "off"}
    return hal.load_backend("pjrt", instance="pjrtplain", settings=settings)


@pytest.fixture
def other(device: Any, plugins: list[Any], plain: list[Any]) -> Any:
    return plain[plugins.index(device)]


def on(device: Any, x: Any, **kind: Any) -> Any:
    return hal.asarray(np.asarray(x), device=device, **kind)


def packed(device: Any, blocks: Any, constant: bool = True) -> Any:
    return hal.frombuffer(
        blocks.data.reshape(-1), blocks.dtype.short, blocks.shape, device=device, constant=constant
    )


def check(x: Any, blocks: Any, result: Any) -> None:
    """Within the bound of the op."""
    want = SPEC.reference(x, blocks)
    limit = bound(SPEC.bound, SPEC, (x, blocks, None, None, None), {}, want, dtype("f32"))
    wrong = mismatch(result.numpy(), want, limit, dtype("f32"), flushes=True)
    assert wrong is None, wrong


def product(device: Any, x: Any, blocks: Any) -> tuple[Any, int]:
    """x times the transposed weights by a region, and how many custom calls that took."""
    a, w = on(device, x), packed(device, blocks)
    with hal.graph(device) as graph:
        y = hal.quant_matmul(a, w)
    assert graph.form == "compiled"
    before = device.counter(PRODUCTS)
    graph.launch()
    y.numpy()
    return y, device.counter(PRODUCTS) - before


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_against_its_reference(device: Any, name: str) -> None:
    rng = np.random.default_rng(FORMATS.index(name))
    unit = dtype(name).block_elements
    shapes = [(1, 1, unit), (1, 9, 3 * unit), (2, 4, unit), (3, 7, 5 * unit)]
    for _ in range(3):
        m, n, k = (int(rng.integers(1, top)) for top in (ROWS_MAX + 1, 40, 6))
        shapes.append((m, n, k * unit))
    for m, n, k in [*shapes, (ROWS_MAX, 33, 2 * unit)]:
        x = rng.standard_normal((m, k)).astype(np.float32)
        blocks = random_blocks(rng, name, (n, k))
        y, calls = product(device, x, blocks)
        assert calls == 1, (m, n, k)
        check(x, blocks, y)


def test_more_rows_take_decoded_weights(device: Any) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((ROWS_MAX + 1, 64)).astype(np.float32)
    blocks = random_blocks(rng, "q4_1", (5, 64))
    y, calls = product(device, x, blocks)
    assert calls == 0
    check(x, blocks, y)


def test_the_setting_turns_them_off(device: Any, other: Any) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, 96)).astype(np.float32)
    blocks = random_blocks(rng, "q8_0", (7, 96))
    for target, wanted in ((other, 0), (device, 1)):
        y, calls = product(target, x, blocks)
        assert calls == wanted
        check(x, blocks, y)


def test_small_scales_are_not_lost(device: Any) -> None:
    """Scales that are denormal in f16, on threads where arithmetic takes denormals for 0."""
    rng = np.random.default_rng(3)
    x = 1e4 * rng.standard_normal((1, 64)).astype(np.float32)
    for name in FORMATS[:3]:
        blocks = random_blocks(rng, name, (5, 64))
        blocks.data[:, 0:2] = np.array([3e-6], np.float16).view(np.uint8)
        if name == "q4_1":
            blocks.data[:, 2:4] = np.array([-2e-5], np.float16).view(np.uint8)
        y, calls = product(device, x, blocks)
        assert calls == 1 and np.abs(y.numpy()).max() > 0
        check(x, blocks, y)


def test_infinite_scales_follow_ieee(device: Any) -> None:
    rng = np.random.default_rng(4)
    blocks = random_blocks(rng, "q8_0", (3, 32))
    blocks.data[0, 0:2] = np.array([np.inf], np.float16).view(np.uint8)
    blocks.data[0, 2:] = 1
    blocks.data[1, 0:2] = np.array([np.nan], np.float16).view(np.uint8)
    y, _ = product(device, np.ones((1, 32), np.float32), blocks)
    assert np.isposinf(y.numpy()[0, 0]) and np.isnan(y.numpy()[0, 1])
    assert np.isfinite(y.numpy()[0, 2])


def test_changed_inputs_are_seen(device: Any) -> None:
    rng = np.random.default_rng(5)
    blocks = random_blocks(rng, "q4_1", (9, 64))
    x, w = on(device, np.zeros((1, 64), np.float32)), packed(device, blocks)
    with hal.graph(device) as graph:
        y = hal.quant_matmul(x, w)
    for _ in range(2):
        values = rng.standard_normal((1, 64)).astype(np.float32)
        x.set(values)
        graph.launch()
        check(values, blocks, y)


def test_rows_from_the_middle_and_batches(device: Any) -> None:
    rng = np.random.default_rng(6)
    blocks = random_blocks(rng, "q4_1", (12, 96))
    x = rng.standard_normal((3, 2, 96)).astype(np.float32)
    w, a = packed(device, blocks), on(device, x)
    with hal.graph(device) as graph:
        y = hal.quant_matmul(a, w[3:8])
        z = hal.quant_matmul(on(device, x[0].T.copy(), constant=False).T, w)
    before = device.counter(PRODUCTS)
    graph.launch()
    want = SPEC.reference(x, blocks)
    np.testing.assert_allclose(y.numpy(), want[..., 3:8], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(z.numpy(), want[0], rtol=1e-4, atol=1e-4)
    assert device.counter(PRODUCTS) - before == 2


def test_a_vocabulary_is_multiplied_part_by_part(device: Any) -> None:
    """The decomposition decodes one part after another into one block."""
    rng = np.random.default_rng(7)
    blocks = random_blocks(rng, "q4_1", (8500, 512))
    x = rng.standard_normal((1, 512)).astype(np.float32)
    y, calls = product(device, x, blocks)
    assert calls == 2
    check(x, blocks, y)


def test_what_is_done_to_decoded_weights_counts(device: Any) -> None:
    rng = np.random.default_rng(8)
    blocks = random_blocks(rng, "q8_0", (6, 64))
    x = rng.standard_normal((1, 64)).astype(np.float32)
    decoded = np.asarray(SPEC.reference(np.eye(64, dtype=np.float32), blocks)).T
    a, w, one = on(device, x), packed(device, blocks), on(device, np.ones((6, 64), np.float32))
    with hal.graph(device) as graph:
        d = hal.astype(w, dtype="float32")
        plainly = hal.matmul(a, d.mT)
        half = hal.matmul(a[:, :32], d[:, :32].mT)
        hal.add(d, one, out=d)
        more = hal.matmul(a, d.mT)
    graph.launch()
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(plainly.numpy(), x @ decoded.T, **close)
    np.testing.assert_allclose(half.numpy(), x[:, :32] @ decoded[:, :32].T, **close)
    np.testing.assert_allclose(more.numpy(), x @ (decoded + 1).T, **close)


def test_weights_that_change_are_those_of_the_cast(device: Any) -> None:
    rng = np.random.default_rng(9)
    first, second = (random_blocks(rng, "q4_0", (5, 64)) for _ in range(2))
    x = rng.standard_normal((1, 64)).astype(np.float32)
    a, v = on(device, x), packed(device, second, constant=False)
    w = packed(device, first, constant=False)
    with hal.graph(device) as graph:
        before = hal.astype(w, dtype="float32")
        hal.copy(v, out=w)
        y = hal.matmul(a, before.mT)
        z = hal.quant_matmul(a, w)
    graph.launch()
    check(x, first, y)
    check(x, second, z)


def test_two_instances_and_many_threads(device: Any, paths: list[Path], plugins: list[Any]) -> None:
    path = paths[plugins.index(device)]
    (twin,) = hal.load_backend(
        "pjrt", instance=f"pjrttwin{plugins.index(device)}", settings={"plugins": str(path)}
    )
    failures: list[BaseException] = []
    recording = threading.Lock()  # a device records one graph at a time

    def run(target: Any, seed: int) -> None:
        try:
            rng = np.random.default_rng(seed)
            blocks = random_blocks(rng, "q4_1", (300, 256))
            x, w = on(target, np.zeros((2, 256), np.float32)), packed(target, blocks)
            with recording, hal.graph(target) as graph:
                y = hal.quant_matmul(x, w)
            for _ in range(8):
                values = rng.standard_normal((2, 256)).astype(np.float32)
                x.set(values)
                with recording:  # nor does it launch one meanwhile
                    graph.launch()
                check(values, blocks, y)
        except BaseException as why:
            failures.append(why)

    threads = [
        threading.Thread(target=run, args=(target, seed))
        for seed, target in enumerate((device, twin, device, twin))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures and not any(thread.is_alive() for thread in threads), failures


@pytest.mark.parametrize(
    "tiny",
    [
        Tiny(),
        Tiny(linear=Q4_0, embedding=Q4_1, head=Q8_0),
        Tiny(width=256, hidden=256, linear=Q4_K, embedding=Q6_K),
    ],
    ids=["q4_1 and q8_0", "q4_0", "of 256"],
)
def test_a_language_model_says_the_same(device: Any, tmp_path: Path, tiny: Tiny) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(build(tiny).build())
    file = open_gguf(path)
    expected = Oracle(file).run([5, 9], 6)
    with hal.use(device=device):
        session = Session(LlamaModel(file, device), 16)
        before = device.counter(PRODUCTS)
        for token in (5, 9):
            session.feed([token])
    assert np.abs(session.logits() - expected.first_logits).max() < 2e-3
    linears = 7 * tiny.layers + 1
    assert device.counter(PRODUCTS) - before == 2 * linears
    for token, margin in zip(expected.token_ids, expected.margins, strict=True):
        if margin < 0.02:
            break
        assert session.best() == token
        session.feed([token])


def test_the_real_model_says_the_same(device: Any) -> None:
    try:
        file = open_gguf(locate_model("smollm2"))
    except FetchError as error:
        pytest.skip(f"the model is not here: {error}")
    case = json.loads(DATA.read_text())[0]
    with hal.use(device=device):
        session = Session(LlamaModel(file, device), 64)
        before = device.counter(PRODUCTS)
        for token in case["prompt_token_ids"]:
            session.feed([token])
        session.best()  # waits: until then nothing may have run
    assert device.counter(PRODUCTS) > before
    for token, margin in zip(case["token_ids"], case["margins"], strict=True):
        if margin < 0.02:
            break
        assert session.best() == token
        session.feed([token])


def compiled(folder: Path, name: str, *sources: str, flags: tuple[str, ...] = ()) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not on the path, so the driver cannot be built")
    include = (f"-I{ROOT}", f"-I{ROOT / 'include'}")
    command = [compiler, "-std=c++20", "-O1", "-Wall", "-Wextra", *include, *flags]
    made = folder / name
    files = [ROOT / "backends/pjrt" / source for source in sources]
    subprocess.run([*command, *files, "-o", made, "-ldl"], check=True, timeout=300)
    return made


def test_the_handler_refuses_what_does_not_fit(paths: list[Path], tmp_path: Path) -> None:
    sources = ("custom_call.cc", "plugin.cc", "program.cc", "text.cc")
    driver = compiled(tmp_path, "driver", "tests/custom_call_driver.cc", *sources)
    for path in paths:
        done = subprocess.run([driver, path], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_instruction_set_of_this_processor(tmp_path: Path) -> None:
    second = ("-mavx2", "-mfma", "-mf16c")
    wide = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-Wno-maybe-uninitialized")
    levels = {"avx2": second, "avx512": (*second, *wide)} if machine() == "x86_64" else {}
    objects = [
        str(compiled(tmp_path, f"{name}.o", "kernels/block_product.cc", flags=("-c", *flags)))
        for name, flags in {"baseline": (), **levels}.items()
    ]
    sources = ("tests/block_product_driver.cc", "kernels/choose.cc", *objects)
    driver = compiled(tmp_path, "driver", *sources)
    done = subprocess.run([driver], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
