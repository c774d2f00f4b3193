"""What policy is told: devices, verdicts, candidates, the caller's contract. Plain data only.
SPDX-License-Identifier: Apache-2.0

The runtime fills these records in; a decision made from them can be made again anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from anyhal.records import field, record, replace

Form = Literal["fused", "decomposed"]
Support = Literal["yes", "no", "prepare_knows"]
Fallback = Literal["never", "decompose", "any"]

STATES = ("certified", "self-tested", "provisional", "uncertified", "quarantined")
# Numbers in the contract (anyhal_accumulate, anyhal_determinism).
NUMERICS = {"strict": 0, "tf32": 1, "bf16": 2, "int8": 3}
DETERMINISM = {"run_to_run": 0, "none": 1, "batch_invariant": 2, "cross_device": 3}
FALLBACKS: tuple[Fallback, ...] = ("never", "decompose", "any")


@record
class DeviceFact:
    """One device as one backend offers it."""

    name: str  # chip:index
    backend: str
    rank: int = 0  # of the manifest: higher is preferred
    state: str = "uncertified"
    identity: str = (
        ""  # UUID, else bus address: the same physical thing has the same one everywhere
    )
    arch: str = ""
    integrated: bool = False
    display_only: bool = False
    simulated: bool = False  # plays a device: right results, no figure of it counts
    memory_bytes: int = 0
    memory_kinds: tuple[str, ...] = ()
    own_threads: int = 0
    why_not: str = ""  # set when it cannot be used at all (lost, left out by the user)
    note: str = ""  # what limits it now, such as a missing library
    address: str = ""  # on the PCI bus, beside a UUID: "0000:3b:00.0"
    driver: str = ""
    state_code: str = ""  # why the state is no better: a code of runtime/stages.py
    state_why: str = ""  # who vouches for it, or why nobody does

    def is_called(self, identity: str) -> bool:
        """Whether that text is its UUID or bus address, in any usual way of writing."""
        plain = plain_identity(identity)
        return plain != "" and plain in (plain_identity(self.identity), self.address)

    @property
    def shown_state(self) -> str:
        """The state as tables show it."""
        return f"{self.state}, simulated" if self.simulated else self.state


_BUS = r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_UUID = r"(?:gpu-)?([0-9a-f]{8}(-?)[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{12})"


def plain_identity(text: str) -> str:
    """A UUID without prefix and dashes, or a bus address with a domain of four digits, in lower
    case: vendors' tools write them in several ways. Other texts stay as they are."""
    if len(text) < 12:  # shorter than any of them
        return text
    lower = text.lower()
    if found := re.fullmatch(_UUID, lower):
        return found[1].replace("-", "")
    found = re.fullmatch(_BUS, lower)
    return f"{int(found[1], 16):04x}:{found[2]}" if found else text


@record
class RefusedBackend:
    """A backend that was found but gave no devices, and the sentence of the stage that refused.

    `absent`: nothing is wrong, its driver or device is just not on this machine.
    """

    name: str
    path: str
    stage: str
    sentence: str
    absent: bool = False
    reason: str = ""  # the code of the stage (runtime/stages.py)
    hint: str = ""


@record
class Facts:
    """All that is known about this process's devices."""

    devices: tuple[DeviceFact, ...] = ()
    refused: tuple[RefusedBackend, ...] = ()
    searched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what was asked for and not found, one sentence each

    def device(self, name: str) -> DeviceFact | None:
        return next((d for d in self.devices if d.name == name), None)


@record
class Want:
    """A layout that a backend needs for one operand; the core copies into it, visibly."""

    operand: int
    layout: str
    alignment: int = 0


@record
class Verdict:
    """A backend's answer about one operation."""

    support: Support
    reason: str = ""  # typed word when support is "no"
    operand: int = -1  # the operand the reason is about; -1 = none in particular
    cost_ns: int = 0  # estimate of one run; 0 = unknown
    wants: tuple[Want, ...] = ()
    text: str = ""  # the backend's own sentence, if it gave one
    numerics: str = "strict"  # what it would compute with; never less than was allowed

    @property
    def accepts(self) -> bool:
        return self.support != "no"


