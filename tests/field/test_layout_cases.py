"""Field cases of strides, far offsets, edges and missing dtypes, on every device of this build.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import numpy as np
import pytest

import anyhal as hal
from anyhal.ops import BY_NAME
from device_runs import devices


@pytest.mark.parametrize("device", devices())
def test_num_10_a_step_of_two_gibibytes_is_not_wrapped(device: str) -> None:
    """(length - 1) * stride is 2^31 and more; only the pages of the elements are ever touched."""
    far = hal.empty((2**31 + 1,), dtype="uint8", device=device)
    ends = far[:: 2**31]
    hal.copy(hal.asarray(np.array([7, 9], np.uint8), device=device), out=ends)
    assert hal.copy(ends).numpy().tolist() == [7, 9]
    assert hal.add(ends, ends).numpy().tolist() == [14, 18]
    assert hal.copy(far[2**31 :]).numpy().tolist() == [9]


@pytest.mark.parametrize("device", devices())
def test_num_21_each_operand_has_strides_of_its_own(device: str) -> None:
    rng = np.random.default_rng(21)
    a, b = (rng.standard_normal((6, 10)).astype(np.float32) for _ in range(2))
    for x in (a[::2, ::3], a.T[1:7:2, ::2], a[:3, ::-1][:, :4]):
        for y in (b[::2, : x.shape[1]], b.T[: x.shape[0], : x.shape[1]]):
            whole = [hal.asarray(v, device=device) for v in (a, b)]
            views = [hal.asarray(x, device=device), hal.asarray(y, device=device)]
            got = hal.multiply(views[0], views[1]).numpy()
            np.testing.assert_array_equal(got, x * y)
            assert [w.numpy().tobytes() for w in whole] == [a.tobytes(), b.tobytes()]
    left, right = hal.asarray(a, device=device), hal.asarray(b, device=device)
    got = hal.matmul(left[::2, 1::3], right[1:4, ::2]).numpy()
    np.testing.assert_allclose(got, a[::2, 1::3] @ b[1:4, ::2], rtol=1e-5)
    got = hal.add(left[1::2, ::5], right[::2, 1::5]).numpy()
    np.testing.assert_array_equal(got, a[1::2, ::5] + b[::2, 1::5])


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 7), (17, 33, 9), (65, 31, 129), (130, 7, 66)])
def test_num_36_edge_tiles_never_read_the_output(device: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(36)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    out = hal.full((m, n), float("nan"), dtype="float32", device=device)
    hal.matmul(hal.asarray(a, device=device), hal.asarray(b, device=device), out=out)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-4)


def test_onx_06_what_one_device_runs_every_device_runs() -> None:
    assert {s.name for s in BY_NAME.values() if not s.is_core and s.decompose is None} == set()
    x = hal.asarray(np.array([[3, 1, 2]], np.float32))
    for device in devices():
        values, _ = hal.topk(hal.asarray(x.numpy(), device=device), k=2, largest=True)
        assert values.numpy().tolist() == [[3, 2]]
