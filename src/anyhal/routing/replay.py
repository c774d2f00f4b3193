"""Decisions made again from a facts file, on a machine that need not have the devices.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from anyhal.errors import InvalidArgumentError, NotFoundError
from anyhal.ops import lookup
from anyhal.ops._spec import describe
from anyhal.printable import get_close_matches, printable
from anyhal.records import record
from anyhal.routing.explain import parse
from anyhal.routing.facts import (
    NUMERICS,
    STATES,
    CallFact,
    Candidate,
    Contract,
    Decision,
    DeviceFact,
    Facts,
    OperandFact,
    RefusedBackend,
    Verdict,
    Want,
    Work,
)
from anyhal.routing.policy import DEFAULT, Policy, every_step, select, weigh

SCHEMA = 1
Asked = tuple[CallFact, tuple[Candidate, ...]]


@record
class Recording:
    """What a facts file holds."""

    facts: Facts
    calls: Mapping[str, Asked]  # by the call as messages write it


def to_data(facts: Facts, calls: Sequence[Asked]) -> dict[str, Any]:
    """Plain data that JSON takes, its texts printable; without answers of devices that are gone."""
    here = {d.name for d in facts.devices}
    data = {
        "schema": SCHEMA,
        "devices": [asdict(d) for d in facts.devices],
        "refused": [asdict(r) for r in facts.refused],
        "searched": list(facts.searched),
        "notes": list(facts.notes),
        "calls": [
            {
                **asdict(call),
                "attrs": dict(call.attrs),
                "candidates": [
                    {
                        "device": c.device.name,
                        "form": c.form,
                        "verdicts": [[op, asdict(v)] for op, v in c.verdicts],
                    }
                    for c in candidates
                    if c.device.name in here
                ],
            }
            for call, candidates in calls
        ],
    }
    return _plain(data)  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    """Lists for tuples; paths and vendors' sentences may hold what a terminal would obey."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, tuple | list) else value


def from_data(data: Any, source: str) -> Recording:
    """Reads `to_data` back; InvalidArgumentError names `source` and what is wrong in it."""
    try:
        if type(data["schema"]) is not int or data["schema"] != SCHEMA:
            raise InvalidArgumentError(
                f"reading facts from {source}: schema {data['schema']!r} is not {SCHEMA}; write the"
                " file with this version of anyhal"
            )
        devices = tuple(_record(DeviceFact, d) for d in data["devices"])
        _once("device", [d.name for d in devices])
        refused = tuple(_record(RefusedBackend, r) for r in data["refused"])
        facts = Facts(devices, refused, _words(data["searched"]), _words(data["notes"]))
        calls = {found[0].key: found for found in (_call(row, facts) for row in data["calls"])}
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as why:
        if isinstance(why, InvalidArgumentError):
            raise
        raise InvalidArgumentError(
            f"reading facts from {source}: it is no facts file ({type(why).__name__}: {why}); write"
            " one with hal.facts(path)"
        ) from None
    return Recording(facts, calls)


def _call(row: Mapping[str, Any], facts: Facts) -> Asked:
    attrs = {_word(k): _attribute(v) for k, v in row["attrs"].items()}
    operands = tuple(_record(OperandFact, o) for o in row["operands"])
    work = None if row["work"] is None else _record(Work, row["work"])
    call = CallFact(lookup(_word(row["op"])).name, operands, attrs, _word(row["device"]), work)
    candidates = tuple(_candidate(c, facts) for c in row["candidates"])
    _once("answer of", [f"{c.device.name} {c.form}" for c in candidates])
    return call, candidates


