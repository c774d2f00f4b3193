"""Reads "matmul f32[4,8] f32[8,16] axis=1" into an operation, and writes a decision as plain data.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError, NotFoundError
from anyhal.ops import BY_NAME
from anyhal.ops._spec import REQUIRED, Attr, OpSpec, Outs, TensorSpec
from anyhal.printable import get_close_matches
from anyhal.records import record
from anyhal.routing.facts import Candidate, Decision

_TOKEN = re.compile(r"\S*\[[^\]]*\]\S*|\S+")  # a bracket may hold spaces
_OPERAND = re.compile(r"([a-z][a-z0-9_]*)\[([^\]]*)\](?:@(\S+))?")
_ABSENT = ("absent", "none")
_BOOL = {"true": True, "1": True, "false": False, "0": False}
_SHOW = 'an example is "matmul f32[4,8] f32[8,16]"'


@record
class Parsed:
    """An operation from its text: the spec, its operands (None where absent), attribute values, and
    the device that each operand names ("" where it names none)."""

    spec: OpSpec
    inputs: tuple[TensorSpec | None, ...]
    attrs: Mapping[str, Any]
    outs: Outs
    on: tuple[str, ...]


def find_op(name: str) -> tuple[OpSpec, Mapping[str, Any]]:
    """The op with that public name, and the attributes the name presets (exp is unary fn=exp)."""
    if name in BY_NAME:
        return BY_NAME[name], {}
    for spec in BY_NAME.values():
        if name in spec.variants:
            return spec, spec.variants[name]
    known = [*BY_NAME, *(v for spec in BY_NAME.values() for v in spec.variants)]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "known: " + ", ".join(BY_NAME)
    raise NotFoundError(f"op {name!r} is not in the registry; {hint}")


def parse(text: str) -> Parsed:
    """Reads one operation. Errors name the piece, the rule and an example."""
    tokens = _TOKEN.findall(text)
    if not tokens:
        raise InvalidArgumentError(f"cannot explain an empty call: no op is named; {_SHOW}")
    spec, preset = find_op(tokens[0])
    inputs: list[TensorSpec | None] = []
    on: list[str] = []
    given: dict[str, str] = {}
    for token in tokens[1:]:
        name, equals, value = token.partition("=")
        if equals:
            given[name] = value
        else:
            inputs.append(_operand(spec, token))
            on.append(token.partition("]@")[2])
    _check_count(spec, inputs)
    out = given.pop("out", None) if spec.shape_from_out else None
    attrs = _attrs(spec, preset, given)
    padded = inputs
    if not any(a.variadic for a in spec.inputs):
        padded = inputs + [None] * (len(spec.inputs) - len(inputs))
    placed = (*on, *[""] * (len(padded) - len(on)))
    if not spec.shape_from_out:
        return Parsed(spec, tuple(padded), attrs, spec.infer_outs(padded, attrs), placed)
    made = None if out is None else _operand(spec, out)
    if made is None:
        raise InvalidArgumentError(
            f"{spec.name}: its output has the shape that the caller gives; add out=dtype[sizes]"
        )
    return Parsed(spec, tuple(padded), attrs, (made,), placed)


def _operand(spec: OpSpec, token: str) -> TensorSpec | None:
    if token.lower() in _ABSENT:
        return None
    found = _OPERAND.fullmatch(token)
    if found is None:
        raise InvalidArgumentError(
            f"{spec.name}: cannot read {token!r} as an operand: it is not dtype[sizes]; write it"
            " like f32[4,8], f32[] for a scalar, f32[8]@cpu:0 for one on that device, absent for an"
            " operand left out"
        )
    sizes = [part.strip() for part in found[2].split(",")] if found[2].strip() else []
    if not all(part.isascii() and part.isdigit() for part in sizes):
        raise InvalidArgumentError(
            f"{spec.name}: cannot read {token!r}: sizes are whole numbers of at least 0 separated"
            " by commas; write it like f32[4,8]"
        )
    kind, shape = dtype(found[1]), [int(part) for part in sizes]
    if kind.is_block and (not shape or shape[-1] % kind.block_elements):
        raise InvalidArgumentError(
            f"{spec.name}: {token} cannot be: the last size of {kind.name} is a multiple of"
            f" {kind.block_elements}; round it up"
        )
    return TensorSpec.dense(kind, shape)


def _check_count(spec: OpSpec, inputs: list[TensorSpec | None]) -> None:
    if any(a.variadic for a in spec.inputs):
        if not inputs or None in inputs:
            raise InvalidArgumentError(f"{spec.name}: at least one operand is needed; {_SHOW}")
        return
    needed = [a for a in spec.inputs if not a.optional]
    names = ", ".join(f"{a.name} {a.axes}" + (" or absent" * a.optional) for a in spec.inputs)
    if not len(needed) <= len(inputs) <= len(spec.inputs):
        takes = " to ".join(map(str, dict.fromkeys((len(needed), len(spec.inputs)))))
        were = "1 operand was" if len(inputs) == 1 else f"{len(inputs)} operands were"
        raise InvalidArgumentError(
            f"{spec.name}: {were} given, it takes {takes}: {names}; write each as dtype[sizes]"
        )
    for arg, operand in zip(spec.inputs, inputs, strict=False):
        if operand is None and not arg.optional:
            raise InvalidArgumentError(
                f"{spec.name}: operand {arg.name} may not be absent; write it as dtype[sizes]"
            )


def _attrs(spec: OpSpec, preset: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    names = [a.name for a in spec.attrs if a.name not in preset]
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(names) or 'none'}"
            raise InvalidArgumentError(f"{spec.name}: no attribute is named {name!r}; {hint}")
    values = dict(preset)
    for attr in spec.attrs:
        if attr.name in given:
            values[attr.name] = _value(spec, attr, given[attr.name])
        elif attr.name not in values:
            if attr.default is REQUIRED:
                raise InvalidArgumentError(
                    f"{spec.name}: attribute {attr.name} has no default; write"
                    f" {attr.name}={_form(attr)}"
                )
            values[attr.name] = attr.default
    return values


def _form(attr: Attr) -> str:
    if attr.choices:
        return "|".join(attr.choices)
    return {
        "i64": "INTEGER",
        "axis": "INTEGER",
        "axes": "INTEGER,INTEGER",
        "ints": "INTEGER,INTEGER",
        "f32": "NUMBER",
        "bool": "true|false",
        "dtype": "DTYPE",
    }.get(attr.kind, "VALUE")


def _value(spec: OpSpec, attr: Attr, text: str) -> Any:
    try:
        return _read(attr, text)
    except ValueError:
        near = get_close_matches(text, list(attr.choices), n=1)
        hint = f"did you mean {near[0]}?" if near else f"write {attr.name}={_form(attr)}"
        raise InvalidArgumentError(
            f"{spec.name}: attribute {attr.name} cannot be {text!r}: it is no {attr.kind}; {hint}"
        ) from None


def _read(attr: Attr, text: str) -> Any:
    if text.lower() == "none":
        if attr.default is None:
            return None
        if "none" not in attr.choices:
            raise ValueError
    if attr.choices:
        if text not in attr.choices:
            raise ValueError
        return text
    if attr.kind in ("i64", "axis"):
        return int(text)
    if attr.kind == "axes":
        axes = tuple(int(part) for part in text.strip("()").split(",") if part)
        return axes[0] if len(axes) == 1 else axes
    if attr.kind == "ints":
        return tuple(int(part) for part in text.strip("()").split(",") if part)
    if attr.kind == "f32":
        return float(text)
    if attr.kind == "bool":
        if text.lower() not in _BOOL:
            raise ValueError
        return _BOOL[text.lower()]
    if attr.kind == "dtype":
        return dtype(text).name
    return text


def as_dict(decision: Decision) -> dict[str, Any]:
    """The decision as JSON takes it; `schema` grows when a key changes its meaning. A cost that no
    backend stated is null."""
    return {
        "schema": 1,
        "call": decision.call,
        "choice": decision.choice,
        "form": decision.form,
        "state": decision.state,
        "cost_ns": decision.cost_ns or None,
        "work": None
        if decision.work is None
        else {"flops": decision.work.flops, "bytes": decision.work.nbytes},
        "sentence": decision.sentence,
        "copies": [asdict(c) for c in decision.copies],
        "refusals": [asdict(r) for r in decision.refusals],
        "kernels": [asdict(k) for k in decision.kernels],
        "candidates": [_candidate(c) for c in decision.considered],
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "device": candidate.device.name,
        "backend": candidate.device.backend,
        "state": candidate.device.state,
        "form": candidate.form,
        "accepts": candidate.accepts,
        "cost_ns": candidate.cost_ns or None,
        "verdicts": [
            {"op": op, **asdict(verdict), "cost_ns": verdict.cost_ns or None}
            for op, verdict in candidate.verdicts
        ],
    }
