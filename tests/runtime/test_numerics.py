"""Permissions and demands: what is used is what is said, and what is promised holds.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.conformance.tolerance import bound, mismatch, rounded_factors
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._oracle import random_blocks
from anyhal.ops._spec import Blocks

F32 = np.float32
CPU = "cpu:0"


def has_dots() -> bool:
    return "avx512_bf16" in next(d for d in hal.devices() if d.name == CPU).fact.arch


needs_dots = pytest.mark.skipif(not has_dots(), reason="this processor multiplies no bf16")


def used(op: str, device: str = CPU) -> Counter[str]:
    """Calls so far, by the numerics that ran."""
    found: Counter[str] = Counter()
    for r in hal.routes():
        if (r["op"], r["device"]) == (op, device):
            found[r["numerics"]] += r["calls"]
    return found


def run(op: str, *inputs: Any, numerics: str, device: str = CPU, **attrs: Any) -> tuple[Any, str]:
    """The values, and the numerics that the receipt names."""
    before = used(op, device)
    with hal.use(device=device, numerics=numerics):
        arrays = [
            None
            if x is None
            else hal.frombuffer(x.data.reshape(-1), x.dtype.name, x.shape, constant=True)
            if isinstance(x, Blocks)
            else hal.asarray(x)
            for x in inputs
        ]
        while arrays[-1] is None:
            arrays.pop()
        found = getattr(hal, op)(*arrays, **attrs).numpy()
    (how,) = used(op, device) - before
    return found, how


def probes(m: int, k: int, n: int) -> tuple[Any, Any]:
    """Ones and numbers with nine bits, which bf16 has not: each sum says which was used."""
    a = np.full((m, k), 1 + 2.0**-8, F32)
    return a, np.ones((k, n), F32)


# ---------------------------------------------------------------------------------- permissions


@needs_dots
@pytest.mark.parametrize("layout", ["rows", "columns of a", "columns of b", "gaps"])
def test_bf16_is_used_where_it_is_said_and_nowhere_else(layout: str) -> None:
    a, b = probes(96, 128, 96)
    with hal.use(device=CPU):
        x, w = hal.asarray(a), hal.asarray(b)
        if layout == "columns of a":
            x = hal.asarray(np.ascontiguousarray(a.T)).T
        elif layout == "columns of b":
            w = hal.asarray(np.ascontiguousarray(b.T)).T
        elif layout == "gaps":
            x = hal.asarray(np.repeat(np.repeat(a, 2, 0), 2, 1))[::2, ::2]
        with hal.use(numerics="strict"):
            strict = hal.matmul(x, w).numpy()
        before = used("matmul")
        with hal.use(numerics="bf16"):
            rounded = hal.matmul(x, w).numpy()
    assert list(used("matmul") - before) == ["bf16"]
    assert (strict == 128 * (1 + 2.0**-8)).all()
    assert (rounded == 128).all()  # half to even


@pytest.mark.parametrize("numerics", ["strict", "tf32"])
def test_what_does_not_allow_bf16_never_gets_it(numerics: str) -> None:
    a, b = probes(256, 256, 256)
    found, how = run("matmul", a, b, numerics=numerics)
    assert how == "strict" and (found == 256 * (1 + 2.0**-8)).all()


@pytest.mark.parametrize("shape", [(4, 512, 512), (63, 512, 512), (512, 512, 31), (64, 65, 64)])
def test_products_that_gain_nothing_stay_strict(shape: tuple[int, int, int]) -> None:
    a, b = probes(*shape)
    found, how = run("matmul", a, b, numerics="bf16")
    assert how == "strict" and (found == shape[1] * (1 + 2.0**-8)).all()


@needs_dots
@pytest.mark.parametrize("short", ["f32", "bf16"])
@pytest.mark.parametrize("shape", [(96, 128, 96), (64, 1602, 33), (200, 64, 97)])
def test_bf16_is_within_its_bound(shape: tuple[int, int, int], short: str) -> None:
    m, k, n = shape
    rng, spec, to = np.random.default_rng(3), BY_NAME["matmul"], dtype(short)
    a = rng.standard_normal((m, k)).astype(to.numpy)
    b = rng.standard_normal((k, n)).astype(to.numpy)
    found, how = run("matmul", a, b, numerics="bf16")
    want = spec.reference(a, b)
    limit = bound(spec.bound, spec, (a, b), {}, want, to)
    assert how == "bf16"
    assert mismatch(found, want, limit + rounded_factors(2, spec, (a, b)), to) is None
    assert (mismatch(found, want, limit, to) is None) == (short == "bf16")  # those are exact


@needs_dots
def test_bf16_keeps_kinds() -> None:
    """NaN and infinities stay, what bf16 cannot hold does not become one, subnormals are zero."""
    a, b = np.ones((96, 128), F32), np.ones((128, 96), F32)
    a[0, 0], a[1, 1], a[2, 2] = np.nan, np.inf, np.finfo(F32).max
    a[3], b[2] = 1e-40, 2.0**-20
    found, how = run("matmul", a, b, numerics="bf16")
    assert how == "bf16"
    assert np.isnan(found[0]).all() and np.isposinf(found[1]).all()
    assert (np.abs(found[2] / (np.finfo(F32).max * 2.0**-20) - 1) < 2.0**-8).all()
    assert (np.abs(found[3]) < 128 * 2.0**-126).all()
    assert np.isfinite(found[4:]).all()


@needs_dots
@pytest.mark.parametrize("block", ["q4_1", "q8_0"])
def test_quantised_products_take_bf16_too(block: str) -> None:
    rng, spec = np.random.default_rng(4), BY_NAME["quant_matmul"]
    x = rng.standard_normal((80, 256)).astype(F32)
    w = random_blocks(rng, block, (96, 256))
    bias = rng.standard_normal(96).astype(F32)
    attrs = {"activation": "silu", "scale": 0.5}
    inputs = (x, w, bias, None, None)
    found, how = run("quant_matmul", *inputs, numerics="bf16", **attrs)
    want = spec.reference(*inputs, **attrs)
    limit = bound(spec.bound, spec, inputs, attrs, want, dtype("f32"))
    assert how == "bf16" and mismatch(found, want, limit, dtype("f32")) is not None
    limit = limit + rounded_factors(2, spec, inputs, attrs)
    assert mismatch(found, want, limit, dtype("f32")) is None
    strict, how = run("quant_matmul", *inputs, numerics="strict", **attrs)
    few, also = run("quant_matmul", x[:8], *inputs[1:], numerics="bf16", **attrs)
    assert how == also == "strict" and np.allclose(few, strict[:8], rtol=1e-4, atol=1e-4)


@needs_dots
@pytest.mark.parametrize("rows", [1, 3, 13])
@pytest.mark.parametrize("block", ["q4_1", "q8_0"])
def test_int8_rounds_activations_where_it_is_said(block: str, rows: int) -> None:
    rng, spec = np.random.default_rng(6), BY_NAME["quant_matmul"]
    x = rng.standard_normal((rows, 320)).astype(F32)
    x[0, 32:64] = 0
    w = random_blocks(rng, block, (45, 320))
    inputs = (x, w, None, None, rng.standard_normal((rows, 45)).astype(F32))
    found, how = run("quant_matmul", *inputs, numerics="int8")
    want = spec.reference(*inputs)
    limit = bound(spec.bound, spec, inputs, {}, want, dtype("f32"))
    assert how == "int8" and mismatch(found, want, limit, dtype("f32")) is not None
    limit = limit + rounded_factors(3, spec, inputs)
    assert mismatch(found, want, limit, dtype("f32")) is None
    strict, how = run("quant_matmul", *inputs, numerics="bf16")
    assert how == "strict" and not np.array_equal(found, strict)


@needs_dots
@pytest.mark.parametrize("block", ["q4_1", "q8_0"])
def test_int8_probe_and_kinds(block: str) -> None:
    """127.4 of 127 rounds away exactly; rows that are not finite are multiplied as they are."""
    rng = np.random.default_rng(7)
    w = random_blocks(rng, block, (32, 64))
    x = np.full((10, 64), 127, F32)
    whole, how = run("quant_matmul", x, w, None, None, None, numerics="int8")
    x[:, 1::2] = 126.6
    found, _ = run("quant_matmul", x, w, None, None, None, numerics="int8")
    assert how == "int8" and found.tobytes() == whole.tobytes()
    x[4, 3], x[5, 40], x[6, 7] = np.nan, np.inf, 1e-42
    found, how = run("quant_matmul", x, w, None, None, None, numerics="int8")
    strict, _ = run("quant_matmul", x, w, None, None, None, numerics="strict")
    assert how == "int8" and np.isnan(found[4]).all()
    assert np.array_equal(np.isinf(found[5]), np.isinf(strict[5])) and not np.isnan(found[5]).any()
    assert np.isfinite(found[[0, 1, 2, 3, 6, 7, 8, 9]]).all()


@needs_dots
def test_an_int8_permission_allows_what_is_finer() -> None:
    a, b = probes(96, 128, 96)
    found, how = run("matmul", a, b, numerics="int8")
    assert how == "bf16" and (found == 128).all()


OLDER = """
import sys, numpy as np, anyhal as hal
hal.load_backend("cpu", instance="older", settings={"isa": sys.argv[1]})
a, b = np.full((96, 128), 1 + 2.0**-8, np.float32), np.ones((128, 96), np.float32)
with hal.use(device="older:0", numerics="bf16"):
    found = hal.matmul(hal.asarray(a), hal.asarray(b)).numpy()
    print(hal.explain("matmul f32[96,128] f32[128,96]").kernels[0].numerics)
