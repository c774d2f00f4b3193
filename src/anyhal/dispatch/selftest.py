"""Known answers before first use: an op × dtype on a device must give its op file's answers.
SPDX-License-Identifier: Apache-2.0

The cell (library, device, op, main dtype) is the unit of trust: a wrong answer quarantines the
cell, not the backend. Verdicts are kept on disk by the library's hash and the op file's, so that a
cell is tested once per machine. No answer at all is kept for the process only; a lost device and
memory that ran out say nothing of the cell and go to the caller. Test equipment is tested only when
its settings ask for it, since its calls are counted.
"""

from __future__ import annotations

from _thread import RLock
from collections.abc import Sequence

from anyhal.dtypes import DType
from anyhal.ops._spec import OpSpec
from anyhal.runtime import verdicts
from anyhal.runtime.device import Device
from anyhal.runtime.in_kernel import refuse_in_kernel

_verdicts: dict[tuple[str, str, str], str] = {}
_stores: dict[str, dict[str, str]] = {}
_lock = RLock()


def cell_refusal(device: Device, spec: OpSpec, main: DType, words: Sequence[int]) -> str:
    """ "" when the cell gave right answers under those numerics, else the sentence that says what
    was wrong."""
    if not device.tested:
        return ""
    refuse_in_kernel()
    cell = (device.name, spec.name, verdicts.cell_of(main, words))
    with _lock:
        known = _verdicts.get(cell)
        if known is None:
            key = verdicts.key_of(device.fact.arch, spec, cell[2])
            store = _stores.get(device.fingerprint)
            if store is None:
                store = _stores[device.fingerprint] = verdicts.read(device.fingerprint)
            known = store.get(key)
            if known is None:
                from anyhal.dispatch import known_answers

                try:
                    known = store[key] = known_answers.run(device, spec, main, words)
                    verdicts.save(device.fingerprint, store)
                except known_answers.NoAnswerError as why:
                    known = str(why)
            _verdicts[cell] = known
    return known
