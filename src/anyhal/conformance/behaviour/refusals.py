"""Refusals: typed, the same each time, and without a trace.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.conformance.behaviour import records as r
from anyhal.conformance.behaviour import work
from anyhal.conformance.behaviour.drift import flat
from anyhal.conformance.behaviour.driver import (
    NO_SUCH_OP,
    Description,
    RawDevice,
    op_name,
    opened,
    reason_name,
    support_name,
)
from anyhal.conformance.behaviour.registry import (
    Bench,
    Measured,
    NotApplicableError,
    behaviour,
    require,
    require_equal,
)
from anyhal.ops import BY_NAME
from anyhal.ops._record import pack

_ROWS = (
    (work.MATMUL, b"", ((8, 8),) * 3),
    (work.BINARY, work.attributes(work.ADD), ((64,),) * 3),
    (work.REDUCE, work.attributes(work.SUM, axes=1), ((8, 8), (1, 8))),
    (work.COPY, b"", ((64,),) * 2),
)
_DTYPES = ("f32", "f16", "bf16", "f64", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8")


def _descriptions(device: RawDevice) -> list[tuple[str, Description]]:
    found = []
    for op, attributes, shapes in _ROWS:
        for dtype in _DTYPES:
            operands = [(dtype, shape) for shape in shapes]
            found.append(
                (f"{op_name(op)} of {dtype}", Description(device, op, operands, attributes))
            )
    for rank in (3, 4):
        shape = (2,) * (rank - 2) + (8, 8)
        batched = Description(device, work.MATMUL, [("f32", shape)] * 3)
        found.append((f"matmul of rank {rank} of f32", batched))
    limit = device.info.rank_max
    if 0 < limit < 64:
        shape = (1,) * (limit + 1)
        beyond = Description(device, work.COPY, [("f32", shape)] * 2)
        found.append((f"copy of rank {limit + 1}", beyond))
    return found


@behaviour("refusals/query-is-prepare", 2, tier="smoke")
def query_is_prepare(bench: Bench) -> Measured:
    """What op_query says yes to is prepared; what it says no to is refused by op_prepare with the
    same reason: four ops on twelve dtypes, and a rank too many."""
    device, yes, no = opened(bench), 0, 0
    for name, description in _descriptions(device):
        if name.split(" of ")[-1] not in ("f32", "f64", "i8", "u16") and not name.startswith(
            "copy"
        ):
            continue  # of the rest the verdicts are looked at by `refusals/clean`
        verdict = description.query()
        status, plan, _, error = description.attempt_prepare()
        if status == r.OK:
            device.instance.release(r.PLAN, plan.value or 0)
        if verdict.support == r.YES:
            require(
                status == r.OK,
                "lie",
                f"{name}: op_query says yes, and op_prepare {r.STATUSES[status]}",
            )
            yes += 1
        elif verdict.support == r.NO:
            said = f"{name}: op_query says no, and op_prepare {r.STATUSES[status]}"
            require(status == r.UNSUPPORTED, "lie", said)
            require(
                error.reason == verdict.reason,
                "lie",
                f"{name}: refused for reason {reason_name(verdict.reason)}, then for"
                f" {reason_name(error.reason)}",
            )
            no += 1
    return {"yes": yes, "no": no}


def _refused(device: RawDevice) -> list[tuple[str, Description]]:
    rows = [(name, d) for name, d in _descriptions(device) if d.query().support == r.NO]
    unknown = Description(device, NO_SUCH_OP, [("f32", (64,))] * 3)
    return [*rows, (op_name(NO_SUCH_OP), unknown)]


@behaviour("refusals/clean", 1, tier="smoke")
def clean(bench: Bench) -> Measured:
    """A refusal has a typed reason and a text, gives no plan, is the same on retry and from another
    thread; the next call is right."""
    device = opened(bench)
    rows = _refused(device)

    def answers() -> list[tuple[Any, ...]]:
        found = []
        for name, description in rows:
            verdict = description.query()
            status, plan, prepared, error = description.attempt_prepare()
            require(status == r.UNSUPPORTED, "status", f"{name}: {r.STATUSES[status]}")
            for slot, reason in (("op_query", verdict.reason), ("op_prepare", error.reason)):
                said = f"{name}: {slot} refuses with reason {reason_name(reason)}"
                require(0 < reason <= 16, "untyped", said)
            require(bool(error.text), "untyped", f"{name}: no text")
            require(not plan.value and not prepared, "lie", f"{name}: refused, and a plan given")
            found.append((name, verdict.reason, verdict.reason_operand, error.reason, error.text))
        return found

    first, others = answers(), []
    thread = threading.Thread(target=lambda: others.append(answers()))
    thread.start()
    thread.join()
    require(answers() == first, "unstable", "a refusal was another one on retry")
    require(others == [first], "unstable", "a refusal was another one from a second thread")
    line, values = device.line(), work.ramp(64)
    x, y = line.put(values), line.fresh(values.nbytes)
    line.run(work.add(device, 64), x, x, y)
    require_equal(line.read(y, values), 2 * values, "failure", "the call after the refusals")
    return {"refusals": len(first)}


@behaviour("refusals/thousand", 1, 31, seconds=60)
def thousand(bench: Bench) -> Measured:
    """A thousand refusals leave no memory behind."""
    device = opened(bench)
    _, description = _refused(device)[-1]

    def body() -> None:
        for _ in range(10):
            description.query()
            description.attempt_prepare()

    return flat(100, body, "ten refusals", 16)


@behaviour("refusals/workspace", 3)
def workspace(bench: Bench) -> Measured:
    """A workspace that may not be larger than one byte is kept to, or refused with reason
    `workspace`: never a yes with a larger one."""
    device, refused = opened(bench), 0
    rows: list[tuple[int, bytes, list[Any], int]] = [
        (op, attributes, [("f32", shape) for shape in shapes], len(shapes) - 1)
        for op, attributes, shapes in _ROWS
    ]
    sort, line = BY_NAME["sort"], (1000,)
    rows.append(  # which as a rule needs some
        (sort.id, pack(sort, {"axis": 0, "descending": False}),
         [("f32", line), ("f32", line), ("i64", line)], 1)
    )  # fmt: skip
    for op, attributes, operands, inputs in rows:
        free = Description(device, op, operands, attributes, input_count=inputs)
        if free.query().support == r.NO:
            continue
        tight = Description(device, op, operands, attributes, input_count=inputs, workspace_limit=1)
        verdict = tight.query()
        status, plan, prepared, error = tight.attempt_prepare()
        if status == r.OK:
            wanted = prepared.contents.workspace_bytes
            device.instance.release(r.PLAN, plan.value or 0)
            require(
                verdict.support != r.NO and verdict.workspace_bytes <= 1 and wanted <= 1,
                "lie",
                f"{op_name(op)}, one byte: the verdict wants {verdict.workspace_bytes}, the plan"
                f" {wanted}",
            )
            continue
        refused += 1
        require(
            status == r.UNSUPPORTED and error.reason == r.REASON_WORKSPACE,
            "status",
            f"{op_name(op)}, allowed one byte: {r.STATUSES[status]}, reason"
            f" {reason_name(error.reason)}",
        )
        require(
            verdict.support == r.NO and verdict.reason == r.REASON_WORKSPACE,
            "lie",
            f"{op_name(op)}, allowed one byte: op_query says"
            f" {support_name(verdict.support)}, op_prepare refuses",
        )
    return {"refused": refused}


@behaviour("refusals/through-the-core", 1)
def through_the_core(bench: Bench) -> Measured:
    """Through the core: what the device does not declare is refused with UnsupportedError and a
    typed reason, or computed by core ops; an output given to it is not written."""
    declared = {d.short for d in bench.device.dtypes_of("matmul")}
    names = {"f64": "float64", "i16": "int16", "u64": "uint64", "u16": "uint16"}
    missing = [names[s] for s in names if s not in declared]
    if not missing:
        raise NotApplicableError("the device declares matmul for every dtype that was tried")
    for name in missing:
        try:
            x = hal.asarray(np.ones((4, 4), name), device=bench.device)
            before = np.full((4, 4), 7, name)
            out = hal.asarray(before, device=bench.device)
        except hal.UnsupportedError:
            continue  # the device does not even hold it
        try:
            with hal.use(fallback="never"):
                hal.matmul(x, x, out=out)
        except hal.UnsupportedError as why:
            require(bool(why.reason), "untyped", f"matmul of {name}: no reason")
            require_equal(out.numpy(), before, "outside_written", f"the output of matmul of {name}")
        else:
            require(False, "undeclared", f"matmul of {name} is not declared, and was computed")
    return {"dtypes": len(missing)}
