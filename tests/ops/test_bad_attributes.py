"""An axis that is not there, an eps below 0: the same refusal of every op, on every device.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal import functions
from anyhal.dispatch import lowering
from anyhal.dispatch.lowering import OperandInfo
from anyhal.ops import BY_NAME
from anyhal.ops._record import _FORMATS, fields
from anyhal.ops._spec import Blocks, OpSpec
from anyhal.runtime.array import spec_of

DEVICES = ("cpu:0", "cpu_ref:0", "dayone:0")
WITH_AXIS = [s for s in BY_NAME.values() if any(a.kind == "axis" and a.c_type for a in s.attrs)]
BAD = (9, -9, -1, 2**31 - 1, -(2**31))  # the record counts from the front


FUNCTIONS = [
    name
    for name in functions.__all__
    if any(a.kind in ("axis", "axes") for a in getattr(functions, name).spec.attrs)
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_axis_through_python(name: str, device: str) -> None:
    op = getattr(functions, name)
    samples = op.spec.samples(np.random.default_rng(0))
    one = next(s for s in samples if all(s.attrs.get(k) == v for k, v in op.preset.items()))
    attrs = {k: v for k, v in one.attrs.items() if k not in op.preset}
    variadic = any(a.variadic for a in op.spec.inputs)
    with hal.use(device=device):
        given = [None if x is None else hal.asarray(x) for x in one.inputs]
        for axis in (a.name for a in op.spec.attrs if a.kind in ("axis", "axes")):
            for value in (9, -9, 2**40, -(2**70)):
                with pytest.raises(hal.InvalidArgumentError, match=f"axis {value} is outside"):
                    op(*([given] if variadic else given), **{**attrs, axis: value})


def _native(spec: OpSpec, device: hal.Device) -> Any:
    """A call that the device takes, in the contract's form; None where it takes none."""
    for one in spec.samples(np.random.default_rng(0)):
        if any(isinstance(x, Blocks) for x in one.inputs):
            continue
        given = [None if x is None else hal.asarray(x) for x in one.inputs]
        infos = [None if x is None else OperandInfo(spec_of(x)) for x in given]
        attrs = {a.name: one.attrs.get(a.name, a.default) for a in spec.attrs}
        outs = spec.infer_outs([None if i is None else i.spec for i in infos], attrs)
        places = tuple(None if s is None else OperandInfo(s) for s in outs)
        aliases = lowering.required_aliases(spec)
        call = lowering._native(spec, infos, attrs, places, aliases)
        if call.query(device).accepts:
            return call
    return None


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("spec", WITH_AXIS, ids=lambda s: s.name)
def test_an_axis_through_the_contract(spec: OpSpec, device: str) -> None:
    where = hal.device(device)
    call = _native(spec, where)
    if call is None:
        assert device != "cpu_ref:0", "it implements every op"
        return
    at = 8
    for c_type, _, attr in fields(spec):
        size = struct.calcsize(_FORMATS[c_type])
        for value in BAD if attr is not None and attr.kind == "axis" else ():
            record = bytearray(call.attributes)
            struct.pack_into("=i", record, at, value)
            with pytest.raises(hal.InvalidArgumentError, match="the axis is outside the operand"):
                replace(call, attributes=bytes(record))._ask(where, "strict")
        at += size * (attr.c_count if attr else 1)


# adamw_step adds it outside of the root.
WITH_EPS = [
    s for s in BY_NAME.values() if any(a.name == "eps" for a in s.attrs) and s.name != "adamw_step"
]


@pytest.mark.parametrize("eps", [-1e-9, -7.0, float("nan")])
@pytest.mark.parametrize("spec", WITH_EPS, ids=lambda s: s.name)
def test_an_eps_that_no_root_is_taken_of(spec: OpSpec, eps: float) -> None:
    one = next(iter(spec.samples(np.random.default_rng(0))))
    given = [None if x is None else hal.asarray(x) for x in one.inputs]
    with pytest.raises(hal.InvalidArgumentError, match=f"{spec.name}: eps="):
        getattr(functions, spec.name)(*given, **{**one.attrs, "eps": eps})
