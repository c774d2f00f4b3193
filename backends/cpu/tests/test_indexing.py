"""Gathers, scatters and running sums: each way through the kernels, with one thread and several.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import numpy as np
import pytest
from contract_client import Cpu, Refused

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int32, np.float64])
@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [
        ((90001,), 0, (70, 1100)),  # single elements
        ((40, 300), 1, (501,)),  # one position before the axis after another
        ((200, 2), 0, (70001,)),  # runs of few bytes
        ((50, 3, 5), 1, (9, 2)),
        ((30, 700), 0, (301,)),  # long runs
        ((5000, 7), 1, (2,)),  # a few indices of many runs
        ((4, 5, 6), 1, ()),
    ],
)
def test_gather(
    threads: int, dtype: type, shape: tuple[int, ...], axis: int, count: tuple[int, ...]
) -> None:
    cpu = Cpu(threads=threads)
    x = RNG.integers(0, 200, shape).astype(dtype)
    gaps = np.repeat(x, 2, -1)[..., ::2]
    for index_dtype in (np.int64, np.int32):
        indices = np.asarray(RNG.integers(0, shape[axis], count), index_dtype)
        layouts = [indices, np.asfortranarray(indices), np.broadcast_to(indices, (3, *count))]
        layouts += [np.repeat(indices, 3, -1)[..., ::3]] if count else []
        for picked in layouts:
            for source in (x, gaps, np.asfortranarray(x), np.broadcast_to(x[:1], shape)):
                made = cpu.run("gather", [source, picked], {"axis": axis})
                np.testing.assert_array_equal(made, np.take(source, picked, axis))
            wanted = np.take(x, picked, axis)
            out = np.zeros((2 * wanted.shape[0], *wanted.shape[1:]), dtype)[::2]
            cpu.run("gather", [x, picked], {"axis": axis}, out=out)
            np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("threads", [1, 3])
def test_num_23_one_bad_index_of_many(threads: int) -> None:
    cpu, x = Cpu(threads=threads), np.ones(1000, np.float32)
    for dtype in (np.int64, np.int32):
        for bad, at in ((-1, 0), (1000, 399_999), (2**31 - 1, 200_001), (-(2**31), 131_072)):
            indices = RNG.integers(0, 1000, 400_000).astype(dtype)
            indices[at] = bad
            for layout in (indices, np.repeat(indices, 2)[::2], indices.reshape(1000, 400)):
                out = np.full(layout.shape, 7, np.float32)
                with pytest.raises(Refused, match=f"index {bad} at position {at} "):
                    cpu.run("gather", [x, layout], {"axis": 0}, out=out)
                assert (out == 7).all()
                sums = x.copy()
                with pytest.raises(Refused, match=f"index {bad} at position {at} "):
                    cpu.run("scatter_add", [x, layout, out], {"axis": 0}, out=sums)
                assert (sums == 1).all()
            with pytest.raises(Refused):
                cpu.run("gather", [x[:0], indices], {"axis": 0})


@pytest.mark.parametrize("width", [1, 3, 700])
def test_sums_of_a_scatter_go_in_the_order_of_the_indices(width: int) -> None:
    indices = RNG.integers(0, 5, (40, 30))
    updates = RNG.standard_normal((30, 40, width)).astype(np.float32).transpose(1, 0, 2)
    wanted = np.zeros((5, width))
    np.add.at(wanted, indices, updates)
    made = [
        Cpu(threads=n).run(
            "scatter_add", [np.zeros((5, width), np.float32), picked, updates], {"axis": 0}
        )
        for n in (1, 4)
        for picked in (indices, np.asfortranarray(indices), indices.astype(np.int32))
    ]
    np.testing.assert_allclose(made[0], wanted, atol=1e-4)
    for other in made[1:]:
        np.testing.assert_array_equal(other, made[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int16])
def test_running_sums_are_each_lines_own(dtype: type) -> None:
    x = (100 * RNG.standard_normal((3000, 70))).astype(dtype)
    options = {"dtype": "int64"} if dtype is np.int16 else {}
    for exclusive in (False, True):
        for reverse in (False, True):
            attrs = {"axis": 0, "exclusive": exclusive, "reverse": reverse, **options}
            made = [Cpu(threads=n).run("cumsum", [x], attrs) for n in (1, 3)]
            np.testing.assert_array_equal(*made)
            turned = Cpu(threads=2).run("cumsum", [np.ascontiguousarray(x.T)], {**attrs, "axis": 1})
            np.testing.assert_array_equal(turned, made[0].T)
            alone = Cpu().run("cumsum", [x[:, 5]], attrs)
            np.testing.assert_array_equal(alone, made[0][:, 5])


def test_long_running_sums_keep_what_is_rounded_off(cpu: Cpu) -> None:
    x = np.full(1 << 17, 0.1)
    x[0] = 1e6
    exact = 1e6 + np.arange(1 << 17, dtype=np.longdouble) * np.longdouble(0.1)
    for made in (
        cpu.run("cumsum", [x], {"axis": 0}),
        cpu.run("cumsum", [np.repeat(x[:, None], 9, 1)], {"axis": 0})[:, 4],
    ):
        np.testing.assert_array_max_ulp(made, exact.astype(np.float64), 1)
    singles = cpu.run("cumsum", [x.astype(np.float32)], {"axis": 0})
    wanted = np.cumsum(x.astype(np.float32), dtype=np.float64)
    np.testing.assert_array_equal(singles, wanted.astype(np.float32))


def test_an_infinite_sum_stays_infinite(cpu: Cpu) -> None:
    x = np.array([1.0, np.inf, 2.0, -np.inf, 1.0])
    made = cpu.run("cumsum", [x], {"axis": 0})
    np.testing.assert_array_equal(made, [1, np.inf, np.inf, np.nan, np.nan])
