"""Known answers before first use: an op × dtype on a device must give its op file's answers.
SPDX-License-Identifier: Apache-2.0

The cell (library, device, op or function, main dtype) is the unit of trust: a wrong answer
quarantines the cell, not the backend. Verdicts are kept on disk by the library's hash and the op
file's, so that a cell is tested once per machine. No answer at all is kept for the process only; a
lost device and memory that ran out say nothing of the cell and go to the caller. Test equipment is
tested only when its settings ask for it, since its calls are counted.
"""

from __future__ import annotations

import os
from _thread import allocate_lock
from collections.abc import Sequence
from typing import Any

from anyhal.dtypes import DType
from anyhal.ops._spec import OpSpec
from anyhal.runtime import verdicts
from anyhal.runtime.device import Device
from anyhal.runtime.in_kernel import refuse_in_kernel

_verdicts: dict[tuple[str, str, str], str] = {}
_stores: dict[str, dict[str, str]] = {}
_lock = allocate_lock()  # of the three, never held while a backend runs
_running: dict[tuple[str, str, str], Any] = {}  # by cell: a lock that its test holds
os.register_at_fork(after_in_child=_running.clear)  # the threads that test are the parent's


def cell_refusal(
    device: Device, spec: OpSpec, main: DType, words: Sequence[int], called: str = ""
) -> str:
    """ "" when the cell gave right answers under those numerics, else the sentence that says what
    was wrong. `called` is the call as messages name it: an op with several functions, such as
    unary, has a cell for each."""
    if not device.tested:
        return ""
    refuse_in_kernel()
    variant = called.partition(" ")[0] if spec.variants else ""
    variant = variant if spec.variants.get(variant) else ""
    cell = (device.name, spec.name, verdicts.cell_of(main, words, variant))
    while (known := _verdicts.get(cell)) is None:
        with _lock:
            running = _running.get(cell)
            if running is None:
                mine = _running[cell] = allocate_lock()
                mine.acquire()
        if running is not None:
            with running:  # until the thread that tests it is through
                continue
        try:
            if cell not in _verdicts:
                _verdicts[cell] = _tested(device, spec, main, words, variant)
        finally:
            _running.pop(cell, None)
            mine.release()
    return known


def _tested(device: Device, spec: OpSpec, main: DType, words: Sequence[int], variant: str) -> str:
    """The verdict that is kept on disk, else a new one."""
    key = verdicts.key_of(device.fact.arch, spec, verdicts.cell_of(main, words, variant))
    with _lock:
        store = _stores.get(device.fingerprint)
        if store is None:
            store = _stores[device.fingerprint] = verdicts.read(device.fingerprint)
        if key in store:
            return store[key]
    from anyhal.dispatch import known_answers

    try:
        known = known_answers.run(device, spec, main, words, variant)
    except known_answers.NoAnswerError as why:
        return str(why)
    with _lock:
        store[key] = known
        store.update(verdicts.save(device.fingerprint, {key: known}))
    return known
