"""A tape: records calls of differentiable ops, then walks them backwards.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import anyhal as hal
from anyhal import Array, _core
from anyhal.errors import (
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
    UnsupportedError,
)
from anyhal.training.rules import RULES


@dataclass(frozen=True)
class Recorded:
    """One call: what a rule sees beside the gradient of the first output."""

    name: str
    inputs: tuple[Any, ...]  # arrays, numbers, None
    attrs: Mapping[str, Any]
    outputs: tuple[Array, ...]
    needed: tuple[bool, ...]  # which inputs want a gradient

    @property
    def out(self) -> Array:
        return self.outputs[0]


class Tape:
    """Calls made through it are those of `anyhal`, recorded when a watched array goes in:

        tape = Tape(parameters)
        loss = tape.cross_entropy(tape.matmul(x, w), targets, reduction="mean")
        gradients = tape.gradients(loss)

    Operators (`p * p`) and calls of `anyhal` itself are not recorded. Only the first output of an
    op has a gradient; using another one is refused. In-place ops have no rule: what the tape
    recorded must not change before `gradients`.
    """

    def __init__(self, watched: Sequence[Array]) -> None:
        if not all(isinstance(a, Array) for a in _each(watched)):
            raise InvalidTypeError(
                "a tape: what it watches must be a list of arrays; pass Tape([w])"
            )
        self._watched = tuple(watched)
        self._calls: list[Recorded] = []
        self._live = {id(a) for a in watched}
        self._cut: dict[int, str] = {}  # further outputs, whose gradient no rule knows

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in RULES:
            near = get_close_matches(name, list(RULES), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "call anyhal itself for constants"
            raise NotFoundError(f"tape: {name!r} has no gradient rule in anyhal.training; {hint}")

        def record(*inputs: Any, **attrs: Any) -> Any:
            return self._record(name, inputs, attrs)

        return record

    def index(self, x: Array, key: Any) -> Any:
        """x[key], for slices and whole numbers."""
        return self._record("index", (x,), {"key": key})

    def _record(self, name: str, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        inputs, attrs = _by_position(name, inputs, attrs)
        if name == "index":
            made = _element(inputs[0], attrs["key"])
        else:
            made = getattr(hal, name)(*inputs, **attrs)
        flat = tuple(inputs[0]) if name == "concat" else inputs
        for x in (*flat, *attrs.values()):
            if id(x) in self._cut:
                raise UnsupportedError(
                    f"tape.{name}: an operand is a further output of {self._cut[id(x)]}, and only"
                    " the first one has a gradient; compute it with calls of its own",
                    reason="op",
                )
        unbound = [key for key, x in attrs.items() if id(x) in self._live]
        if unbound:
            raise InvalidArgumentError(
                f"tape.{name}: {unbound[0]} is given by name and has no place among the operands;"
                " pass arrays by position"
            )
        needed = tuple(id(x) in self._live for x in flat)
        if any(needed):
            outputs = made if isinstance(made, tuple) else (made,)
            self._calls.append(Recorded(name, flat, attrs, outputs, needed))
            self._live.add(id(outputs[0]))
            self._cut.update((id(out), name) for out in outputs[1:])
        return made

    def gradients(self, loss: Array) -> list[Array]:
        """The gradient of a loss of one element for each watched array, zeros where it does not
        depend on one. Each is an array of its own. Forgets what was recorded."""
        if not isinstance(loss, Array):
            raise InvalidTypeError(
                f"gradients: the loss is a {type(loss).__name__}; pass the array that a call of the"
                " tape gave"
            )
        if loss.size != 1:
            raise InvalidArgumentError(
                f"gradients: the loss has shape {list(loss.shape)}, and only one number has a "
                "gradient; take its mean or sum first"
            )
        if id(loss) not in self._live:
            raise InvalidArgumentError(
                "gradients: the loss does not come from a watched array through calls of this tape;"
                " write tape.multiply(p, p) for p * p, since operators and calls of anyhal itself"
                " are not recorded"
            )
        calls, self._calls = self._calls, []
        self._live, self._cut = {id(a) for a in self._watched}, {}
        found = {id(loss): hal.ones(loss.shape, dtype=loss.dtype, device=loss.device)}
        for call in reversed(calls):
            dout = found.pop(id(call.out), None)
            if dout is None:
                continue
            made = RULES[call.name](call, dout)
            for x, needed, dx in zip(call.inputs, call.needed, made, strict=False):
                if needed and dx is not None:
                    before = found.get(id(x))
                    found[id(x)] = dx if before is None else hal.add(before, dx)
        return self._apart(found)

    def _apart(self, found: Mapping[int, Array]) -> list[Array]:
        """Dense arrays that share no memory: who scales one in place changes no other."""
        taken: set[int] = set()
        results = []
        for a in self._watched:
            if id(a) not in found:
                results.append(hal.zeros(a.shape, dtype=a.dtype, device=a.device))
                continue
            gradient = found[id(a)]
            place = _core.array_address(gradient)
            if place in taken or not gradient._dense:
                gradient = hal.copy(gradient)
                place = _core.array_address(gradient)
            taken.add(place)
            results.append(gradient)
        return results


def _element(x: Any, key: Any) -> Any:
    if not isinstance(x, Array):
        raise InvalidTypeError(f"tape.index: a {type(x).__name__} is no Array; pass one")
    return x[key]


def _each(watched: Any) -> Sequence[Any]:
    return watched if isinstance(watched, list | tuple) else (None,)


def _by_position(
    name: str, inputs: tuple[Any, ...], attrs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Operands given by name in their places, lists as lists: what the rules read."""
    rest = dict(attrs)
    if name == "permute_dims" and len(inputs) > 2:
        return (inputs[0], tuple(inputs[1:])), rest
    spec = getattr(getattr(hal, name, None), "spec", None)
    if spec is None:
        return inputs, rest
    if any(a.variadic for a in spec.inputs):
        rows = bool(inputs) and isinstance(inputs[0], Iterable)  # else the call itself refuses
        return (list(inputs[0]), *inputs[1:]) if rows else inputs, rest
    placed = list(inputs)
    for n, arg in enumerate(spec.inputs):
        if arg.name in rest:
            if n < len(placed):
                return inputs, rest  # given twice: the call itself says so
            placed += [None] * (n - len(placed))
            placed.append(rest.pop(arg.name))
    return tuple(placed), rest
