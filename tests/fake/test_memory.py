"""Memory on the scriptable backend: exhaustion, reuse, staging, leaks.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anyhal as hal

Fake = Callable[..., Any]
MIB = 1 << 20
MODES = ["mode=sync", "mode=async", "memory=cell", "mode=async; memory=cell"]
BLOCKS, BYTES = 102, 112


def empty_mib(mib: int) -> Any:
    return hal.empty((mib * MIB // 4,), dtype="float32")


def fill_up() -> int:
    """How many arrays of 4 MiB fit."""
    held = []
    try:
        for _ in range(1000):
            held.append(empty_mib(4))
    except hal.OutOfMemoryError as full:
        assert not [v for v in vars(full).values() if isinstance(v, hal.Array)]
        return len(held)
    pytest.fail("4000 MiB fit")


@pytest.mark.parametrize("mode", MODES)
def test_mem_01_an_error_keeps_no_victims(fake: Fake, on: Fake, mode: str) -> None:
    device = fake(f"heap=64MiB; {mode}")
    with on(device):
        first = fill_up()
        assert first >= 14
        assert [fill_up() for _ in range(20)] == [first] * 20


def test_mem_01_a_failure_inside_an_op_keeps_nothing(fake: Fake, on: Fake) -> None:
    device = fake("heap=64MiB; ops=-softmax")
    with on(device):
        x = hal.full((4 * MIB,), 1.0, dtype="float32")
        in_use = hal.ledger(device)
        for _ in range(20):
            big = [empty_mib(16), empty_mib(16)]
            with pytest.raises(hal.OutOfMemoryError):
                hal.softmax(x)
            del big
            gc.collect()
        after = hal.ledger(device)
        assert {k: v["in_use"] for k, v in after.items()} == {
            k: v["in_use"] for k, v in in_use.items()
        }


def test_mem_02_the_cache_is_trimmed_before_failing(fake: Fake, on: Fake) -> None:
    device = fake("heap=100MiB")
    with on(device):
        for _ in range(2):
            held = [empty_mib(10) for _ in range(8)]
            del held
            del_me = empty_mib(60)
            del del_me


def test_mem_03_reserved_memory_does_not_grow(fake: Fake, on: Fake) -> None:
    device = fake("heap=4GiB")
    kept = []
    with on(device):
        for _ in range(30):
            large, half = empty_mib(91), empty_mib(46)
            kept.append(empty_mib(2))
            del large, half
        assert device.counter(BYTES) < (30 * 2 + 91 + 46) * 1.5 * MIB


def test_mem_04_a_block_is_not_reused_while_another_queue_reads_it(fake: Fake, on: Fake) -> None:
    device = fake("mode=async; delay=1ms")
    side = hal.Queue(device)
    pattern = np.arange(1024, dtype=np.float32)
    with on(device):
        x = hal.asarray(pattern)
        zero = hal.zeros((1024,), dtype="float32")
        with hal.use(queue=side):
            late = hal.add(x, zero)
        del x
        again = [hal.full((1024,), np.nan, dtype="float32") for _ in range(4)]
        np.testing.assert_array_equal(late.numpy(), pattern)
        del again


@pytest.mark.parametrize("mode", MODES)
def test_mem_05_host_bytes_are_held_until_their_copy_ran(fake: Fake, on: Fake, mode: str) -> None:
    device = fake(mode)
    with on(device):
        arrays = [hal.empty((256,), dtype="float32") for _ in range(6)]
        for i, array in enumerate(arrays):
            array.set(np.full(256, i, np.float32))
        for i, array in enumerate(arrays):
            np.testing.assert_array_equal(array.numpy(), np.full(256, i, np.float32))


@pytest.mark.parametrize("mode", MODES)
def test_mem_06_a_host_copy_is_complete_when_it_is_returned(
    fake: Fake, on: Fake, mode: str
) -> None:
    device = fake(f"{mode}; delay=2ms")
    with on(device):
        x = hal.full((1 << 16,), 3.0, dtype="float32")
        np.testing.assert_array_equal(hal.add(x, x).numpy(), np.full(1 << 16, 6.0, np.float32))


def test_mem_07_a_block_above_the_ceiling_names_the_limit(fake: Fake, on: Fake) -> None:
    device = fake("heap=16MiB; block_max=2MiB")
    with on(device):
        empty_mib(1)
        with pytest.raises(hal.OutOfMemoryError, match="2097152"):
            empty_mib(3)


@pytest.mark.parametrize("mode", ["mode=sync", "mode=async", "memory=cell"])
def test_mem_09_calls_leave_nothing_behind(fake: Fake, on: Fake, mode: str) -> None:
    device = fake(mode)
    with on(device):
        x = hal.full((16,), 1.0, dtype="float32")

        def run(calls: int) -> tuple[int, ...]:
            for i in range(calls):
                hal.add(x, x)
                if i % 500 == 499:
                    device.synchronize()
            device.synchronize()
            return tuple(device.counter(n) for n in (BLOCKS, 103, 104, 113, BYTES))

        warm = run(2000)
        assert run(8000) == warm


def small_program() -> np.ndarray:
    """A few of everything: creation, views, fused and decomposed ops, reads."""
    x = hal.asarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    y = hal.matmul(x, x.T)
    z = hal.softmax(hal.exp(y - hal.max(y)), axis=-1)
    rows = hal.take(z, hal.asarray(np.array([1, 0])), axis=0)
    total = hal.sum(hal.concat([rows, z], axis=0), axis=0)
    return total.numpy()


@pytest.mark.parametrize("mode", ["mode=sync", "mode=async; memory=cell"])
def test_mem_12_memory_that_runs_out_at_the_nth_block_is_an_error(
    fake: Fake, on: Fake, mode: str
) -> None:
    with on(fake(mode)):
        want = small_program()
    failed = 0
    for n in range(1, 51):
        device = fake(f"{mode}; ops=-softmax; fail=memory_alloc@{n}+:out_of_memory")
        with on(device):
            try:
                np.testing.assert_allclose(small_program(), want, rtol=1e-6)
            except hal.OutOfMemoryError as full:
                failed += 1
                assert device.name in str(full)
        gc.collect()
        device.native.trim()
        assert sum(pool["in_use"] for pool in hal.ledger(device).values()) < 4096, "a leak"
    assert failed > 0, "no script made anything fail"


@pytest.mark.parametrize("mode", MODES)
def test_mem_12_one_refused_block_is_asked_for_again(fake: Fake, on: Fake, mode: str) -> None:
    with on(fake(mode)):
        want = small_program()
    for n in range(1, 13):
        with on(fake(f"{mode}; fail=memory_alloc@{n}:out_of_memory")):
            np.testing.assert_allclose(small_program(), want, rtol=1e-6)


@pytest.mark.parametrize("slot", ["op_prepare", "op_enqueue"])
def test_memory_refused_before_acceptance_is_asked_for_again(
    fake: Fake, on: Fake, slot: str
) -> None:
    device = fake(f"fail={slot}@1:out_of_memory")
    with on(device):
        x = hal.asarray(np.ones(4, np.float32))
        np.testing.assert_array_equal(hal.add(x, x).numpy(), np.full(4, 2, np.float32))


def test_packed_constants_are_made_once(fake: Fake, on: Fake) -> None:
    device = fake("pack=matmul")
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    with on(device):
        weight = hal.asarray(values, constant=True)
        for rows in (1, 2, 5):
            x = np.ones((rows, 4), np.float32)
            np.testing.assert_array_equal(hal.matmul(hal.asarray(x), weight).numpy(), x @ values)
            hal.matmul(hal.asarray(x), weight)
    assert device.counter(16) == 1, "plans with one layout key share the packed copy"


@pytest.mark.parametrize("mode", MODES)
def test_a_plan_gets_the_workspace_it_asked_for(fake: Fake, on: Fake, mode: str) -> None:
    with on(fake(f"workspace=64KiB; {mode}")):
        x = hal.asarray(np.ones((8, 8), np.float32))
        for _ in range(5):
            x = hal.matmul(x, x) / 8.0
        np.testing.assert_array_equal(x.numpy(), np.ones((8, 8), np.float32))


@pytest.mark.parametrize("mode", MODES)
def test_one_offset_in_two_blocks_is_two_places(fake: Fake, on: Fake, mode: str) -> None:
    """Arrays that own their blocks all begin at offset 0; an output is not an input for that."""
    with on(fake(mode)):
        x = hal.asarray(np.linspace(-1, 1, 40_000, dtype=np.float32))
        out = hal.asarray(np.zeros(40_000, np.float32))
        before = x.numpy()
        hal.rms_norm(x, eps=1e-5, out=out)  # decomposed there
        np.testing.assert_array_equal(x.numpy(), before)
        assert abs(float((out.numpy() ** 2).mean()) - 1) < 1e-3
