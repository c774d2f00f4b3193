"""Whether what a backend says of a call, and what it then does, agree.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anyhal.conformance.capabilities.calls import Call, Described, Placed, Told
from anyhal.conformance.capabilities.steps import Edges, Step, taken
from anyhal.errors import DeviceLostError, HalError, OutOfMemoryError, UnsupportedError
from anyhal.ops._spec import describe
from anyhal.records import record
from anyhal.runtime.queue import Queue


@record
class Outcome:
    """`arrays` of an accepted call that ran; `code` and `why` where the backend lied."""

    accepted: bool = False
    arrays: tuple[Any, ...] = ()
    code: str = ""
    why: str = ""
    reason: str = ""  # of a refusal


class Asker:
    """Asks one device."""

    def __init__(self, bench: Any, op: str) -> None:
        self.device = bench.device
        self.edges = edges_of(bench, op)
        self._queue: Any = None

    @property
    def queue(self) -> Any:
        if self._queue is None:
            self._queue = Queue(self.device)
        return self._queue._native

    def renew(self) -> None:
        """A queue on which something failed may be dead."""
        self._queue = None

    def accepts(self, call: Call) -> bool:
        return Described(self.device, call).query().kind in ("yes", "unknown")

    def outcome(
        self, call: Call, steps: Sequence[Step] = (), *, run: bool = True, near: bool = False
    ) -> Outcome:
        """`near`: without the steps the call is accepted, so that they are why it is not."""
        must = any(step.refuse for step in steps)
        placed = Placed(self.device, call) if run and not must and call.can_run else None
        described = Described(self.device, call, placed.frames if placed else ())
        first = described.query()
        if described.query() != first:
            return Outcome(code="lie", why="op_query answers the same question in two ways")
        told = first
        if first.kind == "yes" and not described.satisfied(first.wants):
            placed, told = None, described.query()  # as the core does with its copies
            if told.kind != "yes":
                why = f"op_query wants copies and then says {told} to them"
                return Outcome(code="lie", why=why)
        prepared, plan = described.prepare()
        found = disagreement(told, prepared)
        if found:
            return Outcome(code=found[0], why=found[1])
        if prepared.kind != "yes":
            return _refused(prepared, steps if near else ())
        if must:
            why = "it is accepted, and must be refused"
            return Outcome(True, code="lie", why=why)
        if placed is None:
            return Outcome(True)
        return self._ran(placed, plan)

    def _ran(self, placed: Placed, plan: Any) -> Outcome:
        try:
            placed.run(plan, self.queue)
        except (DeviceLostError, OutOfMemoryError):
            raise
        except HalError as why:
            self.renew()
            wrote = "" if placed.untouched() else ", and has written"
            typed = f" ({why.reason})" if isinstance(why, UnsupportedError) else ""
            said = f"op_query and op_prepare accept, op_enqueue says {why.code}{typed}{wrote}"
            return Outcome(True, code="lie", why=said)
        code, why_not = placed.damage()
        return Outcome(True, () if code else placed.values(), code, why_not)


def disagreement(told: Told, prepared: Told) -> tuple[str, str] | None:
    """(code, sentence) when the two slots differ, or one gives an answer that says nothing."""
    both = f"op_query says {told} and op_prepare {prepared}"
    if "error" in (told.kind, prepared.kind):
        return "wrong_status", f"{both}: {told.text or prepared.text}"
    if told.kind == "unknown":
        return None if prepared.kind in ("yes", "no") else ("lie", both)
    if told.kind != prepared.kind:
        return "lie", both
    if told.kind == "no" and told.reason in ("", "none"):
        return "untyped", "it is refused without a reason"
    if told.reason != prepared.reason:
        return "wrong_reason", both
    return None


def _refused(prepared: Told, steps: Sequence[Step]) -> Outcome:
    """A refusal for one step alone has that step's reason, where there is only one."""
    if len(steps) == 1 and steps[0].reason:
        if prepared.kind == "invalid":
            why = f"it is called the caller's mistake, where the reason is {steps[0].reason}"
            return Outcome(code="wrong_status", why=why)
        if prepared.reason != steps[0].reason:
            why = f"it is refused for {prepared.reason}, where the reason is {steps[0].reason}"
            return Outcome(code="wrong_reason", why=why)
    return Outcome(reason=prepared.reason or "invalid_argument")


def smallest(
    asker: Asker, base: Call, way: tuple[Step, ...], found: Outcome, near: bool
) -> tuple[tuple[Step, ...], Outcome]:
    """The fewest of those steps that still give the same kind of lie."""
    kept = way
    for step in way:
        fewer = tuple(s for s in kept if s is not step)
        call = taken(base, fewer)
        if call is None:
            continue
        again = asker.outcome(call, fewer, near=near)
        if again.code == found.code:
            kept, found = fewer, again
    return kept, found


def shown(call: Call, way: Sequence[Step]) -> str:
    """A call as findings name it, with the steps that lead to it from a plain dense one."""
    name = call.spec.called(call.sample.attrs)
    operands = " ".join(map(describe, call.input_specs()))
    attrs = ", ".join(f"{k}={v}" for k, v in call.sample.attrs.items())
    said = f"{name} {operands}{f' ({attrs})' if attrs else ''}"
    return f"{said} with {' and '.join(s.label for s in way)}" if way else said


def edges_of(bench: Any, op: str) -> Edges:
    rows = [row for row in bench.capabilities if row["op"] == op]
    record_ = bench.device.native.record
    return Edges(
        rank_max=min([record_["rank_max"], *(r["rank_max"] for r in rows)]),
        dim_max=max((r["dim_max"] for r in rows), default=0),
        accumulate=max((r["accumulate"] for r in rows), default=0),
        offset_alignment=max(1, record_["kinds"][0]["offset_alignment"]),
        cells=bool(bench.device.native.cells),
    )


def declared(bench: Any, op: str) -> set[str]:
    return {name for row in bench.capabilities if row["op"] == op for name in row["dtypes"]}
