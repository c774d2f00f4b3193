"""A tape: records calls of differentiable ops, then walks them backwards.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import anyhal as hal
from anyhal import Array
from anyhal.errors import InvalidArgumentError, NotFoundError
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

    Only the first output of an op has a gradient. In-place ops have no rule: what the tape recorded
    must not change before `gradients`.
    """

    def __init__(self, watched: Sequence[Array]) -> None:
        self._watched = tuple(watched)
        self._calls: list[Recorded] = []
        self._live = {id(a) for a in watched}

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
        if name == "index":
            made = inputs[0][attrs["key"]]
        else:
            made = getattr(hal, name)(*inputs, **attrs)
        flat = tuple(inputs[0]) if name == "concat" else inputs
        needed = tuple(id(x) in self._live for x in flat)
        if any(needed):
            outputs = made if isinstance(made, tuple) else (made,)
            self._calls.append(Recorded(name, flat, attrs, outputs, needed))
            self._live.add(id(outputs[0]))
        return made

    def gradients(self, loss: Array) -> list[Array]:
        """The gradient of a loss of one element for each watched array, zeros where it does not
        depend on one. Forgets what was recorded."""
        if loss.size != 1:
            raise InvalidArgumentError(
                f"gradients: the loss has shape {list(loss.shape)}, and only one number has a "
                "gradient; take its mean or sum first"
            )
        calls, self._calls = self._calls, []
        self._live = {id(a) for a in self._watched}
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
        return [
            found[id(a)] if id(a) in found else hal.zeros(a.shape, dtype=a.dtype, device=a.device)
            for a in self._watched
        ]
