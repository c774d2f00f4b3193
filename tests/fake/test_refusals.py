"""Refusal, fallback, choice of device: what routing makes of a device that says no.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.dtypes import dtype

Fake = Callable[..., Any]
A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.arange(8, dtype=np.float32).reshape(4, 2)
REASONS = ["op", "dtype", "layout", "rank", "shape_limit", "alignment", "attribute"]
REASONS += ["architecture", "driver", "missing_library", "missing_artefact", "workspace"]
REASONS += ["numerics", "memory_kind", "capture", "policy"]


@pytest.mark.parametrize("reason", REASONS)
def test_each_refusal_arrives_typed(fake: Fake, on: Fake, reason: str) -> None:
    device = fake(f"refuse=matmul:{reason}")
    with on(device, fallback="never"), pytest.raises(hal.UnsupportedError) as refused:
        hal.matmul(hal.asarray(A), hal.asarray(B))
    assert refused.value.reason == reason
    assert "matmul" in str(refused.value) and device.name in str(refused.value)
    assert device.counter(6) == 0, "nothing was queued"


@pytest.mark.parametrize("how", ["refuse_prepare=matmul:workspace", "lie=matmul"])
def test_a_refusal_of_prepare_is_typed_too(fake: Fake, on: Fake, how: str) -> None:
    device = fake(how)
    with on(device, fallback="never"), pytest.raises(hal.UnsupportedError) as refused:
        hal.matmul(hal.asarray(A), hal.asarray(B))
    assert refused.value.reason == ("workspace" if "workspace" in how else "op")


def test_dev_06_a_missing_op_is_decomposed_on_the_same_device(fake: Fake, on: Fake) -> None:
    device = fake("ops=-softmax")
    with on(device):
        got = hal.softmax(hal.asarray(A)).numpy()
    want = np.exp(A - A.max(-1, keepdims=True))
    np.testing.assert_allclose(got, want / want.sum(-1, keepdims=True), rtol=1e-6)
    rows = [row for row in hal.routes() if row["device"] == device.name]
    assert rows and all(row["decomposed"] for row in rows)
    assert "softmax" not in {row["op"] for row in rows}


def test_dev_06_never_means_never(fake: Fake, on: Fake) -> None:
    device = fake("ops=-softmax")
    with on(device, fallback="never"), pytest.raises(hal.UnsupportedError) as refused:
        hal.softmax(hal.asarray(A))
    assert refused.value.reason == "op"
    assert device.counter(6) == 0


def test_any_runs_elsewhere_and_comes_back(fake: Fake, on: Fake) -> None:
    device = fake("refuse=matmul:dtype")
    with on(device, fallback="any"):
        result = hal.matmul(hal.asarray(A), hal.asarray(B))
        np.testing.assert_array_equal(result.numpy(), A @ B)
    assert device.name in repr(result.device)


def test_decompose_stays_on_the_device(fake: Fake, on: Fake) -> None:
    device = fake("refuse=matmul:dtype")
    with on(device), pytest.raises(hal.UnsupportedError) as refused:
        hal.matmul(hal.asarray(A), hal.asarray(B))
    assert refused.value.reason == "dtype"


def test_a_failed_run_is_an_error_and_never_a_reason_to_try_elsewhere(fake: Fake, on: Fake) -> None:
    device = fake("fail=op_enqueue@1+:internal")
    with on(device, fallback="any"), pytest.raises(hal.InternalError, match="op_enqueue call 1"):
        hal.add(hal.asarray(A), hal.asarray(A))


def test_wrong_answers_are_caught_before_they_are_used(fake: Fake, on: Fake) -> None:
    device = fake("wrong=matmul", selftest="1")
    with on(device):
        np.testing.assert_array_equal(hal.add(hal.asarray(A), hal.asarray(A)).numpy(), A + A)
        with pytest.raises(hal.UnsupportedError) as refused:
            hal.matmul(hal.asarray(A), hal.asarray(B))
    assert "matmul" in str(refused.value) and device.name in str(refused.value)


def test_a_call_in_place_is_asked_for_in_place(fake: Fake, on: Fake) -> None:
    """What is refused in place only is found by the query, with its reason, before any prepare."""
    device = fake("refuse_in_place=binary:layout")
    with on(device):
        x = hal.asarray(A)
        np.testing.assert_array_equal(hal.add(x, x).numpy(), A + A)
        prepared = device.counter(5)
        with pytest.raises(hal.UnsupportedError) as refused:
            hal.add(x, x, out=x)
        np.testing.assert_array_equal(x.numpy(), A)
    assert refused.value.reason == "layout" and "answered unsupported" in str(refused.value)
    assert device.counter(5) == prepared, "it prepared what it had not asked for"


def test_an_op_refused_in_place_is_decomposed(fake: Fake, on: Fake) -> None:
    """cache_append writes its first operand: explain, query and prepare agree about that."""
    device = fake("refuse_in_place=cache_append:layout")
    cache = np.zeros((1, 1, 4, 2), np.float32)
    with on(device):
        verdict = hal.explain("cache_append f32[1,1,4,2] f32[1,1,1,2] i32[1]")
        held = hal.asarray(cache)
        hal.cache_append(
            held, hal.asarray(np.ones((1, 1, 1, 2), np.float32)), hal.asarray(np.int32([2]))
        )
        cache[0, 0, 2] = 1
        np.testing.assert_array_equal(held.numpy(), cache)
    assert "layout" in str(verdict.refusals[0])
    rows = [row for row in hal.routes() if row["device"] == device.name]
    assert rows and all(row["decomposed"] for row in rows)


def run_with(script: str, program: str) -> subprocess.CompletedProcess[str]:
    """A fresh process in which ANYHAL_FAKE is set."""
    environment = os.environ | {"ANYHAL_FAKE": script}
    command = [sys.executable, "-c", "import anyhal as hal\n" + program]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_dev_01_a_strict_list_raises_with_the_load_error_inside() -> None:
    ran = run_with(
        "fail=main:not_found",
        "try:\n    hal.select_backend('fake')\n"
        "except hal.BackendLoadError as why:\n    print(why.stage, '|', why)\n",
    )
    assert ran.stdout.startswith("init |"), ran.stdout + ran.stderr
    assert "libfake_vendor.so.1 is not installed" in ran.stdout


def test_dev_01_a_list_with_a_second_choice_goes_on() -> None:
    ran = run_with(
        "fail=main:not_found",
        "print(hal.select_backend('fake|cpu_ref').name)\n"
        "from anyhal.runtime.device import facts; print([r.sentence for r in facts().refused])\n",
    )
    assert ran.stdout.startswith("cpu_ref:0"), ran.stdout + ran.stderr
    assert "libfake_vendor.so.1 is not installed" in ran.stdout


def test_test_equipment_is_never_there_unasked() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "ANYHAL_FAKE"}
    code = "import anyhal as hal; print([d.name for d in hal.devices()])"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "fake" not in ran.stdout and "cpu_ref:0" in ran.stdout


def test_dev_03_a_display_only_device_is_last(fake: Fake) -> None:
    small, big = fake(
        "devices=2; 0.integrated; 0.display_only; 0.heap=512MiB; 1.heap=16GiB; 0.name=Small"
    )
    order = [d.name for d in hal.devices()]
    assert order.index(big.name) < order.index(small.name)


def test_dev_04_a_device_is_found_by_its_identity(fake: Fake) -> None:
    first, second = fake("devices=2; 0.uuid=a1; 1.uuid=b2")
    for device, digits in [(first, "a1"), (second, "b2")]:
        assert device.fact.identity == digits.ljust(32, "0")
        assert hal.device(device.fact.identity).name == device.name


SHAPES = [(), (1,), (2,), (3,), (1, 1), (1, 3), (2, 1), (2, 3), (3, 2), (1, 2, 3), (0,)]


def test_dev_07_where_blames_where_and_names_all_shapes(fake: Fake, on: Fake) -> None:
    device = fake()
    wrong = 0
    with on(device):
        arrays = {s: hal.asarray(np.ones(s, np.float32)) for s in SHAPES}
        conditions = {s: hal.asarray(np.ones(s, bool)) for s in SHAPES}
        for c in SHAPES:
            for a in SHAPES:
                for b in SHAPES:
                    try:
                        want = np.broadcast_shapes(c, a, b)
                    except ValueError:
                        wrong += 1
                        with pytest.raises(hal.InvalidArgumentError) as refused:
                            hal.where(conditions[c], arrays[a], arrays[b])
                        assert str(refused.value).startswith("where")
                    else:
                        assert hal.where(conditions[c], arrays[a], arrays[b]).shape == want
    assert wrong > 300


def test_dev_08_a_missing_dtype_is_named(fake: Fake, on: Fake) -> None:
    device = fake("dtypes=-f64")
    assert "float64" not in [d.name for d in device.dtypes]
    with on(device), pytest.raises(hal.UnsupportedError) as refused:
        hal.add(hal.asarray(A, dtype="float64"), hal.asarray(A, dtype="float64"))
    assert refused.value.reason == "dtype"
    assert device.name in str(refused.value) and "f64" in str(refused.value)


def test_dev_09_the_operands_decide_where(fake: Fake, on: Fake) -> None:
    first, second = fake("devices=2")
    with on(first):
        x = hal.asarray(A, device=second)
        y = hal.add(x, x)
        assert y.device is second
        np.testing.assert_array_equal(y.numpy(), A + A)
    assert first.counter(206) == 0 and second.counter(206) > 0


def test_dev_09_mixed_operands_are_refused_with_both_names(fake: Fake, on: Fake) -> None:
    first, second = fake("devices=2")
    with on(first), pytest.raises(hal.HalError) as refused:
        hal.add(hal.asarray(A), hal.asarray(A, device=second))
    assert first.name in str(refused.value) and second.name in str(refused.value)


def test_dev_10_two_instances_and_another_backend_in_one_process(fake: Fake, on: Fake) -> None:
    first, second, third = fake(), fake("mode=async; memory=cell"), hal.device("cpu_ref:0")
    values = A
    for device in (first, second, third, second, first):
        with on(device):
            x = hal.asarray(values, device=device)
            values = hal.add(x, x).numpy()
    np.testing.assert_array_equal(values, A * 32)


def test_dev_10_a_name_that_is_taken_is_refused(fake: Fake) -> None:
    device = fake()
    with pytest.raises(hal.InvalidArgumentError, match="is taken"):
        hal.load_backend("fake", instance=device.fact.backend)


def test_dev_11_one_card_through_two_backends_has_one_identity(fake: Fake) -> None:
    first, second = fake("uuid=c0ffee"), fake("uuid=c0ffee; mode=async")
    listed = {d.name: d.fact.identity for d in hal.devices()}
    assert listed[first.name] == listed[second.name] != ""


def test_a_wish_for_dense_operands_is_met_by_a_visible_copy(fake: Fake, on: Fake) -> None:
    device = fake("dense=matmul")
    with on(device):
        x = hal.asarray(np.ascontiguousarray(B.T))
        np.testing.assert_array_equal(hal.matmul(hal.asarray(A), x.T).numpy(), A @ B)
    assert "copy" in {row["op"] for row in hal.routes() if row["device"] == device.name}


def test_the_names_in_scripts_are_those_of_the_registry(fake: Fake) -> None:
    from anyhal.ops import BY_NAME

    for name in BY_NAME:
        fake(f"devices=0; refuse={name}:op")


def test_onx_09_a_device_without_64_bit_integers_says_so(fake: Fake, on: Fake) -> None:
    with on(fake("dtypes=-i64")):
        x = hal.asarray(A)
        assert hal.add(x, x).numpy().sum() == 2 * A.sum()
        with pytest.raises(hal.UnsupportedError) as refused:
            hal.argmax(x)
        assert refused.value.reason == "dtype"


HELD = ["f8_e4m3fn", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz"]
PACKED = ["i4", "u4", "q4_0", "q4_k", "q6_k", "q4_1", "q8_0"]


@pytest.mark.parametrize("short", [*HELD, *PACKED])
def test_every_dtype_of_the_contract_is_moved_and_not_computed_with(
    fake: Fake, on: Fake, short: str
) -> None:
    d = dtype(short)
    shape = (3, 2 * d.block_elements)
    data = np.random.default_rng(0).integers(0, 255, 3 * 2 * d.block_bytes, dtype=np.uint8)
    device = fake()
    with on(device, fallback="never"):
        x = hal.frombuffer(data, short, shape)
        rows = hal.take(x, hal.asarray(np.array([2, 0])), axis=0)
        joined = hal.concat([x, x], axis=1)
        assert joined.shape == (3, 4 * d.block_elements)
        lines = data.reshape(3, -1)
        assert rows.numpy().tobytes() == lines[[2, 0]].tobytes()
        assert joined.numpy().tobytes() == np.concatenate([lines, lines], axis=1).tobytes()
        with pytest.raises(hal.UnsupportedError) as refused:
            hal.add(x, x)
    assert refused.value.reason == "dtype"
    with on(fake(f"dtypes=-{short}"), fallback="never"), pytest.raises(hal.UnsupportedError):
        hal.concat([hal.frombuffer(data, short, shape)] * 2)


def test_a_device_of_cells_is_asked_about_operands_as_they_will_be_there(
    fake: Fake, on: Fake
) -> None:
    """A question about operands elsewhere names no cell and no strides of theirs."""
    device = fake("mode=async; memory=cell")
    text = "attention f32[1,2,3,4] f32[1,2,3,4] f32[1,2,3,4] scale=0.5 causal=none"
    with on(device):
        assert hal.explain(text).choice == device.name
    there = hal.asarray(A, device="cpu:0").T
    with on(device, fallback="any"):
        result = hal.add(there, hal.asarray(np.ascontiguousarray(A.T), device=device))
        assert result.device is device
        np.testing.assert_array_equal(result.numpy(), A.T + A.T)
