"""Bad input through the Python API: each is one typed sentence, and what is legal still works.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal import _core
from anyhal.runtime import context


def ones(*shape: int) -> Any:
    return hal.ones(shape)


def scoped(**choice: Any) -> None:
    with hal.use(**choice):
        pass


@pytest.mark.parametrize("shape", [(3, 4), (2, 2, 2)], ids=str)
def test_num_22_windows_that_overlap_are_no_output(shape: tuple[int, ...]) -> None:
    memory = np.zeros(16, np.float32)
    windows = np.lib.stride_tricks.as_strided(memory, shape, (4,) * len(shape))
    with pytest.raises(hal.InvalidArgumentError, match="overlaps itself"):
        hal.add(hal.ones(shape), hal.ones(shape), out=hal.from_dlpack(windows))
    assert not memory.any()


def test_num_22_views_that_do_not_overlap_stay_outputs() -> None:
    base = hal.zeros((4, 6, 1))
    for view in (base.transpose(2, 1, 0), base[::2, 1::2], base[1:2], base[:, :0]):
        hal.add(hal.ones(view.shape), 1, out=view)
        assert (view.numpy() == 2).all()


@pytest.mark.parametrize("count", [19, 20, 25, 300])
def test_concat_of_many_writes_where_out_says(count: int) -> None:
    out = hal.empty((count, 2))
    hal.concat([hal.full((1, 2), float(i)) for i in range(count)], axis=0, out=out)
    np.testing.assert_array_equal(out.numpy()[:, 0], np.arange(count))


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "nothing in a list": (lambda: hal.concat([None], axis=0), "operand 0 is None"),
    "attribute beyond float32": (lambda: hal.rms_norm(ones(2, 3), None, eps=1e300), "float32"),
    "attribute beyond every float": (
        lambda: hal.rms_norm(ones(2, 3), None, eps=10**400),
        "beyond float32",
    ),
    "number beyond every float": (lambda: ones(2) + 10**400, "beyond every float"),
    "size beyond 63 bits": (lambda: hal.empty((1 << 63,)), "2\\*\\*63 - 1"),
    "no size": (lambda: hal.empty(1.5), "whole numbers"),
    "value beyond int64": (lambda: hal.full((2,), 1 << 70, dtype="int64"), "71 bits"),
    "endless sequence": (lambda: hal.arange(1 << 62), "arange"),
    "sequence to NaN": (lambda: hal.arange(float("nan")), "arange"),
    "device that is a number": (lambda: hal.device(3), "3 is of type int"),
    "selection that is a number": (lambda: hal.select_backend(3), "3 is of type int"),
    "queue that is a number": (lambda: scoped(queue=3), "queue is a int; pass a Queue"),
    "policy that is a number": (lambda: scoped(policy=3), "pass a Policy"),
    "receipts that are text": (lambda: scoped(receipts="yes"), "pass a bool"),
    "pool that is none": (lambda: hal.empty((2,), pool="cach"), "did you mean 'cache'"),
    "text in a sequence": (lambda: hal.arange("x"), "arange: 'x' is a str"),
    "view of a number": (lambda: hal.reshape(3, 2), "reshape: a int is no Array"),
    "order of a number": (lambda: hal.permute_dims(3), "permute_dims: a int is no Array"),
    "spread of a number": (lambda: hal.broadcast_to(3, (3,)), "broadcast_to: a int is no Array"),
    "shape of text": (lambda: ones(2).reshape("x"), "sizes are whole numbers"),
    "text as numbers": (lambda: hal.asarray(["3"], dtype="float32"), "it holds text"),
    "complex as floats": (lambda: hal.asarray([1j], dtype="float32"), "no dtype here is complex"),
    "complex filling": (lambda: hal.full((2,), 1j), "full: .* no dtype here is complex"),
    "dates": (lambda: hal.asarray(np.datetime64("2020-01-01")), "it holds dates"),
    "integer beyond int64": (lambda: hal.full((2,), 1 << 70), "71 bits, is above"),
    "no exporter": (lambda: hal.from_dlpack(3), "int has no __dlpack__"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused_with_a_sentence(case: str) -> None:
    call, words = BAD[case]
    with pytest.raises(hal.InvalidArgumentError, match=words):
        call()


def test_infinite_attributes_pass_as_they_are() -> None:
    got = hal.rms_norm(ones(2, 3), None, eps=float("inf")).numpy()
    assert (got == 0).all()


def test_scopes_closed_out_of_order_are_reported() -> None:
    copy_context().run(close_out_of_order)  # what is left open stays in the copy


def close_out_of_order() -> None:
    before = context.current()
    outer, inner = hal.use(device="cpu_ref:0", receipts=True), hal.use(device="cpu:0")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(hal.InvalidArgumentError, match="reverse order"):
        outer.__exit__()
    assert hal.device().name == "cpu:0"  # the inner one is still open
    inner.__exit__()
    assert context.current() == before  # nothing of the outer one came back
    assert not _core.receipts_on()
    with pytest.raises(hal.InvalidArgumentError, match="not open"):
        inner.__exit__()


def test_scopes_closed_inside_out_leave_the_one_around_them() -> None:
    a, b, c = (hal.use(device=name) for name in ("cpu_ref:0", "cpu:0", "dayone:0"))
    with hal.use(device="cpu_ref:0", fallback="never"):
        around = context.current()
        for scope in (a, b, c):
            scope.__enter__()
        for scope in (b, a):
            with pytest.raises(hal.InvalidArgumentError, match="reverse order"):
                scope.__exit__()
        assert hal.device().name == "dayone:0"
        c.__exit__()
        assert context.current() == around


def test_a_scope_that_was_inherited_is_not_taken_from_its_task() -> None:
    with hal.use(device="cpu_ref:0") as scope:
        inside = context.current()
        with pytest.raises(hal.InvalidArgumentError, match="where they were opened"):
            copy_context().run(scope.__exit__)
        assert context.current() == inside
        scope.__enter__()  # what the with statement is going to close


def test_a_scope_closed_in_another_thread_is_reported() -> None:
    scope = hal.use(device="cpu_ref:0")
    opener = threading.Thread(target=scope.__enter__)
    opener.start()
    opener.join()
    with pytest.raises(hal.InvalidArgumentError, match="where they were opened"):
        scope.__exit__()


def test_a_scope_whose_device_was_changed_inside_closes_quietly() -> None:
    before = hal.device()
    with hal.use(device="cpu:0"):
        hal.select_backend("cpu_ref")
        assert hal.device() is hal.device("cpu_ref:0")
    assert hal.device() is before


def test_a_scope_lets_the_exception_of_its_body_through() -> None:
    with pytest.raises(KeyError), hal.use(device="cpu:0"):
        raise KeyError


def test_a_cache_folder_that_is_a_file_costs_no_call(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-c", "import anyhal as hal; print((hal.ones((2,)) + 1).numpy())"],
        env=os.environ | {"ANYHAL_CACHE": str(tmp_path / "file")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[2. 2.]\n"), done.stderr