def _attribute(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_attribute(v) for v in value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return _word(value)


def _once(what: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the {what} {name} is there twice")


def _candidate(row: Mapping[str, Any], facts: Facts) -> Candidate:
    device = facts.device(row["device"])
    if device is None:
        raise ValueError(f"device {row['device']!a} has answers but no facts")
    if row["form"] not in ("fused", "decomposed"):
        raise ValueError(f"{row['form']!a} is no form of a call")
    verdicts = tuple((lookup(_word(op)), _record(Verdict, v)) for op, v in row["verdicts"])
    for spec, verdict in verdicts:
        if not any(a.variadic for a in spec.inputs):
            _check_places(verdict, len(spec.inputs) + len(spec.outputs))
    return Candidate(device, row["form"], tuple((spec.name, v) for spec, v in verdicts))


def _check_places(verdict: Verdict, count: int) -> None:
    """ValueError for an operand that the op has not; its outputs are counted behind its inputs."""
    for operand in (verdict.operand, *(w.operand for w in verdict.wants)):
        if operand >= count:
            raise ValueError(f"operand is {operand}, and the op has {count}")


# What JSON gives for a field of each declared type; ints are also read where floats are declared.
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "Support": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
}


_LATER = ("driver", "state_code", "state_why")


def _record(kind: Any, row: Mapping[str, Any]) -> Any:
    """A fact from its data; ValueError names the field that does not fit."""
    found: dict[str, Any] = {}
    for field in fields(kind):
        if field.name in _LATER and field.name not in row:
            continue  # a file of an earlier version
        value = row[field.name]
        if field.type == "tuple[str, ...]":
            found[field.name] = _words(value)
        elif field.type == "tuple[Want, ...]":
            found[field.name] = tuple(_record(Want, w) for w in value)
        elif type(value) in _TYPES[str(field.type)] and _holds(field.name, value):
            found[field.name] = value
        else:
            raise ValueError(f"{field.name} is {value!a}, which is no {field.type} of a fact")
    return kind(**found)


# What the fields of that name hold; a text without a row is any that can be printed.
_VOCABULARY: dict[str, tuple[str, ...]] = {
    "state": STATES,
    "support": ("yes", "no", "prepare_knows"),
    "numerics": tuple(NUMERICS),
    "layout": ("any", "dense", "dense_inner"),
}
# Other numbers count something: from 0, in 64 bits.
_RANGES = {"rank": (-(1 << 31), 1 << 31), "operand": (-1, 1 << 31), "alignment": (0, 1 << 32)}


def _holds(name: str, value: Any) -> bool:
    """Whether a fact's field of that name can be `value`."""
    if isinstance(value, str):
        return value in _VOCABULARY.get(name, (value,)) and value == printable(value)
    least, end = _RANGES.get(name, (0, 1 << 64))
    return bool(least <= value < end)


def _word(value: Any) -> str:
    if not isinstance(value, str) or value != printable(value):
        raise ValueError(f"{value!a} is no text that can be printed")
    return value


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{value!a} is no list of texts")
    return tuple(_word(v) for v in value)


def decide_again(
    recording: Recording,
    text: str,
    device: str | None = None,
    contract: Contract | None = None,
    policy: Policy = DEFAULT,
) -> Decision:
    """The decision about `text` ("matmul f32[4,8] f32[8,16]") from the recorded answers. `device`:
    where the operands are, else where they were; one that names its own device stays there.
    NotFoundError when the call is not recorded."""
    contract = contract or Contract()
    parsed = parse(text)
    operands = tuple(
        OperandFact(describe(s), name) for s, name in zip(parsed.inputs, parsed.on, strict=True)
    )
    key = CallFact(parsed.spec.name, operands, parsed.attrs).key
    found = recording.calls.get(key)
    if found is None:
        near = get_close_matches(key, list(recording.calls), n=1, cutoff=0.3)
        hint = f"recorded: {near[0]}" if near else "no call is recorded"
        raise NotFoundError(
            f"explaining {key} from a facts file: this call is not in it; {hint}; record it with"
            " hal.facts(path, calls=[...])"
        )
    call, candidates = found
    named = sorted({name for name in parsed.on if name})
    if device is None and len(named) == 1:
        device = named[0]
    if device is not None:
        device = select(device, recording.facts, policy).device.name
        call = replace(call, device=device)
        if len(named) < 2:
            moved = tuple(replace(o, device=device if o.device else "") for o in call.operands)
            call = replace(call, operands=moved)
    by_name = {(c.device.name, c.form): c for c in candidates}
    asked = [
        by_name.get((step.device.name, step.form), Candidate(step.device, step.form, ()))
        for step in every_step(call, recording.facts, contract, policy)
    ]
    return weigh(call, asked, contract, policy)