assert (found == 128 * (1 + 2.0**-8)).all()
print([r["numerics"] for r in hal.routes() if r["op"] == "matmul"])
"""


@pytest.mark.parametrize("level", ["avx512", "avx2", "baseline"])
def test_a_processor_without_the_instructions_is_strict_and_says_so(level: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OLDER, level], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["strict", "['strict']"]


@needs_dots
def test_explain_names_the_numerics() -> None:
    with hal.use(device=CPU, numerics="bf16"):
        large = hal.explain("matmul f32[512,576] f32[576,1536]")
        small = hal.explain("matmul f32[4,576] f32[576,1536]")
    assert [k.numerics for k in large.kernels] == ["bf16"]
    assert [k.numerics for k in small.kernels] == ["strict"]
    assert "bf16" in large.kernels[0].kernel


# -------------------------------------------------------------------------------------- demands


def demanding(determinism: str, device: str) -> Any:
    return hal.use(device=device, determinism=determinism)


RNG = np.random.default_rng(11)
W = RNG.standard_normal((96, 160)).astype(F32)
Q = random_blocks(RNG, "q4_1", (64, 96))
V = RNG.standard_normal(96).astype(F32)


def _quantised(x: Any) -> Any:
    w = hal.frombuffer(Q.data.reshape(-1), "q4_1", Q.shape, constant=True)
    return hal.quant_matmul(x, w, hal.asarray(V[:64]), activation="silu")


def _attention(x: Any) -> Any:
    kv = hal.asarray(W[:32].reshape(1, 4, 32, 40)[..., :24].copy())
    q = x.reshape(1, x.shape[0], 4, 24).transpose(0, 2, 1, 3)
    y = hal.attention(q, kv, kv, scale=0.2, causal="none")
    return y.transpose(0, 2, 1, 3).reshape(x.shape[0], 96)


# Functions of the rows of x [M, 96].
BY_ROW: dict[str, Callable[[Any], Any]] = {
    "matmul": lambda x: hal.matmul(x, hal.asarray(W)),
    "matmul of columns": lambda x: hal.matmul(x, hal.asarray(np.ascontiguousarray(W.T)).T),
    "epilogue": lambda x: hal.matmul_epilogue(
        x, hal.asarray(W), hal.asarray(np.resize(V, 160)), activation="gelu_tanh"
    ),
    "quant_matmul": _quantised,
    "softmax": lambda x: hal.softmax(x, axis=-1),
    "softmax of halves": lambda x: hal.softmax(x.astype("float16"), axis=-1),
    "rms_norm": lambda x: hal.rms_norm(x, hal.asarray(V), eps=1e-5),
    "layer_norm": lambda x: hal.layer_norm(x, hal.asarray(V), eps=1e-5),
    "sum": lambda x: hal.sum(x, axis=1, keepdims=True),
    "mean of two axes": lambda x: hal.mean(
        x.reshape(x.shape[0], 8, 12), axis=(1, 2), keepdims=False
    ).reshape(x.shape[0], 1),
    "sum across": lambda x: hal.sum(
        hal.broadcast_to(x.reshape(1, *x.shape), (7, *x.shape)) * 0.3, axis=0
    ),
    "first and last": lambda x: hal.sum(
        hal.asarray(np.resize(W, (40, 8, 1))) * x.reshape(x.shape[0], 1, 8, 12), axis=(1, 3)
    ),
    "max": lambda x: hal.max(x * 0.0, axis=1, keepdims=True),
    "logsumexp": lambda x: hal.logsumexp(x, axis=1, keepdims=True),
    "log_softmax": lambda x: hal.log_softmax(x, axis=1),
    "cumsum": lambda x: hal.cumsum(x, axis=1),
    "conv": lambda x: hal.conv(
        x.reshape(x.shape[0], 4, 6, 4), hal.asarray(np.resize(W, (5, 4, 3, 3)))
    ),
    "exp": hal.exp,
    "erf": hal.erf,
    "tanh of halves": lambda x: hal.tanh(x.astype("bfloat16")),
    "pow": lambda x: hal.pow(hal.abs(x), hal.asarray(V)),
    "attention": _attention,
}


@pytest.mark.parametrize("name", BY_ROW)
@pytest.mark.parametrize("device", [CPU, "cpu_ref:0"])
def test_a_row_does_not_depend_on_its_batch(device: str, name: str) -> None:
    f = BY_ROW[name]
    x = RNG.standard_normal((150, 96)).astype(F32)
    x[:, 5] = -0.0
    with demanding("batch_invariant", device):
        whole = f(hal.asarray(x)).numpy()
        shifted = hal.asarray(np.concatenate([x[:3], x]))[3:]  # elsewhere in memory
        assert f(shifted).numpy().tobytes() == whole.tobytes()
        for rows in (slice(0, 1), slice(149, 150), slice(7, 11), slice(20, 53), slice(0, 70)):
            part = f(hal.asarray(x[rows])).numpy()
            assert part.tobytes() == whole[rows].tobytes(), rows


@pytest.mark.parametrize("determinism", ["run_to_run", "batch_invariant"])
def test_the_number_of_threads_changes_nothing(determinism: str) -> None:
    code = (
        "import hashlib, numpy as np, anyhal as hal\n"
        "rng = np.random.default_rng(0)\n"
        "x = rng.standard_normal((300, 512)).astype(np.float32)\n"
        "w = rng.standard_normal((512, 300)).astype(np.float32)\n"
        f"with hal.use(device='cpu:0', determinism='{determinism}'):\n"
        "    a, b = hal.asarray(x), hal.asarray(w)\n"
        "    found = [hal.matmul(a, b), hal.sum(a), hal.softmax(a, axis=1), hal.sum(a, axis=0)]\n"
        "    print(hashlib.sha256(b''.join(f.numpy().tobytes() for f in found)).hexdigest())\n"
    )
    seen = set()
    for threads in ("1", "2"):
        environment = {**os.environ, "ANYHAL_THREADS": threads}
        seen.add(
            subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                env=environment,
                timeout=120,
                check=True,
            ).stdout
        )
    assert len(seen) == 1


UNARY = ["abs", "negative", "sign", "sqrt", "reciprocal", "floor", "ceil", "round", "trunc"]
UNARY += ["square", "relu", "isnan", "signbit"]
BINARY = ["add", "subtract", "multiply", "divide", "copysign", "nextafter"]
BINARY += ["less", "equal", "greater_equal"]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3e-39, 1e30, 65504.0, 0.1, -2.5, 3.5]


def exact_calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    rng = np.random.default_rng(5)
    for short in ("f32", "f16", "bf16", "f64"):
        with np.errstate(all="ignore"):
            x, y = (
                np.concatenate([SPECIAL, v[0], 50 * v[1]]).astype(dtype(short).numpy)
                for v in rng.standard_normal((2, 2, 60))
            )
        y = y[::-1].copy()
        for name in UNARY:
            yield f"{name} {short}", lambda n=name, x=x: getattr(hal, n)(hal.asarray(x))
        for name in BINARY:
            yield (
                f"{name} {short}",
                lambda n=name, x=x, y=y: getattr(hal, n)(hal.asarray(x), hal.asarray(y)),
            )
    for short in ("i64", "i32", "i8", "u16"):
        x = (1000 * rng.standard_normal((9, 20))).astype(dtype(short).numpy)
        for name in ("add", "multiply", "pow", "floor_divide", "remainder", "maximum"):
            yield (
                f"{name} {short}",
                lambda n=name, x=x: getattr(hal, n)(
                    hal.asarray(x), hal.asarray(x[::-1].copy() % 7)
                ),
            )
        for name in ("sum", "prod", "max", "min"):
            yield f"{name} {short}", lambda n=name, x=x: getattr(hal, n)(hal.asarray(x), axis=1)
    for short in ("i8", "i32"):
        x = rng.integers(-128, 127, (17, 40)).astype(dtype(short).numpy)
        yield f"matmul {short}", lambda x=x: hal.matmul(hal.asarray(x), hal.asarray(x).T)
    x = rng.standard_normal((9, 64)).astype(F32)
    rows = np.array([3, 0, 3])
    yield "take", lambda: hal.take(hal.asarray(x), hal.asarray(rows), axis=0)
    yield "where", lambda: hal.where(hal.asarray(x > 0), hal.asarray(x), hal.asarray(-x))
    yield "cast", lambda: hal.asarray(1e5 * x).astype("float16").astype("int32")
    yield "sort", lambda: hal.sort(hal.asarray(x), axis=1)[0]
    yield "argmax", lambda: hal.argmax(hal.asarray(x), axis=1)
    yield "concat", lambda: hal.concat([hal.asarray(x), hal.asarray(x)], axis=1)
    yield "stack", lambda: hal.stack([hal.asarray(x), hal.asarray(x)], axis=1)
    yield "pad", lambda: hal.pad(hal.asarray(x), pads=(1, 2, 0, 3))
    key = np.array([10, 3], np.uint64)
    for name in ("random_uniform", "random_normal"):
        yield name, lambda n=name: getattr(hal, n)(hal.asarray(key), shape=(501,))
    for block in ("q4_1", "q8_0", "q6_k"):
        w = random_blocks(rng, block, (7, 512))
        yield (
            f"embedding {block}",
            lambda w=w: hal.embedding(
                hal.frombuffer(w.data.reshape(-1), w.dtype.name, w.shape), hal.asarray(rows)
            ),
        )
    yield "one_hot", lambda: hal.one_hot(hal.asarray(rows), depth=5)


EXACT = dict(exact_calls())


def bits(x: Any) -> bytes:
    """Which NaN it is, is open."""
    if x.dtype.kind not in "fV" and x.dtype.name != "bfloat16":
        return bytes(x.tobytes())
    missing = np.isnan(x)
    return bytes(missing.tobytes() + np.where(missing, x.dtype.type(0), x).tobytes())


@pytest.mark.parametrize("name", EXACT)
def test_exact_calls_have_the_same_bits_everywhere(name: str) -> None:
    with demanding("cross_device", CPU):
        found = EXACT[name]()
    with demanding("cross_device", "cpu_ref:0"):
        want = EXACT[name]()
    assert bits(found.numpy()) == bits(want.numpy())
    with hal.use(device="dayone:0"):  # promises nothing, and is as exact
        assert bits(EXACT[name]().numpy()) == bits(want.numpy())


@pytest.mark.parametrize(
    "call",
    [
        "exp f32[8]",
        "pow f32[8] f32[8]",
        "matmul f32[4,8] f32[8,4]",
        "sum f32[4,8] axis=1",
        "softmax f32[4,8] axis=1",
        "rms_norm f32[4,8] f32[8] eps=1e-5",
        "maximum f32[8] f32[8]",
    ],
)
@pytest.mark.parametrize("device", [CPU, "cpu_ref:0"])
def test_what_is_not_exact_is_refused_by_type_and_says_what_holds(device: str, call: str) -> None:
    with demanding("cross_device", device):
        decision = hal.explain(call)
        assert decision.choice == ""
        assert {r.reason for r in decision.refusals} >= {"numerics"}
        assert "does not depend on its batch" in str(decision)


@pytest.mark.parametrize("device", ["cpu:0", "cpu_ref:0", "dayone:0"])
@pytest.mark.parametrize("numerics", ["strict", "tf32"])
def test_a_device_without_faster_products_is_strict_and_says_so(device: str, numerics: str) -> None:
    a, b = probes(16, 24, 8)
    found, how = run("matmul", a, b, numerics=numerics, device=device)
    assert how == "strict" and (found == 24 * (1 + 2.0**-8)).all()


def test_a_device_that_promises_nothing_refuses() -> None:
    with demanding("batch_invariant", "dayone:0"):
        a = hal.asarray(np.ones((4, 4), F32))
        with pytest.raises(hal.UnsupportedError) as refused:
            hal.matmul(a, a)
    assert refused.value.reason == "numerics"


@needs_dots
def test_batch_invariance_wins_over_a_permission() -> None:
    """Whether factors are rounded depends on how many rows there are."""
    a, b = probes(96, 128, 96)
    with hal.use(device=CPU, numerics="bf16", determinism="batch_invariant"):
        found = hal.matmul(hal.asarray(a), hal.asarray(b)).numpy()
    assert (found == 128 * (1 + 2.0**-8)).all()