@record
class OperandFact:
    """One operand: as messages write it, where it is, how much a copy would move."""

    text: str  # "f32[4,8]"
    device: str  # "" for an absent operand or a value that has no home yet
    nbytes: int = 0


@record
class Work:
    """What a call must do at least, from the op's cost model: the same on every device."""

    flops: float
    nbytes: float  # read and written

    def __str__(self) -> str:
        return f"{self.flops:.0f} flops, {self.nbytes:.0f} bytes"


@record
class CallFact:
    """The operation that is to run."""

    op: str
    operands: tuple[OperandFact, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""  # where it should run when no operand says so: the scope's device
    work: Work | None = None

    def __str__(self) -> str:
        given = [f"{k}={v}" for k, v in self.attrs.items() if v is not None]
        shown = [o.text for o in self.operands]
        while shown and shown[-1] == "absent":  # optional ones at the end say nothing
            shown.pop()
        return " ".join([self.op, *shown, *given])

    @property
    def key(self) -> str:
        """The call's text, with the place of each operand where they are on several devices."""
        if len({o.device for o in self.operands if o.device}) < 2:
            return str(self)
        placed = (replace(o, text=f"{o.text}@{o.device}") if o.device else o for o in self.operands)
        return str(replace(self, operands=tuple(placed)))


@record
class Candidate:
    """One way to run the call: on a device, whole or as core ops.

    `verdicts` pairs each op that would run with the answer to it: one pair when fused, one per core
    op when decomposed, none when the op has no such form.
    """

    device: DeviceFact
    form: Form
    verdicts: tuple[tuple[str, Verdict], ...]

    @property
    def accepts(self) -> bool:
        return bool(self.verdicts) and all(v.accepts for _, v in self.verdicts)

    @property
    def cost_ns(self) -> int:
        """Estimate of one run, 0 when any part of it is unknown."""
        costs = [v.cost_ns for _, v in self.verdicts]
        return sum(costs) if all(costs) else 0


@record
class Contract:
    """What the caller allows: per process, scope or call."""

    fallback: Fallback = "decompose"
    numerics: str = "strict"  # one of NUMERICS: the least that products may be computed with
    determinism: str = "run_to_run"  # one of DETERMINISM: what must be the same as what
    allow_uncertified: tuple[str, ...] = ()  # devices or chips, by name

    def allows_uncertified(self, device: DeviceFact) -> bool:
        named = self.allow_uncertified
        return device.name in named or device.backend in named or any(map(device.is_called, named))


@record
class Copy:
    """Bytes that must move before the op can run."""

    operand: int
    source: str
    target: str
    nbytes: int
    why: Literal["device", "layout"]


@record
class Refusal:
    """Why one candidate is not the choice."""

    device: str
    form: Form
    reason: str  # a typed word
    sentence: str


@record
class Kernel:
    """What one op of the choice is prepared to run."""

    op: str
    kernel: str
    library: str  # "" = the backend's own code
    numerics: str


@record
class Decision:
    """Where the call runs, in which form, and why nothing else was taken.

    `choice` is "" when nothing may run it; `sentence` then says what to do.
    """

    call: str
    choice: str
    form: Form
    state: str
    sentence: str
    copies: tuple[Copy, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    considered: tuple[Candidate, ...] = ()
    kernels: tuple[Kernel, ...] = ()  # filled in by `explain`, in the order they run
    cost_ns: int = 0  # the backend's estimate of one run; 0 = it stated none
    work: Work | None = None

    def __str__(self) -> str:
        lines = [self.sentence]
        if self.work is not None:
            lines.append(f"  work: {self.work}; cost: {cost_text(self.cost_ns)}")
        lines += [f"  not {r.form} on {r.device}: {r.sentence}" for r in self.refusals]
        lines += [
            f"  copies operand {c.operand} ({c.nbytes} bytes) {c.source} -> {c.target}: {c.why}"
            for c in self.copies
        ]
        return "\n".join(lines)


def cost_text(cost_ns: int) -> str:
    """An estimate as people read it."""
    return f"{cost_ns / 1000:.1f} µs" if cost_ns else "not stated by the backend"
