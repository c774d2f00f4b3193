"""A tape: records calls of differentiable ops, then walks them backwards.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import anyhal as hal
from anyhal import Array, _core
from anyhal.errors import (
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
    UnsupportedError,
    typed_calls,
)
from anyhal.printable import get_close_matches
from anyhal.training.record import Recorded
from anyhal.training.rules import REFUSED, RULES
from anyhal.training.rules._shapes import cast, sum_dtype


@typed_calls
class Tape:
    """Calls made through it are those of `anyhal`, recorded when a watched array goes in:

        tape = Tape(parameters)
        loss = tape.cross_entropy(tape.matmul(x, w), targets, reduction="mean")
        gradients = tape.gradients(loss)

    Operators (`p * p`) and calls of `anyhal` itself are not recorded. Every floating output of an
    op has a gradient; outputs of whole numbers are constants. Where a function has a step (`floor`,
    `sign`) its gradient is 0; one that has no gradient at all (`argmax`) is refused, and so are
    `out` and ops in place: what the tape recorded must not change before `gradients`.
    """

    def __init__(self, watched: Sequence[Array]) -> None:
        if not all(isinstance(a, Array) for a in _each(watched)):
            raise InvalidTypeError(
                "a tape: what it watches must be a list of arrays; pass Tape([w])"
            )
        whole = [a.dtype for a in watched if "float" not in a.dtype]
        if whole:
            raise UnsupportedError(
                f"a tape: it is to watch an array of {whole[0]}, and only floating ones have a "
                "gradient; cast it with astype or leave it out",
                reason="dtype",
            )
        self._watched = tuple(watched)
        self._calls: list[Recorded] = []
        self._used = False
        self._live = {id(a) for a in watched}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in REFUSED:
            raise UnsupportedError(
                f"tape.{name}: {name} has no gradient, because {REFUSED[name]}; call anyhal.{name},"
                " whose result is a constant to the tape",
                reason="op",
            )
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
        listed = name in ("concat", "stack")
        flat = tuple(inputs[0]) if listed and _is_rows(inputs) else inputs
        needed = tuple(id(x) in self._live for x in flat)
        unbound = [key for key, x in attrs.items() if id(x) in self._live]
        if unbound or (any(needed) and attrs.get("out") is not None):
            key = unbound[0] if unbound else "out"
            raise InvalidArgumentError(
                f"tape.{name}: {key} is given by name and has no place among the operands;"
                " pass arrays by position and take the result that the call makes"
            )
        if name == "index":
            made = _element(inputs[0], attrs["key"])
        else:
            made = getattr(hal, name)(*inputs, **attrs)
        if any(needed):
            outputs = tuple(made) if isinstance(made, tuple | list) else (made,)
            self._calls.append(Recorded(name, flat, attrs, outputs, needed))
            self._live.update(id(out) for out in outputs if "float" in out.dtype)
        return made

    def gradients(self, loss: Array) -> list[Array]:
        """The gradient of a loss of one element for each watched array, zeros where it does not
        depend on one. Where an array is used more than once its gradients are added in f32 (f64 for
        f64) and rounded to its dtype at the end. Each is an array of its own. Forgets what was
        recorded."""
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
            if self._used:
                raise InvalidArgumentError(
                    "gradients: it was called already, and what was recorded before is forgotten;"
                    " make a new Tape for the next loss"
                )
            raise InvalidArgumentError(
                "gradients: the loss does not come from a watched array through calls of this tape;"
                " write tape.multiply(p, p) for p * p, since operators and calls of anyhal itself"
                " are not recorded"
            )
        calls, self._calls, self._used = self._calls, [], True
        self._live = {id(a) for a in self._watched}
        found = {id(loss): hal.ones(loss.shape, dtype=loss.dtype, device=loss.device)}
        for call in reversed(calls):
            sums = [(out, found.pop(id(out), None)) for out in call.outputs]
            douts = [None if dout is None else cast(dout, out.dtype) for out, dout in sums]
            if all(dout is None for dout in douts):
                continue
            made = RULES[call.name](call, *douts)
            for i in (i for i, needed in enumerate(call.needed) if needed):
                x, dx = call.inputs[i], made[i] if i < len(made) else None
                if dx is None:
                    raise _no_gradient(call, i)
                before = found.get(id(x))
                found[id(x)] = cast(dx, x.dtype) if before is None else _sum(x, before, dx)
        return self._apart(found)

    def _apart(self, found: Mapping[int, Array]) -> list[Array]:
        """Dense arrays that share no memory: who scales one in place changes no other."""
        taken: set[int] = set()
        results = []
        for a in self._watched:
            if id(a) not in found:
                results.append(hal.zeros(a.shape, dtype=a.dtype, device=a.device))
                continue
            gradient = cast(found[id(a)], a.dtype)
            place = _core.array_address(gradient)
            if place in taken or not gradient._dense:
                gradient = hal.copy(gradient)
                place = _core.array_address(gradient)
            taken.add(place)
            results.append(gradient)
        return results


def _sum(x: Array, a: Array, b: Array) -> Array:
    """Of gradients of x: f16 and bf16 would lose what comes late, so that f32 is kept until the
    sum is taken."""
    kind = sum_dtype(x)
    total: Array = hal.add(cast(a, kind), cast(b, kind))
    return total


def _element(x: Any, key: Any) -> Any:
    if not isinstance(x, Array):
        raise InvalidTypeError(f"tape.index: a {type(x).__name__} is no Array; pass one")
    return x[key]


def _no_gradient(call: Recorded, i: int) -> UnsupportedError:
    spec = getattr(getattr(hal, call.name, None), "spec", None)
    names = [] if spec is None else [arg.name for arg in spec.inputs]
    which = names[i] if i < len(names) else f"number {i}"
    return UnsupportedError(
        f"gradients: {call.name} has no gradient for its operand {which}, which comes from a "
        "watched array; pass a copy that was made outside of the tape, or write the op as others",
        reason="op",
    )


def _each(watched: Any) -> Sequence[Any]:
    return watched if isinstance(watched, list | tuple) else (None,)


def _is_rows(inputs: tuple[Any, ...]) -> bool:
    return bool(inputs) and isinstance(inputs[0], Iterable)


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
        rows = _is_rows(inputs)  # else the call itself refuses
        return (list(inputs[0]), *inputs[1:]) if rows else inputs, rest
    placed = list(inputs)
    for n, arg in enumerate(spec.inputs):
        if arg.name in rest:
            if n < len(placed):
                return inputs, rest  # given twice: the call itself says so
            placed += [None] * (n - len(placed))
            placed.append(rest.pop(arg.name))
    return tuple(placed), rest
